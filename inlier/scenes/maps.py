"""Maps of the outlier pixels of photos: a PNG file each, and a contact sheet of all as one HTML file."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from inlier.files import write_whole
from inlier.report.pictures import thumbnail
from inlier.report.template import fill, read
from inlier.report.words import percent

__all__ = ["Photo", "outlier_map", "outlier_share", "write_maps"]

SHEET = "index.html"
SIDE = 320
"""Pixels of the longer side of a picture in the contact sheet."""


@dataclass(frozen=True)
class Photo:
    """A training photo and what is believed of its pixels.

    Args:
        name: What to call it; its map has this name with another suffix.
        picture: The photo itself: a path, a Pillow image or an array, as
            :func:`inlier.report.pictures.thumbnail` takes it.
        weights: The weight of each pixel in [0, 1], [H, W], NaN where none was ever given.
    """

    name: str
    picture: Any
    weights: Tensor


def outlier_map(weights: Tensor) -> bytes:
    """Return the map of a photo's outlier pixels as a PNG file: grey with alpha.

    Grey is one minus the weight, so outliers are white and inliers black; alpha is 0 where training has not
    looked, 255 elsewhere.

    Args:
        weights: As in :class:`Photo`.

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

    The scale is such that the mean weight is the fraction of inliers, so the photos of a scene together have
    the share of outliers that training has found, however soft the kernel.

    Example:
        >>> import torch
        >>> round(outlier_share(torch.tensor([[1.0, 0.1, 0.9, 1.0, float("nan")]])), 2)
        0.25
    """
    known = weights[~weights.isnan()]
    return 1 - float(known.double().mean()) if known.numel() else math.nan


def write_maps(photos: Iterable[Photo], folder: Path, title: str) -> Path:
    """Write a map for each photo, and the contact sheet, most suspect photos first.

    Args:
        photos: The photos; two of one name are told apart by a number.
        folder: Where to; made if need be. Files of the same names are replaced, others left alone.
        title: What the sheet is called.

    Returns:
        The path of the contact sheet, ``index.html``.
    """
    folder.mkdir(parents=True, exist_ok=True)
    shown: list[tuple[float, dict[str, str]]] = []
    taken: set[str] = set()
    for photo in photos:
        stem = Path(photo.name).stem
        # By lower case, as there are file systems that do not tell A from a.
        names = (f"{stem}{number}.png" for number in ("", *(f"-{k}" for k in range(2, len(taken) + 3))))
        name = next(name for name in names if name.lower() not in taken)
        taken.add(name.lower())
        content = outlier_map(photo.weights)
        write_whole(folder / name, content)
        share = outlier_share(photo.weights)
        card = {
            "name": photo.name,
            "share": "never looked at" if math.isnan(share) else f"{percent(share)} outliers",
            "picture": base64.b64encode(thumbnail(photo.picture, SIDE)).decode(),
            "map": base64.b64encode(_small(content)).decode(),
        }
        shown.append((share, card))
    shares = [share for share, _ in shown if not math.isnan(share)]
    shown.sort(key=lambda pair: -pair[0] if not math.isnan(pair[0]) else math.inf)
    mean = sum(shares) / len(shares) if shares else math.nan
    photos_shown = f"{len(shown)} photo{'s' if len(shown) > 1 else ''}"
    if not shares:
        headline = "Training has judged no pixel yet"
    elif mean < 0.0005:
        headline = f"All pixels in {photos_shown} fit the scene"
    else:
        headline = f"{percent(mean)} of the pixels in {photos_shown} do not fit the scene"
    style = read("inlier.report", "report.css") + read("inlier.scenes", "sheet.css")
    page = fill(
        read("inlier.scenes", "sheet.html"),
        style,
        title=title,
        headline=headline,
        photos=[card for _, card in shown],
    )
    write_whole(folder / SHEET, page.encode("utf-8", "replace"))
    return folder / SHEET


def _small(content: bytes) -> bytes:
    from PIL import Image

    with Image.open(io.BytesIO(content)) as image:
        return thumbnail(image, SIDE)
