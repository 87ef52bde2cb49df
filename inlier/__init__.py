"""inlier: train models on data of which an unknown part is wrong."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from inlier import alternation, duality, fraction, kernels, scale
    from inlier.fraction import InlierFit, estimate_inlier_fraction, fit_inliers
    from inlier.kernels import Kernel
    from inlier.robust import Robust
    from inlier.scale import LossHistogram, solve_scale

__version__ = "0.1.0"

# Imported when first asked for: torch takes over a second, and `inlier --help` and the workers of a sweep can
# do without.
_HOMES = {
    "InlierFit": "fraction",
    "Kernel": "kernels",
    "LossHistogram": "scale",
    "Robust": "robust",
    "estimate_inlier_fraction": "fraction",
    "fit_inliers": "fraction",
    "solve_scale": "scale",
}
_MODULES = ("alternation", "duality", "fraction", "kernels", "scale")

__all__ = [
    "InlierFit",
    "Kernel",
    "LossHistogram",
    "Robust",
    "alternation",
    "duality",
    "estimate_inlier_fraction",
    "fit_inliers",
    "fraction",
    "kernels",
    "scale",
    "solve_scale",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"inlier.{name}")
    if name in _HOMES:
        return getattr(importlib.import_module(f"inlier.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'inlier' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
