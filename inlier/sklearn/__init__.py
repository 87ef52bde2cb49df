"""The adaptive alternation around any scikit-learn estimator that takes ``sample_weight``.

The robust problem is a weighted version of the original one, so an estimator that can be fitted with weights
can be made robust: fit, look at the losses, weigh each sample by how believable its loss is, fit again.
:class:`AdaptiveRegressor` and :class:`AdaptiveClassifier` do that with the round of
:mod:`inlier.alternation`.

- ``learners``: fitting an estimator with weights and judging it, in-sample, out of fold, or by direct solves;
- ``rounds``: the alternation, until the weights stop moving;
- ``starts``, ``slab``, ``search``: other places to begin, for outliers that pull the first fit to themselves;
- ``labels``: the fraction of right labels;
- ``base``, ``regressor``, ``classifier``: the two classes.
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

from inlier.sklearn.classifier import AdaptiveClassifier
from inlier.sklearn.regressor import AdaptiveRegressor

__all__ = ["AdaptiveClassifier", "AdaptiveRegressor"]
