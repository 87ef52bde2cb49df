"""The scale c of a kernel: the one at which the mean weight equals the inlier fraction.

The paper's parameter update rule asks for the c that solves

    mean over i of sigma'_c(f_i) = zeta,

since weights are beliefs and beliefs must add up to the number of inliers. As ``sigma'_c(r) = sigma'(r / c)``
never falls when c grows, the mean weight rises from 0 to 1 and there is one answer, with
``c(k f) = k c(f)``. Where the mean weight jumps over zeta (truncated kernel, tied losses), the answer is the
smallest c whose mean weight is at least zeta; for the truncated kernel that is the zeta-quantile.

There are two ways to it. From the losses it is exact. From a :class:`LossHistogram` it costs one pass over
the losses, whatever their number, and histograms of parts add up to the histogram of the whole; as every
loss moves by at most 0.4 % when it is replaced by the middle of its bin, and c grows with every loss,
c is off by at most 0.4 % too, for any kernel and any losses.

Reference: the paper's Rule 1 (equation 14) and remarks 3 and 4.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from inlier.kernels import Kernel, Truncated, get

__all__ = ["LossHistogram", "solve_scale", "solve_scales"]

MANTISSA_BITS = 7
"""Bits of the float32 mantissa that number a bin: 2^7 bins an octave, each less than 0.8 % wide."""


@dataclass(frozen=True)
class LossHistogram:
    """Counts of losses in logarithmic bins that are the leading bits of their float32.

    The exponent and the first bits of the mantissa of a positive float32, read as an integer, number its bin:
    no logarithm is taken. Losses are counted in one pass; histograms add up exactly, so those of many batches
    or processes can be merged in any order. The last bin counts the losses that are infinite or NaN.

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
            bits: Bits of the mantissa in a bin number, 1 to 7: fewer bits make a smaller histogram, whose
                scales are off by at most ``2**-(bits + 1)``.
        """
        sortable = losses.detach().reshape(-1).to(torch.float32).contiguous()
        index = sortable.view(torch.int32) >> (23 - bits)
        finite_bins = 255 << bits
        # The sign is the first bit of a float: read as an integer, a negative loss is a negative number.
        # (-0.0 is the one negative number with all other bits 0.)
        if index.numel() and int(index.min()) < 0:
            if bool((losses < 0).any()):
                raise ValueError(_negative(losses))
            index = (sortable + 0.0).view(torch.int32) >> (23 - bits)
        counts = torch.bincount(index.clamp_(max=finite_bins), minlength=finite_bins + 1)
        return cls(counts)

    def __add__(self, other: LossHistogram) -> LossHistogram:
        """Return the histogram of both sets of losses together."""
        return LossHistogram(self.counts + other.counts)

    @property
    def bits(self) -> int:
        """The number of mantissa bits in a bin number."""
        return ((len(self.counts) - 1) // 255).bit_length() - 1

    @property
    def total(self) -> float:
        """The number of losses, those that are infinite or NaN included."""
        return float(self.counts.sum())

    @property
    def values(self) -> Tensor:
        """The middle of each bin, float64 on the CPU: 0 for the first, infinity for the last."""
        return _bin_middles(self.bits)

    @property
    def edges(self) -> Tensor:
        """The lower edge of each bin, float64 on the CPU; that of the last is 2^128, above every float32."""
        return _bin_edges(self.bits)


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


def solve_scale(
    losses: Tensor | LossHistogram,
    kernel: str | Kernel | Callable[[Tensor], Tensor] = "geman-mcclure",
    inlier_fraction: float = 0.5,
) -> Tensor:
    """Solve mean sigma'_c(f) = zeta for the scale c.

    Special cases, each by the same rule (the smallest c whose mean weight reaches zeta; at every c a zero
    loss has weight 1 and an infinite one the kernel's floor):

    - zeta = 1 gives ``inf``: every finite loss has weight 1.
    - If at least a fraction zeta of the losses are 0 (all of them, say), c is 0: only zero losses count.
    - Infinite and NaN losses count as outliers. If they leave too few others, c is ``inf``.
    - One sample: c is that loss divided by the loss whose weight is zeta.
    - Ties at the quantile of the truncated kernel are all kept.

    Args:
        losses: Losses of at least 0, of any shape; or a :class:`LossHistogram` of them.
        kernel: A kernel, its name, or a function sigma.
        inlier_fraction: zeta, at most 1 and above the kernel's ``weight_floor`` (0 but for symmetric
            cross-entropy).

    Returns:
        c, a scalar tensor: on the device and with the dtype of the losses (float32 for half precision), or
        float64 on the CPU from a histogram.

    Raises:
        ValueError: For empty or negative losses, and for zeta outside (floor, 1].

    Example:
        >>> import torch, inlier
        >>> losses = torch.tensor([0.1, 0.2, 0.3, 9.0])
        >>> inlier.solve_scale(losses, "truncated", 0.75)
        tensor(0.3000)
        >>> c = inlier.solve_scale(losses, "geman-mcclure", 0.75)
        >>> inlier.kernels.get("geman-mcclure").weight(losses, c).mean()
        tensor(0.7500)

    Reference: the paper's Rule 1 (equation 14); its bracket c in [0, 1] is replaced by one from the losses.
    """
    kernel = get(kernel)
    _require_fraction(inlier_fraction, kernel)
    zeta = torch.tensor([inlier_fraction], dtype=torch.float64)
    if isinstance(losses, LossHistogram):
        if losses.total == 0:
            raise ValueError(_EMPTY)
        return solve_scales(losses.counts[None], kernel, zeta)[0]
    if losses.numel() == 0:
        raise ValueError(_EMPTY)
    wide = losses.detach().reshape(-1).to(torch.float32 if losses.device.type == "mps" else torch.float64)
    if bool((wide < 0).any()):
        raise ValueError(_negative(losses))
    wide = torch.where(wide.isnan(), math.inf, wide)
    c = _solve(wide, None, kernel, zeta.to(wide), _histogram_guess(wide, kernel, zeta))[0]
    return c.to(losses.dtype if losses.dtype in (torch.float32, torch.float64) else torch.float32)


def solve_scales(
    counts: Tensor, kernel: Kernel, inlier_fraction: Tensor, guess: Tensor | None = None
) -> Tensor:
    """Solve for the scales of many sets of losses at once, each given by its histogram.

    Args:
        counts: One row for each set, each the ``counts`` of a :class:`LossHistogram`.
        kernel: The kernel.
        inlier_fraction: zeta of each row.
        guess: The scale of each row when it was last solved: a good one saves most of the work.

    Returns:
        c of each row, float64 on the CPU; infinite where a row is empty, and in the special cases of
        :func:`solve_scale`.

    Example:
        >>> import torch, inlier
        >>> rows = [inlier.LossHistogram.of(k * torch.rand(1000)).counts for k in (1, 10)]
        >>> c = inlier.scale.solve_scales(
        ...     torch.stack(rows), inlier.kernels.get("tukey"), torch.tensor([0.5, 0.5])
        ... )
        >>> bool(8 < c[1] / c[0] < 12)
        True
    """
    counts = counts.cpu().double()
    values = LossHistogram(counts[0]).values
    occupied = counts.sum(0).nonzero().squeeze(1)
    return _solve(values[occupied], counts[:, occupied], kernel, inlier_fraction.cpu().double(), guess)


def _solve(
    values: Tensor, counts: Tensor | None, kernel: Kernel, zeta: Tensor, guess: Tensor | None
) -> Tensor:
    """The smallest c of each row whose mean weight reaches zeta.

    Without counts there is one row, of the values as they are; with counts the values are sorted, and each
    row says how often it holds each of them.
    """

    def mass(chosen: Tensor) -> Tensor:
        return chosen.sum()[None].to(zeta) if counts is None else counts @ chosen.to(counts)

    zeros, infinite = mass(values == 0), mass(values.isinf())
    total = mass(torch.ones_like(values, dtype=torch.bool))
    positive = total - zeros - infinite
    floor = kernel.weight_floor
    # Zero and infinite losses have the same weight at every scale: take them out of the equation.
    target = (zeta * total - zeros - floor * infinite) / positive
    answer = torch.full_like(zeta, math.inf)
    answer[(zeta * total <= zeros + floor * (total - zeros)) & (total > 0)] = 0.0
    open_rows = ((target < 1) & (target > floor) & (zeta < 1) & (positive > 0)).nonzero().squeeze(1)
    if len(open_rows) == 0:
        return answer
    inside = (values > 0) & values.isfinite()
    values, target = values[inside], target[open_rows]
    counts = None if counts is None else counts[:, inside][open_rows]
    if isinstance(kernel, Truncated):
        answer[open_rows] = _quantile(values, counts, target)
    else:
        near = None if guess is None else guess.to(zeta)[open_rows]
        answer[open_rows] = _root(values, counts, kernel, target, near)
    return answer


def _quantile(values: Tensor, counts: Tensor | None, target: Tensor) -> Tensor:
    """The smallest value of each row with at least a fraction target of the row's mass at or below it."""
    # Rounding in target * total must not ask for one loss more than was meant (0.07 * 100 is above 7).
    if counts is None:
        return values.kthvalue(max(math.ceil(float(target) * len(values) * (1 - 1e-12)), 1)).values[None]
    mass = counts.cumsum(1)
    place = torch.searchsorted(mass, target[:, None] * mass[:, -1:] * (1 - 1e-12)).squeeze(1)
    return values[place.clamp(max=len(values) - 1)]


