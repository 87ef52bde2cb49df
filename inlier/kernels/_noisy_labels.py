"""Kernels from learning with noisy labels, first made for the cross-entropy r: e^-r is the probability
given to the label."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from inlier.kernels._base import Kernel, register, require
from inlier.kernels._estimation import WelschLeclerc


@register("mean-error")
@dataclass(frozen=True)
class MeanError(WelschLeclerc):
    """Mean (absolute) error of the probabilities, 1 - e^-r: the same function as Welsch-Leclerc.

    Example:
        >>> MeanError().weight(1.0) == WelschLeclerc().weight(1.0)
        True

    Reference: A. Ghosh, H. Kumar, P. Sastry, "Robust Loss Functions under Label Noise", AAAI 2017.
    """


@register("generalized-cross-entropy")
@dataclass(frozen=True)
class GeneralizedCrossEntropy(Kernel):
    """Generalized cross-entropy: Welsch-Leclerc at c = 1/q.

    sigma(r) = (1 - e^-qr) / q, weight e^-qr, Phi(u) = (1 - u + u ln u) / q.

    Args:
        q: Above 0; 1 is the mean error, and towards 0 the kernel nears plain cross-entropy.

    Example:
        >>> GeneralizedCrossEntropy(q=0.5).weight(2.0) == WelschLeclerc().weight(2.0, 2.0)
        True

    Reference: Z. Zhang, M. Sabuncu, "Generalized Cross Entropy Loss", NeurIPS 2018 (q = 0.7).
    """

    q: float = 0.7

    def __post_init__(self) -> None:
        require(0 < self.q < math.inf, self, "q must be above 0, else weights do not fall with the loss")

    def sigma(self, r: Tensor) -> Tensor:
        """Return (1 - e^-qr) / q."""
        return -torch.expm1(-self.q * r) / self.q

    def slope(self, r: Tensor) -> Tensor:
        """Return e^-qr."""
        return torch.exp(-self.q * r)

    def inverse_slope(self, u: Tensor) -> Tensor:
        """Return -ln(u) / q."""
        return -torch.log(u) / self.q

    def process(self, u: Tensor) -> Tensor:
        """Return (1 - u + u ln u) / q."""
        return (1 - u + torch.xlogy(u, u)) / self.q


@register("symmetric-cross-entropy")
@dataclass(frozen=True)
class SymmetricCrossEntropy(Kernel):
    """Symmetric cross-entropy: cross-entropy plus A times the mean error. Its weight has a floor.

    sigma(r) = (r + A (1 - e^-r)) / (1 + A), weight (1 + A e^-r) / (1 + A). The weight never falls below
    1 / (1 + A): condition (ii) of Definition 1 fails, and an inlier fraction at or below the floor has no
    scale. (The signs in the table give slope (1 - A) / (1 + A) at 0.)

    Args:
        A: Above 0; the share of the mean error.

    Example:
        >>> SymmetricCrossEntropy(A=4.0).weight_floor
        0.2

    Reference: Y. Wang et al., "Symmetric Cross Entropy for Robust Learning with Noisy Labels", ICCV 2019.
    """

    A: float = 4.0

    def __post_init__(self) -> None:
        require(0 < self.A < math.inf, self, "A must be above 0, else no loss is weighed down")

    @property
    def weight_floor(self) -> float:
        """Return 1 / (1 + A)."""
        return 1 / (1 + self.A)

    def sigma(self, r: Tensor) -> Tensor:
        """Return (r + A (1 - e^-r)) / (1 + A)."""
        return (r - self.A * torch.expm1(-r)) / (1 + self.A)

    def slope(self, r: Tensor) -> Tensor:
        """Return (1 + A e^-r) / (1 + A)."""
        return (1 + self.A * torch.exp(-r)) / (1 + self.A)

    def inverse_slope(self, u: Tensor) -> Tensor:
        """Return -ln(1 - (1 + 1/A) (1 - u))."""
        return -torch.log1p(((1 + 1 / self.A) * (u - 1)).clamp(min=-1))


@register("reverse-cross-entropy")
@dataclass(frozen=True)
class ReverseCrossEntropy(WelschLeclerc):
    """Reverse cross-entropy: up to a constant the mean error, 1 - e^-r. (The table counts it, without a row.)

    Example:
        >>> ReverseCrossEntropy().weight(1.0) == MeanError().weight(1.0)
        True

    Reference: Y. Wang et al., "Symmetric Cross Entropy for Robust Learning with Noisy Labels", ICCV 2019.
    """


@register("taylor-cross-entropy")
@dataclass(frozen=True)
class TaylorCrossEntropy(Kernel):
    """Taylor cross-entropy: the first t terms of cross-entropy in 1 - e^-r.

    sigma(r) = sum over m = 1..t of (1 - e^-r)^m / m, weight 1 - (1 - e^-r)^t.

    Args:
        t: An integer of at least 1; 1 is the mean error, and large t nears cross-entropy.

    Example:
        >>> round(TaylorCrossEntropy(t=2).weight(1.0), 6)
        0.600424

    Reference: L. Feng et al., "Can Cross Entropy Loss Be Robust to Label Noise?", IJCAI 2020.
    """

    t: int = 2

    def __post_init__(self) -> None:
        require(self.t == int(self.t) and self.t >= 1, self, "t must be an integer of at least 1")

    def sigma(self, r: Tensor) -> Tensor:
        """Return the sum of (1 - e^-r)^m / m by Horner's rule."""
        z = -torch.expm1(-r)
        total = torch.zeros_like(r)
        for m in range(int(self.t), 0, -1):
            total = z * (total + 1 / m)
        return total

    def slope(self, r: Tensor) -> Tensor:
        """Return 1 - (1 - e^-r)^t, by logarithms, so that it keeps its digits where it is small."""
        return -torch.expm1(self.t * torch.log1p(-torch.exp(-r)))

    def inverse_slope(self, u: Tensor) -> Tensor:
        """Return -ln(1 - (1 - u)^(1/t))."""
        return -torch.log(-torch.expm1(torch.log1p(-u) / self.t))


