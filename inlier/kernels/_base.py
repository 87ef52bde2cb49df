"""The base of robust loss kernels, and their registry.

A kernel turns a loss ``r >= 0`` into a robust loss ``sigma_c(r)``. Its slope ``sigma'_c(r)`` is the weight
of the sample: the probability that it is an inlier. Every kernel obeys one scaling rule,

    sigma_c(r) = c * sigma(r / c),        sigma'_c(r) = sigma'(r / c),

so a kernel is written once, at ``c = 1``, as two methods: :meth:`Kernel.sigma` and :meth:`Kernel.slope`.
By the paper's Definition 1 a robust loss kernel has (i) slope 1 at 0, (ii) slope 0 at infinity and
(iii) a slope that never increases; :func:`check` tests that numerically.

To add a kernel, write one class in ``_estimation.py`` or ``_noisy_labels.py`` with ``@register("its-name")`` above it:
``get``, ``names``, the command line and the tests find it in the registry.

Reference: Talak, Georgiou, Shi, Carlone, "Outlier-Robust Training of Machine Learning Models", section 4 and
Table 1. The table has misprints; the formulas here are corrected, and each docstring says what was wrong.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar, cast

import torch
from torch import Tensor

Array = TypeVar("Array")
"""A tensor, a NumPy array or a number: a kernel gives back what it was given."""


class Kernel(ABC):
    """A robust loss kernel ``sigma``; subclasses give its value and slope at ``c = 1``.

    A subclass needs two methods, :meth:`sigma` and :meth:`slope`. Both get a float tensor of values in ``[0, inf]`` and
    must not return NaN. The rest follows: the scale ``c``, the inverse weight (by
    bisection unless :meth:`inverse_slope` is given) and the outlier process (by the inverse weight unless
    :meth:`process` is given).

    Maths runs in float64 (float32 where a device has no float64); results have the dtype of the input,
    float32 for half precision. Losses below 0 continue the kernel linearly: value ``r``, weight 1.

    Example:
        >>> import torch, inlier
        >>> kernel = inlier.kernels.get("geman-mcclure")
        >>> kernel(torch.tensor([0.0, 1.0, 1e9]), 1.0)
        tensor([0.0000, 0.5000, 1.0000])
        >>> kernel.weight(torch.tensor([0.0, 1.0, 1e9]), 1.0)
        tensor([1.0000e+00, 2.5000e-01, 1.0000e-18])

    Reference: Definition 1 of the paper.
    """

    name: ClassVar[str] = ""

    @abstractmethod
    def sigma(self, r: Tensor) -> Tensor:
        """Return sigma(r), the robust loss at ``c = 1``."""

    @abstractmethod
    def slope(self, r: Tensor) -> Tensor:
        """Return sigma'(r), the weight at ``c = 1``."""

    @property
    def weight_floor(self) -> float:
        """The weight of an infinite loss, ``lim sigma'(r)``: 0 for a robust kernel by Definition 1 (ii)."""
        return 0.0

    def inverse_slope(self, u: Tensor) -> Tensor:
        """Return the smallest r with sigma'(r) <= u at ``c = 1``, by bisection in log r."""
        low = torch.full_like(u, -1000.0)
        high = torch.full_like(u, 1000.0)
        for _ in range(64):
            middle = (low + high) / 2
            fallen = self.slope(torch.exp2(middle)) <= u
            low, high = torch.where(fallen, low, middle), torch.where(fallen, middle, high)
        r = torch.exp2(high)
        r = torch.where(self.slope(torch.exp2(torch.full_like(u, 1000.0))) <= u, r, math.inf)
        return torch.where(u >= 1, 0.0, r)

    def process(self, u: Tensor) -> Tensor:
        """Return Phi(u) = sigma(r) - u r at r = (sigma')^-1(u), the outlier process at ``c = 1``."""
        r = self.inverse_slope(u)
        limit = self.sigma(torch.full_like(u, math.inf))
        # At u = weight_floor r is infinite and the difference has the form inf - inf: take it at a large
        # finite r instead, where what remains of it is exact to rounding.
        far = torch.full_like(u, 1e4)
        at_floor = self.sigma(far) - u * far if self.weight_floor > 0 else limit
        finite = torch.where(torch.isinf(r), 0.0, r)
        value = torch.where(torch.isinf(r), at_floor, self.sigma(finite) - u * finite)
        return torch.where(u < self.weight_floor, math.inf, value)

    def __call__(self, r: Array, c: float | Tensor = 1.0) -> Array:
        """Return the robust loss sigma_c(r) = c sigma(r / c).

        Args:
            r: Losses, at least 0; infinite ones get the limit of the kernel.
            c: The scale, at least 0; a number or a tensor that broadcasts with ``r``. ``c = inf`` gives ``r``
                itself, ``c = 0`` the limit ``weight_floor * r``.
        """
        return _elementwise(self._value, r, c)

    def weight(self, r: Array, c: float | Tensor = 1.0) -> Array:
        """Return the weight sigma'_c(r) = sigma'(r / c), the coefficient update u* of Lemma 1.

        Args:
            r: Losses, at least 0; infinite ones get ``weight_floor``.
            c: The scale, as in ``kernel(r, c)``. ``c = inf`` gives every finite loss weight 1, and ``c = 0``
                every positive loss ``weight_floor``.
        """
        return _elementwise(lambda r, c: self.slope(_ratio(r, c)), r, c)

    def inverse_weight(self, u: Array, c: float | Tensor = 1.0) -> Array:
        """Return the loss (sigma'_c)^-1(u): the smallest r whose weight has fallen to u.

        Where the slope is not invertible (truncated at ``0 <= u < 1``) this picks the place of the jump. A
        ``u`` below ``weight_floor`` is never reached: infinity.

        Args:
            u: Weights in [0, 1].
            c: The scale, as in ``kernel(r, c)``.
        """
        return _elementwise(lambda u, c: _product(c, self.inverse_slope(u)), u, c, unit_interval=True)

    def outlier_process(self, u: Array, c: float | Tensor = 1.0) -> Array:
        """Return Phi_{sigma_c}(u) = sigma_c(r) - u r at r = (sigma'_c)^-1(u): the price of weight u.

        Args:
            u: Weights in [0, 1].
            c: The scale, as in ``kernel(r, c)``; ``Phi_{sigma_c} = c Phi_sigma``.

        Reference: Corollary 1 (modified Black-Rangarajan duality).
        """
        return _elementwise(lambda u, c: _product(c, self.process(u)), u, c, unit_interval=True)

    def _value(self, r: Tensor, c: Tensor) -> Tensor:
        ordinary = (c > 0) & torch.isfinite(c)
        # Both branches of a `where` are differentiated: keep the one not taken finite.
        safe = torch.where(ordinary, c, 1.0)
        value = safe * self.sigma(r.clamp(min=0) / safe)
        at_zero = self.weight_floor * r if self.weight_floor > 0 else torch.zeros_like(r)
        value = torch.where(ordinary, value, torch.where(c > 0, r, at_zero))
        return torch.where(r < 0, r, value)


