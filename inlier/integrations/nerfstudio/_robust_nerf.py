"""RobustNeRF's rule: which pixels of square patches to learn from, by the errors of the whole patch.

A pixel is kept if one of three tests holds: its own error is below a quantile of the errors of the step before;
more than half of the 3 x 3 pixels around it are; or more than 0.6 of its patch (16 x 16) are, which counts for the
inner part of the patch (8 x 8) only. Distractors come in connected regions, and fine detail of the scene, hard to
learn at first, has neighbours that fit.

The last two tests, :func:`neighbours_agree` and :func:`patch_agrees`, work on any mask of inliers.

Reference: S. Sabour, S. Vora, D. Duckworth, I. Krasin, D. J. Fleet, A. Tagliasacchi (2023), RobustNeRF:
    Ignoring distractors with robust losses, CVPR, section 4.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["as_patches", "kept_pixels", "neighbours_agree", "next_threshold", "patch_agrees", "vote"]


def as_patches(values: Tensor, patch: int) -> Tensor:
    """Return values of rays, patch after patch and row after row, as patches.

    Args:
        values: One value a ray.
        patch: P, the side of a patch.

    Returns:
        A view of shape (patches, P, P).

    Raises:
        ValueError: If the rays do not fill whole patches.

    Example:
        >>> as_patches(torch.arange(8), 2).tolist()
        [[[0, 1], [2, 3]], [[4, 5], [6, 7]]]
    """
    if len(values) == 0 or len(values) % patch**2:
        raise ValueError(f"{len(values)} rays do not fill patches of {patch} x {patch}: sample whole patches")
    return values.view(-1, patch, patch)


def next_threshold(errors: Tensor, quantile: float = 0.5) -> Tensor:
    """Return the error below which a pixel of the next step is an inlier: a quantile of this step's errors.

    Args:
        errors: Errors of any shape.
        quantile: The share of the pixels below the threshold; the median by default.

    Returns:
        A scalar.

    Example:
        >>> next_threshold(torch.tensor([4.0, 1.0, 3.0, 2.0, 9.0]))
        tensor(3.)
    """
    if not 0 < quantile <= 1:
        raise ValueError(f"quantile = {quantile}: pass a number above 0 and at most 1")
    flat = errors.detach().reshape(-1)
    # torch.quantile refuses more than 16 million numbers; sorting all of them for one is not needed either.
    place = quantile * (len(flat) - 1)
    low, high = (flat.kthvalue(int(k) + 1).values for k in (place, min(int(place) + 1, len(flat) - 1)))
    return torch.lerp(low, high, place - int(place))


def neighbours_agree(inliers: Tensor, size: int = 3, needed: float = 0.5) -> Tensor:
    """Return where more than the needed part of a pixel's neighbourhood, itself included, are inliers.

    Args:
        inliers: Booleans of shape (patches, P, P).
        size: The side of the neighbourhood. What lies outside the patch counts as no inlier.
        needed: The part that must be exceeded.

    Returns:
        Booleans of the same shape.

    Example:
        >>> inliers = torch.tensor([[[1, 1, 0], [1, 0, 0], [1, 1, 0]]], dtype=torch.bool)
        >>> neighbours_agree(inliers).int().tolist()
        [[[0, 0, 0], [1, 1, 0], [0, 0, 0]]]
    """
    window = torch.ones(1, 1, size, size, device=inliers.device)
    counts = torch.nn.functional.conv2d(inliers[:, None].float(), window, padding="same")[:, 0]
    return counts > needed * size**2


def patch_agrees(inliers: Tensor, inner: int = 8, needed: float = 0.6) -> Tensor:
    """Return the inner pixels of those patches of which more than the needed part are inliers.

    Args:
        inliers: Booleans of shape (patches, P, P).
        inner: The side of the inner part of a patch, in its middle.
        needed: The part that must be exceeded.

    Returns:
        Booleans of the same shape.

    Example:
        >>> inliers = torch.ones(1, 4, 4, dtype=torch.bool)
        >>> patch_agrees(inliers, inner=2).int().tolist()
        [[[0, 0, 0, 0], [0, 1, 1, 0], [0, 1, 1, 0], [0, 0, 0, 0]]]
    """
    side = inliers.shape[-1]
    if not 0 < inner <= side:
        raise ValueError(f"inner = {inner}: pass a number above 0 and at most the patch's side, {side}")
    start = (side - inner) // 2
    middle = torch.zeros(side, side, dtype=torch.bool, device=inliers.device)
    middle[start : start + inner, start : start + inner] = True
    return (inliers.float().mean((1, 2), keepdim=True) > needed) & middle


def vote(inliers: Tensor) -> Tensor:
    """Return which pixels to keep: inliers, and those whose neighbours or whose patch are.

    Args:
        inliers: Booleans of shape (patches, P, P).

    Returns:
        Booleans of the same shape.

    Example:
        >>> inliers = torch.ones(1, 16, 16, dtype=torch.bool)
        >>> inliers[0, 7, 7] = inliers[0, 0, 0] = False
        >>> vote(inliers).int().sum().item()  # the corner has too few neighbours, and is not an inner pixel
        255
    """
    return inliers | neighbours_agree(inliers) | patch_agrees(inliers, inner=max(inliers.shape[-1] // 2, 1))


def kept_pixels(errors: Tensor, threshold: Tensor | float) -> Tensor:
    """Return RobustNeRF's mask of patches.

    Args:
        errors: One error a pixel, of shape (patches, P, P): the mean squared error of its colour.
        threshold: :func:`next_threshold` of the step before.

    Returns:
        Booleans of the same shape.

    Example:
        >>> errors = torch.tensor([[[0.1, 0.1], [0.1, 0.9]]])
        >>> kept_pixels(errors, 0.5).int().tolist()
        [[[1, 1], [1, 0]]]
    """
    return vote(errors < threshold)
