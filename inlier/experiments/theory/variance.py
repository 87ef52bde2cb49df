"""Lemma 2: the variance of the descent direction of one sample, with and without weights, and its bounds.

The lemma bounds the variance of the step ``eta u_i grad f_i`` of a batch of one sample by

    3 eta^2 lambda (1/n_out) sum over outliers of u_i^2 |h_i|^2,        u_i = 1 for SGD,
                                                                        sigma'_c(f_i) for AAA_1,

where ``h_i = grad f_i - grad f_{i,I}`` is what an outlier adds to the gradient. Its proof drops
``mean |u_i grad f_{i,I}|^2 - |their mean|^2``, the variance that is there without outliers; as that is not
negative, the printed bound can fail, and does at low rates. With it the bound holds whenever Assumption 2
does: :func:`lemma_2` gives both.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["LemmaTwo", "lemma_2", "outlier_energy", "variance_of_descent_direction"]


def variance_of_descent_direction(
    gradients: Tensor, weights: Tensor | None = None, step_size: float = 1.0, centre: Tensor | None = None
) -> Tensor:
    """Return the variance over samples of the step ``eta u_i grad f_i``, summed over parameters.

    Args:
        gradients: The gradient of each sample's loss, [..., n, d] (flatten all parameters into d).
        weights: The weight of each sample, [..., n]; 1 by default.
        step_size: eta.
        centre: The point that the variance is about, [..., d]; the mean step by default. The lemma takes
            ``eta grad f_I``, the step without outliers, which is the mean of SGD if outliers have zero mean.

    Returns:
        The variance, [...].

    Example:
        >>> import torch
        >>> gradients = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 4.0]])
        >>> variance_of_descent_direction(gradients, weights=torch.tensor([1.0, 1.0, 0.0]))
        tensor(0.6667)

    Reference: Lemma 2 of the paper.
    """
    steps = step_size * (gradients if weights is None else gradients * weights.unsqueeze(-1))
    middle = steps.mean(-2) if centre is None else centre
    return (steps - middle.unsqueeze(-2)).square().sum(-1).mean(-1)


def outlier_energy(outlier_gradients: Tensor, outlier: Tensor, weights: Tensor | None = None) -> Tensor:
    """Return (1/n_out) sum over outliers of u_i^2 |h_i|^2: what Lemma 2 and Theorems 1 to 3 bound.

    Args:
        outlier_gradients: h_i, [..., n, d]; those of inliers are ignored.
        outlier: Which samples are outliers, [n].
        weights: u_i, [..., n]; 1 by default.

    Returns:
        The energy, [...]; 0 without outliers.

    Example:
        >>> import torch
        >>> h = torch.tensor([[0.0, 0.0], [3.0, 4.0]])
        >>> outlier_energy(h, torch.tensor([False, True]), weights=torch.tensor([1.0, 0.1]))
        tensor(0.2500)
    """
    squares = outlier_gradients.square().sum(-1)
    if weights is not None:
        squares = squares * weights.square()
    return torch.where(outlier, squares, 0.0).sum(-1) / max(int(outlier.sum()), 1)


@dataclass(frozen=True)
class LemmaTwo:
    """A measured variance, two bounds, and how far the lemma's assumptions hold.

    Args:
        variance: Variance of the step, about its mean.
        error: Mean squared distance of the step from ``eta grad f_I``, as the lemma writes it.
        printed_bound: ``3 eta^2 lambda`` times the outlier energy.
        bound: The printed one plus ``eta^2 mean |u_i grad f_{i,I}|^2``, which the proof drops.
        large: Fraction of outliers with |h_i| >= 1 (Assumption 2, first part).
        dominant: Fraction of outliers with |h_i| >= |grad f_{i,I}| (Assumption 2, second part).
        mean_ratio: Length of the outliers' mean h over its root mean square: 0 if they have zero mean.
    """

    variance: float
    error: float
    printed_bound: float
    bound: float
    large: float
    dominant: float
    mean_ratio: float


def lemma_2(
    gradients: Tensor,
    clean_gradients: Tensor,
    outlier: Tensor,
    weights: Tensor | None = None,
    step_size: float = 1.0,
) -> LemmaTwo:
    """Measure both sides of Lemma 2 at one w.

    The bound that holds under Assumption 2, whatever the mean of the outliers, is

        variance <= eta^2 mean |u_i grad f_{i,I}|^2 + 3 eta^2 lambda (1/n_out) sum of u_i^2 |h_i|^2.

    Args:
        gradients: grad f_i(w), [n, d].
        clean_gradients: grad f_{i,I}(w), [n, d]: the same for inliers; for outliers, that of the loss they
            would have had.
        outlier: Which samples are outliers, [n].
        weights: u_i = sigma'_c(f_i(w)), [n]; 1 (SGD) by default.
        step_size: eta.

    Returns:
        Both sides, and how far the assumptions hold.

    Example:
        >>> import torch
        >>> clean = torch.tensor([[0.1], [-0.1], [0.1], [-0.1]])
        >>> found = clean + torch.tensor([[0.0], [0.0], [2.0], [-2.0]])
        >>> seen = lemma_2(found, clean, torch.tensor([False, False, True, True]))
        >>> seen.variance <= seen.printed_bound, seen.dominant
        (True, 1.0)

    Reference: Lemma 2, Assumption 2 and the proof of Lemma 2 in the appendix.
    """
    h = gradients - clean_gradients
    rate = float(outlier.double().mean())
    weighted_clean = clean_gradients if weights is None else clean_gradients * weights.unsqueeze(-1)
    printed = 3 * step_size**2 * rate * float(outlier_energy(h, outlier, weights))
    lengths, clean_lengths = h[outlier].norm(dim=-1), clean_gradients[outlier].norm(dim=-1)
    some = len(lengths) > 0
    root_mean_square = float(lengths.square().mean().sqrt()) if some else 1.0
    return LemmaTwo(
        variance=float(variance_of_descent_direction(gradients, weights, step_size)),
        error=float(
            variance_of_descent_direction(gradients, weights, step_size, step_size * clean_gradients.mean(0))
        ),
        printed_bound=printed,
        bound=printed + step_size**2 * float(weighted_clean.square().sum(-1).mean()),
        large=float((lengths >= 1).double().mean()) if some else 1.0,
        dominant=float((lengths >= clean_lengths).double().mean()) if some else 1.0,
        mean_ratio=float(h[outlier].mean(0).norm()) / root_mean_square if some else 0.0,
    )
