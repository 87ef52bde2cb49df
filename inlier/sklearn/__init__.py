"""Robust fits of any scikit-learn estimator that takes ``sample_weight``, which do no harm where nothing is wrong.

The robust problem is a weighted version of the original one, so an estimator that can be fitted with weights can be
made robust: fit, compute the losses, weight each sample by its inlier probability, fit again. How far
:class:`AdaptiveRegressor` and :class:`AdaptiveClassifier` go depends on the evidence: where it does not prove that
something is wrong, no sample is given up.

- ``_introspection``: what an estimator is;
- ``_learners``: fitting it with weights, and predictions in-sample, out of fold, or by direct solves;
- ``_residuals``: the evidence of a regression, one distribution or two groups of errors;
- ``_power``: what it would have noticed;
- ``_robust``, ``_starts``: from a robust first fit, and from others, to weights;
- ``_labels``: the evidence of a classification, from held-out probabilities;
- ``_base``, ``_regressor``, ``_classifier``: the two classes.
"""

from __future__ import annotations

try:
    import sklearn as _sklearn
except ImportError as error:
    raise ImportError(
        'inlier.sklearn needs scikit-learn: pip install "inlier[sklearn]"', name="sklearn"
    ) from error

if tuple(int(part) for part in _sklearn.__version__.split(".")[:2]) < (1, 6):
    raise ImportError(
        f"inlier.sklearn needs scikit-learn 1.6 or newer, and found {_sklearn.__version__}: "
        'pip install "inlier[sklearn]"'
    )

from inlier.sklearn._classifier import AdaptiveClassifier
from inlier.sklearn._regressor import AdaptiveRegressor

__all__ = ["AdaptiveClassifier", "AdaptiveRegressor"]
