"""Partially huberized cross-entropy: its derivative is clipped where the label is improbable.

Clipping the gradient of a whole model does not make it robust to label noise. Clipping only the derivative of
the loss with respect to the probability p_y, not that of p_y with respect to the parameters, does.

Reference: A. K. Menon, A. S. Rawat, S. J. Reddi, S. Kumar (2020), Can gradient clipping mitigate label
noise?, ICLR.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from inlier.experiments.baselines._probabilities import cross_entropy

__all__ = ["huberized_cross_entropy"]


def huberized_cross_entropy(logits: Tensor, labels: Tensor, tau: float = 2.0) -> Tensor:
    """Return the loss -log p_y where p_y > 1 / tau, and its tangent 1 + log tau - tau p_y elsewhere.

    Its derivative with respect to p_y is at most tau in size. As a function of the cross-entropy r = -log p_y
    it is min(r, log tau) + 1 - exp(-max(r - log tau, 0)): a sample has min(1, tau p_y) times the gradient of
    cross-entropy, which is the slope of a robust kernel.

    Args:
        logits: One row per sample, one column per class.
        labels: The class y of each sample.
        tau: The bound on the derivative with respect to p_y, at least 1; 1 gives 1 - p_y.

    Returns:
        One loss per sample, at most 1 + log tau.

    Example:
        >>> import torch
        >>> huberized_cross_entropy(torch.log(torch.tensor([[0.25, 0.75]])), torch.tensor([0]))
        tensor([1.1931])

    Reference: Menon et al. (2020), who choose tau from 2 and 10 for each dataset, at 60 % noise (section 5);
    2 is for CIFAR-10.
    """
    if not 1 <= tau < math.inf:
        raise ValueError(f"tau = {tau}: pass a bound on the derivative, a finite number of at least 1")
    joint = math.log(tau)
    r = cross_entropy(logits, labels)
    # At the joint the first term has slope 1 and the second 0, so that the slopes add up to 1 there.
    return r.clamp(max=joint) - torch.expm1(-torch.relu(r - joint))
