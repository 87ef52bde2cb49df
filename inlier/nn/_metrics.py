"""Numbers for training loggers, computed only when they are asked for."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from inlier.nn._validation import Batch

__all__ = ["SHARES", "LastCall", "call_metrics", "scale_metrics", "weight_shares"]

SHARES = 10
"""Bins of a weight histogram, for loggers that only take numbers."""


@dataclass(slots=True)
class LastCall:
    """What is kept of a call: tensors that exist anyway, so that it costs a training step nothing.

    Args:
        weights: The weight of each loss; None before the first call.
        losses: The losses, some of which may not be finite.
        absent: Which elements are left out; None if none is.
        divisor: What the weighted sum is divided by, the part of this process.
        is_ordinary: Whether all elements are known to be present and finite.
    """

    weights: Tensor | None = None
    losses: Tensor | None = None
    absent: Tensor | None = None
    divisor: Tensor | float = 0.0
    is_ordinary: bool = False

    def set(self, weights: Tensor, losses: Tensor, batch: Batch, divisor: Tensor | float) -> None:
        """Replace the previous call."""
        self.weights, self.losses, self.divisor = weights, losses, divisor
        self.absent, self.is_ordinary = batch.absent, batch.is_ordinary

    def sums(self) -> Tensor:
        """Return the sums behind the metrics of the call; those of several processes add up.

        Returns:
            Six numbers: n, the sum of weights, of weight times loss, of finite losses, the number of finite
            losses, and the divisor.
        """
        if self.weights is None or self.losses is None:
            return torch.zeros(6)
        present = torch.ones_like(self.losses, dtype=torch.bool) if self.absent is None else ~self.absent
        finite = self.losses.isfinite() & present
        known = torch.where(finite, self.losses, 0.0).float()
        parts = present, self.weights, self.weights * known, known, finite
        divisor = torch.as_tensor(self.divisor, device=known.device)
        return torch.stack([*(part.float().sum() for part in parts), divisor.float()])


def call_metrics(sums: Tensor) -> dict[str, float]:
    """Return the metrics of a call from its sums; none if it had no losses.

    Example:
        >>> last = LastCall(torch.tensor([1.0, 0.5]), torch.tensor([2.0, 4.0]), divisor=2.0)
        >>> call_metrics(last.sums())
        {'fraction_kept': 0.75, 'weighted_loss': 2.0, 'unweighted_loss': 3.0}
    """
    n, weight, weighted, unweighted, finite, divisor = sums.tolist()
    if n == 0:
        return {}
    return {
        "fraction_kept": weight / n,
        "weighted_loss": weighted / divisor if divisor else 0.0,
        "unweighted_loss": unweighted / finite if finite else math.nan,
    }


def scale_metrics(
    scales: Tensor, fractions: Tensor, shares: Tensor, grouped: bool, unseen: float
) -> dict[str, float]:
    """Return scale and inlier fraction, of each group too if there are groups.

    Args:
        scales: The scale of each group.
        fractions: The inlier fraction of each group.
        shares: The share of each group in the losses.
        grouped: Whether there are groups.
        unseen: The scale from which on all losses have weight 1; it is logged as infinite.

    Example:
        >>> one, two = torch.ones(2), torch.tensor([2.0, 3e38])
        >>> scale_metrics(two[:1], one[:1] / 2, one[:1], grouped=False, unseen=3e38)
        {'inlier_fraction': 0.5, 'scale': 2.0}
        >>> sorted(scale_metrics(two, one, one, grouped=True, unseen=3e38))
        ['inlier_fraction', 'inlier_fraction/0', 'inlier_fraction/1', 'scale/0', 'scale/1']
    """
    numbers = {"inlier_fraction": float((fractions.double() * shares).sum())}
    finite = [scale if scale < unseen else math.inf for scale in scales.tolist()]
    if not grouped:
        return numbers | {"scale": finite[0]}
    for group, (scale, fraction) in enumerate(zip(finite, fractions.tolist(), strict=True)):
        numbers |= {f"scale/{group}": scale, f"inlier_fraction/{group}": fraction}
    return numbers


def weight_shares(weights: Tensor) -> dict[str, float]:
    """Return a histogram of weights as numbers: their share in each tenth of [0, 1].

    Example:
        >>> shares = weight_shares(torch.tensor([0.0, 0.05, 0.5, 1.0]))
        >>> shares["0.0-0.1"], shares["0.5-0.6"], shares["0.9-1.0"]
        (0.5, 0.25, 0.25)
    """
    places = (weights.float() * SHARES).long().clamp(0, SHARES - 1)
    shares = torch.bincount(places.reshape(-1), minlength=SHARES).double() / max(weights.numel(), 1)
    return {f"{k / SHARES:.1f}-{(k + 1) / SHARES:.1f}": share for k, share in enumerate(shares.tolist())}
