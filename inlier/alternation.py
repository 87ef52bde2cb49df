"""The adaptive alternation without a training loop around it: from losses to fraction, scale and weights.

One round of the paper's Algorithm 1 on histograms of losses, one row for each group with a scale of its own:

1. the inlier fraction zeta comes from a :class:`~inlier.fraction.FractionEstimator`;
2. it is approached from 1, so that the first guess of a model does not decide which samples are outliers:
   ``zeta_t = 1 - (1 - zeta) * progress``, with progress rising from 0 to 1 during the warm-up;
3. the scale c solves ``mean sigma'_c(f) = zeta_t`` (Rule 1, :mod:`inlier.scale`).

The weights are then ``sigma'_c(f)`` (Lemma 1). :class:`inlier.Robust`, the scikit-learn estimators and the
regression experiment all go through :func:`update`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from inlier.histogram import occupied
from inlier.kernels import Kernel
from inlier.scale import solve_occupied

__all__ = ["AlternationState", "graduated", "update"]

SMALLEST_SCALE = 1e-30
"""Scales are kept above this: a zero loss divided by one is 0, which has weight 1."""


@dataclass
class AlternationState:
    """Fractions and scale of each group (a row): tensors of float64 on the CPU.

    Args:
        target: The given or estimated inlier fraction.
        inlier_fraction: zeta, the current fraction, on its way from 1 to the target.
        scale: c, at which the mean weight is zeta.
    """

    target: Tensor
    inlier_fraction: Tensor
    scale: Tensor

    @classmethod
    def initial(cls, groups: int, target: float = 1.0) -> AlternationState:
        """Return the state before any loss was seen: all are inliers."""
        one = torch.ones(groups, dtype=torch.float64)
        return cls(one * target, one.clone(), one * torch.inf)


def graduated(target: Tensor, progress: float) -> Tensor:
    """Return 1 - (1 - target) * progress: the fraction on its way from 1 to its target.

    Args:
        target: The inlier fraction to reach.
        progress: From 0 (keep everything) to 1 (arrived); clipped.

    Example:
        >>> import torch
        >>> graduated(torch.tensor([0.6]), 0.5)
        tensor([0.8000])
    """
    return 1 - (1 - target) * min(max(progress, 0.0), 1.0)


def update(
    state: AlternationState,
    counts: Tensor,
    kernel: Kernel,
    estimates: Tensor | None = None,
    progress: float = 1.0,
    prior_count: float = 0.0,
    values: Tensor | None = None,
) -> AlternationState:
    """Return the state after one round: new targets where there are estimates, and new scales.

    Args:
        state: The state so far.
        counts: Histograms of the losses, one row a group; infinite and NaN losses are left out.
        kernel: The kernel.
        estimates: The estimated inlier fraction of each group, NaN where there is none; None if targets stay.
        progress: How far the warm-up has come, 0 to 1.
        prior_count: Each group's histogram is pooled with this many losses of all groups together: the scale of a
            small group is then much like that of the whole, that of a large one its own.
        values: The losses that the columns of the counts stand for, in order; None if they are whole histograms.

    Returns:
        The new state.

    Example:
        >>> import torch, inlier
        >>> losses = torch.cat([torch.randn(900), 30 * torch.randn(600)]) ** 2
        >>> counts = inlier.LossHistogram.of(losses).counts[None]
        >>> fraction = torch.tensor([inlier.estimate_inlier_fraction(losses)])
        >>> state = update(AlternationState.initial(1), counts, inlier.kernels.get("tukey"), fraction)
        >>> bool((state.inlier_fraction - 0.6).abs() < 0.05)
        True

    Reference: Algorithm 1 of the paper, its parameter update.
    """
    target = state.target
    if estimates is not None:
        target = torch.where(estimates.isnan(), target, estimates.to(target))
    zeta = graduated(target, progress).clamp(min=kernel.weight_floor + 0.01, max=1.0)
    if values is None:
        values, counts = occupied(counts)
    scale = solve_occupied(values, _pooled(counts, prior_count), kernel, zeta)
    return AlternationState(target, zeta, scale.clamp(min=SMALLEST_SCALE))


def _pooled(counts: Tensor, prior_count: float) -> Tensor:
    """Add ``prior_count`` losses, distributed like those of all groups together, to each group's histogram."""
    whole = counts.sum(0)
    total = float(whole.sum())
    if prior_count == 0 or len(counts) == 1 or total == 0:
        return counts
    return counts + whole * (prior_count / total)
