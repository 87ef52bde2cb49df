"""How a step that ``torch.compile`` traces calls a robust loss: as one operation, unbroken.

What a robust loss remembers depends on counts and sizes, so it cannot be traced; but it need not be. Only the
weights enter the gradient, as constants. They come from one opaque operation, and the rest of the loss is
compiled with the step.
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
"""What a call may bring beside its values: losses, index, tags, importance, logits (:meth:`RobustModule._weights`)."""


class Weigher(Protocol):
    """What makes weights of flat values."""

    def flat_weights(self, values: Tensor, extras: Extras, divided: bool) -> Tensor:
        """Return a weight for each value, divided as for a loss or not at all."""


class Handle(NamedTuple):
    """What the operation knows a weigher by, since it takes tensors and numbers but no objects.

    ``calls`` is changed by every call, so that the compiler neither drops, merges nor repeats one. It stays
    on the CPU: a CUDA graph, which would replay a call without its bookkeeping, does not take it in.
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
    """Return the weights that a weigher gives to flat values, as an operation that can be traced."""
    weights: Tensor = _weigh(values, list(extras), handle.calls, handle.number, divided)
    return weights
