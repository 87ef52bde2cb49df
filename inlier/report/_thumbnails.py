"""Small images of samples, as PNG bytes."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["thumbnail"]

SIDE = 64
"""Pixels of the longer side, at most, by default."""


def thumbnail(source: Any, side: int = SIDE) -> bytes:
    """Return an image as a small PNG file.

    Floating-point pixels in [0, 1] are kept; others (images that were normalized for a network) are stretched
    from their smallest to their largest value.

    Args:
        source: A Pillow image, a path to an image file, or a tensor or array of shape (H, W), (C, H, W) or
            (H, W, C) with 1, 3 or 4 channels.
        side: Pixels of the longer side, at most.

    Returns:
        The bytes of a PNG file.

    Raises:
        ValueError: For an array of another shape, or a file that is not an image.

    Example:
        >>> thumbnail(torch.rand(3, 200, 100))[1:4]
        b'PNG'
    """
    try:
        from PIL import Image
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            'images in a report need Pillow: pip install "inlier[report]"', name=error.name
        ) from None
    if isinstance(source, str | Path):
        try:
            with Image.open(source) as opened:
                return _png(opened, side)
        except (OSError, SyntaxError, Image.DecompressionBombError) as error:
            raise ValueError(f"images: {str(source)!r} cannot be read as an image: {error}") from None
    if isinstance(source, Image.Image):
        return _png(source, side)
    return _png(Image.fromarray(_pixels(source)), side)


def _png(image: Image, side: int) -> bytes:
    small = image.convert("RGBA" if "A" in image.getbands() or "transparency" in image.info else "RGB")
    small.thumbnail((side, side))
    buffer = io.BytesIO()
    small.save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def _pixels(array: Any) -> Any:
    """Return an array or tensor as bytes of shape (H, W) or (H, W, C)."""
    pixels = torch.as_tensor(array).detach().cpu()
    if pixels.dim() == 3 and pixels.shape[0] in (1, 3, 4):
        pixels = pixels.permute(1, 2, 0)
    if pixels.dim() == 3 and pixels.shape[2] == 1:
        pixels = pixels[..., 0]
    if (
        pixels.numel() == 0
        or pixels.dim() not in (2, 3)
        or (pixels.dim() == 3 and pixels.shape[2] not in (3, 4))
    ):
        raise ValueError(
            f"images: shape {tuple(torch.as_tensor(array).shape)} is not an image: pass (H, W), (C, H, W) or "
            "(H, W, C) with 1, 3 or 4 channels"
        )
    if pixels.is_floating_point():
        pixels = pixels.double().nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
        low, high = float(pixels.min()), float(pixels.max())
        if low < 0 or high > 1:
            pixels = (pixels - low) / max(high - low, 1e-12)
        pixels = (255 * pixels).round()
    elif pixels.dtype == torch.bool:
        pixels = 255 * pixels.int()
    return pixels.clamp(0, 255).to(torch.uint8).contiguous().numpy()
