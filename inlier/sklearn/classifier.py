"""AdaptiveClassifier."""

# ruff: noqa: N803 (X is what scikit-learn calls it)

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal, Self

import numpy as np
from scipy.special import expit, softmax
from sklearn.base import ClassifierMixin
from sklearn.linear_model import LogisticRegression
from sklearn.utils import column_or_1d
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from inlier.kernels import Kernel
from inlier.sklearn.base import Adaptive, has
from inlier.sklearn.labels import right_fraction, right_posterior
from inlier.sklearn.learners import Array, InSample, OutOfFold, is_boosting, weight_argument
from inlier.sklearn.rounds import Settings


class AdaptiveClassifier(ClassifierMixin, Adaptive):  # type: ignore[misc]
    """Classification that finds out which labels are wrong, and learns from the others.

    The alternation of :class:`AdaptiveRegressor` with the log loss ``-log p(y_i | x_i)``. What differs:

    - the fraction zeta of right labels is estimated from the class probabilities
      (:func:`inlier.sklearn.labels.right_fraction`);
    - the share ``1 - zeta`` of largest losses is left out: ``u_i = sigma'_c(f_i) [f_i <= quantile_zeta(f)]``;
    - but for gradient boosting, judged out of fold, ``u_i`` is the probability that label i is right, for
      wrong labels that are evenly spread (:func:`inlier.sklearn.labels.right_posterior`): a hard sample keeps
      most of its weight. Which suits which was found by trial, see the guide.

    Args:
        estimator: Any classifier that takes ``sample_weight``; LogisticRegression by default. One without
            ``predict_proba`` is judged by its decision function, through a sigmoid or softmax.
        kernel: A kernel, its name, or a function sigma; of no effect where labels have a probability of being
            right, but on ``scale_``.
        inlier_fraction: zeta, the fraction of right labels, or "auto" to estimate it.
        loss: "log_loss", or a function from class numbers (places in ``classes_``) and probabilities,
            [n, classes], to one loss of at least 0 for each sample.
        cv: How samples are judged: out of 5 shuffled, stratified folds by default ("auto"), for linear
            models too, as labels are found far better so; a number of folds or a splitter; None for the fit
            itself.
        max_iter: The most rounds; None for 6, or 100 if judged by the fit itself.
        tol: Rounds end when the mean change of a weight is at most this.
        random_state: Seeds the folds.

    Attributes:
        classes_: The labels.
        suspected_label_: For each sample, the label that the robust model believes in; out of fold if samples
            are judged so.

    All attributes of :class:`AdaptiveRegressor` are there too.

    Example:
        >>> import numpy as np
        >>> from inlier.sklearn import AdaptiveClassifier
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(600, 2))
        >>> truth = (X[:, 0] > 0).astype(int)
        >>> y = np.where(np.arange(600) < 120, 1 - truth, truth)
        >>> robust = AdaptiveClassifier(random_state=0).fit(X, y)
        >>> bool((robust.suspected_label_ == truth).mean() > 0.95)
        True

    Reference: as for :class:`AdaptiveRegressor`.
    """

    def __init__(
        self,
        estimator: Any = None,
        *,
        kernel: str | Kernel | Callable[[Any], Any] = "geman-mcclure",
        inlier_fraction: float | Literal["auto"] = "auto",
        loss: Literal["log_loss"] | Callable[[Array, Array], Array] = "log_loss",
        cv: Any = "auto",
        max_iter: int | None = None,
        tol: float = 1e-3,
        random_state: Any = None,
    ) -> None:
        super().__init__(
            estimator,
            kernel=kernel,
            inlier_fraction=inlier_fraction,
            loss=loss,
            cv=cv,
            max_iter=max_iter,
            tol=tol,
            random_state=random_state,
        )

    def _base(self) -> Any:
        return LogisticRegression() if self.estimator is None else self.estimator

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the estimator to the samples with right labels.

        Args:
            X: Inputs, as the estimator takes them.
            y: Labels, [n].
            sample_weight: Weights that multiply into those found here.

        Returns:
            The classifier itself.
        """
        weight_argument(self._base())
        validate_data(self, X, y, skip_check_array=True)
        y = column_or_1d(y, warn=True)
        check_classification_targets(y)
        self.classes_ = np.unique(y)
        if not (self.loss == "log_loss" or callable(self.loss)):
            raise ValueError(
                f"loss = {self.loss!r}: pass 'log_loss' or a function of classes and probabilities"
            )

        def loss(y: Array, probability: Array) -> Array:
            number = np.searchsorted(self.classes_, y)
            return (
                log_loss(number, probability) if self.loss == "log_loss" else self.loss(number, probability)
            )

        def predict(model: Any, x: Any) -> Array:
            return probabilities(model, x, self.classes_)

        learner = self._fit(X, y, sample_weight, predict, loss, labels=self._adapt)
        self.suspected_label_ = self.classes_[learner.prediction.argmax(1)]
        return self

    def _adapt(self, learner: InSample | OutOfFold, settings: Settings) -> Settings:
        """Judge by class probabilities, and weigh as suits the learner."""
        number = np.searchsorted(self.classes_, learner.y)

        def rule(_: Array) -> float:
            return right_fraction(number, learner.prediction, settings.sample_weight)

        def weigh(n_iter: int, fraction: float) -> Array:
            # The first fits have learned wrong labels too; later ones have mostly been spared them.
            return right_posterior(number, learner.prediction, fraction, mixed=n_iter == 1)

        if settings.target is None:
            settings = replace(settings, rule=rule)
        if isinstance(learner, InSample):
            return replace(settings, cut=True)
        # Out of fold nothing is learned by heart: no slow start.
        settings = replace(settings, warmup=1)
        if is_boosting(learner.estimator):
            return replace(settings, weigh=weigh)
        return replace(settings, cut=True)

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


def log_loss(number: Array, probability: Array) -> Array:
    """Return -log of the probability of each sample's class."""
    chosen = probability[np.arange(len(number)), number].astype(np.float64)
    return -np.log(np.clip(chosen, 1e-15, 1.0))


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
