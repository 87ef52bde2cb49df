"""AdaptiveClassifier."""

# ruff: noqa: N803 (X is what scikit-learn calls it)

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import expit, softmax
from sklearn.base import ClassifierMixin
from sklearn.linear_model import LogisticRegression
from sklearn.utils import check_random_state, column_or_1d, indexable
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from inlier.fraction import FractionEstimate, FractionEstimator
from inlier.fraction._label_noise import NEGLIGIBLE
from inlier.sklearn._base import Adaptive, estimate_from, frequency_of, has
from inlier.sklearn._introspection import is_linear
from inlier.sklearn._labels import (
    SURE,
    LabelModel,
    best_strength,
    calibrating_factors,
    keep_classes,
    scaled,
    with_mean,
)
from inlier.sklearn._learners import Array, OutOfFold


class AdaptiveClassifier(ClassifierMixin, Adaptive):  # type: ignore[misc]
    """Classification with noisy labels.

    Out-of-fold probabilities, and a model of label noise around them (:mod:`inlier.sklearn._labels`), say how likely it
    is that more than 5 % of the labels are noisy, and how likely each label is clean, ``u_i``.

    - Noise has a probability of at least 0.95: the labels are noisy. Each has the weight ``u_i``; no class keeps less
      than a fifth of its weight. ``fraction_estimate_.trusted`` is true if fits with these weights predict the given
      labels better, noise included.
    - No noise has that probability, without the help of a prior: the labels are clean. All weights are 1, and that is
      trusted too.
    - Else it is an open question, and nothing is trusted. Weights are ``1 - s (1 - u_i)``, with the s that is expected
      to predict the true classes best out of fold, at most the probability of noise. Only linear models have them.
    - The estimator predicts too few of the labels to be asked: all weights are 1, and nothing is trusted.

    Args:
        estimator: Any classifier that takes ``sample_weight``; LogisticRegression by default. Without
            ``predict_proba`` the decision function is used, through a sigmoid or softmax.
        inlier_fraction: The fraction of clean labels; "auto" to estimate it. A number is taken as given, and so is
            what a :class:`~inlier.fraction.FractionEstimator` says of ``losses_``.
        cv: The folds, shuffled and stratified: by default ("auto") 5 for linear models and 3 for others; a number of
            folds or a splitter.
        random_state: Seeds the folds.

    Attributes:
        classes_: The classes.
        suspected_label_: For each sample, the class that the model predicts out of fold.
        noise_probability_: The probability that more than 5 % of the labels are noisy.
        strength_: s, how much of the weights is used; 1 for noisy labels, 0 for clean ones.

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

    _default = LogisticRegression

    def _check_targets(self, y: Any) -> Array:
        y = column_or_1d(y, warn=True)
        check_classification_targets(y)
        return np.asarray(y)

    def _fit(self, X: Any, y: Array, sample_weight: Array, fraction: FractionEstimator | None) -> None:
        self.classes_, label = np.unique(y, return_inverse=True)
        generator = check_random_state(self.random_state)
        (X,) = indexable(X)
        learner = OutOfFold(self._base(), X, y, self._probabilities, self._folds(X, y, generator))
        frequency = frequency_of(sample_weight)

        def doubts(rows: Array, probability: Array) -> Array:
            probability = scaled(probability, factors)
            channel = LabelModel.fit(label[rows], probability, frequency[rows]).channel(noisy=True)
            clean = channel.clean(label[rows], probability)
            return keep_classes(clean, label[rows], frequency[rows])

        unweighted = learner.fit(sample_weight).predictions
        factors = calibrating_factors(label, unweighted, frequency)
        unweighted = probability = scaled(unweighted, factors)
        first = last = LabelModel.fit(label, probability, frequency)
        noise, linear = 0.0, is_linear(self._base())
        reweighted = fraction is not None or (first.capable and not first.is_clean)
        if reweighted:
            spared = learner.fit_reweighted(sample_weight, learner.nested(sample_weight), doubts).predictions
            spared = scaled(spared, factors)
            probability = (probability + spared) / 2  # Both together rank better than either alone.
            last = LabelModel.fit(label, probability, frequency)
            # Two fits of trees together are better than one, noise or not: that is no evidence.
            noise = last.noise_probability(first) if linear else last.noise_probability(first, last)
        clean, truth = (last.channel(noisy).truth(label, probability) for noisy in (False, True))
        samples = np.arange(len(y)), label
        losses = -np.log(np.clip(probability[samples].astype(np.float64), 1e-15, 1.0))
        doubtful, strength = 1 - truth[samples], 0.0
        if fraction is not None:
            estimate = estimate_from(fraction, losses)
            noise = strength = float(estimate.value < 1)
            clean = with_mean(truth[samples], frequency, estimate.value) if noise else np.ones(len(y))
            doubtful = 1 - clean
        else:
            clean = ((1 - noise) * clean + noise * truth)[samples]
            is_sure = noise >= SURE and _is_above(clean, last, frequency)
            if is_sure:
                strength = noise
            elif reweighted and linear:
                # An open question: no more of the weights than is likely to pay; trees change by more than that.
                expected = noise * truth + (1 - noise) * np.eye(len(self.classes_))[label]
                strength = min(noise, best_strength(unweighted, spared, expected, frequency))
            estimate = _estimate(first, last, noise, is_sure, clean, frequency)
        weights = keep_classes(1 - strength * doubtful, label, frequency)
        self.noise_probability_, self.strength_ = noise, strength
        self._finish(X, y, sample_weight, weights, clean, losses, estimate, 1 + reweighted)
        self.suspected_label_ = self.classes_[probability.argmax(1)]

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


def _is_above(clean: Array, model: LabelModel, frequency: Array) -> bool:
    """Whether more than 5 % of the labels seem noisy, by more than the error of their number."""
    noisy = 1 - float(frequency @ clean) / float(frequency.sum())
    return noisy - model.rate(noisy=True)[1] > NEGLIGIBLE


def _estimate(
    first: LabelModel, last: LabelModel, noise: float, is_sure: bool, clean: Array, frequency: Array
) -> FractionEstimate:
    """Say what the probabilities of the first fit, and of the last, mean."""
    rate, error = last.rate(noisy=True)
    if not first.capable:
        reason = (
            "The model predicts too few of the labels to tell noisy ones from hard samples: all are kept."
        )
        return FractionEstimate(1.0, min(rate, 0.5), False, reason)
    if first.is_clean:
        most = _percent(NEGLIGIBLE)
        reason = f"Confident predictions agree with the labels: more than {most} noise is very unlikely."
        return FractionEstimate(1.0, sum(first.rate(noisy=False)), True, reason)
    if not is_sure and not first.skilled:
        reason = (
            "The model predicts the labels no better than their frequencies do: it cannot tell noisy ones."
        )
        return FractionEstimate(1.0, noise * rate, False, reason)
    if not is_sure:
        likely = "below 0.01" if noise < 0.01 else f"{noise:.2f}"
        reason = (
            f"The labels leave open whether they are noisy (probability {likely}, if so about {_percent(rate)}): "
            "doubtful ones have at most a little less weight."
        )
        return FractionEstimate(1.0, noise * rate, False, reason)
    value = float(frequency @ clean) / float(frequency.sum())
    if last.evidence(noisy=True) <= first.evidence(noisy=True):
        reason = (
            f"Predictions disagree with labels as if {_percent(1 - value)} were noisy, but less weight on these makes "
            "them no better."
        )
        return FractionEstimate(value, error, False, reason)
    reason = (
        f"Predictions disagree with labels at any confidence: noise of about {_percent(rate)} explains it."
    )
    return FractionEstimate(value, error, True, reason)


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


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