def _ratio(r: Tensor, c: Tensor) -> Tensor:
    """r / c with 0 / 0 = 0 and inf / inf = inf: a zero loss always fits, an infinite one never."""
    ratio = torch.where(r <= 0, 0.0, r / c)
    return torch.where(torch.isinf(r) & (r > 0), math.inf, ratio)


def _product(c: Tensor, x: Tensor) -> Tensor:
    """Scale x by c, with 0 * inf = 0 as the limits c -> 0 and c -> inf ask, and no negative zero."""
    return torch.nan_to_num(c * x, nan=0.0, posinf=math.inf) + 0.0


def _elementwise(
    function: Callable[[Tensor, Tensor], Tensor], x: Array, c: float | Tensor, unit_interval: bool = False
) -> Array:
    """Run ``function(x, c)`` in float64 on a tensor, an array or a number, and give back the same kind."""
    if isinstance(c, (int, float)) and not c >= 0:
        raise ValueError(f"c = {c} is not a scale: pass a number of at least 0")
    tensor = torch.as_tensor(x, dtype=torch.float64 if isinstance(x, (int, float)) else None)
    if tensor.is_complex() or tensor.dtype == torch.bool:
        raise TypeError(f"losses and weights are real numbers, not {tensor.dtype}")
    wide = torch.float32 if tensor.device.type == "mps" else torch.float64
    u = tensor.to(wide)
    if unit_interval and u.numel() and not bool(((u >= 0) & (u <= 1)).all()):
        raise ValueError(f"u must lie in [0, 1] (it is a weight); it spans {u.min():.6g} to {u.max():.6g}")
    result = function(u, torch.as_tensor(c, dtype=wide, device=tensor.device))
    if isinstance(x, (int, float)):
        return cast(Array, float(result))
    result = result.to(tensor.dtype if tensor.dtype in (torch.float32, torch.float64) else torch.float32)
    return cast(Array, result if isinstance(x, Tensor) else result.numpy())


_registry: dict[str, type[Kernel]] = {}
KernelClass = TypeVar("KernelClass", bound=type[Kernel])


