"""Maps of the outlier pixels of images: a PNG file each, and a contact sheet of all as one HTML file."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from inlier._files import write_whole
from inlier.report._template import fill, read
from inlier.report._thumbnails import thumbnail
from inlier.report._wording import percent

__all__ = ["WeightedImage", "outlier_map", "outlier_share", "write_maps"]

SHEET = "index.html"
SIDE = 320
"""Pixels of the longer side of an image in the contact sheet."""

SMALLEST_STOPS = 0.2
"""Smaller differences of exposure are not shown."""


@dataclass(frozen=True)
class WeightedImage:
    """A training image and the weights of its pixels.

    Args:
        name: What to call it; its map has this name with another suffix.
        image: The image itself: a path, a Pillow image or an array, as
            :func:`inlier.report._thumbnails.thumbnail` takes it.
        weights: The weight of each pixel in [0, 1], [H, W], NaN where a pixel was never seen.
        stops: By how many stops (powers of 2) the image is brighter than the others.
    """

    name: str
    image: Any
    weights: Tensor
    stops: float = 0.0


def outlier_map(weights: Tensor) -> bytes:
    """Return the map of an image's outlier pixels as a PNG file: grey with alpha.

    Grey is one minus the weight, so outliers are white and inliers black; alpha is 0 where a pixel was never
    seen, 255 elsewhere.

    Args:
        weights: As in :class:`WeightedImage`.

    Example:
        >>> import torch
        >>> outlier_map(torch.tensor([[1.0, 0.0, float("nan")]]))[1:4]
        b'PNG'
    """
    import numpy as np
    from PIL import Image

    if weights.dim() != 2 or not weights.numel():
        raise ValueError(f"weights of shape {tuple(weights.shape)}: pass one weight for each pixel, [H, W]")
    known = ~weights.isnan()
    grey = (255 * (1 - weights.double().clamp(0, 1))).nan_to_num(0.0).round()
    pixels = np.stack([grey.cpu().numpy(), 255 * known.cpu().numpy()], -1).astype(np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def outlier_share(weights: Tensor) -> float:
    """Return the share of outliers among pixels that have a weight: one minus the mean weight, NaN for none.

    The scale is such that the mean weight is the fraction of inliers, so the images of a scene together have
    the share of outliers that training has found, however soft the kernel.

    Example:
        >>> import torch
        >>> round(outlier_share(torch.tensor([[1.0, 0.1, 0.9, 1.0, float("nan")]])), 2)
        0.25
    """
    known = weights[~weights.isnan()]
    return 1 - float(known.double().mean()) if known.numel() else math.nan


def write_maps(images: Iterable[WeightedImage], folder: Path, title: str) -> Path:
    """Write a map for each image, and the contact sheet, most suspect images first.

    Args:
        images: The images; where names are equal, maps get a number.
        folder: Where to; made if need be. Files of the same names are replaced, others left alone.
        title: The title of the sheet.

    Returns:
        The path of the contact sheet, ``index.html``.
    """
    folder.mkdir(parents=True, exist_ok=True)
    shown: list[tuple[float, dict[str, str]]] = []
    taken: set[str] = set()
    for image in images:
        stem = Path(image.name).stem
        # By lower case: to some file systems A and a are the same.
        names = (f"{stem}{number}.png" for number in ("", *(f"-{k}" for k in range(2, len(taken) + 3))))
        name = next(name for name in names if name.lower() not in taken)
        taken.add(name.lower())
        content = outlier_map(image.weights)
        write_whole(folder / name, content)
        share = outlier_share(image.weights)
        card = {
            "name": image.name,
            "share": "never seen" if math.isnan(share) else f"{percent(share)} outliers{_exposure(image)}",
            "image": base64.b64encode(thumbnail(image.image, SIDE)).decode(),
            "map": base64.b64encode(_small(content)).decode(),
        }
        shown.append((share, card))
    shares = [share for share, _ in shown if not math.isnan(share)]
    shown.sort(key=lambda pair: -pair[0] if not math.isnan(pair[0]) else math.inf)
    mean = sum(shares) / len(shares) if shares else math.nan
    of_images = f"of {len(shown)} image{'s' if len(shown) > 1 else ''}"
    if not shares:
        headline = "No pixel has a weight yet"
    elif mean < 0.0005:
        headline = f"All pixels {of_images} fit the scene"
    else:
        headline = f"{percent(mean)} of the pixels {of_images} do not fit the scene"
    style = read("inlier.report", "report.css") + read("inlier.integrations.nerfstudio", "sheet.css")
    page = fill(
        read("inlier.integrations.nerfstudio", "sheet.html"),
        style,
        title=title,
        headline=headline,
        images=[card for _, card in shown],
    )
    write_whole(folder / SHEET, page.encode("utf-8", "replace"))
    return folder / SHEET


def _exposure(image: WeightedImage) -> str:
    if abs(image.stops) < SMALLEST_STOPS:
        return ""
    return f", {abs(image.stops):.1f} stops {'brighter' if image.stops > 0 else 'darker'}"


def _small(content: bytes) -> bytes:
    from PIL import Image

    with Image.open(io.BytesIO(content)) as image:
        return thumbnail(image, SIDE)
