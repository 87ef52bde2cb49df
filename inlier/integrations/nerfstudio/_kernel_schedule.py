"""The kernel of scenes: soft while the scene takes shape, hard once it has one.

Early in training all losses are large, and a hard edge would hold on to a bad first guess. Later a soft kernel only
halves the weight of what covers a whole region of an image, a passer-by say, and a radiance field learns in the end
what has a small weight only. So the kernel is Geman-McClure's until the warm-up is over, and truncated as soon
after that as most pixels are inliers. Where few are, the scene takes shape slowly, regions do not stand out from the
rest, and the kernel stays soft.

Reference: going from a soft problem to a hard one is graduated non-convexity; A. Blake and A. Zisserman
    (1987), Visual Reconstruction, MIT Press.
"""

from __future__ import annotations

import torch
from torch import Tensor

from inlier import kernels
from inlier.kernels import GemanMcClure, Kernel, Truncated
from inlier.kernels._base import label_of

__all__ = ["GRADUATED", "HARD", "MAJORITY", "SOFT", "current_kernel"]

GRADUATED = "graduated"
"""The name of the pair where a kernel is named."""

SOFT, HARD = GemanMcClure(), Truncated()

MAJORITY = 0.7
"""The kernel becomes hard when the inlier fraction is above this."""


def current_kernel(name: str, label: Tensor | None = None) -> Kernel:
    """Return the kernel that rays are weighted by: at first, or when a checkpoint was saved.

    Args:
        name: ``"graduated"``, or the name of a kernel, which is itself.
        label: The label of the kernel in a checkpoint; None at the beginning of a training.

    Example:
        >>> current_kernel("graduated")
        GemanMcClure()
        >>> current_kernel("graduated", label_of(HARD))
        Truncated()
        >>> current_kernel("tukey")
        Tukey()
    """
    if name != GRADUATED:
        return kernels.get(name)
    return HARD if label is not None and torch.equal(label.cpu(), label_of(HARD)) else SOFT
