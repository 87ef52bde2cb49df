"""How often confident predictions agree with the given labels: counts on the device, and what follows from them."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from inlier.fraction._label_noise import BIN_WIDTH, BINS, WORTH, RateInterval, confident_rates
from inlier.nn._state import State

__all__ = ["CODES", "ConfidenceWindow", "encode"]

CODES = 256
"""A tag is the preferred class times this, plus 1 + bin + BINS if it is the given one; 0 is no prediction at all."""

WINDOW, EPOCH_PART = 4096, 3
"""About so many recent predictions count, and no more than this part of an epoch: the network still changes."""

FEWEST, REFIT_EVERY = 300, 5
"""Predictions before the first fit; updates from one fit to the next after the first epoch."""


def encode(preferred: Tensor, confidence: Tensor, agrees: Tensor) -> Tensor:
    """Return tags: the preferred class, how confident the network is of it, and whether it is the given one.

    Example:
        >>> encode(torch.tensor([3]), torch.tensor([0.2]), torch.tensor([True])) % CODES
        tensor([66])
    """
    bins = (confidence / BIN_WIDTH).nan_to_num(0.0).clamp(0, BINS - 1).long()
    return preferred * CODES + 1 + bins + BINS * agrees


class ConfidenceWindow:
    """Counts of recent predictions by confidence and agreement, and the noise rates that they allow.

    In the first epoch no prediction is of a label that was trained on. If these tell the rate, it stays; else
    recent predictions bound it from above, since memorised labels agree. That bound has the memory of the margins.

    Args:
        running_mean: The share of the old bound in the new one, an epoch later.
    """

    def __init__(self, running_mean: float) -> None:
        self.running_mean = running_mean
        self.pending = torch.zeros(1 + 2 * BINS, dtype=torch.int32)
        self.counts = torch.zeros(2, BINS)
        self.seen, self.rounds, self.fitted = 0, 0, 0
        self.first, self.recent = RateInterval(), RateInterval()

    @property
    def interval(self) -> RateInterval:
        """The noise rates that are allowed."""
        if self.first.is_known and self.first.worth < WORTH:
            # Some classes may be noisier than those of the most confident predictions.
            return replace(self.first, high=max(self.first.high, 1 - self.first.agreement))
        if self.first.is_known:
            return self.first
        return RateInterval(0.0, self.recent.high, self.first.standard_error, self.first.agreement)

    def count(self, tags: Tensor) -> None:
        """Count tags, as from :func:`encode`."""
        if self.pending.device != tags.device:
            self.pending = self.pending.to(tags.device)
        self.pending.index_add_(0, tags % CODES, self.pending.new_ones(1).expand(len(tags)))

    def update(self, samples: int) -> None:
        """Take in what was counted: one copy.

        Args:
            samples: The number of samples; 0 if they have no dataset index.
        """
        new = self.pending.cpu()[1:].view(2, BINS).float()
        self.pending.zero_()
        total = float(new.sum())
        size = min(WINDOW, max(samples / EPOCH_PART, 1.0)) if samples else WINDOW
        self.counts = new + math.exp(-total / size) * self.counts
        self.seen += int(total)
        self.rounds += 1
        if float(self.counts.sum()) < min(FEWEST, size / 2):
            return
        if samples and self.seen <= samples:
            self.first = self.recent = confident_rates(self.counts)
        elif not self.fitted:  # The first epoch was too short to be asked.
            self.recent = confident_rates(self.counts)
        elif self.first.is_known or self.rounds % REFIT_EVERY:
            return
        else:
            fit = confident_rates(self.counts)
            kept = self.running_mean ** ((self.seen - self.fitted) / (samples or WINDOW))
            self.recent = replace(fit, high=kept * self.recent.high + (1 - kept) * fit.high)
        self.fitted = self.seen

    def state_dict(self) -> dict[str, Tensor]:
        """Return all that a resumed training needs."""
        fits = [list(vars(fit).values()) for fit in (self.first, self.recent)]
        return {
            "pending": self.pending.clone(),
            "counts": self.counts.clone(),
            "seen": torch.tensor([self.seen, self.rounds, self.fitted]),
            "fits": torch.tensor(fits, dtype=torch.float64),
        }

    def restored(self, state: State) -> ConfidenceWindow:
        """Return a window with the state of a checkpoint, or raise ``ValueError`` naming what does not fit."""
        new = ConfidenceWindow(self.running_mean)
        new.pending = state.read("pending", torch.int32, (1 + 2 * BINS,), low=0).to(self.pending.device)
        new.counts = state.read("counts", torch.float32, (2, BINS), low=0)
        new.seen, new.rounds, new.fitted = state.read("seen", torch.int64, (3,), low=0).tolist()
        fits = state.read("fits", torch.float64, (2, 4), low=0, high=1).tolist()
        new.first, new.recent = (RateInterval(*fit) for fit in fits)
        return new
