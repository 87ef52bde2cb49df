"""Generalized cross-entropy: q interpolates between cross-entropy and the mean absolute error.

Reference: Z. Zhang, M. Sabuncu (2018), Generalized cross entropy loss for training deep neural networks with
noisy labels, NeurIPS.
"""

from __future__ import annotations

from torch import Tensor

from inlier.experiments.baselines._probabilities import cross_entropy
from inlier.kernels._noisy_labels import GeneralizedCrossEntropy

__all__ = ["generalized_cross_entropy"]


def generalized_cross_entropy(logits: Tensor, labels: Tensor, q: float = 0.7) -> Tensor:
    """Return L_q = (1 - p_y^q) / q of each sample, p_y being the predicted probability of its label.

    It is the kernel ``generalized-cross-entropy`` at the cross-entropy r = -log p_y: a sample has p_y^q
    times the gradient of cross-entropy. Towards q = 0 it is cross-entropy; q = 1 is 1 - p_y, half the mean
    absolute error.

    Args:
        logits: One row per sample, one column per class.
        labels: The class y of each sample.
        q: Above 0, and at most 1 in the paper.

    Returns:
        One loss per sample, at most 1 / q.

    Example:
        >>> import torch
        >>> generalized_cross_entropy(torch.zeros(1, 4), torch.tensor([2]), q=0.5)
        tensor([1.])

    Reference: Zhang and Sabuncu (2018); q = 0.7 is theirs for all datasets, CIFAR-10 among them. Their
    second loss, truncated and with samples pruned in rounds, is not this one.
    """
    return GeneralizedCrossEntropy(q)(cross_entropy(logits, labels))
