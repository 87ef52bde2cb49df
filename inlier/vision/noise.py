"""Wrong labels on purpose: symmetric and pair-flip noise."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["pair_flip", "symmetric"]


def symmetric(
    labels: Tensor, rate: float, classes: int, seed: int, *, true_class_included: bool = True
) -> Tensor:
    """Replace the labels of a part of the samples by labels drawn uniformly.

    With the true class included, as in the paper, a drawn label may be the right one, and only
    ``rate (1 - 1 / classes)`` of all labels are wrong; without it, ``rate`` of them are.

    Args:
        labels: Class numbers, [n].
        rate: The part of the samples whose label is drawn anew: exactly ``round(rate n)`` of them.
        classes: Number of classes.
        seed: Of the draw.
        true_class_included: Whether the true class may be drawn.

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
    """Replace the labels of a part of the samples by the next class, the last class by the first.

    Args:
        labels: Class numbers, [n].
        rate: The part of the samples whose label is wrong: exactly ``round(rate n)`` of them.
        classes: Number of classes.
        seed: Of the draw.

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
    """Return the numbers of the samples whose label is replaced."""
    if not 0 <= rate < 1:
        raise ValueError(f"rate = {rate}: pass the part of labels to replace, at least 0 and below 1")
    return torch.randperm(len(labels), generator=generator)[: round(rate * len(labels))]
