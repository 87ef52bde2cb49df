"""What the regressor and the classifier share: parameters, folds, the last fit, delegation."""

# ruff: noqa: N803 (X is what scikit-learn calls it)

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Callable
from numbers import Real
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.model_selection import KFold, StratifiedKFold, check_cv
from sklearn.utils import Tags, get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import (
    _check_sample_weight,
    check_consistent_length,
    check_is_fitted,
    validate_data,
)

from inlier.fraction import FractionEstimate, FractionEstimator, GivenFraction
from inlier.histogram import LossHistogram
from inlier.sklearn._introspection import is_linear, weight_argument, weight_arguments
from inlier.sklearn._learners import Array

FOLDS, LINEAR_FOLDS = 3, 5
"""Folds of out-of-fold predictions; fewer for models that take long."""


def has(name: str) -> Callable[[Any], bool]:
    """Whether the wrapped estimator has a method."""
    return lambda self: hasattr(getattr(self, "estimator_", self._base()), name)


class Adaptive(MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """What regressor and classifier share: validation, folds, the last fit, and delegation."""

    _default: ClassVar[type]
    """The class of the estimator that is wrapped if none is passed."""

    def __init__(
        self,
        estimator: Any = None,
        *,
        inlier_fraction: float | Literal["auto"] | FractionEstimator = "auto",
        cv: Any = "auto",
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.inlier_fraction = inlier_fraction
        self.cv = cv
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the estimator to the inliers.

        Args:
            X: Inputs, as the estimator takes them.
            y: Targets, or class labels, [n].
            sample_weight: Weights that multiply into those found here.

        Returns:
            The estimator itself.
        """
        weight_argument(self._base())
        fraction = self._fraction()
        validate_data(self, X, y, skip_check_array=True)
        y = self._check_targets(y)
        check_consistent_length(X, y)
        weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        self._fit(X, y, np.asarray(weights), fraction)
        return self

    @abstractmethod
    def _check_targets(self, y: Any) -> Array:
        """Return the targets as an array, or raise."""

    @abstractmethod
    def _fit(self, X: Any, y: Array, sample_weight: Array, fraction: FractionEstimator | None) -> None:
        """Find the weights, and fit the estimator with them.

        Args:
            X: Inputs.
            y: Targets, checked.
            sample_weight: The user's weights, [n].
            fraction: What gives the inlier fraction; None to estimate it from the evidence.
        """

    def _base(self) -> Any:
        """Return the estimator to wrap, or the default one."""
        return self._default() if self.estimator is None else self.estimator

    def _fraction(self) -> FractionEstimator | None:
        """Return what gives the inlier fraction; None for "auto"."""
        fraction = self.inlier_fraction
        if isinstance(fraction, str) and fraction == "auto":
            return None
        if isinstance(fraction, FractionEstimator):
            return copy.deepcopy(fraction)
        if isinstance(fraction, Real) and 0 < fraction <= 1:
            return GivenFraction(float(fraction))
        raise ValueError(
            f"inlier_fraction = {fraction!r}: pass 'auto', a number above 0 and at most 1, or a FractionEstimator"
        )

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
        arguments = weight_arguments(self._base(), weights * sample_weight)
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


def estimate_from(fraction: FractionEstimator, losses: Array) -> FractionEstimate:
    """Return what an estimator says of the losses of a fit.

    Example:
        >>> import numpy as np
        >>> estimate_from(GivenFraction(0.8), np.ones(3)).value
        0.8
    """
    fraction.observe(LossHistogram.of(torch.as_tensor(losses)))
    return fraction.estimate()


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
