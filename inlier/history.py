"""How scale and inlier fraction moved: a list that stays short however long the training is."""

from __future__ import annotations

import math

import torch
from torch import Tensor

__all__ = ["MOST", "History"]

MOST = 500
"""With as many points, every second is dropped, and from then on every second is taken."""


class History(list[tuple[int, float, float]]):
    """Points (call number, scale, inlier fraction) in order, fewer than MOST, evenly spread over the updates.

    Example:
        >>> history = History()
        >>> for call in range(2000):
        ...     history.offer(call, torch.tensor([1.0, 4.0]), torch.tensor([0.5, 0.75]), unseen=3e38)
        >>> history[:2], len(history) < MOST
        ([(0, 2.0, 0.625), (8, 2.0, 0.625)], True)
    """

    def __init__(self) -> None:
        super().__init__()
        self.stride, self.offered = 1, 0

    def offer(self, call: int, scales: Tensor, fractions: Tensor, unseen: float) -> None:
        """Take every so many-th point: of groups, the geometric mean of scales and the mean of fractions.

        Args:
            call: The number of the call.
            scales: The scale of each group; one of at least ``unseen`` is none, and left out.
            fractions: The inlier fraction of each group.
            unseen: The scale of a group before any loss; if all are such, the point's scale is infinite.
        """
        if self.offered % self.stride == 0:
            known = scales[scales < unseen].double()
            scale = float(known.log().mean().exp()) if len(known) else math.inf
            self.append((call, scale, float(fractions.double().mean())))
        self.offered += 1
        if len(self) == MOST:
            del self[1::2]
            self.stride *= 2

    def state(self) -> Tensor:
        """Return all of it as one tensor, for a checkpoint."""
        return torch.tensor([(self.stride, self.offered, 0.0), *self], dtype=torch.float64)

    def restore(self, state: Tensor) -> None:
        """Become what :meth:`state` was taken from."""
        (stride, offered, _), *points = state.tolist()
        self.stride, self.offered = int(stride), int(offered)
        self[:] = [(int(call), scale, fraction) for call, scale, fraction in points]
