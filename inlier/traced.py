"""How a step that ``torch.compile`` traces calls :class:`~inlier.Robust`: as one operation, unbroken.

What Robust remembers depends on counts and sizes, so it cannot be traced; but it need not be. Only the
weights enter the gradient, as constants. They come from one opaque operation, and the rest of the loss is
compiled with the step.
"""

from __future__ import annotations

from itertools import count
from typing import NamedTuple, Protocol
from weakref import WeakValueDictionary

import torch
from torch import Tensor

__all__ = ["Name", "Weigher", "register", "weigh"]


class Weigher(Protocol):
    """What makes weights of flat losses, divided as for a loss or not at all; groups may be labels."""

    def flat_weights(
        self,
        losses: Tensor,
        index: Tensor | None,
        groups: Tensor | None,
        mask: Tensor | None,
        logits: Tensor | None,
        labelled: bool,
        divided: bool,
    ) -> Tensor:
        """Return a weight for each loss."""


class Name(NamedTuple):
    """What the operation knows a weigher by, since it takes tensors and numbers but no objects.

    ``calls`` is changed by every call, so that the compiler neither drops, merges nor repeats one. It stays
    on the CPU: a CUDA graph, which would replay a call without its bookkeeping, does not take it in.
    """

    number: int
    calls: Tensor


_known: WeakValueDictionary[int, Weigher] = WeakValueDictionary()
_numbers = count()


def register(weigher: Weigher) -> Name:
    """Return a new name for a weigher, good for as long as it lives."""
    name = Name(next(_numbers), torch.zeros((), dtype=torch.int64))
    _known[name.number] = weigher
    return name


@torch.library.custom_op("inlier::weigh", mutates_args={"calls"})
def _weigh(
    losses: Tensor,
    index: Tensor | None,
    groups: Tensor | None,
    mask: Tensor | None,
    logits: Tensor | None,
    calls: Tensor,
    number: int,
    labelled: bool,
    divided: bool,
) -> Tensor:
    calls += 1
    return _known[number].flat_weights(losses, index, groups, mask, logits, labelled, divided)


@_weigh.register_fake
def _(
    losses: Tensor,
    index: Tensor | None,
    groups: Tensor | None,
    mask: Tensor | None,
    logits: Tensor | None,
    calls: Tensor,
    number: int,
    labelled: bool,
    divided: bool,
) -> Tensor:
    return torch.empty_like(losses)


def weigh(
    name: Name,
    losses: Tensor,
    index: Tensor | None,
    groups: Tensor | None,
    mask: Tensor | None,
    logits: Tensor | None,
    labelled: bool,
    divided: bool,
) -> Tensor:
    """Return the weights that a weigher gives to flat losses, as an operation that can be traced."""
    logits = None if logits is None else logits.detach()
    weights: Tensor = _weigh(losses, index, groups, mask, logits, name.calls, name.number, labelled, divided)
    return weights
