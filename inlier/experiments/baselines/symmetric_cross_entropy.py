"""Symmetric cross-entropy: cross-entropy, and cross-entropy with label and prediction exchanged.

Reference: Y. Wang, X. Ma, Z. Chen, Y. Luo, J. Yi, J. Bailey (2019), Symmetric cross entropy for robust
learning with noisy labels, ICCV.
"""

from __future__ import annotations

import math

from torch import Tensor

from inlier.experiments.baselines._probabilities import cross_entropy
from inlier.kernels._noisy_labels import ReverseCrossEntropy

__all__ = ["LOG_ZERO", "reverse_cross_entropy", "symmetric_cross_entropy"]

LOG_ZERO = math.log(1e-4)
"""A, in place of the logarithm of 0: the code of Wang et al. and of Ma et al. clips labels at 1e-4."""


def reverse_cross_entropy(r: Tensor, log_zero: float = LOG_ZERO) -> Tensor:
    """Return RCE = -sum over k of p_k log q_k = -A (1 - p_y), q being 1 at the label and 0 elsewhere.

    The logarithm of 0 is replaced by a number A below 0; that of 1 is 0. What remains is -A times the kernel
    ``reverse-cross-entropy`` at the cross-entropy r = -log p_y.

    Args:
        r: The cross-entropy of each sample.
        log_zero: A, below 0.

    Example:
        >>> import torch
        >>> reverse_cross_entropy(-torch.log(torch.tensor([0.25])), log_zero=-4.0)
        tensor([3.])

    Reference: Wang et al. (2019).
    """
    if not log_zero < 0:
        raise ValueError(f"log_zero = {log_zero}: pass a number below 0, in place of the logarithm of 0")
    return -log_zero * ReverseCrossEntropy()(r)


def symmetric_cross_entropy(
    logits: Tensor, labels: Tensor, alpha: float = 0.1, beta: float = 1.0, log_zero: float = LOG_ZERO
) -> Tensor:
    """Return SL = alpha CE + beta RCE = -alpha log p_y - beta A (1 - p_y) of each sample.

    Args:
        logits: One row per sample, one column per class.
        labels: The class y of each sample.
        alpha: The weight of cross-entropy, at least 0.
        beta: The weight of reverse cross-entropy, at least 0.
        log_zero: A, in place of the logarithm of 0. Only the product of beta and A matters.

    Returns:
        One loss per sample.

    Example:
        >>> import torch
        >>> symmetric_cross_entropy(torch.zeros(1, 4), torch.tensor([2]), log_zero=-4.0)
        tensor([3.1386])

    Reference: Wang et al. (2019); alpha = 0.1 and beta = 1 are theirs for CIFAR-10.
    """
    for argument, weight in (("alpha", alpha), ("beta", beta)):
        if not weight >= 0:
            raise ValueError(f"{argument} = {weight}: pass a weight of at least 0")
    r = cross_entropy(logits, labels)
    return alpha * r + beta * reverse_cross_entropy(r, log_zero)
