"""The scale c of a kernel: the one at which the mean weight equals the inlier fraction.

The paper's parameter update rule asks for the c that solves

    mean over i of sigma'_c(f_i) = zeta,

since weights are inlier probabilities and must add up to the number of inliers. As ``sigma'_c(r) = sigma'(r / c)``
never falls when c grows, the mean weight rises from 0 to 1 and there is one solution, with ``c(k f) = k c(f)``.
Where the mean weight jumps over zeta (truncated kernel, tied losses), the solution is the smallest c whose mean
weight is at least zeta; for the truncated kernel that is the zeta-quantile.

From the losses, c is exact. From a :class:`~inlier.LossHistogram` it costs one pass over the losses, whatever their
number; replacing a loss by the middle of its bin moves it by at most 0.4 %, and as c grows with every loss, c moves by
at most 0.4 % too, for any kernel and any losses.

Reference: the paper's Rule 1 (equation 14) and remarks 3 and 4.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from inlier.histogram import LossHistogram, negative_losses, occupied
from inlier.kernels import Kernel, Truncated, get

__all__ = ["solve_scale", "solve_scales"]

GRID_STEP, GRID_POINTS = 0.2, 512
"""Scales are first searched on a grid in log c, for all rows at once by one matrix product."""

REFINED = 32
"""The cell of the grid that holds the scale of a row is divided into this many, twice."""

MANY = 2**15
"""The grid is not refined for more counts than this: between its points the mean weight is nearly linear, and the error
of c is below that of the bins (benchmarks/groups.py)."""


def solve_scale(
    losses: Tensor | LossHistogram,
    kernel: str | Kernel | Callable[[Tensor], Tensor] = "geman-mcclure",
    inlier_fraction: float = 0.5,
) -> Tensor:
    """Solve mean sigma'_c(f) = zeta for the scale c.

    Special cases, all by the same rule (the smallest c whose mean weight reaches zeta; a zero loss has weight 1 at
    every c):

    - zeta = 1 gives ``inf``: every loss has weight 1.
    - If at least a fraction zeta of the losses is 0 (all of them, say), c is 0: only zero losses count.
    - Infinite and NaN losses are left out; if all are, c is ``inf``.
    - One sample: c is that loss divided by the loss whose weight is zeta.
    - Ties at the quantile of the truncated kernel are all kept.

    Args:
        losses: Losses of at least 0, of any shape; or a :class:`~inlier.LossHistogram` of them.
        kernel: A kernel, its name, or a function sigma.
        inlier_fraction: zeta, at most 1 and above the kernel's ``weight_floor`` (0 except for symmetric
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
        if float(losses.counts.sum()) == 0:
            raise ValueError(_EMPTY)
        return solve_scales(losses.counts[None], kernel, zeta)[0]
    if losses.numel() == 0:
        raise ValueError(_EMPTY)
    wide = losses.detach().reshape(-1).to(torch.float32 if losses.device.type == "mps" else torch.float64)
    if bool((wide < 0).any()):
        raise ValueError(negative_losses(losses))
    wide = wide[wide.isfinite()]
    c = _solve(wide, None, kernel, zeta.to(wide), _histogram_guess(wide, kernel, zeta))[0]
    return c.to(losses.dtype if losses.dtype in (torch.float32, torch.float64) else torch.float32)


