"""The data of the paper's linear regression (section 6.1), and the least-squares solves around it.

    y_i = w* . x_i + noise_i + o_i,    x_i uniform on (0, 1]^k,  w* normal,

with an outlier term ``o_i`` for a given fraction of the samples. A trial draws everything once for all rates:
at a higher rate the outliers of the lower one stay and others join them, so curves over the rate are smooth.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

__all__ = ["RegressionData", "draw", "least_squares", "rmse", "squared_errors"]


@dataclass(frozen=True)
class RegressionData:
    """One regression problem with outliers, and a test set without noise.

    Args:
        x: Inputs, [n, k], float64.
        y: Targets, [n], outliers among them.
        outlier: Which samples are outliers, [n].
        clean_y: Targets with noise but without outlier terms, [n]: of the outlier-free losses f_{i,I}.
        x_test: Inputs of the test set, [m, k].
        true_w: w*, [k].
        noise: Standard deviation of the inliers' noise.
    """

    x: Tensor
    y: Tensor
    outlier: Tensor
    clean_y: Tensor
    x_test: Tensor
    true_w: Tensor
    noise: float

    @property
    def inlier_fraction(self) -> float:
        """The true fraction of inliers, zeta."""
        return 1 - float(self.outlier.double().mean())


def draw(
    rate: float,
    seed: int,
    samples: int = 1000,
    dimension: int = 10,
    noise: float = 0.1,
    outlier: float = 5.0,
    spread: Literal["std", "variance"] = "std",
) -> RegressionData:
    """Draw the data of one trial at one outlier rate.

    Args:
        rate: The fraction of outliers, 0 <= rate < 1; rounded to an integer number of samples.
        seed: The seed of the trial.
        samples: n, the number of training samples; the test set has as many.
        dimension: k.
        noise: The second argument of the paper's N(0, 0.1).
        outlier: The second argument of its N(0, 5).
        spread: Whether those two are standard deviations or variances: the paper does not say.

    Returns:
        The problem; the same trial at another rate has the same inputs, noise and w*.

    Example:
        >>> data = draw(rate=0.3, seed=0)
        >>> data.x.shape, int(data.outlier.sum()), data.noise
        (torch.Size([1000, 10]), 300, 0.1)

    Reference: section 6.1 of the paper.
    """
    if not 0 <= rate < 1:
        raise ValueError(f"rate = {rate}: pass an outlier rate of at least 0 and below 1")
    noise_std, outlier_std = (noise, outlier) if spread == "std" else (math.sqrt(noise), math.sqrt(outlier))
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    def uniform(*shape: int) -> Tensor:
        return 1 - torch.rand(*shape, generator=generator, dtype=torch.float64)

    x, x_test, true_w = uniform(samples, dimension), uniform(samples, dimension), normal(dimension)
    clean_y = x @ true_w + noise_std * normal(samples)
    order = torch.randperm(samples, generator=generator)
    is_outlier = torch.zeros(samples, dtype=torch.bool)
    is_outlier[order[: round(rate * samples)]] = True
    y = clean_y + torch.where(is_outlier, outlier_std * normal(samples), 0.0)
    return RegressionData(x, y, is_outlier, clean_y, x_test, true_w, noise_std)


def least_squares(x: Tensor, y: Tensor, weights: Tensor | None = None) -> Tensor:
    """Return the w that minimizes sum of weights (y - x w)^2.

    Args:
        x: Inputs, [n, k].
        y: Targets, [n].
        weights: Weights of at least 0, [n]; 1 by default.

    Example:
        >>> import torch
        >>> x = torch.tensor([[1.0], [1.0], [1.0]])
        >>> least_squares(x, torch.tensor([1.0, 2.0, 30.0]), torch.tensor([1.0, 1.0, 0.0]))
        tensor([1.5000])
    """
    root = torch.ones_like(y) if weights is None else weights.to(y.dtype).sqrt()
    # "gelsd" accepts weights that leave fewer samples than unknowns.
    solution: Tensor = torch.linalg.lstsq(x * root[:, None], (y * root)[:, None], driver="gelsd").solution
    return solution[:, 0]


def squared_errors(data: RegressionData, w: Tensor) -> Tensor:
    """Return the loss of each training sample, f_i(w) = (y_i - x_i w)^2."""
    return (data.y - data.x @ w).square()


def rmse(data: RegressionData, w: Tensor) -> float:
    """Return the root mean squared error on the noise-free test set."""
    return float((data.x_test @ (w.double() - data.true_w)).square().mean().sqrt())


def stack(problems: Sequence[RegressionData], dtype: torch.dtype) -> Tensor:
    """Return inputs and targets of many problems of one size as rows (x, y), [P, n, k + 1]."""
    return torch.stack([torch.cat((data.x, data.y[:, None]), dim=1) for data in problems]).to(dtype)
