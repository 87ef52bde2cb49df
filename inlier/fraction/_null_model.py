"""The fraction of inliers where outliers have nothing to do with the prediction: comparison with a null model.

No assumption about the losses of outliers is needed: pair each prediction with the target of another sample, and
look. If outliers are unrelated to the prediction, their losses exceed the median of such null losses half of the
time; those of inliers, once something has been learned, hardly ever do. Hence twice the share of losses above that
median estimates the share of outliers. Targets of null pairs are drawn with probability proportional to 1 - weight,
so that they are those of outliers as soon as any are known.

Unlike a mixture fitted to the losses alone (:class:`inlier.fraction.FromLosses`), this works while inliers and
outliers still overlap: early in training, with few inliers.

Reference: J. D. Storey (2002), A direct approach to false discovery rates, J. R. Statist. Soc. B 64, 479-498,
    whose estimate of the share of true null hypotheses this is, at lambda = 1/2, with losses for p-values.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from inlier.fraction._estimate import FractionEstimate
from inlier.histogram import LossHistogram

__all__ = ["NullModel", "draw_null", "null_fraction"]

LEAST_PROBABILITY = 1e-3
"""Samples of weight 1 are drawn too, but rarely, so that there is always one to draw."""

SETTLED = 3.0
"""The running mean is trusted after this many times its length: e^-3 of its start is left."""


def draw_null(weights: Tensor, each: int = 1) -> Tensor:
    """Draw partners for the null pairs: sample j with probability proportional to 1 - u_j.

    Args:
        weights: u, the weight of each of n samples, between 0 and 1.
        each: k, how many to draw for each.

    Returns:
        Places of shape n x k, with repetition.

    Example:
        >>> draw_null(torch.tensor([1.0, 1.0, 0.0, 1.0]), 2).shape
        torch.Size([4, 2])
    """
    probability = (1 - weights.detach().float()).clamp(min=LEAST_PROBABILITY)
    return torch.multinomial(probability, len(weights) * each, replacement=True).view(-1, each)


def null_fraction(losses: Tensor, null_losses: Tensor) -> Tensor:
    """Estimate the fraction of losses that are smaller than the null model would have them.

    The estimate is 1 - 2 (share of the losses above the median null loss). It is noisy, to be averaged over
    batches: its standard error is up to 1 / sqrt(n). Before anything has been learned it is about 0.

    Args:
        losses: The loss of each prediction and its target.
        null_losses: That of predictions and the targets of other samples.

    Returns:
        A scalar, at most 1; by chance below 0 where hardly any target is predicted.

    Example:
        >>> _ = torch.manual_seed(0)
        >>> predictions = torch.rand(4000, 3)
        >>> targets = predictions + 0.05 * torch.randn(4000, 3)
        >>> targets[:2800] = torch.rand(2800, 3)
        >>> losses = (predictions - targets).square().sum(1)
        >>> partners = draw_null(torch.full((4000,), 0.5)).squeeze(1)
        >>> null_losses = (predictions - targets[partners]).square().sum(1)
        >>> round(float(null_fraction(losses, null_losses)), 1)
        0.3
    """
    if losses.numel() == 0 or null_losses.numel() == 0:
        raise ValueError(
            f"{losses.numel()} losses and {null_losses.numel()} null losses: pass at least one of each"
        )
    return 1 - 2 * (losses.detach() > null_losses.detach().median()).float().mean()


class NullModel:
    """The fraction estimator that averages :func:`null_fraction` over batches, old ones forgotten exponentially.

    Call :meth:`compare` with each batch; the histograms that :class:`inlier.Robust` shows it are ignored. The mean
    starts at 1, so that nothing is rejected before anything is known.

    Args:
        memory: The share of the old mean in the new one, for each batch.
        smallest: A lower bound of the estimate: a fraction of 0 would leave nothing to learn from.

    Example:
        >>> estimator = NullModel()
        >>> for _ in range(100):
        ...     estimator.compare(torch.cat([torch.rand(70), 1 + torch.rand(30)]), 1 + torch.rand(100))
        >>> round(estimator.estimate().value, 1)
        0.7
    """

    def __init__(self, memory: float = 0.95, smallest: float = 0.05) -> None:
        self.memory, self.smallest = memory, smallest
        # The running means of fractions and of their squares, and the number of batches.
        self._sums = torch.tensor([1.0, 1.0, 0.0])

    def compare(self, losses: Tensor, null_losses: Tensor) -> None:
        """Take in the losses of a batch and those of its null pairs; nothing waits for the device."""
        fraction = null_fraction(losses, null_losses)
        sums = self._sums.to(fraction)
        means = torch.lerp(torch.stack([fraction, fraction.square()]), sums[:2], self.memory)
        self._sums = torch.cat([means, sums[2:] + 1])

    @property
    def mean(self) -> Tensor:
        """The estimate as a tensor on its device, without waiting."""
        return self._sums[0].clamp(self.smallest, 1.0)

    def observe(self, histogram: LossHistogram) -> None:
        """Ignore the losses: :meth:`compare` takes them, with null losses beside them."""

    def estimate(self) -> FractionEstimate:
        """Return the mean fraction of recent batches."""
        mean, squares, batches = self._sums.cpu().tolist()
        value = min(max(mean, self.smallest), 1.0)
        if batches * (1 - self.memory) < SETTLED:
            return FractionEstimate(value, 0.0, False, "Too few batches were compared with the null model.")
        error = math.sqrt(max(squares - mean**2, 0.0) * (1 - self.memory))
        if mean < 2 * error:
            reason = "Predictions are not yet better than those of the null model."
            return FractionEstimate(value, error, False, reason)
        return FractionEstimate(value, error, True, "Losses lie below those of the null model.")

    def state_dict(self) -> dict[str, Tensor]:
        """Return the sums."""
        return {"sums": self._sums.clone()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Restore the sums."""
        sums = state["sums"]
        if sums.shape != (3,) or not bool(sums.isfinite().all()):
            raise ValueError(f"sums holds {sums.tolist()}: three finite numbers are expected")
        self._sums = sums.clone().float()
