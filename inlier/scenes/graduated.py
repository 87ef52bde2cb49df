"""The kernel of scenes: soft while the scene takes shape, hard once it has one.

Early in training all losses are large, and a hard edge would hold on to a bad first guess. Later a soft
kernel doubts only by half what covers a whole region of a photo, somebody who walks by, say, and a radiance
field learns in the end what it is only leaned against. So the kernel is Geman-McClure's until the warm-up is
over, and truncated as soon after that as most pixels are found right. Where few are, the scene takes shape
slowly, regions are no longer to be told from the rest, and the kernel stays soft.

Reference: going from a soft problem to a hard one is graduated non-convexity; A. Blake and A. Zisserman
    (1987), Visual Reconstruction, MIT Press.
"""

from __future__ import annotations

import torch
from torch import Tensor

from inlier import kernels
from inlier.kernels import GemanMcClure, Kernel, Truncated
from inlier.kernels.base import label_of

__all__ = ["GRADUATED", "HARD", "MAJORITY", "SOFT", "kernel_in_force"]

GRADUATED = "graduated"
"""What the pair is called where a kernel is named."""

SOFT, HARD = GemanMcClure(), Truncated()

MAJORITY = 0.7
"""The kernel becomes hard when more than this part of the pixels is found right."""


def kernel_in_force(name: str, label: Tensor | None = None) -> Kernel:
    """Return the kernel by which rays are judged: at first, or when a checkpoint was made.

    Args:
        name: ``"graduated"``, or the name of a kernel, which is itself.
        label: The label of the kernel in a checkpoint; None at the beginning of a training.

    Example:
        >>> kernel_in_force("graduated")
        GemanMcClure()
        >>> kernel_in_force("graduated", label_of(HARD))
        Truncated()
        >>> kernel_in_force("tukey")
        Tukey()
    """
    if name != GRADUATED:
        return kernels.get(name)
    return HARD if label is not None and torch.equal(label.cpu(), label_of(HARD)) else SOFT
