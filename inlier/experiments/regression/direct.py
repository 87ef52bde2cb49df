"""Direct methods, which take no steps: the oracle, trimming, graduated non-convexity, scikit-learn.

Their prior knowledge: the oracle, which samples are outliers; trimming, the inlier fraction; graduated
non-convexity and RANSAC, a bound on the inliers' noise, 2.58 true standard deviations (99 % of inliers lie
within); Huber and Theil-Sen, none.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from inlier.experiments.baselines import gnc, trimmed
from inlier.experiments.regression.data import RegressionData, least_squares, squared_errors

__all__ = ["DIRECT", "gradient_descent"]

NOISE_BOUND = 2.5758293035489004
"""Within how many standard deviations 99 % of a Gaussian lie; times the noise, it bounds inliers."""

THEIL_SEN_SUBSETS = 2000
"""Subsets that Theil-Sen draws; scikit-learn's 10,000 take five times as long and change little here."""


def inlier_least_squares(data: RegressionData, seed: int) -> Tensor:
    """Least squares on the inliers alone: the oracle that no method can expect to beat."""
    return least_squares(data.x, data.y, (~data.outlier).double())


def trimmed_least_squares(data: RegressionData, seed: int) -> Tensor:
    """Iterative trimmed loss minimization, with exact solves and the true inlier fraction."""
    solve, losses = _problem(data)
    return trimmed.fit(solve, losses, len(data.y), data.inlier_fraction).model


def gnc_truncated(data: RegressionData, seed: int) -> Tensor:
    """Graduated non-convexity towards truncated least squares."""
    solve, losses = _problem(data)
    return gnc.gnc_tls(solve, losses, len(data.y), NOISE_BOUND * data.noise).model


def gnc_geman_mcclure(data: RegressionData, seed: int) -> Tensor:
    """Graduated non-convexity towards Geman-McClure."""
    solve, losses = _problem(data)
    return gnc.gnc_gm(solve, losses, len(data.y), NOISE_BOUND * data.noise).model


def huber(data: RegressionData, seed: int) -> Tensor:
    """scikit-learn's HuberRegressor: epsilon = 1.35, no penalty."""
    from sklearn.linear_model import HuberRegressor

    return _coefficients(HuberRegressor(alpha=0.0, fit_intercept=False, max_iter=1000), data)


def ransac(data: RegressionData, seed: int) -> Tensor:
    """scikit-learn's RANSACRegressor: its 100 trials, with the bound on the noise."""
    from sklearn.linear_model import LinearRegression, RANSACRegressor

    regressor = RANSACRegressor(
        LinearRegression(fit_intercept=False),
        min_samples=data.x.shape[1],
        residual_threshold=NOISE_BOUND * data.noise,
        random_state=seed,
    )
    return _coefficients(regressor, data)


def theil_sen(data: RegressionData, seed: int) -> Tensor:
    """scikit-learn's TheilSenRegressor, on 2000 subsets."""
    from sklearn.linear_model import TheilSenRegressor

    regressor = TheilSenRegressor(
        fit_intercept=False, random_state=seed, max_subpopulation=THEIL_SEN_SUBSETS, n_jobs=1
    )
    return _coefficients(regressor, data)


DIRECT: dict[str, Callable[[RegressionData, int], Tensor]] = {
    "inlier-least-squares": inlier_least_squares,
    "trimmed": trimmed_least_squares,
    "gnc-tls": gnc_truncated,
    "gnc-gm": gnc_geman_mcclure,
    "huber": huber,
    "ransac": ransac,
    "theil-sen": theil_sen,
}
"""The direct methods by name: each takes the data and the seed of the trial, and returns w."""


def gradient_descent(data: RegressionData, steps: int, step_size: float) -> Tensor:
    """Return w after ``steps`` steps of full gradient descent from 0, in closed form.

    With ``H = (2/n) X^T X`` and the least-squares solution ``w_LS``, step t is at
    ``w_t = w_LS - (I - eta H)^t w_LS``.

    Args:
        data: The problem.
        steps: t.
        step_size: eta, below ``2 / max eigenvalue of H``.

    Example:
        >>> from inlier.experiments.regression.data import draw, least_squares
        >>> data = draw(rate=0.5, seed=0)
        >>> w = gradient_descent(data, steps=10**7, step_size=7e-4)
        >>> bool((w - least_squares(data.x, data.y)).abs().max() < 1e-6)
        True
    """
    curvature, axes = torch.linalg.eigh(2 * data.x.T @ data.x / len(data.y))
    optimum = least_squares(data.x, data.y)
    reached = 1 - (1 - step_size * curvature).pow(steps)
    w: Tensor = axes @ (reached * (axes.T @ optimum))
    return w


def _problem(data: RegressionData) -> tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]:
    """Return the weighted solver and the losses of a model, as the baselines take them."""
    return (
        lambda weights: least_squares(data.x, data.y, weights),
        lambda w: squared_errors(data, w),
    )


def _coefficients(regressor: Any, data: RegressionData) -> Tensor:
    """Fit a scikit-learn regressor and return its coefficients; 0 if it finds no consensus."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            regressor.fit(data.x.numpy(), data.y.numpy())
        except ValueError as error:
            if "RANSAC" not in str(error):
                raise
            return torch.zeros_like(data.true_w)
    return torch.as_tensor(getattr(regressor, "estimator_", regressor).coef_, dtype=torch.float64)
