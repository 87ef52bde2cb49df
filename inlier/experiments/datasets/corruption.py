"""Corrupted images with the mask of their corrupted pixels: noise, a moving object, wrong exposure.

Each function takes an image and returns the corrupted one and the mask. All randomness comes from the seed
and the image's file name, so an image is corrupted in the same way wherever and in whatever order it is read.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable

import torch
from torch import Tensor

__all__ = ["CORRUPTIONS", "moving_object", "pixel_noise", "wrong_exposure"]

OBJECT_SHARE = 0.2
"""The part of an image that the moving object covers if it is entirely inside."""

SMALLEST_CHANGE = 1 / 255
"""A colour that changes by no more than this, as black does under another exposure, is not corrupted."""


def pixel_noise(image: Tensor, rate: float, name: str, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Replace the colour of each pixel, independently and with a given probability, by uniform noise.

    Pixels that are corrupted at 20 % are corrupted at 50 % too, with the same colour.

    Args:
        image: Colours in [0, 1], [H, W, 3], or [H, W, 4] with alpha, which is 1 where a colour is replaced.
        rate: The probability, at least 0 and below 1.
        name: The image's file name.
        seed: Seeds the corruption, together with the name.

    Returns:
        The new image, and the mask [H, W] of its corrupted pixels.

    Example:
        >>> import torch
        >>> noisy, corrupted = pixel_noise(torch.zeros(100, 100, 3), 0.5, "0001.png")
        >>> abs(float(corrupted.float().mean()) - 0.5) < 0.02, bool(noisy[~corrupted].any())
        (True, False)

    Reference: section 6.3 of the paper.
    """
    _check(image, rate)
    generator = _generator("noise", seed, name)
    size = image.shape[:2]
    corrupted = torch.rand(size, generator=generator) < rate
    return _replace(image, corrupted, torch.rand(*size, 3, generator=generator)), corrupted


def moving_object(image: Tensor, rate: float, name: str, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Paste a striped disc into some of the images, each time elsewhere: a distractor.

    Its appearance depends on the seed alone, so it is the same object in all images of a scene.

    Args:
        image: As in :func:`pixel_noise`.
        rate: The probability that it is in an image.
        name: The image's file name.
        seed: Seeds the corruption, together with the name.

    Returns:
        The new image, and the mask [H, W] of its corrupted pixels.

    Example:
        >>> import torch
        >>> _, corrupted = moving_object(torch.zeros(90, 160, 3), 0.99, "0001.png")
        >>> 0.05 < float(corrupted.float().mean()) < 0.21
        True
    """
    _check(image, rate)
    height, width = image.shape[:2]
    appearance, position = _generator("object", seed, ""), _generator("object", seed, name)
    first, second = torch.rand(2, 3, generator=appearance)
    is_there, across, down = torch.rand(3, generator=position).tolist()
    if is_there >= rate:
        return image, torch.zeros(height, width, dtype=torch.bool)
    radius = math.sqrt(OBJECT_SHARE * height * width / math.pi)
    y = (torch.arange(height)[:, None] - down * height) / radius
    x = (torch.arange(width)[None, :] - across * width) / radius
    stripes = torch.sin(4 * math.pi * (x + y))[..., None] > 0
    corrupted = x.square() + y.square() < 1
    return _replace(image, corrupted, torch.where(stripes, first, second)), corrupted


def wrong_exposure(image: Tensor, rate: float, name: str, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Expose some of the images wrongly: all colours times 2 to the power of 1 to 1.5, up or down.

    Args:
        image: As in :func:`pixel_noise`; alpha stays as it is.
        rate: The probability that an image is exposed wrongly.
        name: The image's file name.
        seed: Seeds the corruption, together with the name.

    Returns:
        The new image, clipped to [0, 1], and the mask [H, W] of the pixels that it changes.

    Example:
        >>> import torch
        >>> _, corrupted = wrong_exposure(torch.full((2, 2, 3), 0.5), 0.99, "0001.png")
        >>> bool(corrupted.all())
        True
    """
    _check(image, rate)
    is_wrong, sign, amount = torch.rand(3, generator=_generator("exposure", seed, name)).tolist()
    if is_wrong >= rate:
        return image, torch.zeros(image.shape[:2], dtype=torch.bool)
    stops = (1 + amount / 2) * (1 if sign < 0.5 else -1)
    new = torch.cat([(image[..., :3] * 2**stops).clamp(max=1), image[..., 3:]], -1)
    return new, (new - image).abs().amax(-1) > SMALLEST_CHANGE


CORRUPTIONS: dict[str, Callable[[Tensor, float, str, int], tuple[Tensor, Tensor]]] = {
    "noise": pixel_noise,
    "object": moving_object,
    "exposure": wrong_exposure,
}
"""The corruptions by name."""


def _check(image: Tensor, rate: float) -> None:
    if image.dim() != 3 or image.shape[2] not in (3, 4) or not image.is_floating_point():
        raise ValueError(
            f"image of shape {tuple(image.shape)} and {image.dtype}: pass colours in [0, 1] as floats, "
            "[H, W, 3] or [H, W, 4]"
        )
    if not 0 <= rate < 1:
        raise ValueError(f"rate = {rate}: pass a probability, at least 0 and below 1")


def _generator(kind: str, seed: int, name: str) -> torch.Generator:
    # Python's own hash of a string differs between processes.
    digest = hashlib.sha256(f"{kind} {seed} {name}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)


def _replace(image: Tensor, corrupted: Tensor, colours: Tensor) -> Tensor:
    opaque = torch.ones(*image.shape[:2], image.shape[2] - 3)
    new = torch.cat([colours.expand(*image.shape[:2], 3), opaque], -1).to(image)
    return torch.where(corrupted[..., None].to(image.device), new, image)
