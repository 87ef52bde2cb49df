"""In place of LPIPS where its weights are missing."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

__all__ = ["MissingLpips"]


class MissingLpips(nn.Module):
    """A metric that is unknown.

    Example:
        >>> MissingLpips()(torch.rand(1, 3, 8, 8), torch.rand(1, 3, 8, 8))
        tensor(nan)
    """

    def forward(self, target: Tensor, prediction: Tensor) -> Tensor:
        """Return NaN."""
        return torch.tensor(math.nan)
