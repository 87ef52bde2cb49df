"""The loss of Gaussian splatting, L1 and SSIM of a whole image, with a weight for each pixel."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

__all__ = ["weighted_image_loss"]


def weighted_image_loss(
    prediction: Tensor,
    target: Tensor,
    weights: Tensor,
    ssim: Callable[[Tensor, Tensor], Tensor],
    ssim_share: float = 0.2,
) -> Tensor:
    """Return (1 - s) mean(u |p - t|) + s (1 - SSIM(u t + (1 - u) p', p)), where p' is p without a gradient.

    A pixel of weight 0 is seen as it is predicted. So it has no error of its own, and none in the windows of its
    neighbours either, which SSIM compares. With weight 1 everywhere this is the loss of Gaussian splatting.

    Args:
        prediction: The rendered image p, of shape H x W x C.
        target: The image t, of the same shape.
        weights: u of each pixel, of shape H x W.
        ssim: The structural similarity of two batches of images, of shape 1 x C x H x W.
        ssim_share: s, the share of SSIM in the loss.

    Returns:
        A scalar.

    Raises:
        ValueError: If the shapes do not fit.

    Example:
        >>> image, constant = torch.rand(16, 16, 3), lambda a, b: torch.tensor(1.0)
        >>> wrong = image.clone()
        >>> wrong[:4] = 0.0
        >>> weights = (wrong == image).all(-1).float()
        >>> float(weighted_image_loss(image, wrong, weights, constant))
        0.0

    Reference: B. Kerbl, G. Kopanas, T. Leimkühler, G. Drettakis (2023), 3D Gaussian Splatting for Real-Time
        Radiance Field Rendering, equation 7.
    """
    if prediction.shape != target.shape or weights.shape != target.shape[:2]:
        raise ValueError(
            f"prediction, target and weights have shapes {tuple(prediction.shape)}, {tuple(target.shape)} and "
            f"{tuple(weights.shape)}: pass two images of H x W x C and weights of H x W"
        )
    error = (weights * (prediction - target).abs().mean(-1)).mean()
    seen = torch.lerp(prediction.detach(), target, weights[..., None])
    similarity = ssim(_batched(seen), _batched(prediction))
    return (1 - ssim_share) * error + ssim_share * (1 - similarity)


def _batched(image: Tensor) -> Tensor:
    return image.permute(2, 0, 1)[None]
