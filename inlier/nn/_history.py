"""The course of scale and inlier fraction, as a list that stays short however long the training is."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from inlier.nn._state import State

__all__ = ["MOST", "History"]

MOST = 500
"""At this many points every second one is dropped, and from then on only every second one is taken."""


class History(list[tuple[int, float, float]]):
    """Points (call, scale, inlier fraction) in order, fewer than MOST, evenly spread over the updates.

    Example:
        >>> history = History()
        >>> for call in range(2000):
        ...     history.record(call, 2.0, 0.625)
        >>> history[:2], len(history) < MOST
        ([(0, 2.0, 0.625), (8, 2.0, 0.625)], True)
    """

    def __init__(self) -> None:
        super().__init__()
        self.stride, self.recorded = 1, 0

    def record(self, call: int, scale: float, inlier_fraction: float) -> None:
        """Add a point, or skip it where the list has been thinned."""
        if self.recorded % self.stride == 0:
            self.append((call, scale, inlier_fraction))
        self.recorded += 1
        if len(self) == MOST:
            del self[1::2]
            self.stride *= 2

    def state(self) -> Tensor:
        """Return it as one tensor, for a checkpoint."""
        return torch.tensor([(self.stride, self.recorded, 0.0), *self], dtype=torch.float64)

    @classmethod
    def restored(cls, state: State) -> History:
        """Return what :meth:`state` was taken from, or raise ``ValueError``."""
        (stride, recorded, _), *points = state.read("history", torch.float64, (None, 3)).tolist() or [
            (0, 0, 0)
        ]
        if stride < 1 or len(points) != math.ceil(recorded / stride):
            raise ValueError(f"history has {len(points)} points: as many as were recorded are expected")
        history = cls()
        history.stride, history.recorded = int(stride), int(recorded)
        history[:] = [(int(call), scale, fraction) for call, scale, fraction in points]
        return history
