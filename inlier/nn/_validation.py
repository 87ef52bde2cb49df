"""The arguments of a robust loss, checked before anything changes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from inlier.fraction import FractionEstimator, GivenFraction
from inlier.kernels import Kernel

__all__ = [
    "ABSENT",
    "Batch",
    "check_classes",
    "check_fraction",
    "check_losses",
    "check_range",
    "check_settings",
    "estimator_of",
    "flat_losses",
    "is_cheap_to_read",
    "places",
]

ABSENT = torch.finfo(torch.float32).min
"""The value of an element that a mask leaves out, or that pads a message: no loss is as small."""

INTEGERS = (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8)


def is_cheap_to_read(tensor: Tensor) -> bool:
    """Whether the values of a tensor can be read without waiting for a device."""
    return tensor.device.type == "cpu"


@dataclass(slots=True)
class Batch:
    """The elements of a call: a value each, and its dataset index and tag if there are any.

    Args:
        values: What is remembered and counted of each element, float32 without a graph; ABSENT where it is left out.
        index: Dataset indices, int64.
        tags: Groups, or given classes, int64.
        predictions: Where tags are given classes, what :meth:`RobustModule._tags_of` makes the tags to remember from.
        absent: Which elements are left out; None if none is known to be.
        present: How many are not.
        is_ordinary: Whether all elements are known to be present and finite. They nearly always are, and where
            looking is cheap, one look saves a dozen operations.
    """

    values: Tensor
    index: Tensor | None = None
    tags: Tensor | None = None
    predictions: Tensor | None = None
    absent: Tensor | None = None
    present: Tensor | float = 0.0
    is_ordinary: bool = False

    @classmethod
    def of(
        cls,
        values: Tensor,
        index: Tensor | None = None,
        tags: Tensor | None = None,
        predictions: Tensor | None = None,
    ) -> Batch:
        """Return the batch, after a look at its values where that is cheap.

        Example:
            >>> Batch.of(torch.tensor([1.0, 2.0])).is_ordinary, Batch.of(torch.tensor([1.0, torch.nan])).is_ordinary
            (True, False)
        """
        # Copies: they are kept until the next update, and a loader may reuse the memory of its batches.
        index, tags = (None if x is None else x.to(torch.int64, copy=True) for x in (index, tags))
        size = float(values.numel())
        if size and is_cheap_to_read(values):
            low, high = (float(end) for end in values.aminmax())
            # Both are NaN if any value is.
            if low > ABSENT and high < math.inf:
                return cls(values, index, tags, predictions, None, size, is_ordinary=True)
        absent = values == ABSENT
        number = absent.sum()
        if is_cheap_to_read(values) and not number:
            return cls(values, index, tags, predictions, None, size)
        return cls(values, index, tags, predictions, absent, size - number)


def flat_losses(losses: Tensor) -> Tensor:
    """Return losses as one row, float32 or wider."""
    flat = losses if losses.dim() == 1 else losses.reshape(-1)
    return flat if flat.dtype in (torch.float32, torch.float64) else flat.float()


def check_losses(losses: Tensor, index: Tensor | None, groups: Tensor | None, mask: Tensor | None) -> None:
    """Raise for losses and what comes with them that cannot be used, and say what to write instead."""
    _check_floats("losses", losses)
    if losses.dim() == 0:
        raise ValueError(
            "losses is a single number, so it was averaged already: compute it with reduction='none', as in "
            "robust(F.cross_entropy(logits, y, reduction='none'))"
        )
    _check_integers("index", index, losses.shape, "losses")
    _check_integers("groups", groups, losses.shape, "losses")
    if mask is not None:
        _check_shape("mask", mask, losses.shape, "losses")


def check_classes(logits: Tensor, target: Tensor, index: Tensor | None) -> None:
    """Raise for logits and targets that cannot be used, and say what to write instead."""
    _check_floats("logits", logits)
    if not isinstance(target, Tensor) or target.is_floating_point() or target.dtype == torch.bool:
        raise TypeError(
            f"target must hold class numbers, not {getattr(target, 'dtype', type(target))}: pass target.long() "
            "(probabilities as targets are not supported)"
        )
    if logits.dim() < 2:
        raise ValueError(
            f"logits has shape {tuple(logits.shape)}: give one row of classes for each sample, (N, C) or "
            "(N, C, d1, ...)"
        )
    expected = (logits.shape[0], *logits.shape[2:])
    if target.shape != expected:
        raise ValueError(
            f"target has shape {tuple(target.shape)} and logits {tuple(logits.shape)}: as in "
            f"nn.CrossEntropyLoss, target must have shape {tuple(expected)}"
        )
    if logits.shape[1] < 2:
        raise ValueError("logits has one class: label noise needs at least 2 classes")
    _check_integers("index", index, target.shape, "target")


def _check_floats(name: str, tensor: Tensor) -> None:
    if not isinstance(tensor, Tensor) or not tensor.is_floating_point():
        raise TypeError(
            f"{name} must be a floating-point tensor, not {getattr(tensor, 'dtype', type(tensor))}"
        )


def _check_integers(name: str, tensor: Tensor | None, shape: torch.Size, of: str) -> None:
    """Raise unless a tensor holds integers of any width, one for each element."""
    if tensor is None:
        return
    if not isinstance(tensor, Tensor) or tensor.dtype not in INTEGERS:
        raise TypeError(
            f"{name} must hold integers, not {getattr(tensor, 'dtype', type(tensor))}: pass {name}.long()"
        )
    _check_shape(name, tensor, shape, of)


def _check_shape(name: str, tensor: Tensor, shape: torch.Size, of: str) -> None:
    if tensor.requires_grad:
        raise ValueError(f"{name} requires grad, but nothing can be learned through it: pass {name}.detach()")
    if tensor.shape != shape:
        raise ValueError(
            f"{name} has shape {tuple(tensor.shape)} and {of} {tuple(shape)}: give one for each element of "
            f"{of} (for one weight a row, average the losses of the row first: losses.mean(1))"
        )


def check_range(name: str, smallest: int, largest: int, most: int | None, argument: str) -> None:
    """Raise for indices or groups out of range.

    Args:
        name: What the numbers are: "index" or "groups".
        smallest: The smallest of them.
        largest: The largest.
        most: How many samples or groups there are, if that was given.
        argument: The argument that gives it.
    """
    if smallest < 0:
        raise IndexError(
            f"{name} holds {smallest}: number from 0, and leave elements out by `mask` "
            "(RobustCrossEntropy: by ignore_index in target)"
        )
    if most is not None and largest >= most:
        raise IndexError(
            f"{name} holds {largest}, but {argument} = {most}: pass a larger {argument}, or none, and it is "
            "learned from the data"
        )


def places(numbers: Tensor, room: int, absent: Tensor | None, in_range: bool = False) -> Tensor:
    """Return where to find what is numbered; ``room``, a place that is never read, where there is no place for it.

    Args:
        numbers: Indices or groups.
        room: How many there are places for.
        absent: Which elements are left out.
        in_range: Whether the others are known to have a place.
    """
    if not in_range:
        outside = (numbers < 0) | (numbers >= room)
        absent = outside if absent is None else outside | absent
    return numbers if absent is None else torch.where(absent, room, numbers)


def estimator_of(
    inlier_fraction: float | str | FractionEstimator, kernel: Kernel | None = None
) -> FractionEstimator | Literal["auto"]:
    """Return the estimator that an argument ``inlier_fraction`` stands for, or "auto"."""
    if isinstance(inlier_fraction, (int, float)):
        check_fraction(inlier_fraction, kernel)
        return GivenFraction(inlier_fraction)
    if isinstance(inlier_fraction, FractionEstimator):
        return inlier_fraction
    if inlier_fraction == "auto":
        return "auto"
    error = ValueError if isinstance(inlier_fraction, str) else TypeError
    raise error(f"inlier_fraction = {inlier_fraction!r}: pass 'auto', a number, or a FractionEstimator")


def check_fraction(inlier_fraction: float, kernel: Kernel | None = None) -> None:
    """Raise for a fraction that is no mean weight of the kernel, whatever the scale."""
    floor = 0.0 if kernel is None else kernel.weight_floor
    if not floor < float(inlier_fraction) <= 1:
        of = "" if floor == 0 else f" (the weight floor of {kernel})"
        raise ValueError(
            f"inlier_fraction = {inlier_fraction!r}: pass 'auto', or a number above {floor:g}{of} and at most 1"
        )


def check_settings(
    *,
    window: int,
    update_every: int,
    warmup: int,
    running_mean: float,
    hold: int = 1,
    samples: int | None = None,
    num_groups: int | None = None,
    label_smoothing: float = 0.0,
) -> None:
    """Raise for settings of a robust loss that are out of range."""
    at_least_one = {
        "hold": hold,
        "window": window,
        "update_every": update_every,
        "samples": samples,
        "num_groups": num_groups,
    }
    for argument, number in at_least_one.items():
        if number is not None and number < 1:
            raise ValueError(f"{argument} = {number}: pass an integer of at least 1")
    if warmup < 0:
        raise ValueError(f"warmup = {warmup}: pass a number of calls, 0 for none")
    if not 0 <= running_mean < 1:
        raise ValueError(f"running_mean = {running_mean}: pass a number of at least 0 and below 1")
    if not 0 <= label_smoothing <= 1:
        raise ValueError(f"label_smoothing = {label_smoothing}: pass a number between 0 and 1")