def _root(
    values: Tensor, counts: Tensor | None, kernel: Kernel, target: Tensor, guess: Tensor | None
) -> Tensor:
    """Solve mean weight = target for each row over positive finite values, in log c, safely bracketed."""

    def excess(log_c: Tensor) -> Tensor:
        slope = kernel.slope(values / log_c.exp()[:, None])
        mean = slope.mean(1) if counts is None else (slope * counts).sum(1) / counts.sum(1)
        return mean - target

    # If all losses were equal, c would be loss / r with sigma'(r) = target: that brackets every other case.
    r = kernel.inverse_slope(target.cpu()).to(target).log()
    low, high = values.min().log() - r, values.max().log() - r
    at_low, at_high = target * -1, 1 - target
    # The bracket holds in exact arithmetic; where all losses are equal its ends are one point.
    low, high = low - 1e-12, high + 1e-12
    if guess is not None:
        # Looking on both sides of a guess costs two passes and saves many. Exact solves guess by a histogram,
        # 0.4 % away at most; histograms by their last scale.
        away = 0.004 if counts is None else 0.03
        for end in (guess.log() - away, guess.log() + away):
            point = torch.where(
                end.isfinite(), torch.minimum(torch.maximum(end, low), high), (low + high) / 2
            )
            low, at_low, high, at_high = _narrow(low, at_low, high, at_high, point, excess(point))
    # The middles of bins are not known better than this; losses are.
    tolerance = 1e-6 if counts is not None else 1e-14
    for attempt in range(200):
        if bool((high - low <= tolerance * low.abs().clamp(min=1)).all()):
            break
        secant = high - at_high * (high - low) / (at_high - at_low)
        middle = (low + high) / 2
        # A secant between two very unequal ends creeps: every third try halves the bracket instead.
        usable = (secant > low) & (secant < high) & (attempt % 3 != 2)
        point = torch.where(usable, secant, middle)
        below = excess(point)
        # The Illinois rule: halving the value of the end that stays pulls the next secant to its side.
        low, at_low, high, at_high = _narrow(low, at_low / 2, high, at_high / 2, point, below)
    return high.exp()