@register("asymmetric-generalized-cross-entropy")
@dataclass(frozen=True)
class AsymmetricGeneralizedCrossEntropy(Kernel):
    """Asymmetric generalized cross-entropy.

    sigma(r) = ((a + 1)^q - (a + e^-r)^q) / (q (a + 1)^(q - 1)), weight e^-r ((a + e^-r) / (a + 1))^(q - 1).
    (The divisor a^(q - 1) of the table gives a slope other than 1 at 0.)

    Args:
        a: Above 0.
        q: Above 0.

    Example:
        >>> AsymmetricGeneralizedCrossEntropy(a=0.6, q=0.6).weight(0.0)
        1.0

    Reference: X. Zhou et al., "Asymmetric Loss Functions for Learning with Noisy Labels", ICML 2021.
    """

    a: float = 0.6
    q: float = 0.6

    def __post_init__(self) -> None:
        require(0 < self.a < math.inf, self, "a must be above 0, else the loss is unbounded at e^-r = 0")
        require(0 < self.q < math.inf, self, "q must be above 0, else the weight is not monotone")

    def sigma(self, r: Tensor) -> Tensor:
        """Return (a + 1) (1 - (1 - z / (a + 1))^q) / q with z = 1 - e^-r."""
        z = -torch.expm1(-r)
        # The logarithm of (a + e^-r) / (a + 1), from the side on which no digits cancel.
        logarithm = torch.where(
            z < 0.5,
            torch.log1p(-z.clamp(max=0.5) / (self.a + 1)),
            torch.log((self.a + torch.exp(-r)) / (self.a + 1)),
        )
        return -(self.a + 1) / self.q * torch.expm1(self.q * logarithm)

    def slope(self, r: Tensor) -> Tensor:
        """Return e^-r ((a + e^-r) / (a + 1))^(q - 1)."""
        p = torch.exp(-r)
        return p * ((self.a + p) / (self.a + 1)) ** (self.q - 1)


@register("asymmetric-unhinged")
@dataclass(frozen=True)
class AsymmetricUnhinged(Kernel):
    """Asymmetric unhinged loss.

    sigma(r) = ((a - e^-r)^p - (a - 1)^p) / (p (a - 1)^(p - 1)), weight e^-r ((a - e^-r) / (a - 1))^(p - 1).
    (The divisor a^(p - 1) of the table gives a slope other than 1 at 0.)

    Args:
        a: Above 1, and at least p.
        p: Above 0.

    Example:
        >>> AsymmetricUnhinged(a=6.3, p=1.5).weight(0.0)
        1.0

    Reference: X. Zhou et al., "Asymmetric Loss Functions for Learning with Noisy Labels", ICML 2021.
    """

    a: float = 6.3
    p: float = 1.5

    def __post_init__(self) -> None:
        require(1 < self.a < math.inf, self, "a must be above 1, else the loss is not defined at r = 0")
        require(self.p > 0, self, "p must be above 0")
        require(self.a >= self.p, self, "a must be at least p, else the weight rises with the loss")

    def sigma(self, r: Tensor) -> Tensor:
        """Return (a - 1) ((1 + z / (a - 1))^p - 1) / p with z = 1 - e^-r."""
        z = -torch.expm1(-r)
        return (self.a - 1) / self.p * torch.expm1(self.p * torch.log1p(z / (self.a - 1)))

    def slope(self, r: Tensor) -> Tensor:
        """Return e^-r (1 + z / (a - 1))^(p - 1) with z = 1 - e^-r."""
        z = -torch.expm1(-r)
        return torch.exp(-r) * (1 + z / (self.a - 1)) ** (self.p - 1)


@register("asymmetric-exponential")
@dataclass(frozen=True)
class AsymmetricExponential(Kernel):
    """Asymmetric exponential loss.

    sigma(r) = a (exp((1 - e^-r) / a) - 1), weight e^-r exp((1 - e^-r) / a). (The table lacks the -1.)

    Args:
        a: At least 1.

    Example:
        >>> AsymmetricExponential(a=2.5).weight(0.0)
        1.0

    Reference: X. Zhou et al., "Asymmetric Loss Functions for Learning with Noisy Labels", ICML 2021.
    """

    a: float = 2.5

    def __post_init__(self) -> None:
        require(1 <= self.a < math.inf, self, "a must be at least 1, else the weight rises with the loss")

    def sigma(self, r: Tensor) -> Tensor:
        """Return a (exp(z / a) - 1) with z = 1 - e^-r."""
        return self.a * torch.expm1(-torch.expm1(-r) / self.a)

    def slope(self, r: Tensor) -> Tensor:
        """Return exp(z / a - r) with z = 1 - e^-r."""
        return torch.exp(-torch.expm1(-r) / self.a - r)
