"""Estimators of the inlier fraction: one protocol, one result.

:class:`FromLosses` fits a mixture to the losses alone; :class:`LabelNoise` is for class labels, from the margins
of their logits; :class:`NullModel` compares losses with those of unrelated targets; :class:`GivenFraction` returns a
known fraction. To add one, write a class with the methods of :class:`FractionEstimator`: :class:`inlier.Robust` takes
any.
"""

from inlier.fraction._distributions import LogDensity
from inlier.fraction._estimate import FractionEstimate, FractionEstimator, GivenFraction
from inlier.fraction._from_losses import FromLosses, LossMixture, estimate_inlier_fraction, fit_inliers
from inlier.fraction._label_noise import LabelNoise
from inlier.fraction._null_model import NullModel, draw_null, null_fraction

__all__ = [
    "FractionEstimate",
    "FractionEstimator",
    "FromLosses",
    "GivenFraction",
    "LabelNoise",
    "LogDensity",
    "LossMixture",
    "NullModel",
    "draw_null",
    "estimate_inlier_fraction",
    "fit_inliers",
    "null_fraction",
]
