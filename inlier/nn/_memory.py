"""What is remembered of each sample: a running mean of one number, its loss or its margin."""

from __future__ import annotations

import math
import warnings

import torch
from torch import Tensor

from inlier.histogram import is_finite
from inlier.nn._state import State
from inlier.nn._validation import check_range

__all__ = ["SampleMemory"]

MUCH = 2**28
"""Bytes from which on memory for an index far beyond the others is announced."""


class SampleMemory:
    """The running mean of each sample's losses (or margins), by dataset index; 4 bytes a sample.

    Tensors have one place more than there is room for: what has no place of its own (an element that is masked
    out, an index that is not known yet) is written there, and never read.

    Args:
        running_mean: The share of the old mean in the new one.
        samples: The number of samples, if it is known; else the memory grows with the largest index seen.
    """

    def __init__(self, running_mean: float, samples: int | None = None) -> None:
        self.running_mean, self.samples = running_mean, samples
        self.size = samples or 0
        """The number of samples that are known of."""
        # NaN where a sample was never seen.
        self.mean = torch.full((self.size + 1,), math.nan)
        self.tags: Tensor | None = None
        """An integer for each sample, its group or the class that the network prefers; None unless used."""
        self.frozen: Tensor | None = None
        """Weights that stay as they are while they are held; NaN where there is none; None unless used."""

    @property
    def room(self) -> int:
        """How many samples there is room for."""
        return len(self.mean) - 1

    @property
    def means(self) -> Tensor:
        """The running mean of each sample, NaN where it was never seen."""
        return self.mean[: self.size]

    def to(self, device: torch.device) -> None:
        """Move to a device."""
        self.mean = self.mean.to(device)
        self.tags = None if self.tags is None else self.tags.to(device)
        self.frozen = None if self.frozen is None else self.frozen.to(device)

    def check(self, smallest: int, largest: int, seen: int) -> None:
        """Raise for indices that cannot be, and warn of one that would take much memory.

        Args:
            smallest: The smallest index.
            largest: The largest.
            seen: How many elements were seen so far, in all calls.
        """
        check_range("index", smallest, largest, self.samples, "samples")
        size = 4 * (largest + 1)
        if largest >= self.room and size > MUCH and largest > 100 * max(seen, self.room):
            warnings.warn(
                f"index holds {largest}, far beyond the other samples: to remember each one takes "
                f"{size / 2**30:.1f} GiB; number the samples from 0 without gaps, as inlier.with_index does",
                RuntimeWarning,
                stacklevel=2,
            )

    def reserve(self, samples: int) -> None:
        """Make room for so many samples."""
        if samples > self.room:
            extra = max(samples, self.room * 3 // 2) - self.room + 1
            self.mean = _extended(self.mean[:-1], extra, math.nan)
            self.tags = None if self.tags is None else _extended(self.tags[:-1], extra, -1)
            self.frozen = None if self.frozen is None else _extended(self.frozen[:-1], extra, math.nan)
        self.size = max(self.size, samples)

    def places(self, index: Tensor, absent: Tensor | None) -> Tensor:
        """Return where the samples are; the place that is never read for what is absent or out of range."""
        outside = (index < 0) | (index >= self.room)
        return torch.where(outside if absent is None else outside | absent, self.room, index)

    def evidence(self, places: Tensor, values: Tensor, old_share: float) -> Tensor:
        """Return the running means with these new values in them; values that are not finite stay.

        Args:
            places: Where the samples are.
            values: Their new values.
            old_share: The share of the old mean in the new one.
        """
        mean = torch.lerp(values, self.mean.index_select(0, places), old_share)
        return torch.where(mean.isnan(), values, mean)

    def record(self, places: Tensor, evidence: Tensor, finite: bool = False) -> None:
        """Remember running means, as from :meth:`evidence`; those that are not finite change nothing."""
        self.mean[places if finite else torch.where(is_finite(evidence), places, self.room)] = evidence

    def record_tags(self, places: Tensor, tags: Tensor, sizes: list[int]) -> None:
        """Remember the tags of several calls, of so many elements each, one call after the other."""
        if self.tags is None:
            self.tags = torch.full_like(self.mean, -1, dtype=torch.int32)
        for place, tag in zip(
            torch.split(places, sizes), torch.split(tags.to(torch.int32), sizes), strict=True
        ):
            self.tags[place] = tag

    def replace(self, values: Tensor, tags: Tensor | None = None) -> None:
        """Forget all means and take these, one a sample."""
        if self.samples is not None and len(values) != self.samples:
            raise ValueError(
                f"refresh got {len(values)} losses, but samples = {self.samples}: give one for each sample"
            )
        self.reserve(len(values))
        self.mean.fill_(math.nan)
        self.mean[: len(values)] = values
        if tags is not None:
            self.record_tags(torch.arange(len(values), device=values.device), tags, [len(values)])

    def freeze(self, weights: Tensor) -> None:
        """Hold these weights, one a sample; NaN where a sample was never seen."""
        self.frozen = torch.full_like(self.mean, math.nan)
        self.frozen[: len(weights)] = weights

    def state_dict(self) -> dict[str, Tensor]:
        """Return what is remembered, of as many samples as are known."""
        state = {"mean": self.means.clone()}
        for name, tensor in (("tags", self.tags), ("frozen", self.frozen)):
            if tensor is not None:
                state[name] = tensor[: self.size].clone()
        return state

    def restored(self, state: State) -> SampleMemory:
        """Return a memory with the state of a checkpoint, or raise ``ValueError`` naming the key that does not fit."""
        mean = state.read("mean", torch.float32, (None,), nan=True)
        if bool(mean.isinf().any()):
            raise ValueError("memory.mean holds infinite numbers")
        if self.samples not in (None, len(mean)):
            raise ValueError(
                f"memory.mean holds {len(mean)} samples, but samples = {self.samples}: load it into a robust loss for "
                "the same dataset"
            )
        new = SampleMemory(self.running_mean, self.samples)
        new.size, new.mean = len(mean), _extended(mean, 1, math.nan)
        if "tags" in state:
            new.tags = _extended(state.read("tags", torch.int32, mean.shape), 1, -1)
        if "frozen" in state:
            frozen = state.read("frozen", torch.float32, mean.shape, nan=True)
            new.frozen = _extended(frozen, 1, math.nan)
        new.to(self.mean.device)
        return new


def _extended(tensor: Tensor, extra: int, empty: float) -> Tensor:
    """Return a tensor with so many more places; the last of all is the one that is never read."""
    return torch.cat([tensor, tensor.new_full((extra,), empty)])
