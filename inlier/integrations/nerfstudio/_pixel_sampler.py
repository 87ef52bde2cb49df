"""Which pixels rays go through: half of them evenly drawn, half through pixels that fitted the scene before.

With 80 % outliers a batch has few clean rays, and what the others add to the gradient is noise, however small their
weights. So half of the rays are chosen from a larger, evenly drawn pool, by the weight that is remembered of their
pixels. The other half stays evenly drawn: every pixel is seen, and the share of clean pixels can be estimated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from nerfstudio.data.pixel_samplers import PixelSampler, PixelSamplerConfig
from torch import Tensor

__all__ = ["EVENLY_DRAWN", "PreferringPixelSampler", "PreferringPixelSamplerConfig", "choose"]

EVENLY_DRAWN = "evenly_drawn"
"""The key of a batch that says which rays were drawn evenly."""

POOL = 16
"""A ray is chosen from a pool of so many."""

SHARPNESS = 3
"""... with a probability proportional to this power of its weight: what is not known yet has a middling one."""

LEAST = 1e-3
"""Pixels of weight 0 are chosen too, if there are no others."""


@dataclass
class PreferringPixelSamplerConfig(PixelSamplerConfig):  # type: ignore[misc]
    """The options of nerfstudio's sampler."""

    _target: type = field(default_factory=lambda: PreferringPixelSampler)


class PreferringPixelSampler(PixelSampler):  # type: ignore[misc]
    """Nerfstudio's sampler of pixels, of which half prefer what is known to fit the scene."""

    num_rays_per_batch: int
    weights_of: Callable[[Tensor], Tensor | None] | None = None
    """From pixels (image, y, x) to their weights, or None as long as all are to be drawn evenly."""

    def sample(self, image_batch: dict[str, Any]) -> dict[str, Any]:
        """Return the pixels of a batch; those that were drawn evenly come first, and are marked."""
        rays = self.num_rays_per_batch
        even = rays - rays // 2
        if self.weights_of is None or self.config.keep_full_image:
            batch: dict[str, Any] = super().sample(image_batch)
            return batch
        try:
            self.num_rays_per_batch = even + POOL * (rays - even)
            pool: dict[str, Any] = super().sample(image_batch)
        finally:
            self.num_rays_per_batch = rays
        weights = self.weights_of(pool["indices"][even:])
        chosen = torch.arange(rays)
        if weights is not None:
            chosen[even:] = even + choose(weights.cpu(), rays - even)
        batch = {key: values[chosen.to(values.device)] for key, values in pool.items()}
        is_even = torch.arange(rays) < even if weights is not None else torch.ones(rays, dtype=torch.bool)
        return batch | {EVENLY_DRAWN: is_even}


def choose(weights: Tensor, number: int) -> Tensor:
    """Draw places without repetition, with probabilities proportional to a power of their weights.

    Args:
        weights: Between 0 and 1.
        number: How many to draw.

    Example:
        >>> choose(torch.tensor([0.0, 1.0, 1e-6, 1.0]), 2).sort().values
        tensor([1, 3])
    """
    return torch.multinomial(weights.float().pow(SHARPNESS).clamp(min=LEAST), number, replacement=False)
