"""Small images whose class is their colour, for tests."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image

COLOURS = {"blue": (40, 60, 220), "green": (40, 200, 60), "red": (220, 50, 40)}


def blot(colour, seed, height=32, width=32) -> np.ndarray:
    """A disc or a square of a colour at a random place, on noise."""
    random = np.random.default_rng(seed)
    pixels = random.integers(0, 120, (height, width, 3))
    y, x = np.mgrid[:height, :width]
    cy, cx = random.uniform(0.35, 0.65, 2) * (height, width)
    radius = random.uniform(0.2, 0.35) * min(height, width)
    disc = (y - cy) ** 2 + (x - cx) ** 2 < radius**2
    square = np.maximum(abs(y - cy), abs(x - cx)) < radius
    pixels[disc if seed % 2 else square] = colour
    return pixels.astype(np.uint8)


def jpeg(pixels) -> bytes:
    """The bytes of a JPEG file of uint8 pixels, [height, width, 3]."""
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "JPEG")
    return buffer.getvalue()
