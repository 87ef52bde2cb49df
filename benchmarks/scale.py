"""The scale of 10^7 losses from a histogram: how exact, and how long against sorting and plain bisection."""

from __future__ import annotations

import torch

from benchmarks.timing import interleaved
from inlier import LossHistogram, kernels, solve_scale

LOSSES = 10**7


def losses(n: int = LOSSES) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    outlier = torch.rand(n, generator=generator) < 0.3
    return (torch.randn(n, generator=generator) * torch.where(outlier, 30.0, 1.0)) ** 2


def bisect(f: torch.Tensor, zeta: float = 0.7, passes: int = 60) -> float:
    """The paper's way: halve a bracket of c, one pass over all losses each time."""
    kernel, low, high = kernels.GemanMcClure(), 1e-6, 1e6
    for _ in range(passes):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if float(kernel.slope(f / middle).mean()) < zeta else (low, middle)
    return high


def run(quick: bool = False) -> list[dict[str, object]]:
    """Ratios of time, and the largest error over all kernels and fractions."""
    f = losses(LOSSES // 10 if quick else LOSSES)
    seconds = interleaved(
        {
            "histogram": lambda: solve_scale(LossHistogram.of(f), "geman-mcclure", 0.7),
            "sort": lambda: torch.sort(f),
            "bisection": lambda: bisect(f),
            "exact": lambda: solve_scale(f, "geman-mcclure", 0.7),
        },
        rounds=3,
    )
    part = f[: len(f) // 10]
    part_histogram = LossHistogram.of(part)
    worst = 0.0
    for name in kernels.names():
        kernel = kernels.get(name)
        for zeta in (0.05, 0.25, 0.5, 0.75, 0.95, 0.99):
            if zeta > kernel.weight_floor:
                exact = float(solve_scale(part.double(), kernel, zeta))
                worst = max(worst, abs(float(solve_scale(part_histogram, kernel, zeta)) / exact - 1))
    return [
        {
            "what": f"histogram solve of {len(f):,} losses / torch.sort of them",
            "measured": seconds["histogram"] / seconds["sort"],
            "goal": 0.15,
        },
        {
            "what": "histogram solve / 60 passes of plain bisection",
            "measured": seconds["histogram"] / seconds["bisection"],
            "goal": 0.05,
        },
        {
            "what": "exact solve / 60 passes of plain bisection",
            "measured": seconds["exact"] / seconds["bisection"],
            "goal": None,
        },
        {
            "what": "largest relative error of c, all kernels, zeta 0.05 to 0.99",
            "measured": worst,
            "goal": 0.005,
        },
    ]