def solve_scales(counts: Tensor, kernel: Kernel, inlier_fraction: Tensor) -> Tensor:
    """Solve for the scales of many sets of losses at once, given by their histograms.

    Args:
        counts: One row for each set, each the ``counts`` of a :class:`~inlier.LossHistogram`.
        kernel: The kernel.
        inlier_fraction: zeta of each row.

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
    values, used = occupied(counts.cpu())
    return solve_occupied(values, used, kernel, inlier_fraction.cpu().double())


def solve_occupied(values: Tensor, counts: Tensor, kernel: Kernel, inlier_fraction: Tensor) -> Tensor:
    """Do :func:`solve_scales` with occupied bins only, as from :func:`inlier.histogram.occupied`."""
    counts = counts if counts.numel() > MANY and counts.dtype == torch.float32 else counts.double()
    return _solve(values, counts, kernel, inlier_fraction)


def _solve(
    values: Tensor, counts: Tensor | None, kernel: Kernel, zeta: Tensor, guess: float | None = None
) -> Tensor:
    """Return the smallest c of each row whose mean weight reaches zeta.

    Without counts there is one row, the values; with counts the values are sorted, and each row says how often it
    holds each of them.
    """
    if counts is None:
        total, zeros = zeta.new_tensor([float(len(values))]), (values == 0).sum()[None].to(zeta)
    else:
        total, zeros = counts.sum(1).to(zeta), (counts @ (values == 0).to(counts)).to(zeta)
    positive = total - zeros
    floor = kernel.weight_floor
    # Zero losses have weight 1 at every scale: take them out of the equation.
    target = (zeta * total - zeros) / positive
    answer = torch.full_like(zeta, math.inf)
    answer[(zeta * total <= zeros + floor * positive) & (total > 0)] = 0.0
    unsolved = ((target < 1) & (target > floor) & (zeta < 1) & (positive > 0)).nonzero().squeeze(1)
    if len(unsolved) == 0:
        return answer
    inside = values > 0
    values, target = values[inside], target[unsolved]
    if counts is not None:
        counts = counts[:, inside] if len(unsolved) == len(counts) else counts[unsolved][:, inside]
    if isinstance(kernel, Truncated):
        answer[unsolved] = _quantile(values, counts, target)
    else:
        # If all losses were equal, c would be loss / r with sigma'(r) = target: this brackets all other cases.
        r = kernel.inverse_slope(target.cpu()).to(target).log()
        low, high = values.min().log() - r, values.max().log() - r
        # The bracket holds in exact arithmetic; where all losses are equal its ends are the same point.
        low, high = low - 1e-12, high + 1e-12
        if counts is None:
            answer[unsolved] = _root(values, kernel, float(target), float(low), float(high), guess)
        else:
            answer[unsolved] = _root_on_grid(values, counts, kernel, target, low, high)
    return answer


def _quantile(values: Tensor, counts: Tensor | None, target: Tensor) -> Tensor:
    """Return the smallest value of each row with at least a fraction target of its mass at or below it."""
    # Rounding in target * total must not require one loss too many (0.07 * 100 is above 7).
    if counts is None:
        return values.kthvalue(max(math.ceil(float(target) * len(values) * (1 - 1e-12)), 1)).values[None]
    mass = counts.double().cumsum(1)
    place = torch.searchsorted(mass, target[:, None] * mass[:, -1:] * (1 - 1e-12)).squeeze(1)
    return values[place.clamp(max=len(values) - 1)]


def _root(
    values: Tensor, kernel: Kernel, target: float, low: float, high: float, guess: float | None
) -> float:
    """Solve mean weight = target over positive finite values: bisection in log c between low and high."""
    # A guess is 0.4 % off, as a rule: trying both sides of it costs two passes and saves ten.
    points = [] if guess is None else [math.log(guess) - 0.004, math.log(guess) + 0.004]
    for turn in range(200):
        point = points[turn] if turn < len(points) else (low + high) / 2
        if low < point < high:
            is_below = float(kernel.slope(values / math.exp(point)).mean()) < target
            low, high = (point, high) if is_below else (low, point)
        elif turn >= len(points):
            break
    return math.exp(high)


def _root_on_grid(
    values: Tensor, counts: Tensor, kernel: Kernel, target: Tensor, low: Tensor, high: Tensor
) -> Tensor:
    """Solve for all rows at once: one matrix product gives the mean weights at all scales of a grid."""
    first, last = float(low.min()), float(high.max())
    points = min(math.ceil((last - first) / GRID_STEP) + 2, GRID_POINTS)
    grid = torch.linspace(first, last, points, dtype=torch.float64)
    totals = counts.sum(1, keepdim=True)
    means = (counts @ kernel.slope(values[:, None] / grid.exp()).to(counts)) / totals
    grid, means = _cell(grid.expand(len(counts), -1), means.double(), target)
    if counts.numel() <= MANY:
        parts = torch.linspace(0, 1, REFINED + 1, dtype=torch.float64)
        for _ in range(2):
            grid = torch.lerp(grid[:, :1], grid[:, 1:], parts)
            means = torch.einsum("rpv,rv->rp", kernel.slope(values / grid.exp()[:, :, None]), counts) / totals
            grid, means = _cell(grid, means, target)
    part = ((target - means[:, 0]) / (means[:, 1] - means[:, 0]).clamp(min=1e-12)).clamp(0, 1)
    return torch.lerp(grid[:, 0], grid[:, 1], part).exp()


def _cell(grid: Tensor, means: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Return the two neighbouring points of each row between which its mean weight reaches the target."""
    right = torch.searchsorted(means.contiguous(), target[:, None]).clamp(1, grid.shape[1] - 1)
    both = torch.cat([right - 1, right], 1)
    return grid.gather(1, both), means.gather(1, both)


def _histogram_guess(values: Tensor, kernel: Kernel, zeta: Tensor) -> float | None:
    """Return the scale from a histogram, as a rule 0.4 % off; None if there is none."""
    # The histogram counts float32s: with the largest loss at 1, none of note underflows.
    unit = float(values.max()) if len(values) else 0.0
    if unit == 0 or isinstance(kernel, Truncated):
        return None
    guess = unit * float(solve_scales(LossHistogram.of(values / unit).counts[None], kernel, zeta))
    return guess if 0 < guess < math.inf else None


_EMPTY = "losses is empty: a scale needs at least one loss"


def _require_fraction(zeta: float, kernel: Kernel) -> None:
    if not 0 < zeta <= 1:
        raise ValueError(f"inlier_fraction = {zeta}: pass a number above 0 and at most 1")
    if zeta <= kernel.weight_floor:
        raise ValueError(
            f"inlier_fraction = {zeta} has no scale: the weight of {kernel} never falls below "
            f"{kernel.weight_floor:.6g}; pass a larger inlier_fraction, or a kernel without a floor"
        )
