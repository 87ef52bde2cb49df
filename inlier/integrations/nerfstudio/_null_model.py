"""The null model of a scene: predictions compared with the colours of other pixels.

The losses alone do not separate inliers from outliers early in training, so the inlier fraction is estimated against
a null model (:class:`inlier.fraction.NullModel`). The same null errors show what outliers are expected to add to the
loss: with many of them, all colours are drawn towards their mean, and no weights lead back from there.
"""

from __future__ import annotations

from torch import Tensor

from inlier.fraction import NullModel, draw_null
from inlier.histogram import LossHistogram
from inlier.kernels import Kernel
from inlier.nn import Robust
from inlier.nn._distributed import all_reduce_sum, world_size

__all__ = ["SceneNullModel", "expected_outlier_loss", "null_errors"]

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


def null_errors(prediction: Tensor, target: Tensor, weights: Tensor) -> Tensor:
    """Return the errors of predictions and the colours of other rays.

    Args:
        prediction: The predicted colour of each of n rays, [n, 3].
        target: The colours of their pixels.
        weights: Their weights: rays with small ones are drawn more often.

    Returns:
        Mean squared errors, [n, NULL_PAIRS].

    Example:
        >>> import torch
        >>> null_errors(torch.rand(5, 3), torch.rand(5, 3), torch.ones(5)).shape
        torch.Size([5, 8])
    """
    partners = draw_null(weights, NULL_PAIRS)
    return (prediction.unsqueeze(1) - target[partners]).square().mean(-1)


def expected_outlier_loss(robust: Robust, errors: Tensor) -> Tensor:
    """Return what outliers are expected to add to the mean loss: null errors, weighted as rays are.

    Args:
        robust: What weights the rays.
        errors: Null errors.

    Example:
        >>> import torch
        >>> expected_outlier_loss(Robust(), torch.ones(4, 8))  # all are inliers so far
        tensor(0.)
    """
    weights = robust.kernel.slope(errors.detach().float() / robust.scale).to(errors.dtype)
    return (1 - robust.inlier_fraction) * (weights * errors).mean()
