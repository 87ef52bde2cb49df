"""The modified Black-Rangarajan duality: a robust problem is a weighted problem plus a price for the weights.

For a robust loss kernel sigma with outlier process Phi (:meth:`inlier.Kernel.outlier_process`),

    sigma_c(f) = min over u in [0, 1] of  u f + Phi_{sigma_c}(u),   reached at  u = sigma'_c(f),

so minimising the mean of sigma_c(f_i(w)) over w (the primal) is minimising the mean of
u_i f_i(w) + Phi(u_i) over w and u (the dual): the original losses f_i, weighted.

Reference: the paper's Corollary 1 and Lemma 1.
"""

from __future__ import annotations

from torch import Tensor

from inlier.kernels import Kernel

__all__ = ["dual_objective", "duality_gap", "primal_objective"]


def primal_objective(kernel: Kernel, losses: Tensor, c: float | Tensor = 1.0) -> Tensor:
    """Return the robust objective, (1/n) sum over i of sigma_c(f_i): equation 9 of the paper.

    Args:
        kernel: The robust loss kernel.
        losses: Losses f_i of at least 0.
        c: The scale.

    Returns:
        A scalar tensor, differentiable in the losses.

    Example:
        >>> import torch, inlier
        >>> inlier.duality.primal_objective(inlier.kernels.get("truncated"), torch.tensor([0.5, 9.0]))
        tensor(0.7500)

    Reference: Corollary 1, primal.
    """
    return kernel(losses, c).mean()


def dual_objective(kernel: Kernel, losses: Tensor, weights: Tensor, c: float | Tensor = 1.0) -> Tensor:
    """Return the weighted objective, (1/n) sum over i of u_i f_i + Phi_{sigma_c}(u_i): equation 10.

    Args:
        kernel: The robust loss kernel.
        losses: Losses f_i of at least 0, finite.
        weights: Weights u_i in [0, 1].
        c: The scale.

    Returns:
        A scalar tensor, differentiable in the losses; at least the primal objective, and equal to it at
        ``weights = kernel.weight(losses, c)``.

    Example:
        >>> import torch, inlier
        >>> kernel, losses = inlier.kernels.get("geman-mcclure"), torch.tensor([0.5, 9.0])
        >>> inlier.duality.dual_objective(kernel, losses, torch.ones(2))
        tensor(4.7500)
        >>> inlier.duality.dual_objective(kernel, losses, kernel.weight(losses))
        tensor(0.6167)

    Reference: Corollary 1, dual.
    """
    return (weights * losses + kernel.outlier_process(weights, c)).mean()


def duality_gap(kernel: Kernel, losses: Tensor, weights: Tensor, c: float | Tensor = 1.0) -> Tensor:
    """Return the dual minus the primal objective: how far weights are from the best ones for these losses.

    Args:
        kernel: The robust loss kernel.
        losses: Losses f_i of at least 0, finite.
        weights: Weights u_i in [0, 1].
        c: The scale.

    Returns:
        A scalar tensor of at least 0, and 0 at ``weights = kernel.weight(losses, c)``.

    Example:
        >>> import torch, inlier
        >>> kernel, losses = inlier.kernels.get("geman-mcclure"), torch.tensor([0.5, 9.0])
        >>> bool(inlier.duality.duality_gap(kernel, losses, torch.ones(2)) > 4)
        True

    Reference: Corollary 1 and Lemma 1.
    """
    return dual_objective(kernel, losses, weights, c) - primal_objective(kernel, losses, c)
