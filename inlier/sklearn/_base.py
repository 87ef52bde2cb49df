"""What the regressor and the classifier share: parameters, folds, the last fit, delegation."""

# ruff: noqa: N803 (X is what scikit-learn calls it)

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from numbers import Real
from typing import Any, Literal

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.model_selection import KFold, StratifiedKFold, check_cv
from sklearn.utils import Tags, get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import _check_sample_weight, check_consistent_length, check_is_fitted

from inlier.fraction import FractionEstimate
from inlier.sklearn._introspection import is_linear, weight_argument
from inlier.sklearn._learners import Array

FOLDS, LINEAR_FOLDS = 3, 5
"""Folds of out-of-fold predictions; fewer for models that take long."""


def has(name: str) -> Callable[[Any], bool]:
    """Whether the wrapped estimator has a method."""
    return lambda self: hasattr(getattr(self, "estimator_", self._base()), name)


class Adaptive(MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """What regressor and classifier share: validation, folds, the last fit, and delegation."""

    def __init__(
        self,
        estimator: Any = None,
        *,
        inlier_fraction: float | Literal["auto"] = "auto",
        cv: Any = "auto",
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.inlier_fraction = inlier_fraction
        self.cv = cv
        self.random_state = random_state

    @abstractmethod
    def _base(self) -> Any:
        """Return the estimator to wrap, or the default one."""

    def _share(self) -> float | None:
        """Return the inlier fraction that was given; None for "auto"."""
        fraction = self.inlier_fraction
        if isinstance(fraction, str) and fraction == "auto":
            return None
        if isinstance(fraction, Real) and 0 < fraction <= 1:
            return float(fraction)
        raise ValueError(f"inlier_fraction = {fraction!r}: pass 'auto', or a number above 0 and at most 1")

    def _check_weights(self, X: Any, y: Array, sample_weight: Any) -> Array:
        check_consistent_length(X, y)
        return np.asarray(_check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True))

    def _folds(self, X: Any, y: Array, generator: np.random.RandomState) -> list[tuple[Array, Array]]:
        """Return the folds; a number of them is shuffled, as rows are often sorted."""
        classifier = isinstance(self, ClassifierMixin)
        cv = (LINEAR_FOLDS if is_linear(self._base()) else FOLDS) if isinstance(self.cv, str) else self.cv
        if isinstance(self.cv, str) and self.cv != "auto":
            raise ValueError(f"cv = {self.cv!r}: pass 'auto', a number of folds or a splitter")
        if len(y) < 2:
            raise ValueError(f"n_samples={len(y)}: out-of-fold predictions need at least 2 samples")
        if isinstance(cv, int | np.integer):
            folds = min(int(cv), len(y))
            if classifier:
                folds = min(folds, max(2, int(np.unique(y, return_counts=True)[1].max())))
            kind = StratifiedKFold if classifier else KFold
            cv = kind(folds, shuffle=True, random_state=generator.randint(2**31 - 1))
        return list(check_cv(cv, y, classifier=classifier).split(X, y))

    def _finish(
        self,
        X: Any,
        y: Array,
        sample_weight: Array,
        weights: Array,
        probability: Array,
        losses: Array,
        estimate: FractionEstimate,
        n_iter: int,
    ) -> None:
        """Fit the estimator with the weights that were found, and set the attributes."""
        self.weights_, self.inlier_probability_, self.losses_ = weights, probability, losses
        self.fraction_estimate_, self.inlier_fraction_ = estimate, estimate.value
        self.scale_ = float(losses[probability < 0.5].min(initial=np.inf))
        self.n_iter_ = n_iter
        arguments = {weight_argument(self._base()): weights * sample_weight}
        self.estimator_ = clone(self._base()).fit(X, y, **arguments)

    def __sklearn_tags__(self) -> Tags:
        tags, inner = super().__sklearn_tags__(), get_tags(self._base())
        tags.input_tags.sparse = inner.input_tags.sparse
        tags.input_tags.allow_nan = inner.input_tags.allow_nan
        tags.input_tags.pairwise = False
        return tags

    def predict(self, X: Any) -> Array:
        """Return the predictions of the robust fit."""
        check_is_fitted(self)
        return np.asarray(self.estimator_.predict(X))

    @available_if(has("decision_function"))  # type: ignore[untyped-decorator]
    def decision_function(self, X: Any) -> Array:
        """Return the decision function of the robust fit."""
        check_is_fitted(self)
        return np.asarray(self.estimator_.decision_function(X))


def frequency_of(sample_weight: Array) -> Array:
    """Return how many samples each stands for: integer weights are frequencies, others are scaled to mean 1.

    Example:
        >>> import numpy as np
        >>> frequency_of(np.array([2.0, 0.0, 1.0])), frequency_of(np.array([0.1, 0.0, 0.3]))
        (array([2., 0., 1.]), array([0.5, 0. , 1.5]))
    """
    if (sample_weight == np.round(sample_weight)).all() or not sample_weight.any():
        return sample_weight
    return np.asarray(sample_weight / sample_weight[sample_weight > 0].mean())
