"""A numerical check of the paper's Definition 1."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from inlier.kernels._base import Kernel, get, tail_slope


@dataclass(frozen=True)
class KernelCheck:
    """The result of :func:`check`: ``ok``, the conditions that fail (and where), and the floor of the weight."""

    kernel: Kernel
    failures: tuple[str, ...]
    weight_floor: float

    @property
    def ok(self) -> bool:
        """Whether every condition holds."""
        return not self.failures

    def __str__(self) -> str:
        if self.ok:
            return f"{self.kernel}: a robust loss kernel, all conditions of Definition 1 hold"
        return f"{self.kernel}: " + "; ".join(self.failures)


def check(kernel: Kernel | str | Callable[[Tensor], Tensor]) -> KernelCheck:
    """Test numerically that a kernel meets the three conditions of Definition 1, and that it is coherent.

    On r from 1e-30 to 1e30: (i) sigma'(r) -> 1 as r -> 0, (ii) sigma'(r) -> 0 as r -> inf, (iii) sigma' never
    increases; besides, sigma(0) = 0 and sigma' is the derivative of sigma.

    Args:
        kernel: A kernel, its name, or a function sigma.

    Returns:
        A :class:`KernelCheck`; print it to read it.

    Example:
        >>> import inlier
        >>> inlier.kernels.check("welsch-leclerc").ok
        True
        >>> inlier.kernels.check("symmetric-cross-entropy").failures[0]
        '(ii) the weight never falls below 0.2: no scale exists for an inlier fraction at or below that'
        >>> print(inlier.kernels.check(lambda r: r**2).failures[0])
        (i) the slope at r = 1e-30 is 2e-30, not 1
    """
    kernel = get(kernel)
    r = torch.logspace(-30, 30, 6001, dtype=torch.float64)
    slope = kernel.slope(r)
    failures = []
    if not abs(float(slope[0]) - 1) < 1e-9:
        failures.append(f"(i) the slope at r = {float(r[0]):.3g} is {float(slope[0]):.3g}, not 1")
    floor = tail_slope(kernel)
    if not floor < 1e-9:
        failures.append(
            f"(ii) the weight never falls below {floor:.6g}: no scale exists for an inlier fraction at or "
            "below that"
        )
    rises = slope.diff()
    worst = int(torch.nan_to_num(rises, nan=math.inf).argmax())
    if not float(rises[worst]) <= 1e-12:
        at, to = float(r[worst]), float(r[worst + 1])
        failures.append(f"(iii) the slope rises by {float(rises[worst]):.3g} from r = {at:.3g} to {to:.3g}")
    zero = float(kernel.sigma(torch.zeros(1, dtype=torch.float64)))
    if not abs(zero) < 1e-12:
        failures.append(f"sigma(0) is {zero:.3g}, not 0")
    failures += _slope_mismatch(kernel)
    return KernelCheck(kernel, tuple(failures), max(floor, 0.0))


def _slope_mismatch(kernel: Kernel) -> list[str]:
    """Compare sigma' with the mean rise of sigma over short steps: it lies between the slopes at the ends."""
    r = torch.logspace(-3, 3, 601, dtype=torch.float64)
    width = 1e-3 * r
    secant = (kernel.sigma(r + width) - kernel.sigma(r)) / width
    ends = torch.stack([kernel.slope(r), kernel.slope(r + width)])
    outside = torch.maximum(ends.amin(0) - secant, secant - ends.amax(0))
    worst = int(torch.nan_to_num(outside, nan=math.inf).argmax())
    if float(outside[worst]) <= 1e-9:
        return []
    return [
        f"sigma' is not the derivative of sigma: near r = {float(r[worst]):.3g} it is "
        f"{float(ends[0, worst]):.6g} where sigma rises by {float(secant[worst]):.6g} per unit"
    ]
