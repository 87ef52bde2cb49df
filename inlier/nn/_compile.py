"""Support for ``torch.compile``: a robust loss is one opaque operation, without a graph break.

The bookkeeping of a robust loss depends on counts and sizes and cannot be traced. It need not be: only the weights
enter the gradient, as constants. They come from one operation, and the rest of the loss is compiled with the step.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import NamedTuple, Protocol
from weakref import WeakValueDictionary

import torch
from torch import Tensor

__all__ = ["Extras", "Handle", "Weigher", "register", "weigh"]


Extras = Sequence[Tensor | None]
"""Losses, index, tags, importance and predictions of a call, as in :meth:`RobustModule._weights`."""


class Weigher(Protocol):
    """A robust loss, as the operation sees it."""

    def flat_weights(self, values: Tensor, extras: Extras, divided: bool) -> Tensor:
        """Return a weight for each value."""


class Handle(NamedTuple):
    """Stands for a weigher in calls of the operation, which takes tensors and numbers but no objects.

    Every call changes ``calls``, so that the compiler neither drops, merges nor repeats one. It stays on the CPU,
    which keeps calls out of CUDA graphs: these would replay them without their bookkeeping.
    """

    number: int
    calls: Tensor


_known: WeakValueDictionary[int, Weigher] = WeakValueDictionary()
_numbers = count()


def register(weigher: Weigher) -> Handle:
    """Return a new handle for a weigher, good for as long as it lives."""
    handle = Handle(next(_numbers), torch.zeros((), dtype=torch.int64))
    _known[handle.number] = weigher
    return handle


@torch.library.custom_op("inlier::weigh", mutates_args={"calls"})
def _weigh(
    values: Tensor, extras: Sequence[Tensor | None], calls: Tensor, number: int, divided: bool
) -> Tensor:
    calls += 1
    return _known[number].flat_weights(values, extras, divided)


@_weigh.register_fake
def _(values: Tensor, extras: Extras, calls: Tensor, number: int, divided: bool) -> Tensor:
    return torch.empty_like(values)


def weigh(handle: Handle, values: Tensor, extras: Extras, divided: bool) -> Tensor:
    """Return the weights of flat values, by an operation that can be traced."""
    weights: Tensor = _weigh(values, list(extras), handle.calls, handle.number, divided)
    return weights
