"""What the regressor and the classifier share: parameters, choosing a learner, the fit, passing through."""

# ruff: noqa: N803 (X is what scikit-learn calls it)

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import KFold, StratifiedKFold, check_cv
from sklearn.utils import Tags, check_array, check_random_state, get_tags, indexable
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import _check_sample_weight, check_consistent_length, check_is_fitted

from inlier import kernels
from inlier.arguments import check_fraction
from inlier.kernels import Kernel
from inlier.sklearn.learners import (
    MOST_UNKNOWNS,
    Array,
    InSample,
    LeastSquares,
    Loss,
    OutOfFold,
    Predict,
    is_least_squares,
    is_linear,
    weight_argument,
)
from inlier.sklearn.rounds import Settings, polish, repeats_of
from inlier.sklearn.search import search

FOLDS = 5
WARMUP, WARMUP_FOLDS = 10, 3
ROUNDS, ROUNDS_FOLDS = 100, 6


def has(name: str) -> Callable[[Any], bool]:
    """Whether the wrapped estimator has a method."""
    return lambda self: hasattr(getattr(self, "estimator_", self._base()), name)


class Adaptive(MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """What regressor and classifier share: checking, the alternation, and passing through."""

    def __init__(
        self,
        estimator: Any = None,
        *,
        kernel: str | Kernel | Callable[[Any], Any] = "geman-mcclure",
        inlier_fraction: float | Literal["auto"] = "auto",
        loss: Any = None,
        cv: Any = "auto",
        max_iter: int | None = None,
        tol: float = 1e-3,
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.kernel = kernel
        self.inlier_fraction = inlier_fraction
        self.loss = loss
        self.cv = cv
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state

    @abstractmethod
    def _base(self) -> Any:
        """Return the estimator to wrap, or the default one."""

    def _fit(
        self,
        X: Any,
        y: Array,
        sample_weight: Any,
        predict: Predict,
        loss: Loss,
        squared_outputs: int = 0,
        n_starts: int | None = None,
        labels: Callable[[Any, Settings], Settings] | None = None,
    ) -> Any:
        """Find weights, fit the estimator with them, and return the learner.

        ``labels`` adapts the settings to a learner of classes.
        """
        self._check_parameters()
        sample_weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        check_consistent_length(X, y)
        generator = check_random_state(self.random_state)
        learner = self._learner(X, y, predict, loss, generator, squared_outputs)
        settings = self._settings(sample_weight, isinstance(learner, OutOfFold))
        if labels is not None:
            settings = labels(learner, settings)
        unknowns = int(getattr(self, "n_features_in_", 1)) + 1
        if isinstance(learner, LeastSquares):
            unknowns = learner.unknowns
        outcome = search(learner, settings, squared_outputs, unknowns, n_starts, generator)
        if not outcome.converged and settings.max_iter > 1 and not isinstance(learner, OutOfFold):
            _warn(len(outcome.history))
        rounds = 0 if isinstance(learner, OutOfFold) else 10
        self.weights_, self.inlier_probability_, self.losses_ = polish(learner, outcome, settings, rounds)
        self.inlier_fraction_, self.scale_ = outcome.inlier_fraction, outcome.scale
        self.n_iter_ = len(outcome.history)
        self.history_ = [(number, *pair) for number, pair in enumerate(outcome.history, start=1)]
        weights = {weight_argument(self._base()): self.weights_ * sample_weight}
        self.estimator_ = clone(self._base()).fit(X, y, **weights)
        return learner

    def _check_parameters(self) -> None:
        check_fraction(self.inlier_fraction, kernels.get(self.kernel))
        if self.max_iter is not None and self.max_iter < 1:
            raise ValueError(f"max_iter = {self.max_iter!r}: pass a whole number of at least 1, or None")

    def _settings(self, sample_weight: Array, folded: bool) -> Settings:
        rounds, warmup = (ROUNDS_FOLDS, WARMUP_FOLDS) if folded else (ROUNDS, WARMUP)
        return Settings(
            kernels.get(self.kernel),
            sample_weight,
            repeats_of(sample_weight),
            target=None if self.inlier_fraction == "auto" else float(self.inlier_fraction),
            warmup=warmup,
            max_iter=rounds if self.max_iter is None else self.max_iter,
            tol=self.tol,
            patient=not folded,
        )

    def _learner(
        self, X: Any, y: Array, predict: Predict, loss: Loss, generator: Any, squared_outputs: int
    ) -> LeastSquares | InSample | OutOfFold:
        """Choose how samples are judged: as ``cv`` says, or in-sample for linear regressions only."""
        base = self._base()
        regression = not isinstance(self, ClassifierMixin)
        in_sample = self.cv is None or (isinstance(self.cv, str) and regression and is_linear(base))
        if isinstance(self.cv, str) and self.cv != "auto":
            raise ValueError(f"cv = {self.cv!r}: pass 'auto', None, a number of folds or a splitter")
        if not in_sample:
            if len(y) < 2:
                raise ValueError(f"n_samples={len(y)}: judging samples out of fold needs at least 2")
            (X,) = indexable(X)
            return OutOfFold(base, X, y, predict, loss, self._folds(X, y, generator))
        if squared_outputs and is_least_squares(base) and not issparse(X):
            x = check_array(X, dtype=np.float64)
            if x.shape[1] <= MOST_UNKNOWNS:
                return LeastSquares.of(base, x, y)
        return InSample(base, X, y, predict, loss)

    def _folds(self, X: Any, y: Array, generator: Any) -> list[tuple[Array, Array]]:
        """Return the folds; a number of them is shuffled, as rows are often sorted."""
        classifier = isinstance(self, ClassifierMixin)
        cv = FOLDS if isinstance(self.cv, str) else self.cv
        if isinstance(cv, int | np.integer):
            folds = min(int(cv), len(y))
            if classifier:
                folds = min(folds, max(2, int(np.unique(y, return_counts=True)[1].max())))
            kind = StratifiedKFold if classifier else KFold
            cv = kind(folds, shuffle=True, random_state=generator.randint(2**31 - 1))
        return list(check_cv(cv, y, classifier=classifier).split(X, y))

    def __sklearn_tags__(self) -> Tags:
        tags, inner = super().__sklearn_tags__(), get_tags(self._base())
        tags.input_tags.sparse = inner.input_tags.sparse
        tags.input_tags.allow_nan = inner.input_tags.allow_nan
        tags.input_tags.pairwise = False
        tags.target_tags.multi_output = not isinstance(self, ClassifierMixin) and (
            inner.target_tags.multi_output
        )
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


def _warn(rounds: int) -> None:
    warnings.warn(
        f"the weights still move after {rounds} rounds: raise max_iter or tol",
        ConvergenceWarning,
        stacklevel=4,
    )
