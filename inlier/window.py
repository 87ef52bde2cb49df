"""The recent losses of each group, as histograms, and what is believed from them."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from inlier import processes
from inlier.alternation import Belief, lend, update
from inlier.fraction import InlierFit
from inlier.kernels import Kernel, Truncated
from inlier.scale import solve_scales

__all__ = ["LossWindow"]

BITS = 5
"""Mantissa bits of a bin: 32 kB a group, and a scale within 1.6 % of the exact one, whatever the losses."""

LENT = 50.0
"""As many losses does the whole lend each group, so that a small one is judged much like the whole."""

ESTIMATE_EVERY, SEARCH_EVERY = 10, 1000
"""Updates from one estimate of the inlier fraction to the next, and from one wide search to the next; early
in training, when much changes, the searches lie closer."""

GROUPS_PER_ESTIMATE = 8
"""Groups whose fraction is estimated in one update: many groups take turns, so that no call takes long."""

SMOOTHING = 0.7
"""The share of the old estimate in the new one."""

CUT = 0.9
"""Of class labels this part of the right ones is kept: a wrong label costs more than a lost one."""

DISTINCT = 1000
"""An estimate takes a window for no more losses than this. It may hold the same sample many times over, and a
million copies of a thousand losses would prove groups that chance has made."""

UNSEEN = 3e38
"""The scale before any loss was seen: every loss has weight 1. (Infinity would make 0 of 0 / inf.)"""


class LossWindow(nn.Module):
    """Histograms of recent losses, one a group, with the inlier fraction and scale that follow from them.

    Losses are counted as they come; :meth:`update` adds those of all processes to the window, forgets old
    ones exponentially, and runs one round of :func:`inlier.alternation.update`.

    Args:
        kernel: The kernel.
        given_fraction: The inlier fraction, or None to estimate it.
        size: About how many recent losses count.
    """

    counts: Tensor
    fractions: Tensor
    targets: Tensor
    scales: Tensor
    cuts: Tensor
    mixtures: Tensor
    singles: Tensor

    def __init__(self, kernel: Kernel, given_fraction: float | None, size: int) -> None:
        super().__init__()
        self.kernel, self.given_fraction, self.size = kernel, given_fraction, size
        self.rounds = 0
        for name, state in self._first(1).items():
            self.register_buffer(name, state)
        # Losses of this process since the last update. No buffer, since DistributedDataParallel would replace
        # the buffers of one process by those of another.
        self.pending = torch.zeros(self.counts.numel(), dtype=torch.int32)

    def _first(self, groups: int) -> dict[str, Tensor]:
        """The state of so many groups before any loss was seen: all are inliers."""
        return {
            "counts": torch.zeros(groups, (255 << BITS) + 1),
            "fractions": torch.ones(groups),
            "targets": torch.full((groups,), 1.0 if self.given_fraction is None else self.given_fraction),
            "scales": torch.full((groups,), UNSEEN),
            "cuts": torch.full((groups,), UNSEEN),
            "mixtures": torch.full((groups, 2, 7), math.nan),
            "singles": torch.full((groups, 2, 4), math.nan),
        }

    def reserve(self, groups: int) -> None:
        """Make room for so many groups; new ones know nothing yet."""
        before = len(self.scales)
        if groups <= before:
            return
        state = self._first(groups)
        for name, tensor in state.items():
            tensor[:before] = getattr(self, name)
        old = self.pending
        self._replace(state)
        self.pending[: len(old)] = old

    def _replace(self, state: dict[str, Tensor]) -> None:
        device = self.scales.device
        for name, tensor in state.items():
            setattr(self, name, tensor.to(device))
        self.pending = torch.zeros(self.counts.numel(), dtype=torch.int32, device=self.pending.device)

    def count(self, losses: Tensor, groups: Tensor | None) -> None:
        """Add float32 losses to those since the last update: LossHistogram's bins, in few operations."""
        bins = self.counts.shape[1]
        # Negative losses are negative integers, infinite and NaN ones the largest.
        place = (losses.view(torch.int32) >> (23 - BITS)).clamp_(0, bins - 1)
        place = place.long() if groups is None else place + groups * bins
        if self.pending.device != losses.device:
            self.pending = self.pending.to(losses.device)
        self.pending.index_add_(0, place, self.pending.new_ones(1).expand(len(place)))

    def forget(self) -> None:
        """Drop all losses, and keep what is believed."""
        self.counts.zero_()
        self.pending.zero_()

    def update(
        self,
        progress: float,
        group: dist.ProcessGroup | None = None,
        together: bool = True,
        samples: int = DISTINCT,
        label_fraction: float | None = None,
    ) -> int:
        """Take in the losses counted since the last update, and believe anew.

        Args:
            progress: How far the warm-up has come, 0 to 1.
            group: The processes that train together.
            together: Whether the losses of all processes are to be added up; False if each has them all.
            samples: How many samples there are, as far as is known.
            label_fraction: If groups are class labels, the fraction of right ones; nothing is estimated then,
                and the losses beyond :data:`CUT` times that quantile are cut off.

        Returns:
            How many of the new losses were infinite or NaN.
        """
        if together and processes.world_size(group) > 1:
            processes.add_up(self.pending, group)
        new = self.pending.view_as(self.counts)
        bad = int(new[:, -1].sum())
        self.counts.mul_(math.exp(-float(new.sum()) / self.size)).add_(new)
        self.pending.zero_()

        self.rounds += 1
        count, estimate = len(self.scales), list[int]()
        if label_fraction is not None:
            self.targets.fill_(label_fraction)
        elif self.given_fraction is None and self.rounds % ESTIMATE_EVERY == 0:
            turn = self.rounds // ESTIMATE_EVERY * GROUPS_PER_ESTIMATE
            estimate = sorted({(turn + k) % count for k in range(min(count, GROUPS_PER_ESTIMATE))})
        lent = lend(self.counts.cpu(), LENT)
        belief = update(
            self._belief(),
            lent,
            self.kernel,
            progress if label_fraction is None else 1.0,
            estimate,
            smoothing=SMOOTHING,
            search=self._is_time_to_search(),
            distinct=min(samples, DISTINCT),
        )
        self.targets.copy_(belief.target)
        self.fractions.copy_(belief.inlier_fraction)
        self.scales.copy_(belief.scale.clamp(max=UNSEEN))
        if label_fraction is not None and label_fraction < 1:
            cut = torch.full((count,), CUT * label_fraction, dtype=torch.float64)
            self.cuts.copy_(solve_scales(lent, Truncated(), cut).clamp(max=UNSEEN))
        for row in estimate:
            fit = belief.fits[row]
            if fit is not None and fit.mixtures is not None and fit.singles is not None:
                self.mixtures[row], self.singles[row] = fit.mixtures, fit.singles
        return bad

    def _is_time_to_search(self) -> bool:
        estimates = self.rounds // ESTIMATE_EVERY
        return self.rounds % SEARCH_EVERY == 0 or estimates & (estimates - 1) == 0

    def _belief(self) -> Belief:
        fits: list[InlierFit | None] = [
            None
            if bool(mixture.isnan().any())
            else InlierFit(1.0, False, "", mixtures=mixture, singles=single)
            for mixture, single in zip(self.mixtures.cpu().double(), self.singles.cpu().double(), strict=True)
        ]
        target, fraction, scale = (x.cpu().double() for x in (self.targets, self.fractions, self.scales))
        return Belief(target, fraction, scale, fits)

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "pending"] = self.pending.clone()
        destination[prefix + "rounds"] = torch.tensor(self.rounds)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any, **kwargs: Any) -> None:
        if prefix + "counts" in state_dict:
            # The number of groups is the checkpoint's.
            # Early checkpoints have no cuts.
            state_dict.setdefault(prefix + "cuts", torch.full_like(state_dict[prefix + "scales"], UNSEEN))
            for name in self._first(1):
                setattr(self, name, torch.empty_like(state_dict[prefix + name], device=self.scales.device))
            self.pending = state_dict.pop(prefix + "pending").clone().to(self.scales.device)
            self.rounds = int(state_dict.pop(prefix + "rounds"))
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)