def _narrow(
    low: Tensor, at_low: Tensor, high: Tensor, at_high: Tensor, point: Tensor, value: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Replace the end of the bracket on whose side the point lies."""
    under = value < 0
    return (
        torch.where(under, point, low),
        torch.where(under, value, at_low),
        torch.where(under, high, point),
        torch.where(under, at_high, value),
    )


def _histogram_guess(values: Tensor, kernel: Kernel, zeta: Tensor) -> Tensor | None:
    """The scale from a histogram, 0.4 % away at most: passes over many losses are dear."""
    if len(values) <= 10_000 or isinstance(kernel, Truncated):
        return None
    # The histogram counts float32s: put the largest finite loss at 1, so that none of note is lost.
    unit = torch.where(values.isfinite(), values, 0.0).max()
    if float(unit) == 0:
        return None
    return solve_scales(LossHistogram.of(values / unit).counts[None], kernel, zeta) * unit.cpu()


_EMPTY = "losses is empty: a scale needs at least one loss"


def _require_fraction(zeta: float, kernel: Kernel) -> None:
    if not 0 < zeta <= 1:
        raise ValueError(f"inlier_fraction = {zeta}: pass a number above 0 and at most 1")
    if zeta <= kernel.weight_floor:
        raise ValueError(
            f"inlier_fraction = {zeta} has no scale: the weight of {kernel} never falls below "
            f"{kernel.weight_floor:.6g}; pass a larger inlier_fraction, or a kernel without a floor"
        )


def _negative(losses: Tensor) -> str:
    return (
        f"losses must be at least 0, but the smallest is {float(losses.min()):.6g}: subtract a lower bound "
        "of the loss first (a negative log-density may have none: use another loss)"
    )
