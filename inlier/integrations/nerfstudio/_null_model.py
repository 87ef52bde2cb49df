"""The null model of a scene: predictions compared with the colours of other pixels.

The losses alone do not separate inliers from outliers early in training, so the inlier fraction is estimated against
a null model (:class:`inlier.fraction.NullModel`). The same null errors show what outliers are expected to add to the
loss: with many of them, all colours are drawn towards their mean, and no weights lead back from there.
"""

from __future__ import annotations

import torch
from torch import Tensor

from inlier.fraction import NullModel, draw_null
from inlier.histogram import LossHistogram
from inlier.kernels import Kernel
from inlier.nn import Robust
from inlier.nn._distributed import all_reduce_sum, world_size

__all__ = ["SceneNullModel", "expected_outlier_loss", "null_errors", "remembered_losses"]

ESTIMATE_OVER = 20
"""About how many steps the estimate of the inlier fraction is a mean over."""

NULL_PAIRS = 8
"""Colours of other pixels that each ray is compared with: more of them, and the expected loss is less noisy."""

SMALLEST_FRACTION = 0.05
"""The inlier fraction is never estimated below this: something must be learned from."""


class SceneNullModel(NullModel):
    """The null model of all processes: each compares its own rays, and what counts is the mean over processes.

    Args:
        kernel: The kernel that rays are weighted by.

    Example:
        >>> from inlier.kernels import Tukey
        >>> SceneNullModel(Tukey()).estimate().value  # before anything was compared
        1.0
    """

    def __init__(self, kernel: Kernel) -> None:
        super().__init__(1 - 1 / ESTIMATE_OVER, kernel.weight_floor + SMALLEST_FRACTION)

    def observe(self, histogram: LossHistogram) -> None:
        """Average over processes, which all update at the same step: then their estimates are equal."""
        processes = world_size()
        sums = self.state_dict()["sums"]
        # Before the first comparison there is nothing to average, and no device to do it on.
        if processes > 1 and float(sums[-1]) > 0:
            all_reduce_sum(sums)
            self.load_state_dict({"sums": sums / processes})


def null_errors(prediction: Tensor, target: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Return the errors of predictions and the colours of other rays, and which rays these are.

    Args:
        prediction: The predicted colour of each of n rays, [n, 3].
        target: The colours of their pixels.
        weights: Their weights: rays with small ones are drawn more often.

    Returns:
        Mean squared errors and the rays that were drawn, each of shape [n, NULL_PAIRS].

    Example:
        >>> errors, partners = null_errors(torch.rand(5, 3), torch.rand(5, 3), torch.ones(5))
        >>> errors.shape, partners.shape
        (torch.Size([5, 8]), torch.Size([5, 8]))
    """
    partners = draw_null(weights, NULL_PAIRS)
    return (prediction.unsqueeze(1) - target[partners]).square().mean(-1), partners


def remembered_losses(robust: Robust, index: Tensor) -> Tensor:
    """Return the running mean loss of some samples, NaN where there is none yet.

    Example:
        >>> robust = Robust(samples=3)
        >>> loss = robust(torch.tensor([0.5]), torch.tensor([1]))
        >>> remembered_losses(robust, torch.tensor([0, 1]))
        tensor([   nan, 0.5000])
    """
    # sample_losses() goes through all pixels of the scene, too much for each step.
    means = robust._memory.means
    return means[index.to(means.device)].to(index.device)


def expected_outlier_loss(
    robust: Robust, errors: Tensor, remembered: Tensor | None, running_mean: float
) -> Tensor:
    """Return what outliers are expected to add to the mean loss: null errors, weighted as rays are.

    Args:
        robust: What weights the rays.
        errors: Null errors.
        remembered: The running mean loss of the pixels whose colours were drawn, before this step; NaN where there
            was none, None if pixels are not remembered.
        running_mean: The share of the old mean in the new one.

    Example:
        >>> expected_outlier_loss(Robust(), torch.ones(4, 8), None, 0.7)  # all are inliers so far
        tensor(0.)
    """
    evidence = errors.detach().float()
    if remembered is not None:
        mean = torch.lerp(evidence, remembered, running_mean)
        evidence = torch.where(mean.isnan(), evidence, mean)
    weights = robust.kernel.slope(evidence / robust.scale).to(errors.dtype)
    return (1 - robust.inlier_fraction) * (weights * errors).mean()
