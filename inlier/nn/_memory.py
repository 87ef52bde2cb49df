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

EMPTY = {"mean": math.nan, "tags": -1, "frozen": math.nan}
"""The tensors of a memory, with what they hold for a sample that was never seen."""


class SampleMemory:
    """The running mean of each sample's losses (or margins), by dataset index; 4 bytes a sample.

    Each tensor has one place more than there is room for. What has no place of its own (an element that is masked
    out, an index that is not known yet) is written there, and never read.

    Args:
        running_mean: The share of the old mean in the new one.
        samples: The number of samples, if it is known; else the memory grows with the largest index seen.
    """

    def __init__(self, running_mean: float, samples: int | None = None) -> None:
        self.running_mean, self.samples = running_mean, samples
        self.size = samples or 0
        """The number of known samples."""
        self.mean = torch.full((self.size + 1,), math.nan)
        self.tags: Tensor | None = None
        """An integer for each sample, its group or the class that the network prefers; None unless used."""
        self.frozen: Tensor | None = None
        """Weights that are held for several calls; None unless used."""

    @property
    def room(self) -> int:
        """How many samples there is room for."""
        return self.mean.shape[0] - 1  # len() of a tensor is a slow call, and each step asks

    @property
    def means(self) -> Tensor:
        """The running mean of each sample, NaN where it was never seen."""
        return self.mean[: self.size]

    def _tensors(self) -> dict[str, Tensor]:
        return {name: tensor for name in EMPTY if (tensor := getattr(self, name)) is not None}

    def to(self, device: torch.device) -> None:
        """Move to a device."""
        for name, tensor in self._tensors().items():
            setattr(self, name, tensor.to(device))

    def check(self, smallest: int, largest: int, seen: int) -> None:
        """Raise for indices out of range, and warn of one that would take much memory.

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
        """Make room for this many samples."""
        if samples > self.room:
            extra = max(samples, self.room * 3 // 2) - self.room + 1
            for name, tensor in self._tensors().items():
                setattr(self, name, _extended(tensor[:-1], extra, EMPTY[name]))
        self.size = max(self.size, samples)

    def evidence(self, places: Tensor, values: Tensor, old_share: float) -> Tensor:
        """Return the running means with new values in them; the value itself where there is no mean yet.

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
        """Remember the tags of several calls, in order; ``sizes`` are the numbers of elements of the calls."""
        if self.tags is None:
            self.tags = torch.full_like(self.mean, EMPTY["tags"], dtype=torch.int32)
        calls = zip(torch.split(places, sizes), torch.split(tags.to(torch.int32), sizes), strict=True)
        for place, tag in calls:
            self.tags[place] = tag

    def replace(self, values: Tensor, tags: Tensor | None = None) -> None:
        """Forget all means, and take these, one a sample."""
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
        """Hold these weights, one a sample."""
        self.frozen = torch.full_like(self.mean, math.nan)
        self.frozen[: len(weights)] = weights

    def state_dict(self) -> dict[str, Tensor]:
        """Return what is remembered of the known samples."""
        return {name: tensor[: self.size].clone() for name, tensor in self._tensors().items()}

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
        new = SampleMemory(self.running_mean, len(mean))
        new.samples, new.mean[:-1] = self.samples, mean
        if "tags" in state:
            new.tags = _extended(state.read("tags", torch.int32, mean.shape), 1, EMPTY["tags"])
        if "frozen" in state:
            new.freeze(state.read("frozen", torch.float32, mean.shape, nan=True))
        new.to(self.mean.device)
        return new


def _extended(tensor: Tensor, extra: int, empty: float) -> Tensor:
    """Return a tensor with this many more places, all of them empty."""
    return torch.cat([tensor, tensor.new_full((extra,), empty)])
