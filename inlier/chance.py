"""The fraction of inliers where outliers have nothing to do with the prediction: comparison with chance.

What an outlier's loss looks like need not be assumed: pair each prediction with the target of another sample,
and see. If outliers are unrelated to the prediction, their losses are above the median of such chance pairs
half of the time, and those of inliers, once something has been learned, hardly ever. Hence twice the part of
losses above that median estimates the part of outliers. Targets for the chance pairs are drawn by disbelief,
so that they are those of outliers as soon as any are known.

Unlike a fit to the losses alone (:mod:`inlier.fraction`), this works while inliers and outliers still
overlap: early in training, with few inliers.

Reference: J. D. Storey (2002), A direct approach to false discovery rates, J. R. Statist. Soc. B 64, 479-498,
    whose estimate of the part of true null hypotheses this is, at lambda = 1/2, with losses for p-values.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["fraction_beyond_chance", "others_by_disbelief"]

LEAST_DISBELIEF = 1e-3
"""Samples that are believed fully may serve too, so that there is always someone to draw."""


def others_by_disbelief(weights: Tensor, each: int = 1) -> Tensor:
    """Draw other samples for each by how little they are believed: j with probability ~ (1 - u_j).

    Args:
        weights: u, the belief in each of n samples, between 0 and 1.
        each: k, how many to draw for each.

    Returns:
        Sample numbers of shape n x k, with repetition.

    Example:
        >>> others_by_disbelief(torch.tensor([1.0, 1.0, 0.0, 1.0]), 2).shape
        torch.Size([4, 2])
    """
    disbelief = (1 - weights.detach().float()).clamp(min=LEAST_DISBELIEF)
    return torch.multinomial(disbelief, len(weights) * each, replacement=True).view(-1, each)


def fraction_beyond_chance(losses: Tensor, by_chance: Tensor) -> Tensor:
    """Estimate the fraction of losses that are smaller than chance would have them.

    The estimate is 1 - 2 (part of the losses above the median of those by chance). It is noisy, to be
    averaged over batches: its standard error is up to 1 / sqrt(n). While nothing has been learned it is about
    0.

    Args:
        losses: The loss of each prediction and its target.
        by_chance: That of predictions and the targets of other samples.

    Returns:
        A scalar, at most 1; below 0 by chance where hardly any target is predicted.

    Example:
        >>> _ = torch.manual_seed(0)
        >>> predictions = torch.rand(4000, 3)
        >>> targets = predictions + 0.05 * torch.randn(4000, 3)
        >>> targets[:2800] = torch.rand(2800, 3)
        >>> losses = (predictions - targets).square().sum(1)
        >>> others = others_by_disbelief(torch.full((4000,), 0.5)).squeeze(1)
        >>> by_chance = (predictions - targets[others]).square().sum(1)
        >>> round(float(fraction_beyond_chance(losses, by_chance)), 1)
        0.3
    """
    if losses.numel() == 0 or by_chance.numel() == 0:
        raise ValueError(
            f"{losses.numel()} losses and {by_chance.numel()} by chance: pass at least one of each"
        )
    return 1 - 2 * (losses.detach() > by_chance.detach().median()).float().mean()
