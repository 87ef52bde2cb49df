"""Logarithms of class probabilities from logits: what every loss for noisy labels starts from."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["cross_entropy", "log_probabilities", "of_labels"]


def log_probabilities(logits: Tensor) -> Tensor:
    """Return log softmax(z), one row per sample, in float32 or wider, also for half precision.

    Args:
        logits: z, one row per sample, one column per class; two classes or more.

    Example:
        >>> import torch
        >>> log_probabilities(torch.tensor([[100.0, -100.0]]))
        tensor([[   0., -200.]])
    """
    if logits.ndim != 2 or logits.shape[1] < 2:
        raise ValueError(
            f"logits have shape {tuple(logits.shape)}: pass one row per sample and one column per "
            "class, 2 or more"
        )
    wide = torch.promote_types(logits.dtype, torch.float32)
    return torch.log_softmax(logits, dim=1, dtype=wide)


def of_labels(values: Tensor, labels: Tensor) -> Tensor:
    """Return each row's value in the column of its label.

    Args:
        values: One row per sample, one column per class.
        labels: The class of each sample, counted from 0, of any integer dtype.

    Example:
        >>> import torch
        >>> of_labels(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([1, 0]))
        tensor([2., 3.])
    """
    if labels.shape != values.shape[:1]:
        raise ValueError(
            f"labels have shape {tuple(labels.shape)} beside logits of shape {tuple(values.shape)}: pass one "
            "class per sample"
        )
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise TypeError(f"labels are {labels.dtype}: pass classes as integers, counted from 0")
    return values.gather(1, labels.long().unsqueeze(1)).squeeze(1)


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the cross-entropy r = -log p_y of each sample, the loss from which the kernels start.

    Args:
        logits: One row per sample, one column per class.
        labels: The class y of each sample. There is no ``ignore_index``: every label counts.

    Example:
        >>> import torch
        >>> cross_entropy(torch.zeros(1, 2), torch.tensor([1]))
        tensor([0.6931])
    """
    return -of_labels(log_probabilities(logits), labels)
