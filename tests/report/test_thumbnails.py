"""Small images of samples: what is accepted, and that pixels are kept."""

from __future__ import annotations

import io
import math

import numpy as np
import pytest
import torch
from PIL import Image

from inlier.report._thumbnails import thumbnail


def opened(source):
    return Image.open(io.BytesIO(thumbnail(source)))


@pytest.mark.parametrize(
    ("shape", "size"),
    [
        ((1, 5, 7), (7, 5)),
        ((5, 7), (7, 5)),
        ((5, 7, 3), (7, 5)),
        ((4, 5, 7), (7, 5)),
        ((3, 300, 100), (21, 64)),
    ],
)
def test_shapes(shape, size):
    for image in (torch.rand(shape), np.zeros(shape, np.uint8), torch.zeros(shape, dtype=torch.bool)):
        assert opened(image).size == size


def test_normalized_pixels_are_stretched_and_others_are_not():
    def grey(pixels):
        return np.array(opened(pixels))[..., 0].tolist()

    assert grey(torch.tensor([[0.0, 0.2]])) == [[0, 51]]
    assert grey(torch.tensor([[-2.0, 0.0, 2.0]])) == [[0, 128, 255]]
    assert grey(torch.tensor([[math.nan, 1.0]])) == [[0, 255]]


def test_files_and_pillow_images(tmp_path):
    Image.new("RGBA", (900, 300), (1, 2, 3, 255)).save(tmp_path / "a.png")
    for source in (tmp_path / "a.png", str(tmp_path / "a.png"), Image.open(tmp_path / "a.png")):
        small = opened(source)
        assert small.size == (64, 21)
        assert small.getpixel((0, 0)) == (1, 2, 3, 255)
    (tmp_path / "b.png").write_text("not an image")
    for name in ("b.png", "missing.png"):
        with pytest.raises(ValueError, match=f"{name}' cannot be read as an image"):
            thumbnail(tmp_path / name)
    with pytest.raises(ValueError, match=r"shape \(2, 2, 2\) is not an image"):
        thumbnail(torch.zeros(2, 2, 2))
