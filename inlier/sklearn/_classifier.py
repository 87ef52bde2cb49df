"""AdaptiveClassifier."""

# ruff: noqa: N803 (X is what scikit-learn calls it)

from __future__ import annotations

import math
from typing import Any, Self

import numpy as np
from scipy.special import expit, softmax
from sklearn.base import ClassifierMixin
from sklearn.linear_model import LogisticRegression
from sklearn.utils import check_random_state, column_or_1d, indexable
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from inlier.fraction import FractionEstimate, GivenFraction
from inlier.sklearn._base import Adaptive, frequency_of, has
from inlier.sklearn._introspection import weight_argument
from inlier.sklearn._labels import SUSPECTED, TRUSTED, LabelModel, gain_score, keep_classes, with_mean
from inlier.sklearn._learners import Array, OutOfFold


class AdaptiveClassifier(ClassifierMixin, Adaptive):  # type: ignore[misc]
    """Classification with noisy labels.

    Out-of-fold probabilities say which labels are doubtful; the estimator is fitted again, out of fold, with less
    weight on these; and a model of label noise (:mod:`inlier.sklearn._labels`) tells how well each of both predicts
    the given labels, all of them.

    - With the weights it predicts them better, by more than 1.5 standard errors: the last fit has the weights
      ``u_i = P(label i is clean)``, and no class keeps less than a fifth of its weight. By more than two: the labels
      are noisy, and ``fraction_estimate_.trusted`` is true.
    - It does not: all weights are 1, and the fit is that of the estimator alone.

    Args:
        estimator: Any classifier that takes ``sample_weight``; LogisticRegression by default. Without
            ``predict_proba`` the decision function is used, through a sigmoid or softmax.
        inlier_fraction: The fraction of clean labels; "auto" to estimate it. A number is believed.
        cv: The folds, shuffled and stratified: by default ("auto") 5 for linear models and 3 for others; a number of
            folds or a splitter.
        random_state: Seeds the folds.

    Attributes:
        classes_: The classes.
        suspected_label_: For each sample, the class that the model predicts out of fold.

    All attributes of :class:`AdaptiveRegressor` are there too; ``losses_`` are ``-log p(y_i | x_i)``, out of fold.

    Example:
        >>> import numpy as np
        >>> from inlier.sklearn import AdaptiveClassifier
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(600, 2))
        >>> truth = (X[:, 0] > 0).astype(int)
        >>> y = np.where(np.arange(600) < 120, 1 - truth, truth)
        >>> robust = AdaptiveClassifier(random_state=0).fit(X, y)
        >>> bool((robust.suspected_label_ == truth).mean() > 0.95), robust.fraction_estimate_.trusted
        (True, True)

    Reference: as for :class:`AdaptiveRegressor`.
    """

    def _base(self) -> Any:
        return LogisticRegression() if self.estimator is None else self.estimator

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the estimator to the samples with clean labels.

        Args:
            X: Inputs, as the estimator takes them.
            y: Labels, [n].
            sample_weight: Weights that multiply into those found here.

        Returns:
            The classifier itself.
        """
        weight_argument(self._base())
        share = self._share()
        validate_data(self, X, y, skip_check_array=True)
        y = column_or_1d(y, warn=True)
        check_classification_targets(y)
        sample_weight = self._check_weights(X, y, sample_weight)
        self.classes_, label = np.unique(y, return_inverse=True)
        generator = check_random_state(self.random_state)
        (X,) = indexable(X)
        learner = OutOfFold(self._base(), X, y, self._probabilities, self._folds(X, y, generator))
        frequency = frequency_of(sample_weight)

        def doubts(rows: Array, probability: Array) -> Array:
            clean = LabelModel.fit(label[rows], probability, frequency[rows]).clean
            return keep_classes(clean, label[rows], frequency[rows])

        unweighted = learner.fit(sample_weight).predictions
        spared = learner.fit_reweighted(sample_weight, learner.nested(sample_weight), doubts).predictions
        first, second = (LabelModel.fit(label, p, frequency) for p in (unweighted, spared))
        score = gain_score(second, first, frequency)
        probability, clean, weights = unweighted, first.clean, np.ones(len(y))
        if score > SUSPECTED or share is not None:
            probability = (unweighted + spared) / 2  # Both together rank better than either alone.
            clean = LabelModel.fit(label, probability, frequency).clean
            weights = doubts(np.arange(len(y)), probability)
        if share is not None:
            clean = with_mean(clean, frequency, share) if share < 1 else np.ones(len(y))
            weights = keep_classes(clean, label, frequency)
            estimate = GivenFraction(share).estimate()
        elif score > SUSPECTED:
            value = float(frequency @ second.clean / frequency.sum())
            error = math.sqrt(float(frequency @ (second.clean * (1 - second.clean)))) / float(frequency.sum())
            reason = (
                "With less weight on doubtful labels the given ones are predicted better, "
                f"by {score:.1f} standard errors{'' if score > TRUSTED else ', which may be chance'}."
            )
            estimate = FractionEstimate(value, error, score > TRUSTED, reason)
        else:
            reason = (
                "Less weight on doubtful labels does not predict the given ones better: all labels are kept."
            )
            estimate = FractionEstimate(1.0, 0.0, False, reason)
        losses = -np.log(np.clip(probability[np.arange(len(y)), label].astype(np.float64), 1e-15, 1.0))
        self._finish(X, y, sample_weight, weights, clean, losses, estimate, 3)
        self.suspected_label_ = self.classes_[probability.argmax(1)]
        return self

    def _probabilities(self, model: Any, X: Any) -> Array:
        return probabilities(model, X, self.classes_)

    @available_if(has("predict_proba"))  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Array:
        """Return the class probabilities of the robust fit."""
        check_is_fitted(self)
        return np.asarray(self.estimator_.predict_proba(X))

    @available_if(has("predict_log_proba"))  # type: ignore[untyped-decorator]
    def predict_log_proba(self, X: Any) -> Array:
        """Return the logarithms of the class probabilities of the robust fit."""
        check_is_fitted(self)
        return np.asarray(self.estimator_.predict_log_proba(X))


def probabilities(model: Any, x: Any, classes: Array) -> Array:
    """Return class probabilities, a column for each of the classes; 0 for those unknown to the model."""
    if hasattr(model, "predict_proba"):
        known = np.asarray(model.predict_proba(x))
    else:
        decision = np.asarray(model.decision_function(x))
        up = expit(decision)
        known = softmax(decision, axis=1) if decision.ndim == 2 else np.column_stack((1 - up, up))
    if len(model.classes_) == len(classes):
        return known
    probability = np.zeros((len(known), len(classes)))
    probability[:, np.searchsorted(classes, model.classes_)] = known
    return probability
