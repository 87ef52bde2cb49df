"""The exposure of each image: a gain for each of its colours, fitted beside the scene."""

from __future__ import annotations

import torch
from torch import Tensor, nn

__all__ = ["SETTLED", "ImageGains"]

SETTLED = 5
"""After so many times the warm-up, images whose gain is small count as exposed as usual."""

SMALL = 0.5
"""A gain is small if it is below this many stops, mean over the colours."""

HORIZON = 100
"""About how many recent steps the gains are fitted to: the scene that they are relative to still changes."""


class ImageGains(nn.Module):
    """By how much each image is brighter than the scene, in each colour.

    The gain of an image is the weighted least-squares factor from predicted to given colours,

        g = sum u p t / sum u p^2,

    over its recent rays, divided by the median gain of all images: a scene has no brightness of its own, and most
    images are assumed to be exposed alike.

    The gains of neighbours drift together, and the scene with them. So once they have settled, those that are small
    are taken for 1, and the scene has the brightness of these images. (Earlier, gains that are needed are small too.)

    Args:
        images: The number of training images.
        settle: The number of steps after which small gains are taken for 1; None for never.

    Example:
        >>> gains = ImageGains(3)
        >>> prediction, image = torch.rand(300, 3), torch.arange(300) % 3
        >>> target = prediction * torch.tensor([1.0, 1.0, 0.5])[image][:, None]
        >>> gains.observe(prediction, target, torch.ones(300), image)
        >>> gains.gains()[:, 0].round(decimals=2)
        tensor([1.0000, 1.0000, 0.5000])
        >>> torch.allclose(gains.corrected(target, prediction, image), prediction, atol=1e-5)
        True
    """

    sums: Tensor
    steps: Tensor

    def __init__(self, images: int, settle: int | None = None) -> None:
        super().__init__()
        self.settle = settle
        self.register_buffer("sums", torch.zeros(2, images, 3))
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    @torch.no_grad()
    def observe(self, prediction: Tensor, target: Tensor, weights: Tensor, image: Tensor) -> None:
        """Take in the rays of a step.

        Args:
            prediction: Their predicted colours.
            target: Their given colours. Saturated ones say nothing, and are left out.
            weights: Their weights.
            image: The number of the image of each.
        """
        used = weights[:, None] * (target < 1)
        new = torch.stack([used * prediction * target, used * prediction.square()])
        self.steps += 1
        self.sums.mul_(1 - 1 / HORIZON).index_add_(1, image, new.to(self.sums))

    def gains(self) -> Tensor:
        """Return the gain of each image in each colour, 1 where nothing was seen."""
        cross, square = self.sums
        raw = torch.where(square > 0, cross / square, torch.nan).clamp(min=1e-3)
        return (raw / raw.nanmedian(0).values).nan_to_num(1.0)

    def applied(self) -> Tensor:
        """Return the gains that colours are corrected by: 1 in place of small ones once they have settled."""
        gains = self.gains()
        if self.settle is None:
            return gains
        small = gains.log2().mean(1, keepdim=True).abs() < SMALL
        return torch.where(small & (self.steps >= self.settle), torch.ones_like(gains), gains)

    def corrected(self, target: Tensor, prediction: Tensor, image: Tensor) -> Tensor:
        """Return colours as an image of the usual exposure would show them.

        Args:
            target: The given colours.
            prediction: The predicted ones. A saturated colour was at least as bright as it looks: it has no error
                where the prediction is brighter.
            image: The number of the image of each.
        """
        corrected = target / self.applied()[image].to(target)
        return torch.where(target < 1, corrected, torch.maximum(corrected, prediction.detach()))
