"""What is remembered of each sample: its last loss and a running mean of its losses."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["SampleMemory"]


class SampleMemory(nn.Module):
    """The last loss and the running mean of the losses of every sample, by sample number.

    Args:
        running_mean: The share of the old mean in the new one.
        samples: The number of samples, if it is known; else the memory grows with the largest number seen.
    """

    last: Tensor
    mean: Tensor
    frozen: Tensor
    groups: Tensor

    def __init__(self, running_mean: float, samples: int | None = None) -> None:
        super().__init__()
        self.running_mean = running_mean
        self.samples = samples
        self._size = samples or 0
        # NaN where a sample was never seen. There may be more places than samples, so that the memory need
        # not be copied whenever a larger number comes.
        self.register_buffer("last", torch.full((samples or 0,), math.nan))
        self.register_buffer("mean", torch.full((samples or 0,), math.nan))
        # The weights that stay as they are while they are held; empty unless they are.
        self.register_buffer("frozen", torch.empty(0))
        # The group of each sample; empty unless groups are used. (Of int32, since gloo knows no int16, and
        # DistributedDataParallel broadcasts the buffers of the modules in it.)
        self.register_buffer("groups", torch.empty(0, dtype=torch.int32))

    def __len__(self) -> int:
        return self._size

    @property
    def means(self) -> Tensor:
        """The running mean of each sample's losses, NaN where it was never seen."""
        return self.mean[: self._size]

    def last_of(self, index: Tensor) -> Tensor:
        """Return the last loss of each of these samples, NaN where it was never seen."""
        self._reserve(index)
        return self.last[index]

    def record(self, index: Tensor, losses: Tensor, groups: Tensor | None = None) -> Tensor:
        """Remember new losses, and return the running means, which pass over losses that are not finite.

        Args:
            index: Sample numbers.
            losses: Their losses.
            groups: Their groups, if there are groups.

        Returns:
            The mean of each of these samples, its new loss included; where that is not finite, the loss.
        """
        self._reserve(index)
        old = self.mean[index]
        mean = torch.lerp(losses, old, self.running_mean)
        mean = torch.where(mean.isnan(), losses, mean)
        self.mean[index] = torch.where(mean.isfinite(), mean, old)
        self.last[index] = losses
        if groups is not None:
            self._make_groups()
            self.groups[index] = groups.to(torch.int32)
        return mean

    def replace(self, losses: Tensor, groups: Tensor | None = None) -> None:
        """Forget all losses and remember these, one a sample, as last loss and as mean."""
        if self.samples is not None and len(losses) != self.samples:
            raise ValueError(
                f"refresh got {len(losses)} losses for {self.samples} samples: give one a sample"
            )
        self._grow(len(losses))
        self._size = max(self._size, len(losses))
        for kept in (self.last, self.mean):
            kept.fill_(math.nan)
            kept[: len(losses)] = losses
        if groups is not None:
            self._make_groups()
            self.groups[: len(losses)] = groups.to(torch.int32)

    def _reserve(self, index: Tensor) -> None:
        """Make room for these sample numbers, or raise for those that cannot be."""
        if index.numel() == 0:
            return
        smallest, largest = (int(x) for x in index.aminmax())
        if smallest < 0:
            raise IndexError(f"index holds {smallest}: number the samples from 0")
        if self.samples is not None and largest >= self.samples:
            raise IndexError(
                f"index holds {largest}, but Robust was told of {self.samples} samples: pass a larger "
                "`samples`, or none, and the memory grows by itself"
            )
        if largest >= len(self.mean):
            self._grow(max(largest + 1, len(self.mean) * 3 // 2))
        self._size = max(self._size, largest + 1)

    def _grow(self, rows: int) -> None:
        extra = rows - len(self.mean)
        if extra <= 0:
            return
        unseen = self.mean.new_full((extra,), math.nan)
        self.last, self.mean = torch.cat([self.last, unseen]), torch.cat([self.mean, unseen])
        if len(self.frozen):
            self.frozen = torch.cat([self.frozen, unseen])
        if len(self.groups):
            self.groups = torch.cat([self.groups, self.groups.new_zeros(extra)])

    def _make_groups(self) -> None:
        if not len(self.groups):
            self.groups = torch.zeros(len(self.mean), dtype=torch.int32, device=self.mean.device)

    def freeze(self, weights: Tensor) -> None:
        """Hold these weights, one a sample; NaN where a sample was never seen."""
        self.frozen = torch.full_like(self.mean, math.nan)
        self.frozen[: self._size] = weights

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        for name in ("last", "mean", "frozen", "groups"):
            setattr(self, name, getattr(self, name)[: self._size])
        super()._save_to_state_dict(destination, prefix, keep_vars)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any, **kwargs: Any) -> None:
        saved = state_dict.get(prefix + "mean")
        if saved is not None:
            expected = self.samples if self.samples is not None else len(self) or len(saved)
            if len(saved) != expected:
                raise ValueError(
                    f"the checkpoint remembers {len(saved)} samples, but this Robust has {expected}: load it "
                    "into a Robust for the same dataset"
                )
            self._size = len(saved)
            for name in ("last", "mean", "frozen", "groups"):
                setattr(self, name, getattr(self, name).new_empty(len(state_dict[prefix + name])))
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)
