"""Fitting an estimator with weights, and the loss of each sample under that fit.

A learner has one method, ``losses(weights)``: fit with these weights, judge every sample. Three kinds:

- :class:`LeastSquares`: plain and ridge regression by weighted normal equations, without an estimator;
- :class:`InSample`: fit on all samples and judge the same samples, fair where a model cannot fit them
  exactly;
- :class:`OutOfFold`: each sample is judged by a fit that has not seen it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from sklearn import get_config
from sklearn.base import clone
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.pipeline import Pipeline
from sklearn.svm import SVC, SVR, LinearSVC, LinearSVR, NuSVC, NuSVR
from sklearn.utils import _safe_indexing
from sklearn.utils.metadata_routing import get_routing_for_object

Array = npt.NDArray[Any]
Predict = Callable[[Any, Any], Array]
"""From a fitted estimator and X to predictions."""
Loss = Callable[[Array, Array], Array]
"""From targets and predictions to one loss a sample."""

MOST_UNKNOWNS = 500
"""Above so many coefficients the normal equations are no gain."""
ROUNDING = 1e-13
"""Errors smaller than this part of a median target are those of arithmetic."""
BLOCK = 1024
"""So many rows are multiplied at a time."""


class Learner(Protocol):
    """What the alternation asks of a model."""

    size: int
    """The number of samples."""

    def losses(self, weights: Array) -> Array:
        """Fit with these weights; return the loss of each sample."""


def weight_argument(estimator: Any) -> str:
    """Return the name under which ``fit`` of an estimator takes sample weights.

    Args:
        estimator: An estimator; for a pipeline it is the last step that is weighted, unless metadata routing
            is enabled and says who is.

    Raises:
        ValueError: If the estimator takes no weights.

    Example:
        >>> from sklearn.linear_model import Ridge
        >>> from sklearn.pipeline import make_pipeline
        >>> from sklearn.preprocessing import StandardScaler
        >>> weight_argument(make_pipeline(StandardScaler(), Ridge()))
        'ridge__sample_weight'
    """
    if isinstance(estimator, Pipeline):
        if get_config()["enable_metadata_routing"] and _routes_weights(estimator):
            return "sample_weight"
        name, last = estimator.steps[-1]
        return f"{name}__{weight_argument(last)}"
    parameters = inspect.signature(estimator.fit).parameters
    if "sample_weight" in parameters:
        return "sample_weight"
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        # A wrapper (a grid search, a transformed target) hands its keywords to what it wraps.
        for wrapped in ("estimator", "regressor", "classifier"):
            if getattr(estimator, wrapped, None) is not None:
                return weight_argument(getattr(estimator, wrapped))
    raise ValueError(
        f"{type(estimator).__name__} takes no sample_weight in fit, and without weights it cannot be made "
        "robust: choose an estimator that does"
    )


def _routes_weights(estimator: Any) -> bool:
    """Whether some step of a pipeline asks for sample weights."""
    return bool(get_routing_for_object(estimator).consumes("fit", ["sample_weight"]))


def innermost(estimator: Any) -> Any:
    """Return the model at the end of pipelines and inside wrappers."""
    if isinstance(estimator, Pipeline):
        return innermost(estimator.steps[-1][1])
    for wrapped in ("regressor", "estimator"):
        inner = getattr(estimator, wrapped, None)
        if hasattr(inner, "fit"):
            return innermost(inner)
    return estimator


def is_linear(estimator: Any) -> bool:
    """Whether an estimator is a linear model or a linear support vector machine, alone or inside others.

    Such a model has few coefficients beside its samples, and its own training losses can be believed.

    Example:
        >>> from sklearn.linear_model import LogisticRegression
        >>> from sklearn.tree import DecisionTreeRegressor
        >>> is_linear(LogisticRegression()), is_linear(DecisionTreeRegressor())
        (True, False)
    """
    model = innermost(estimator)
    if isinstance(model, SVC | SVR | NuSVC | NuSVR):
        return bool(model.kernel == "linear")
    linear_module = type(model).__module__.startswith("sklearn.linear_model")
    return linear_module or isinstance(model, LinearSVC | LinearSVR)


def is_boosting(estimator: Any) -> bool:
    """Whether an estimator is gradient boosting: scikit-learn's, LightGBM, XGBoost or CatBoost.

    Example:
        >>> from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
        >>> is_boosting(HistGradientBoostingClassifier()), is_boosting(RandomForestClassifier())
        (True, False)
    """
    name = type(innermost(estimator)).__name__
    return "GradientBoosting" in name or name.startswith(("LGBM", "XGB", "CatBoost"))


def is_least_squares(estimator: Any) -> bool:
    """Whether an estimator is plain or ridge regression, which weighted normal equations solve."""
    if type(estimator) is LinearRegression:
        return not estimator.positive
    return type(estimator) is Ridge and not estimator.positive and np.isscalar(estimator.alpha)


class LeastSquares:
    """Weighted least squares with an optional ridge penalty, by its normal equations.

    Args:
        x: Inputs, [n, k].
        y: Targets, [n] or [n, outputs].
        penalty: The ridge penalty.
        intercept: Whether a constant is fitted too.
    """

    def __init__(self, x: Array, y: Array, penalty: float = 0.0, intercept: bool = True) -> None:
        y = y.reshape(len(x), -1)
        self.size, self.penalty, self.intercept = len(x), penalty, intercept
        self.unknowns, self.inputs = x.shape[1] + intercept, x.shape[1]
        # One table of inputs, a one for the constant, and targets: every moment comes of one product.
        self.table = np.empty((self.size, self.unknowns + y.shape[1]))
        self.table[:, self.inputs] = 1.0
        # Normal equations square the condition number: columns around 0, of like size, keep it small.
        np.subtract(x, x.mean(0) if intercept else 0.0, out=self.x)
        self.y[:] = y
        self.rounding = ROUNDING * float(np.median(np.abs(y).max(1)))

    @property
    def x(self) -> Array:
        """Inputs, [n, k], around 0 if a constant is fitted."""
        return self.table[:, : self.inputs]

    @property
    def y(self) -> Array:
        """Targets, [n, outputs]."""
        return self.table[:, self.unknowns :]

    @classmethod
    def of(cls, estimator: Any, x: Array, y: Array) -> LeastSquares:
        """Return the learner that solves the problem of a LinearRegression or Ridge."""
        return cls(x, y, float(getattr(estimator, "alpha", 0.0)), estimator.fit_intercept)

    def rows(self, chosen: Array) -> LeastSquares:
        """Return the problem of some of the samples."""
        return LeastSquares(self.x[chosen], self.y[chosen], self.penalty, self.intercept)

    def losses(self, weights: Array) -> Array:
        """Fit with these weights; return the squared error of each sample, summed over outputs."""
        errors = self.errors(weights)
        losses = np.einsum("ij,ij->i", errors, errors)
        # Errors of rounding say nothing about a sample: an exact fit has losses of 0.
        return np.where(losses <= self.rounding**2, 0.0, losses)

    def errors(self, weights: Array) -> Array:
        """Fit with these weights; return the error of each sample, [n, outputs]."""
        k, moments = self.inputs, self._moments(weights)
        center, total = np.zeros(len(moments)), moments[k, k]
        if self.intercept and total > 0:
            center = moments[k] / total
            moments = moments - total * np.outer(center, center)
        gram = moments[:k, :k] + self.penalty * np.eye(k)
        # Least squares even here: weights may leave fewer samples than unknowns.
        coefficients = np.linalg.lstsq(gram, moments[:k, self.unknowns :], rcond=None)[0]
        parts = [-coefficients, np.eye(self.y.shape[1])]
        if self.intercept:
            parts.insert(1, (center[:k] @ coefficients - center[self.unknowns :])[None])
        combination = np.vstack(parts)
        errors = np.empty(self.y.shape)
        for block in self._blocks():
            np.matmul(self.table[block], combination, out=errors[block])
        return errors

    def _moments(self, weights: Array) -> Array:
        """Return the weighted sums of all products of two columns of the table."""
        table, used = self.table, np.flatnonzero(weights)
        if len(used) < len(weights) / 4:
            table, weights = table[used], weights[used]
        total = np.zeros((table.shape[1], table.shape[1]))
        for block in self._blocks(len(table)):
            total += table[block].T @ (table[block] * weights[block, None])
        return total

    def _blocks(self, size: int | None = None) -> Iterator[slice]:
        """Yield blocks of rows that stay in cache; they are also too small for BLAS to wake its threads."""
        for first in range(0, self.size if size is None else size, BLOCK):
            yield slice(first, first + BLOCK)

    def elemental_losses(self, subsets: Array) -> Array:
        """Fit each subset of samples exactly; return the squared errors of all samples, [subsets, n]."""
        x = self.table[:, : self.unknowns]
        # A trace of a ridge lets singular subsets pass: they are bad starts, and lose.
        gram = np.swapaxes(x[subsets], 1, 2) @ x[subsets]
        trace = np.trace(gram, axis1=1, axis2=2)[:, None, None]
        gram = gram + 1e-12 * (trace + 1e-300) * np.eye(x.shape[1])
        coefficients = np.linalg.solve(gram, np.swapaxes(x[subsets], 1, 2) @ self.y[subsets])
        return np.asarray(((self.y - x @ coefficients) ** 2).sum(2))


class _Fitted:
    """An estimator with its data, and how to weigh, predict and judge."""

    def __init__(self, estimator: Any, x: Any, y: Array, predict: Predict, loss: Loss) -> None:
        self.estimator, self.x, self.y = estimator, x, y
        self.predict, self.loss = predict, loss
        self.argument = weight_argument(estimator)
        self.size = len(y)
        self.prediction: Array = np.empty(0)

    def fit(self, weights: Array, rows: Array | None = None) -> Any:
        """Return a fresh estimator, fitted with these weights on these rows."""
        x, y = self.x, self.y
        if rows is not None:
            x, y, weights = _safe_indexing(x, rows), y[rows], weights[rows]
        return clone(self.estimator).fit(x, y, **{self.argument: weights})


class InSample(_Fitted):
    """Fit on all samples and judge the same samples."""

    def losses(self, weights: Array) -> Array:
        """Fit with these weights; return the loss of each sample."""
        self.prediction = self.predict(self.fit(weights), self.x)
        return self.loss(self.y, self.prediction)

    def errors(self, weights: Array) -> Array:
        """Fit with these weights; return the error of each sample, [n, outputs]."""
        self.losses(weights)
        return np.asarray((self.y - self.prediction.reshape(self.y.shape)).reshape(self.size, -1))


class OutOfFold(_Fitted):
    """Judge each sample by a fit that has not seen it.

    Args:
        estimator: The estimator.
        x: Inputs.
        y: Targets.
        predict: From a fitted estimator and X to predictions.
        loss: From targets and predictions to losses.
        folds: Pairs of training and test rows; together the test rows are all samples, each once.
    """

    def __init__(
        self,
        estimator: Any,
        x: Any,
        y: Array,
        predict: Predict,
        loss: Loss,
        folds: list[tuple[Array, Array]],
    ) -> None:
        super().__init__(estimator, x, y, predict, loss)
        self.folds = folds
        judged = np.concatenate([test for _, test in folds])
        if len(judged) != self.size or len(np.unique(judged)) != self.size:
            raise ValueError("cv must judge each sample exactly once: choose a splitter that partitions them")

    def losses(self, weights: Array) -> Array:
        """Fit once for each fold with these weights; return the loss of each sample."""
        parts = []
        for train, test in self.folds:
            # Of a tiny table a fold may hold only samples that are not believed: better those than none.
            own = weights if weights[train].any() else np.ones_like(weights)
            parts.append((test, self.predict(self.fit(own, train), _safe_indexing(self.x, test))))
        prediction = np.empty((self.size, *parts[0][1].shape[1:]), dtype=parts[0][1].dtype)
        for test, part in parts:
            prediction[test] = part
        self.prediction = prediction
        return self.loss(self.y, prediction)
