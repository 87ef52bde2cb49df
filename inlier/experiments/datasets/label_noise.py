"""Synthetic label noise: symmetric and pair-flip."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["pair_flip", "symmetric"]


def symmetric(
    labels: Tensor, rate: float, classes: int, seed: int, *, true_class_included: bool = True
) -> Tensor:
    """Return labels with symmetric noise: those of a part of the samples are replaced by uniform ones.

    With the true class included, as in the paper, a replaced label may be the true one, and only
    ``rate (1 - 1 / classes)`` of all labels are noisy; without it, ``rate`` of them are.

    Args:
        labels: Classes, [n].
        rate: The part of the samples whose label is replaced: exactly ``round(rate n)`` of them.
        classes: Number of classes.
        seed: Seeds the noise.
        true_class_included: Whether a replaced label may be the true one.

    Returns:
        New labels, [n].

    Example:
        >>> import torch
        >>> labels = torch.zeros(1000, dtype=torch.int64)
        >>> int((symmetric(labels, 0.4, 10, seed=0, true_class_included=False) != 0).sum())
        400
    """
    generator = torch.Generator().manual_seed(seed)
    chosen = _chosen(labels, rate, generator)
    shift = torch.randint(0 if true_class_included else 1, classes, (len(chosen),), generator=generator)
    noisy = labels.clone()
    noisy[chosen] = (labels[chosen] + shift) % classes
    return noisy


def pair_flip(labels: Tensor, rate: float, classes: int, seed: int) -> Tensor:
    """Return labels with pair-flip noise: those of a part of the samples become the next class, cyclically.

    Args:
        labels: Classes, [n].
        rate: The part of the samples whose label is noisy: exactly ``round(rate n)`` of them.
        classes: Number of classes.
        seed: Seeds the noise.

    Returns:
        New labels, [n].

    Example:
        >>> import torch
        >>> pair_flip(torch.tensor([0, 1, 2]), 0.99, 3, seed=0)
        tensor([1, 2, 0])

    Reference: B. Han et al. (2018), Co-teaching, section 4.
    """
    chosen = _chosen(labels, rate, torch.Generator().manual_seed(seed))
    noisy = labels.clone()
    noisy[chosen] = (labels[chosen] + 1) % classes
    return noisy


def _chosen(labels: Tensor, rate: float, generator: torch.Generator) -> Tensor:
    """Return the indices of the samples whose label is replaced."""
    if not 0 <= rate < 1:
        raise ValueError(f"rate = {rate}: pass the part of labels to replace, at least 0 and below 1")
    return torch.randperm(len(labels), generator=generator)[: round(rate * len(labels))]
