"""Pixels have a dataset index too: they are numbered over all training images, row by row."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["PixelIndex"]


class PixelIndex:
    """The dataset index of each pixel of the training images.

    Args:
        sizes: Height and width of each image, [images, 2].

    Example:
        >>> pixels = PixelIndex(torch.tensor([[2, 3], [4, 5]]))
        >>> pixels.total, pixels.of(torch.tensor([[0, 1, 2], [1, 0, 0], [1, 3, 4]])).tolist()
        (26, [5, 6, 25])
        >>> pixels.image(torch.arange(26), 0).tolist()
        [[0, 1, 2], [3, 4, 5]]
    """

    def __init__(self, sizes: Tensor) -> None:
        self.sizes = sizes.cpu()
        counts = self.sizes.prod(1)
        self.total = int(counts.sum())
        # The first pixel of each image, and the image's width.
        self._table = torch.stack([counts.cumsum(0) - counts, self.sizes[:, 1]])

    def of(self, places: Tensor) -> Tensor:
        """Return the index of pixels given as (image, y, x), [..., 3]."""
        self._table = self._table.to(places.device)
        image, y, x = places.unbind(-1)
        first, width = self._table[:, image].unbind(0)
        return first + y * width + x

    def image(self, values: Tensor, image: int) -> Tensor:
        """Return an image's part of values that have one entry for each pixel, [H, W]."""
        height, width = self.sizes[image].tolist()
        first = int(self._table[0, image])
        return values[first : first + height * width].view(height, width)
