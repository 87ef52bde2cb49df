"""Wrong pixels on purpose, with the truth beside them: noise, an object that moves, wrong exposure.

Each function takes a photo and returns the corrupted one and the mask of the pixels that are wrong. All that
is random comes from the seed and the photo's file name, so a photo is corrupted in the same way wherever and
in whatever order it is read.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable

import torch
from torch import Tensor

__all__ = ["CORRUPTIONS", "moving_object", "pixel_noise", "wrong_exposure"]

OBJECT_SHARE = 0.2
"""The part of a photo that the moving object covers where it is wholly inside."""

SMALLEST_CHANGE = 1 / 255
"""A colour that changes by no more than this, as black does in a longer exposure, is not wrong."""


def pixel_noise(image: Tensor, rate: float, name: str, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Replace the colour of each pixel by uniform noise with a probability, drawn once for each pixel.

    The same numbers are drawn at every rate: a pixel that is wrong at 20 % has the same wrong colour at 50 %.

    Args:
        image: Colours in [0, 1], [H, W, 3], or [H, W, 4] with alpha, which is 1 where a colour is replaced.
        rate: The probability, at least 0 and below 1.
        name: The photo's file name.
        seed: Of the draw, together with the name.

    Returns:
        The new image, and the mask [H, W] of its wrong pixels.

    Example:
        >>> import torch
        >>> noisy, wrong = pixel_noise(torch.zeros(100, 100, 3), 0.5, "0001.png")
        >>> abs(float(wrong.float().mean()) - 0.5) < 0.02, bool(noisy[~wrong].any())
        (True, False)

    Reference: section 6.3 of the paper.
    """
    _check(image, rate)
    generator = _generator("noise", seed, name)
    size = image.shape[:2]
    wrong = torch.rand(size, generator=generator) < rate
    return _replace(image, wrong, torch.rand(*size, 3, generator=generator)), wrong


def moving_object(image: Tensor, rate: float, name: str, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Paste a striped disc into some of the photos, each time elsewhere: somebody who walks by.

    Its looks come from the seed alone, so it is the same object in all photos of a scene.

    Args:
        image: As in :func:`pixel_noise`.
        rate: The probability that it is in a photo.
        name: The photo's file name.
        seed: Of the draw, together with the name.

    Returns:
        The new image, and the mask [H, W] of its wrong pixels.

    Example:
        >>> import torch
        >>> _, wrong = moving_object(torch.zeros(90, 160, 3), 0.99, "0001.png")
        >>> 0.05 < float(wrong.float().mean()) < 0.21
        True
    """
    _check(image, rate)
    height, width = image.shape[:2]
    looks, place = _generator("object", seed, ""), _generator("object", seed, name)
    first, second = torch.rand(2, 3, generator=looks)
    is_there, across, down = torch.rand(3, generator=place).tolist()
    if is_there >= rate:
        return image, torch.zeros(height, width, dtype=torch.bool)
    radius = math.sqrt(OBJECT_SHARE * height * width / math.pi)
    y = (torch.arange(height)[:, None] - down * height) / radius
    x = (torch.arange(width)[None, :] - across * width) / radius
    stripes = torch.sin(4 * math.pi * (x + y))[..., None] > 0
    wrong = x.square() + y.square() < 1
    return _replace(image, wrong, torch.where(stripes, first, second)), wrong


def wrong_exposure(image: Tensor, rate: float, name: str, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Expose some of the photos wrongly: all colours times 2 to the power of 1 to 1.5, up or down.

    Args:
        image: As in :func:`pixel_noise`; alpha stays as it is.
        rate: The probability that a photo is exposed wrongly.
        name: The photo's file name.
        seed: Of the draw, together with the name.

    Returns:
        The new image, clipped to [0, 1], and the mask [H, W] of the pixels that look different for it.

    Example:
        >>> import torch
        >>> dark_or_bright, wrong = wrong_exposure(torch.full((2, 2, 3), 0.5), 0.99, "0001.png")
        >>> bool(wrong.all())
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
    # Python's own hash of a string changes from process to process.
    digest = hashlib.sha256(f"{kind} {seed} {name}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)


def _replace(image: Tensor, wrong: Tensor, colours: Tensor) -> Tensor:
    opaque = torch.ones(*image.shape[:2], image.shape[2] - 3)
    new = torch.cat([colours.expand(*image.shape[:2], 3), opaque], -1).to(image)
    return torch.where(wrong[..., None].to(image.device), new, image)
