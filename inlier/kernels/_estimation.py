"""Kernels from robust estimation, first made for squared residuals."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from inlier.kernels._base import Kernel, register, require


@register("truncated")
@dataclass(frozen=True)
class Truncated(Kernel):
    """Truncated: keep a loss up to c, ignore it above. Adaptive TL uses it.

    sigma(r) = min(r, 1), weight 1 if r <= 1 else 0, Phi(u) = 1 - u. Its slope is not invertible;
    Definition 1 asks only for (iii) with "<=" so that it may be in.

    Example:
        >>> Truncated().weight(0.5, 1.0), Truncated().weight(2.0, 1.0)
        (1.0, 0.0)
    """

    def sigma(self, r: Tensor) -> Tensor:
        """Return min(r, 1)."""
        return r.clamp(max=1)

    def slope(self, r: Tensor) -> Tensor:
        """Return 1 where r <= 1."""
        return (r <= 1).to(r.dtype)

    def inverse_slope(self, u: Tensor) -> Tensor:
        """Return the place of the jump, 1."""
        return (u < 1).to(u.dtype)

    def process(self, u: Tensor) -> Tensor:
        """Return 1 - u."""
        return 1 - u


@register("geman-mcclure")
@dataclass(frozen=True)
class GemanMcClure(Kernel):
    """Geman-McClure: the default; soft, and outliers lose all influence. Adaptive GM uses it.

    sigma(r) = r / (1 + r), weight (1 + r)^-2, Phi(u) = (1 - sqrt u)^2.

    Example:
        >>> GemanMcClure().weight(1.0, 1.0)
        0.25
    """

    def sigma(self, r: Tensor) -> Tensor:
        """Return r / (1 + r), in a form that stands r = inf."""
        return -torch.expm1(-torch.log1p(r))

    def slope(self, r: Tensor) -> Tensor:
        """Return (1 + r)^-2, in a form whose square cannot overflow."""
        return (1 + r).reciprocal().square()

    def inverse_slope(self, u: Tensor) -> Tensor:
        """Return 1 / sqrt(u) - 1."""
        return torch.expm1(-0.5 * torch.log(u))

    def process(self, u: Tensor) -> Tensor:
        """Return (1 - sqrt u)^2."""
        return (1 - u.sqrt()).square()


@register("welsch-leclerc")
@dataclass(frozen=True)
class WelschLeclerc(Kernel):
    """Welsch-Leclerc: weights fall exponentially.

    sigma(r) = 1 - e^-r, weight e^-r, Phi(u) = 1 - u + u ln u.

    Example:
        >>> round(WelschLeclerc().weight(1.0, 1.0), 4)
        0.3679
    """

    def sigma(self, r: Tensor) -> Tensor:
        """Return 1 - e^-r."""
        return -torch.expm1(-r)

    def slope(self, r: Tensor) -> Tensor:
        """Return e^-r."""
        return torch.exp(-r)

    def inverse_slope(self, u: Tensor) -> Tensor:
        """Return -ln u."""
        return -torch.log(u)

    def process(self, u: Tensor) -> Tensor:
        """Return 1 - u + u ln u."""
        return 1 - u + torch.xlogy(u, u)


@register("cauchy-lorentzian")
@dataclass(frozen=True)
class CauchyLorentzian(Kernel):
    """Cauchy-Lorentzian: large losses still count, as their logarithm.

    sigma(r) = ln(1 + r), weight 1 / (1 + r), Phi(u) = u - 1 - ln u.

    Example:
        >>> CauchyLorentzian().weight(1.0, 1.0)
        0.5
    """

    def sigma(self, r: Tensor) -> Tensor:
        """Return ln(1 + r)."""
        return torch.log1p(r)

    def slope(self, r: Tensor) -> Tensor:
        """Return 1 / (1 + r)."""
        return (1 + r).reciprocal()

    def inverse_slope(self, u: Tensor) -> Tensor:
        """Return 1 / u - 1."""
        return (1 - u) / u

    def process(self, u: Tensor) -> Tensor:
        """Return u - 1 - ln u."""
        return u - 1 - torch.log(u)


@register("charbonnier")
@dataclass(frozen=True)
class Charbonnier(Kernel):
    """Charbonnier: of a squared residual, close to its absolute value. (The table lacks a bracket.)

    sigma(r) = 2 (sqrt(1 + r) - 1), weight (1 + r)^-1/2, Phi(u) = u - 2 + 1/u = (1 - u)^2 / u.

    Example:
        >>> Charbonnier().weight(3.0, 1.0)
        0.5
    """

    def sigma(self, r: Tensor) -> Tensor:
        """Return 2 (sqrt(1 + r) - 1)."""
        return 2 * torch.expm1(0.5 * torch.log1p(r))

    def slope(self, r: Tensor) -> Tensor:
        """Return (1 + r)^-1/2."""
        return torch.rsqrt(1 + r)

    def inverse_slope(self, u: Tensor) -> Tensor:
        """Return 1 / u^2 - 1."""
        return (1 - u) * (1 + u) / u.square()

    def process(self, u: Tensor) -> Tensor:
        """Return (1 - u)^2 / u."""
        return (1 - u).square() / u


@register("barron")
@dataclass(frozen=True)
class Barron(Kernel):
    """Barron's family: one number from Charbonnier (1) over Cauchy (0), Geman-McClure (-2) to Welsch (-inf).

    sigma(r) = 2 (b / alpha) ((r / b + 1)^(alpha / 2) - 1) with b = 2 - alpha, weight (r / b + 1)^(-b / 2).
    alpha = 0 and alpha = -inf are the limits. (The table lacks the factor 2, so that its slope at 0 is 1/2.)

    Args:
        alpha: The shape, below 2. At 2 the kernel is the identity: not robust.

    Example:
        >>> Barron(alpha=-2.0).weight(4.0, 1.0) == GemanMcClure().weight(4.0, 4.0)
        True

    Reference: J. Barron, "A General and Adaptive Robust Loss Function", CVPR 2019. His rho(x, alpha, scale)
    is sigma_c(x^2) / 2 at c = scale^2.
    """

    alpha: float = 0.0

    def __post_init__(self) -> None:
        require(self.alpha < 2, self, "alpha must be below 2, else large losses keep their whole weight")

    @property
    def _b(self) -> float:
        return 2 - self.alpha

    def sigma(self, r: Tensor) -> Tensor:
        """Return 2 (b / alpha) ((r / b + 1)^(alpha / 2) - 1)."""
        if math.isinf(self.alpha):
            return -2 * torch.expm1(-r / 2)
        logarithm = torch.log1p(r / self._b)
        if abs(self.alpha) < 1e-20:
            return self._b * logarithm
        return (2 * self._b / self.alpha) * torch.expm1(self.alpha / 2 * logarithm)

    def slope(self, r: Tensor) -> Tensor:
        """Return (r / b + 1)^(-b / 2)."""
        if math.isinf(self.alpha):
            return torch.exp(-r / 2)
        return torch.exp(-self._b / 2 * torch.log1p(r / self._b))

    def inverse_slope(self, u: Tensor) -> Tensor:
        """Return b (u^(-2 / b) - 1)."""
        if math.isinf(self.alpha):
            return -2 * torch.log(u)
        return self._b * torch.expm1(-2 / self._b * torch.log(u))


@register("huber")
@dataclass(frozen=True)
class Huber(Kernel):
    """Huber, of a squared residual r: whole below c, growing as the absolute residual above.

    sigma(r) = r for r <= 1, else 2 sqrt(r) - 1; weight min(1, r^-1/2); Phi(u) = 1/u - 1.

    Example:
        >>> Huber().weight(4.0, 1.0)
        0.5

    Reference: P. Huber, "Robust Estimation of a Location Parameter", 1964.
    """

    def sigma(self, r: Tensor) -> Tensor:
        """Return r below 1, else 2 sqrt(r) - 1."""
        return torch.where(r <= 1, r, 2 * r.clamp(min=1).sqrt() - 1)

    def slope(self, r: Tensor) -> Tensor:
        """Return min(1, r^-1/2)."""
        return r.clamp(min=1).rsqrt()

    def inverse_slope(self, u: Tensor) -> Tensor:
        """Return 1 / u^2."""
        return torch.where(u < 1, u.square().reciprocal(), 0.0)

    def process(self, u: Tensor) -> Tensor:
        """Return 1 / u - 1."""
        return (1 - u) / u


@register("tukey")
@dataclass(frozen=True)
class Tukey(Kernel):
    """Tukey's biweight, of a squared residual r: falls smoothly to exactly 0 at c.

    sigma(r) = (1 - (1 - r)^3) / 3 for r < 1, else 1/3; weight (1 - r)^2 for r < 1, else 0;
    Phi(u) = 1/3 - u + (2/3) u^(3/2).

    Example:
        >>> Tukey().weight(0.5, 1.0), Tukey().weight(1.0, 1.0)
        (0.25, 0.0)

    Reference: A. Beaton, J. Tukey, "The Fitting of Power Series", 1974.
    """

    def sigma(self, r: Tensor) -> Tensor:
        """Return r (1 - r + r^2 / 3), the cubic multiplied out, so that small r keep their digits."""
        r = r.clamp(max=1)
        return r * (1 - r + r.square() / 3)

    def slope(self, r: Tensor) -> Tensor:
        """Return (1 - r)^2 below 1."""
        return (1 - r.clamp(max=1)).square()

    def inverse_slope(self, u: Tensor) -> Tensor:
        """Return 1 - sqrt u."""
        return 1 - u.sqrt()

    def process(self, u: Tensor) -> Tensor:
        """Return 1/3 - u + (2/3) u^(3/2), factored, so that it is never negative."""
        return (1 - u.sqrt()).square() * (1 + 2 * u.sqrt()) / 3
