"""Histograms of losses: made in one pass, and added up exactly over batches and processes, in any order.

A bin number is the leading bits of a float32, its exponent and the first bits of its mantissa, read as an integer: bins
are logarithmic, and no logarithm is taken. With fewer bits a histogram is smaller, and its bins are unions of the finer
ones (:func:`coarsen`): a few groups of losses have fine bins, thousands of groups coarser ones (:func:`bits_for`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

__all__ = ["LossHistogram", "bin_numbers", "bits_for", "coarsen", "occupied"]

MANTISSA_BITS = 7
"""Bits of the float32 mantissa that number a bin: 2^7 bins an octave, each less than 0.8 % wide."""

MOST_BITS, LARGEST = 5, 2**20
"""Groups of losses share about LARGEST bins, at most 2^MOST_BITS an octave; benchmarks/groups.py measures the error of
c that follows."""


@dataclass(frozen=True)
class LossHistogram:
    """Counts of losses in logarithmic bins that are the leading bits of their float32.

    The last bin counts infinite and NaN losses; estimates leave it out.

    Args:
        counts: Number of losses in each bin, of length ``255 * 2**bits + 1``; any dtype.

    Example:
        >>> import torch, inlier
        >>> losses = torch.rand(1000)
        >>> whole = inlier.LossHistogram.of(losses)
        >>> parts = inlier.LossHistogram.of(losses[:300]) + inlier.LossHistogram.of(losses[300:])
        >>> bool((whole.counts == parts.counts).all()), whole.total
        (True, 1000.0)
    """

    counts: Tensor

    @classmethod
    def of(cls, losses: Tensor, bits: int = MANTISSA_BITS) -> LossHistogram:
        """Count losses, of any shape; negative ones raise.

        Args:
            losses: Losses of at least 0. They are counted as float32: below 1e-40 they count as 0, above 3e38
                as infinite.
            bits: Bits of the mantissa in a bin number, 1 to 7; scales from a histogram are off by at most
                ``2**-(bits + 1)``.

        Raises:
            ValueError: For negative losses.
        """
        flat = losses.detach().reshape(-1)
        if bool((flat < 0).any()):
            raise ValueError(negative_losses(losses))
        numbers = bin_numbers(flat.to(torch.float32), bits)
        return cls(torch.bincount(numbers, minlength=(255 << bits) + 1))

    def __add__(self, other: LossHistogram) -> LossHistogram:
        """Return the histogram of both sets of losses together."""
        return LossHistogram(self.counts + other.counts)

    @property
    def bits(self) -> int:
        """The number of mantissa bits in a bin number."""
        return ((self.counts.shape[-1] - 1) // 255).bit_length() - 1

    @property
    def total(self) -> float:
        """The number of finite losses."""
        return float(self.counts[:-1].sum())

    @property
    def values(self) -> Tensor:
        """The middle of each bin, float64 on the CPU: 0 for the first, infinity for the last."""
        return _bin_middles(self.bits)

    @property
    def edges(self) -> Tensor:
        """The lower edge of each bin, float64 on the CPU; that of the last is 2^128, above every float32."""
        return _bin_edges(self.bits)


def bin_numbers(losses: Tensor, bits: int) -> Tensor:
    """Return the bin of each float32 loss: 0 for those of at most 0, the last for infinite and NaN ones.

    Args:
        losses: Losses of float32.
        bits: Bits of the mantissa in a bin number.

    Example:
        >>> bin_numbers(torch.tensor([0.0, -1.0, torch.inf, torch.nan]), bits=5).tolist()
        [0, 0, 8160, 8160]
    """
    # A NaN may have its sign bit set, which would make it look like a negative number.
    sortable = torch.where(is_finite(losses), losses, math.inf)
    return (sortable.view(torch.int32) >> (23 - bits)).clamp_(0, 255 << bits)


def is_finite(values: Tensor) -> Tensor:
    """Return which values are finite, in two operations (``isfinite`` takes four on a CPU)."""
    return values.abs() < math.inf


def bits_for(groups: int) -> int:
    """Return how many mantissa bits the histograms of this many groups have.

    Example:
        >>> [bits_for(groups) for groups in (1, 100, 1000, 10_000)]
        [5, 5, 2, 1]
    """
    bits = MOST_BITS
    while bits > 1 and groups * (255 << bits) > LARGEST:
        bits -= 1
    return bits


def coarsen(counts: Tensor, bits: int) -> Tensor:
    """Return histograms with fewer bits: neighbouring bins add up exactly, since bins are nested.

    Args:
        counts: Histograms, the bins in the last dimension.
        bits: Mantissa bits of the result, at most those of the counts.

    Example:
        >>> losses = torch.rand(100)
        >>> fine, coarse = (LossHistogram.of(losses, bits).counts for bits in (6, 2))
        >>> torch.equal(coarsen(fine, 2), coarse)
        True
    """
    finite = counts[..., :-1]
    nested = finite.reshape(*finite.shape[:-1], 255 << bits, -1).sum(-1)
    return torch.cat([nested, counts[..., -1:]], -1).to(counts.dtype)


def occupied(counts: Tensor) -> tuple[Tensor, Tensor]:
    """Return the values of the bins in which some group has a finite loss, and the counts in them.

    Args:
        counts: Histograms, one row a group.

    Returns:
        Values of shape (J,), float64, in order, and counts of shape (groups, J).
    """
    finite = counts[:, :-1]
    used = finite.any(0).nonzero().squeeze(1)
    return LossHistogram(counts[0]).values[used], finite[:, used]


@cache
def _bin_edges(bits: int) -> Tensor:
    numbers = torch.arange(255 << bits, dtype=torch.int32) << (23 - bits)
    return torch.cat([numbers.view(torch.float32).double(), torch.tensor([2.0**128], dtype=torch.float64)])


@cache
def _bin_middles(bits: int) -> Tensor:
    edges = _bin_edges(bits)
    middles = (edges[:-1] + edges[1:]) / 2
    middles[0] = 0.0
    return torch.cat([middles, torch.tensor([math.inf], dtype=torch.float64)])


def negative_losses(losses: Tensor) -> str:
    """Return what to tell a user whose losses are negative."""
    return (
        f"losses must be at least 0, but the smallest is {float(losses.min()):.6g}: subtract a lower bound "
        "of the loss first (a negative log-density may have none: use another loss)"
    )
