"""inlier: train models on data of which an unknown part is wrong."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from inlier import alternation, duality, fraction, histogram, kernels, nn, scale
    from inlier.fraction import FractionEstimate, estimate_inlier_fraction, fit_inliers
    from inlier.histogram import LossHistogram
    from inlier.kernels import Kernel
    from inlier.nn import Robust, RobustCrossEntropy, with_index
    from inlier.scale import solve_scale

__version__ = "0.1.0"

# Imported when first asked for: torch takes over a second, and `inlier --help` and the workers of a sweep can
# do without.
_HOMES = {
    "FractionEstimate": "fraction",
    "Kernel": "kernels",
    "LossHistogram": "histogram",
    "Robust": "nn",
    "RobustCrossEntropy": "nn",
    "estimate_inlier_fraction": "fraction",
    "fit_inliers": "fraction",
    "solve_scale": "scale",
    "with_index": "nn",
}
_MODULES = ("alternation", "duality", "fraction", "histogram", "kernels", "nn", "scale")

__all__ = [
    "FractionEstimate",
    "Kernel",
    "LossHistogram",
    "Robust",
    "RobustCrossEntropy",
    "alternation",
    "duality",
    "estimate_inlier_fraction",
    "fit_inliers",
    "fraction",
    "histogram",
    "kernels",
    "nn",
    "scale",
    "solve_scale",
    "with_index",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"inlier.{name}")
    if name in _HOMES:
        return getattr(importlib.import_module(f"inlier.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'inlier' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
