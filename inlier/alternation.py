"""The adaptive alternation without a training loop around it: from losses to fraction, scale and weights.

One round of the paper's Algorithm 1 on histograms of losses, one row for each group judged on its own:

1. the inlier fraction zeta is given, or estimated from the losses (:mod:`inlier.fraction`) and smoothed;
2. it is approached from 1, so that the first guess of a model does not decide who is an outlier:
   ``zeta_t = 1 - (1 - zeta) * progress`` with progress rising from 0 to 1 during the warm-up;
3. the scale c solves ``mean sigma'_c(f) = zeta_t`` (Rule 1, :mod:`inlier.scale`).

The weights are then ``sigma'_c(f)`` (Lemma 1). :class:`inlier.Robust`, the scikit-learn estimators and the
regression experiment all go through :func:`update`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from inlier.fraction import InlierFit, fit_inliers
from inlier.kernels import Kernel
from inlier.scale import LossHistogram, solve_scales

__all__ = ["Belief", "graduated", "lend", "update"]

SMALLEST_SCALE = 1e-30
"""Scales are kept above this, so that a loss can be divided by one: a zero loss then still has weight 1."""


@dataclass
class Belief:
    """What is believed of each group (a row): tensors of float64 on the CPU.

    Args:
        target: The inlier fraction, as given or as estimated so far.
        inlier_fraction: zeta, the fraction in force: on the way from 1 to the target.
        scale: c, at which the mean weight is zeta.
        fits: The last fit of each group, where the next one starts; None before the first.
    """

    target: Tensor
    inlier_fraction: Tensor
    scale: Tensor
    fits: list[InlierFit | None]

    @classmethod
    def first(cls, groups: int, target: float = 1.0) -> Belief:
        """Return the belief before any loss was seen: all are inliers."""
        one = torch.ones(groups, dtype=torch.float64)
        return cls(one * target, one.clone(), one * torch.inf, [None] * groups)


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


def lend(counts: Tensor, lent: float) -> Tensor:
    """Add to each group's histogram as much as ``lent`` losses drawn from all groups together.

    A group with few losses is then judged much like the whole, one with many by its own.

    Args:
        counts: Histograms, one row a group.
        lent: How many losses the whole lends.

    Returns:
        Histograms, float64.

    Example:
        >>> import torch
        >>> lend(torch.tensor([[90.0, 10.0], [0.0, 0.0]]), 20.0)
        tensor([[108.,  12.],
                [ 18.,   2.]], dtype=torch.float64)
    """
    counts = counts.double()
    whole = counts.sum(0)
    total = whole.sum()
    return counts if len(counts) == 1 or float(total) == 0 else counts + whole * (lent / total)


def update(
    belief: Belief,
    counts: Tensor,
    kernel: Kernel,
    progress: float = 1.0,
    estimate: Iterable[int] = (),
    smoothing: float = 0.0,
    search: bool = False,
    distinct: float = torch.inf,
) -> Belief:
    """Return the belief after one round: new fractions where asked, and new scales.

    Args:
        belief: The belief so far.
        counts: Histograms of the losses, one row a group.
        kernel: The kernel.
        progress: How far the warm-up has come, 0 to 1.
        estimate: Groups whose fraction is to be estimated now; none where it was given.
        smoothing: The share of the old target in the new one, 0 to forget it.
        search: Whether a fit looks everywhere, not only near the last one.
        distinct: How many different samples a row holds at most. The same sample counted many times is no
            more evidence than once, and an estimate that believed otherwise would see groups in chance alone.

    Returns:
        The new belief.

    Example:
        >>> import torch, inlier
        >>> losses = torch.cat([torch.randn(900), 30 * torch.randn(600)]) ** 2
        >>> counts = inlier.LossHistogram.of(losses).counts[None]
        >>> belief = update(Belief.first(1), counts, inlier.kernels.get("tukey"), estimate=[0])
        >>> bool((belief.inlier_fraction - 0.6).abs() < 0.05)
        True

    Reference: Algorithm 1 of the paper, its parameter update.
    """
    target, fits = belief.target.clone(), list(belief.fits)
    for group in estimate:
        if not bool(counts[group, :-1].any()):
            continue
        row = counts[group] * min(1.0, distinct / float(counts[group].sum()))
        fit = fit_inliers(LossHistogram(row), start=None if search else fits[group])
        first = fits[group] is None
        fits[group] = fit
        share = 0.0 if first else smoothing
        target[group] = share * target[group] + (1 - share) * fit.inlier_fraction
    zeta = graduated(target, progress).clamp(min=kernel.weight_floor + 0.01, max=1.0)
    scale = solve_scales(counts, kernel, zeta, guess=belief.scale).clamp(min=SMALLEST_SCALE)
    return Belief(target, zeta, scale, fits)
