"""Theorems 1 to 3: the regions in which SGD, AAA_1 and AAA_T converge, for regressions of two parameters.

The theorems ask that the energy of the outliers' gradients, ``(1/n_out) sum u_i^2 |h_i(w)|^2``, stay below
one M:

    W_SGD     u_i = 1
    W_AAA1    u_i = sigma'_c(f_i(w)), with mean sigma'_c = zeta, and min_i sigma'_c(f_i(w)) >= beta > 0
    W_AAA_T   the largest over all w' that the last T iterates can have been at, of u_i = sigma'_c(f_i(w'))

(the paper prints sigma for sigma' in the side condition). For a linear model ``h_i = -2 o_i x_i`` does not
depend on w: W_SGD is the whole plane or empty. So there is a curved model beside it, ``y = w_1 exp(w_2
x)``, with ``h_i = -2 o_i (grad of the model)``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from inlier import kernels
from inlier.experiments.regression.data import RegressionData, draw
from inlier.histogram import LossHistogram
from inlier.kernels import Kernel
from inlier.scale import solve_scales

__all__ = ["CURVES", "Assumptions", "Curve", "Regions", "assumptions", "problem", "regions", "weights_at"]

SCALE_BITS = 6
ROWS_AT_ONCE = 500


@dataclass(frozen=True)
class Curve:
    """A regression model of two parameters.

    Args:
        name: The formula, for titles.
        predict: Takes w [..., 2] and inputs [n, 2]; returns predictions [..., n].
        jacobian: Takes the same; returns their gradients by w, [..., n, 2].
        true_w: The parameters that data are drawn with.
        window: The part of the plane that is searched: (w_1 low, high), (w_2 low, high).
    """

    name: str
    predict: Callable[[Tensor, Tensor], Tensor]
    jacobian: Callable[[Tensor, Tensor], Tensor]
    true_w: tuple[float, float]
    window: tuple[tuple[float, float], tuple[float, float]]

    def grid(self, points: int) -> Tensor:
        """Return a grid of points x points in the window, [points^2, 2], w_1 first."""
        axes = [torch.linspace(low, high, points, dtype=torch.float64) for low, high in self.window]
        return torch.cartesian_prod(*axes)


def _exponential_jacobian(w: Tensor, x: Tensor) -> Tensor:
    growth = (w[..., 1:] * x[:, 0]).exp()
    return torch.stack((growth, w[..., :1] * x[:, 0] * growth), dim=-1)


CURVES = {
    "linear": Curve(
        name="y = w₁ x₁ + w₂ x₂",
        predict=lambda w, x: w @ x.T,
        jacobian=lambda w, x: x.expand(*w.shape[:-1], *x.shape),
        true_w=(1.0, -0.5),
        window=((-4.0, 6.0), (-5.5, 4.5)),
    ),
    "exponential": Curve(
        name="y = w₁ exp(w₂ x)",
        predict=lambda w, x: w[..., :1] * (w[..., 1:] * x[:, 0]).exp(),
        jacobian=_exponential_jacobian,
        true_w=(1.0, 1.0),
        window=((-2.0, 4.0), (-2.0, 3.0)),
    ),
}
"""The models by name; add one here to see its regions."""


def problem(curve: Curve, rate: float, seed: int = 0, samples: int = 1000) -> RegressionData:
    """Draw data for a curve: inputs, noise and outlier terms of the paper's regression, other predictions.

    Example:
        >>> data = problem(CURVES["exponential"], rate=0.4)
        >>> data.x.shape, int(data.outlier.sum())
        (torch.Size([1000, 2]), 400)
    """
    data = draw(rate, seed, samples, dimension=2)
    true_w = torch.tensor(curve.true_w, dtype=torch.float64)
    shift = curve.predict(true_w, data.x) - data.x @ data.true_w
    return replace(data, y=data.y + shift, clean_y=data.clean_y + shift, true_w=true_w)


def weights_at(losses: Tensor, kernel: Kernel, inlier_fraction: float) -> Tensor:
    """Return sigma'_c(f_i) with each row's own c, from mean sigma'_c = zeta.

    Args:
        losses: One row per point w, [points, n].
        kernel: The kernel.
        inlier_fraction: zeta.

    Returns:
        Weights, [points, n].

    Example:
        >>> import torch, inlier
        >>> losses = torch.rand(3, 1000)
        >>> u = weights_at(losses, inlier.kernels.get("geman-mcclure"), 0.7)
        >>> bool(((u.mean(1) - 0.7).abs() < 0.01).all())
        True

    Reference: StepRule 1 and Lemma 1.
    """
    parts = []
    for rows in torch.split(losses, ROWS_AT_ONCE):
        counts = torch.stack([LossHistogram.of(row, SCALE_BITS).counts for row in rows])
        scale = solve_scales(counts, kernel, torch.full((len(rows),), inlier_fraction, dtype=torch.float64))
        parts.append(kernel.weight(rows, scale[:, None]))
    return torch.cat(parts)


@dataclass(frozen=True)
class Regions:
    """The outlier energy that decides each region, at every point of a grid.

    Args:
        grid: The points, [points, 2].
        sgd: ``(1/n_out) sum |h_i|^2``, [points].
        aaa: By T, the largest energy over the points where the last T iterates can have been; T = 1 is AAA_1.
        radius: By T, the largest distance of those points.
        smallest_weight: beta at each point: the smallest weight, [points].
        at_optimum: The energy of SGD at the outlier-free optimum.
    """

    grid: Tensor
    sgd: Tensor
    aaa: dict[int, Tensor]
    radius: dict[int, float]
    smallest_weight: Tensor
    at_optimum: float

    def areas(self, bound: float) -> dict[str, float]:
        """Return the part of the window that each region covers for one M.

        Args:
            bound: M.
        """
        shares = {"sgd": float((self.sgd < bound).double().mean())}
        return shares | {f"aaa_{T}": float((e < bound).double().mean()) for T, e in self.aaa.items()}


def regions(
    curve: Curve,
    data: RegressionData,
    kernel: str = "geman-mcclure",
    step_size: float = 0.01,
    holds: Sequence[int] = (1, 10, 100),
    points: int = 51,
) -> Regions:
    """Compute the energies that Theorems 1 to 3 bound, over a window.

    Where the last T iterates can have been (the theorem's R(w)) is modelled as a ball around w. Its radius is
    measured: the distance that 99 % of runs of T steps travel, started all over the window, with weights
    frozen at their start. AAA_1 takes weights at w itself: radius 0.

    Args:
        curve: The model.
        data: The data, from :func:`problem`.
        kernel: The kernel's name.
        step_size: eta of the steps that the radius is measured with.
        holds: The values of T.
        points: Points along each side of the window.

    Returns:
        Energies at every point.

    Reference: Theorems 1, 2 and 3.
    """
    grid = curve.grid(points)
    losses = (data.y - curve.predict(grid, data.x)).square()
    weights = weights_at(losses, kernels.get(kernel), data.inlier_fraction)
    jacobian = curve.jacobian(grid, data.x)
    # h_i = -2 o_i (gradient of the model): only its square is needed.
    energy = (2 * (data.y - data.clean_y)).square() * jacobian.square().sum(-1)
    energy, squared_weights = energy[:, data.outlier], weights[:, data.outlier].square()
    count = max(int(data.outlier.sum()), 1)
    # Exact: the distance of a point to itself must be 0.
    distance = torch.cdist(grid, grid, compute_mode="donot_use_mm_for_euclid_dist")
    # Energy at w (rows) with the weights of w' (columns).
    crossed = energy @ squared_weights.T / count
    radius, aaa = {}, {}
    for hold in holds:
        radius[hold] = _travelled_distance(curve, data, grid, weights, step_size, hold) if hold > 1 else 0.0
        aaa[hold] = torch.where(distance <= radius[hold], crossed, 0.0).amax(1)
    optimum = outlier_free_optimum(curve, data)
    at_optimum = (
        2 * (data.y - data.clean_y)[:, None] * curve.jacobian(optimum, data.x)
    ).square().sum() / count
    return Regions(grid, energy.sum(1) / count, aaa, radius, weights.amin(1), float(at_optimum))


def outlier_free_optimum(curve: Curve, data: RegressionData, rounds: int = 30) -> Tensor:
    """Return the w that minimizes f_I, by Gauss-Newton steps from the true parameters."""
    w = data.true_w
    for _ in range(rounds):
        jacobian = curve.jacobian(w, data.x)
        residual = data.clean_y - curve.predict(w, data.x)
        w = w + torch.linalg.lstsq(jacobian, residual[:, None]).solution[:, 0]
    return w


def _travelled_distance(
    curve: Curve, data: RegressionData, grid: Tensor, weights: Tensor, step_size: float, hold: int
) -> float:
    """The distance from their start that 99 % of runs keep within, over T steps with frozen weights."""
    generator = torch.Generator().manual_seed(0)
    w, farthest = grid.clone(), torch.zeros(len(grid), dtype=grid.dtype)
    for _ in range(hold):
        pick = torch.randint(len(data.y), (len(grid),), generator=generator)
        x, y = data.x[pick], data.y[pick]
        # One sample for each run: predictions of all runs on all samples would be a square.
        residual = torch.vmap(lambda w, x: curve.predict(w, x[None])[..., 0])(w, x) - y
        slope = torch.vmap(lambda w, x: curve.jacobian(w, x[None])[..., 0, :])(w, x)
        u = weights[torch.arange(len(grid)), pick]
        w = w - 2 * step_size * (u * residual)[:, None] * slope
        farthest = torch.maximum(farthest, (w - grid).norm(dim=1))
    return float(farthest.nan_to_num(nan=float("inf")).quantile(0.99))


@dataclass(frozen=True)
class Assumptions:
    """The constants that Theorems 1 to 3 assume, over a window.

    Args:
        smoothness: L, the largest curvature of any f_{i,I} (in the Gauss-Newton sense for a curved model).
        pl_constant: mu of f_I: the smallest ``|grad f_I|^2 / (2 (f_I - f_I*))`` over the window.
        dominant: Fraction of (point, outlier) pairs with |h_i| >= 1 and |h_i| >= |grad f_{i,I}| (Assumption
            2).
        aligned: Fraction of (point, sample) pairs with grad f_{i,I} . grad f_I >= 0 (Theorems 2 and 3).
        beta: The smallest weight of AAA_1 over the window.
        excess: Delta_{f_I} = f_I* minus the mean of min f_{i,I} (which are 0).
    """

    smoothness: float
    pl_constant: float
    dominant: float
    aligned: float
    beta: float
    excess: float

    def largest_step(self, rate: float, bound: float, epsilon: float, zeta: float | None = None) -> float:
        """Return the step size below which the theorems guarantee f_I(w_t) - f_I* < epsilon.

        Args:
            rate: lambda, the fraction of outliers.
            bound: M.
            epsilon: The error allowed.
            zeta: The inlier fraction, for Theorem 2 (which has beta and zeta); None for Theorem 1.
        """
        beta, share = (1.0, 1.0) if zeta is None else (self.beta, zeta)
        noise = 3 * rate * bound + 2 * self.smoothness * self.excess * share
        return self.pl_constant * beta / self.smoothness * min(1 / self.smoothness, epsilon / noise)


def assumptions(curve: Curve, data: RegressionData, found: Regions) -> Assumptions:
    """Check what the theorems assume, at every point of a grid.

    Args:
        curve: The model.
        data: The data.
        found: The regions, for their grid and weights.

    Returns:
        The constants, and how often each assumption holds.

    Reference: Assumption 2, the definitions of L-smooth and mu-PL, Theorems 1 and 2.
    """
    grid, optimum = found.grid, outlier_free_optimum(curve, data)
    jacobian = curve.jacobian(grid, data.x)
    residual = data.clean_y - curve.predict(grid, data.x)
    clean = -2 * residual.unsqueeze(-1) * jacobian
    mean = clean.mean(1)
    best = float((data.clean_y - curve.predict(optimum, data.x)).square().mean())
    gap = residual.square().mean(1) - best
    far = gap > 1e-6 * gap.max()
    h = (2 * (data.y - data.clean_y)).abs() * jacobian.norm(dim=-1)
    dominant = ((h >= 1) & (h >= clean.norm(dim=-1)))[:, data.outlier].double().mean()
    return Assumptions(
        smoothness=2 * float(jacobian.square().sum(-1).max()),
        pl_constant=float((mean.square().sum(1) / (2 * gap))[far].min()),
        dominant=float(dominant) if bool(data.outlier.any()) else 1.0,
        aligned=float(((clean * mean.unsqueeze(1)).sum(-1) >= 0).double().mean()),
        beta=float(found.smallest_weight.min()),
        excess=best,
    )
