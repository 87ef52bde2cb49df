"""What a user gives :class:`~inlier.Robust`: checked, put in rows, and without what a mask leaves out."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from inlier.kernels import Kernel

__all__ = [
    "check",
    "check_fraction",
    "check_settings",
    "flat_losses",
    "groups_or_labels",
    "kept",
    "plain_mean",
]


def flat_losses(losses: Tensor) -> Tensor:
    """Return losses in one row, of float32 or wider."""
    flat = losses.reshape(-1)
    return flat if flat.dtype in (torch.float32, torch.float64) else flat.float()


def kept(
    flat: Tensor, index: Tensor | None, groups: Tensor | None, logits: Tensor | None, mask: Tensor | None
) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor | None]:
    """Return losses, index, groups and logits, one row a sample, without what the mask leaves out."""
    index = None if index is None else index.reshape(-1)
    groups = None if groups is None else groups.reshape(-1)
    logits = None if logits is None else logits.detach().reshape(-1, logits.shape[-1])
    if mask is None:
        return flat, index, groups, logits
    keep = mask.reshape(-1).bool()
    index, groups, logits = (None if rows is None else rows[keep] for rows in (index, groups, logits))
    return flat[keep], index, groups, logits


def plain_mean(flat: Tensor, mask: Tensor | None) -> Tensor:
    """Return the mean of flat losses; of none, 0 with a graph."""
    if mask is None:
        return flat.mean() if len(flat) else flat.sum()
    keep = mask.reshape(-1).bool()
    return torch.where(keep, flat, 0.0).sum() / keep.sum().clamp(min=1)


def groups_or_labels(groups: Tensor | None, labels: Tensor | None, expected: bool) -> Tensor | None:
    """Return the groups of a call: those given, or its labels.

    Args:
        groups: As given.
        labels: As given.
        expected: Whether earlier calls had labels.
    """
    if labels is None:
        if expected:
            raise ValueError("labels were given in some calls and not in others: give them in all")
        return groups
    if groups is not None:
        raise ValueError("labels are groups already: give labels or groups, not both")
    return labels


def check(
    losses: Tensor,
    index: Tensor | None,
    groups: Tensor | None,
    mask: Tensor | None,
    logits: Tensor | None,
    hold: int,
    labelled: bool = False,
) -> None:
    """Raise on what a user may get wrong, and say what to write instead."""
    if not isinstance(losses, Tensor) or not losses.is_floating_point():
        raise TypeError(
            f"losses must be a floating-point tensor, not {getattr(losses, 'dtype', type(losses))}"
        )
    if losses.dim() == 0:
        raise ValueError(
            "losses is a single number, so it was averaged already: compute it with reduction='none', as in "
            "robust(F.cross_entropy(logits, y, reduction='none'))"
        )
    for name, tensor in (("index", index), ("groups", groups), ("mask", mask)):
        if tensor is None:
            continue
        if tensor.requires_grad:
            raise ValueError(
                f"{name} requires grad, but nothing can be learned through it: pass {name}.detach()"
            )
        if tensor.shape != losses.shape:
            raise ValueError(
                f"{name} has shape {tuple(tensor.shape)} and losses {tuple(losses.shape)}: give one for each "
                "loss (for one weight a row, average the losses of the row first: losses.mean(1))"
            )
        if name != "mask" and (tensor.is_floating_point() or tensor.dtype == torch.bool):
            raise TypeError(f"{name} must hold whole numbers, not {tensor.dtype}: pass {name}.long()")
    if hold > 1 and index is None:
        raise ValueError(
            f"hold = {hold} takes weights from the stored loss of each sample, and needs its "
            "number: call robust(losses, index) with a dataset that returns it, or use hold=1"
        )
    if labelled and (index is None or hold > 1):
        raise ValueError(
            f"labels need the number of each sample and hold = 1, not {hold}: call "
            "robust(losses, index, labels=labels) with a dataset that returns the number"
        )
    if logits is not None and not labelled:
        raise ValueError("logits are of use with labels only: give labels too, or leave the logits out")
    if logits is not None and logits.shape[:-1] != losses.shape:
        raise ValueError(
            f"logits has shape {tuple(logits.shape)} and losses {tuple(losses.shape)}: give one row for each "
            "loss, with the classes in the last dimension"
        )


def check_fraction(inlier_fraction: float | Literal["auto"], kernel: Kernel) -> None:
    """Raise where no scale of the kernel has this mean weight."""
    if inlier_fraction != "auto" and not kernel.weight_floor < float(inlier_fraction) <= 1:
        raise ValueError(
            f"inlier_fraction = {inlier_fraction!r}: pass 'auto', or a number above {kernel.weight_floor:g} "
            f"(the weight floor of {kernel}) and at most 1"
        )


def check_settings(
    hold: int, warmup: int, window: int, update_every: int, divide_by: str, running_mean: float
) -> None:
    """Raise for settings of Robust that cannot be."""
    for argument, number in (("hold", hold), ("window", window), ("update_every", update_every)):
        if number < 1:
            raise ValueError(f"{argument} = {number}: pass a whole number of at least 1")
    if warmup < 0:
        raise ValueError(f"warmup = {warmup}: pass a number of calls, 0 for none")
    if divide_by not in ("samples", "weights"):
        raise ValueError(f"divide_by = {divide_by!r}: choose 'samples' or 'weights'")
    if not 0 <= running_mean < 1:
        raise ValueError(f"running_mean = {running_mean}: pass a number of at least 0 and below 1")
