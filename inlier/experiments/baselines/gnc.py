"""Graduated non-convexity: reweighted least squares whose robust loss starts convex and ends truncated (or
Geman-McClure).

A parameter mu moves a surrogate loss from the sum of squares to the robust loss. Each iteration solves a
weighted least-squares problem, updates the weights in closed form and changes mu by a factor of 1.4.

Prior knowledge: a bound ``c`` on the residuals of inliers. The adaptive alternation needs the inlier fraction
instead, or neither.

With squared residuals r^2 and the surrogate's parameter mu:

    Geman-McClure   w = (mu c^2 / (r^2 + mu c^2))^2,            mu from 2 r_max^2 / c^2 down to 1
    truncated       w = clamp(c sqrt(mu (mu + 1)) / r - mu, 0, 1), mu from c^2 / (2 r_max^2 - c^2) up

Reference: H. Yang, P. Antonante, V. Tzoumas, L. Carlone (2020), Graduated non-convexity for robust spatial
perception: from non-minimal solvers to global outlier rejection, RA-L 5(2), propositions 3 and 4, remark 5.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch
from torch import Tensor

__all__ = ["GncFit", "geman_mcclure_weights", "gnc_gm", "gnc_tls", "truncated_weights"]

FACTOR = 1.4
"""By which factor mu changes each iteration: the choice of Yang et al., remark 5."""

Model = TypeVar("Model")


@dataclass(frozen=True)
class GncFit(Generic[Model]):
    """The result of graduated non-convexity.

    Args:
        model: The last weighted fit.
        weights: The weights it was fitted with, in [0, 1].
        iterations: Number of fits, the first one (of weights 1) included.
        converged: Whether it met its stopping rule.
    """

    model: Model
    weights: Tensor
    iterations: int
    converged: bool


def geman_mcclure_weights(squared_residuals: Tensor, bound: float, mu: float) -> Tensor:
    """Return (mu c^2 / (r^2 + mu c^2))^2, the weights of the Geman-McClure surrogate.

    Args:
        squared_residuals: r^2, at least 0.
        bound: c, the largest residual of an inlier.
        mu: The surrogate's parameter: infinity is least squares, 1 is Geman-McClure.

    Example:
        >>> import torch
        >>> geman_mcclure_weights(torch.tensor([0.0, 1.0, 9.0]), bound=1.0, mu=1.0)
        tensor([1.0000, 0.2500, 0.0100])

    Reference: Yang et al. (2020), proposition 3.
    """
    scale = mu * bound**2
    return (scale / (squared_residuals + scale)).square()


def truncated_weights(squared_residuals: Tensor, bound: float, mu: float) -> Tensor:
    """Return c sqrt(mu (mu + 1)) / r - mu, clamped to [0, 1]: the weights of the truncated surrogate.

    Args:
        squared_residuals: r^2, at least 0.
        bound: c, the largest residual of an inlier.
        mu: The surrogate's parameter: 0 is least squares, infinity is truncated least squares.

    Example:
        >>> import torch
        >>> truncated_weights(torch.tensor([0.1, 1.0, 9.0]), bound=1.0, mu=1.0)
        tensor([1.0000, 0.4142, 0.0000])

    Reference: Yang et al. (2020), proposition 4; the clamp reaches 1 at r^2 = c^2 mu / (mu + 1), 0 at
    c^2 (mu + 1) / mu.
    """
    weights: Tensor = bound * (mu * (mu + 1)) ** 0.5 / squared_residuals.sqrt() - mu
    return weights.clamp(0, 1)


def gnc_gm(
    solve: Callable[[Tensor], Model],
    squared_residuals: Callable[[Model], Tensor],
    samples: int,
    bound: float,
    max_iterations: int = 1000,
) -> GncFit[Model]:
    """Graduated non-convexity with the Geman-McClure loss; stops once mu has reached 1.

    Args:
        solve: Returns the weighted least-squares fit for given sample weights.
        squared_residuals: Returns each sample's squared residual under a model.
        samples: n, the number of samples.
        bound: c, the largest residual of an inlier. For Gaussian noise of a known standard deviation take a
            quantile of its length, such as 2.58 standard deviations for 99 % of scalars.
        max_iterations: Maximum number of fits.

    Returns:
        The last model and its weights.

    Example:
        >>> import torch
        >>> y = torch.tensor([1.0, 1.2, 0.9, 50.0])
        >>> result = gnc_gm(lambda w: (w * y).sum() / w.sum(), lambda m: (y - m) ** 2, 4, bound=0.3)
        >>> abs(float(result.model) - 1.0) < 0.05
        True

    Reference: Yang et al. (2020), proposition 3 and remark 5.
    """
    _require_bound(bound)
    weights = torch.ones(samples, dtype=torch.float64)
    model = solve(weights)
    squares = squared_residuals(model)
    mu = max(2 * float(squares.max()) / bound**2, 1.0)
    for iteration in range(2, max_iterations + 1):
        weights = geman_mcclure_weights(squares, bound, mu)
        model = solve(weights)
        squares = squared_residuals(model)
        if mu == 1:
            return GncFit(model, weights, iteration, True)
        mu = max(mu / FACTOR, 1.0)
    return GncFit(model, weights, max_iterations, False)


def gnc_tls(
    solve: Callable[[Tensor], Model],
    squared_residuals: Callable[[Model], Tensor],
    samples: int,
    bound: float,
    max_iterations: int = 1000,
    tolerance: float = 1e-9,
) -> GncFit[Model]:
    """Graduated non-convexity with the truncated loss; stops once weights are 0 or 1, or the cost is stable.

    Args:
        solve: Returns the weighted least-squares fit for given sample weights.
        squared_residuals: Returns each sample's squared residual under a model.
        samples: n, the number of samples.
        bound: c, the largest residual of an inlier; see :func:`gnc_gm`.
        max_iterations: Maximum number of fits.
        tolerance: Relative change of the weighted sum of squares at which it stops.

    Returns:
        The last model and its weights. If all residuals of the first fit are small
        (``2 r_max^2 <= c^2``), all samples are inliers and that fit is returned.

    Example:
        >>> import torch
        >>> y = torch.tensor([1.0, 1.2, 0.9, 50.0])
        >>> result = gnc_tls(lambda w: (w * y).sum() / w.sum(), lambda m: (y - m) ** 2, 4, bound=0.3)
        >>> result.weights
        tensor([1., 1., 1., 0.])

    Reference: Yang et al. (2020), proposition 4 and remark 5.
    """
    _require_bound(bound)
    weights = torch.ones(samples, dtype=torch.float64)
    model = solve(weights)
    squares = squared_residuals(model)
    room = 2 * float(squares.max()) - bound**2
    if room <= 0:
        return GncFit(model, weights, 1, True)
    mu, cost = bound**2 / room, float(squares.sum())
    for iteration in range(2, max_iterations + 1):
        weights = truncated_weights(squares, bound, mu)
        model = solve(weights)
        squares = squared_residuals(model)
        previous, cost = cost, float((weights * squares).sum())
        decided = bool(((weights == 0) | (weights == 1)).all())
        if decided or abs(cost - previous) <= tolerance * max(previous, 1e-300):
            return GncFit(model, weights, iteration, True)
        mu *= FACTOR
    return GncFit(model, weights, max_iterations, False)


def _require_bound(bound: float) -> None:
    if not bound > 0:
        raise ValueError(f"bound = {bound}: pass the largest residual of an inlier, a number above 0")