def register(name: str) -> Callable[[KernelClass], KernelClass]:
    """Return a class decorator that enters a kernel under ``name``.

    Example:
        >>> import torch, inlier
        >>> @inlier.kernels.register("logistic")
        ... class Logistic(inlier.Kernel):
        ...     def sigma(self, r):
        ...         return 2 * torch.log(torch.tensor(2.0)) + 2 * (r - torch.nn.functional.softplus(r))
        ...     def slope(self, r):
        ...         return 2 * torch.sigmoid(-r)
        >>> inlier.kernels.get("logistic").weight(0.0)
        1.0
        >>> del inlier.kernels._base._registry["logistic"]
    """

    def enter(cls: KernelClass) -> KernelClass:
        if name in _registry:
            raise ValueError(f"a kernel named {name!r} is registered already: {_registry[name].__qualname__}")
        cls.name = name
        _registry[name] = cls
        return cls

    return enter


def names() -> list[str]:
    """Return the names of all registered kernels.

    Example:
        >>> import inlier
        >>> inlier.kernels.names()[:3]
        ['truncated', 'geman-mcclure', 'welsch-leclerc']
    """
    return list(_registry)


def get(kernel: str | Kernel | Callable[[Tensor], Tensor], **parameters: Any) -> Kernel:
    """Return a kernel from its name, or from a function of the loss, or as it is.

    Args:
        kernel: A name out of :func:`names`; a :class:`Kernel`, returned as it is; or a function sigma of a
            tensor, whose slope autograd then gives.
        **parameters: Shape parameters of a named kernel, such as ``alpha`` of ``barron``.

    Example:
        >>> import torch, inlier
        >>> inlier.kernels.get("barron", alpha=-2.0)
        Barron(alpha=-2.0)
        >>> inlier.kernels.get(torch.log1p).weight(1.0)
        0.5
    """
    if isinstance(kernel, str):
        if kernel not in _registry:
            raise ValueError(f"no kernel is named {kernel!r}; choose from {', '.join(_registry)}")
        return _registry[kernel](**parameters)
    if parameters:
        raise TypeError(f"parameters {sorted(parameters)} go with a kernel's name, not with {kernel!r}")
    if isinstance(kernel, Kernel):
        return kernel
    if callable(kernel):
        return FunctionKernel(kernel)
    raise TypeError(f"kernel = {kernel!r}: pass a name out of inlier.kernels.names(), a Kernel or a function")


def require(holds: bool, kernel: Kernel, why: str) -> None:
    """Raise unless a condition on a kernel's shape parameters holds."""
    if not holds:
        raise ValueError(f"{kernel}: {why}")


@dataclass(frozen=True)
class FunctionKernel(Kernel):
    """A kernel from a function sigma of a tensor, elementwise, at c = 1; autograd gives the slope.

    Args:
        function: sigma; run :func:`check` on the kernel to see whether it fits Definition 1.

    Example:
        >>> import torch
        >>> FunctionKernel(torch.log1p).weight(torch.tensor([0.0, 1.0, 3.0]))
        tensor([1.0000, 0.5000, 0.2500])
    """

    function: Callable[[Tensor], Tensor]

    def sigma(self, r: Tensor) -> Tensor:
        """Return function(r), at the largest finite number where r is infinite."""
        return self.function(r.clamp(max=torch.finfo(r.dtype).max))

    def slope(self, r: Tensor) -> Tensor:
        """Return the derivative of the function by autograd."""
        with torch.enable_grad():
            leaf = r.detach().clamp(max=torch.finfo(r.dtype).max).requires_grad_()
            (slope,) = torch.autograd.grad(self.function(leaf).sum(), leaf)
        return slope

    @property
    def weight_floor(self) -> float:
        """The slope where r is largest, 0 where it is still falling there."""
        return tail_slope(self)


def tail_slope(kernel: Kernel) -> float:
    """Return the limit of the slope at infinity: 0 if it still falls (as a power of r) from 1e150 to 1e300."""
    near, far = kernel.slope(torch.tensor([1e150, 1e300], dtype=torch.float64)).tolist()
    return 0.0 if far < near * (1 - 1e-6) else float(far)


def label_of(kernel: Kernel) -> Tensor:
    """Return the kernel's name and parameters as bytes, by which checkpoints are compared."""
    shape = ", ".join(f"{key}={getattr(value, '__qualname__', value)}" for key, value in vars(kernel).items())
    return torch.tensor(list(f"{type(kernel).__name__}({shape})".encode()), dtype=torch.uint8)


def text_of(label: Tensor) -> str:
    """Return a label from :func:`label_of` as text."""
    return bytes(label.tolist()).decode(errors="replace")
