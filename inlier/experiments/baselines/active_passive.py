"""Active-passive loss: normalized cross-entropy, which raises the probability of the label, and reverse
cross-entropy, which lowers those of the other classes.

Reference: X. Ma, H. Huang, Y. Wang, S. Romano, S. Erfani, J. Bailey (2020), Normalized loss functions for
deep learning with noisy labels, ICML.
"""

from __future__ import annotations

from torch import Tensor

from inlier.experiments.baselines._probabilities import cross_entropy, log_probabilities, of_labels
from inlier.experiments.baselines.symmetric_cross_entropy import LOG_ZERO, reverse_cross_entropy

__all__ = ["nce_rce", "normalized_cross_entropy"]


def normalized_cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Return NCE = log p_y / sum over k of log p_k: cross-entropy, over its sum over all labels.

    Over the labels it adds up to 1 whatever the prediction, which makes it robust to symmetric label noise.
    The divisor is at least K log K in size for K classes, so nothing is divided by 0.

    Args:
        logits: One row per sample, one column per class.
        labels: The class y of each sample.

    Example:
        >>> import torch
        >>> normalized_cross_entropy(torch.zeros(1, 4), torch.tensor([2]))
        tensor([0.2500])

    Reference: Ma et al. (2020).
    """
    logarithms = log_probabilities(logits)
    return of_labels(logarithms, labels) / logarithms.sum(dim=1)


def nce_rce(
    logits: Tensor, labels: Tensor, alpha: float = 1.0, beta: float = 1.0, log_zero: float = LOG_ZERO
) -> Tensor:
    """Return alpha NCE + beta RCE of each sample.

    Args:
        logits: One row per sample, one column per class.
        labels: The class y of each sample.
        alpha: The weight of the active loss, normalized cross-entropy; above 0.
        beta: The weight of the passive loss, reverse cross-entropy; above 0.
        log_zero: A, in place of the logarithm of 0; see
            :func:`inlier.experiments.baselines.symmetric_cross_entropy.reverse_cross_entropy`.

    Returns:
        One loss per sample, at most alpha - beta A.

    Example:
        >>> import torch
        >>> nce_rce(torch.zeros(1, 4), torch.tensor([2]), log_zero=-4.0)
        tensor([3.2500])

    Reference: Ma et al. (2020); alpha = 1 and beta = 1 are theirs for CIFAR-10.
    """
    for argument, weight in (("alpha", alpha), ("beta", beta)):
        if not weight > 0:
            raise ValueError(
                f"{argument} = {weight}: pass a weight above 0; one loss alone is not this method"
            )
    passive = reverse_cross_entropy(cross_entropy(logits, labels), log_zero)
    return alpha * normalized_cross_entropy(logits, labels) + beta * passive
