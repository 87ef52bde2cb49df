"""What an estimator is: how its ``fit`` takes weights, whether it is linear, and its absolute-error loss."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
from sklearn import get_config
from sklearn.base import clone
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.pipeline import Pipeline
from sklearn.svm import SVC, SVR, LinearSVC, LinearSVR, NuSVC, NuSVR
from sklearn.utils.metadata_routing import get_routing_for_object


def weight_argument(estimator: Any) -> str:
    """Return the name under which ``fit`` of an estimator takes sample weights.

    Args:
        estimator: An estimator. In a pipeline the last step is weighted, or, with metadata routing enabled,
            the steps that request weights.

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
        if get_config()["enable_metadata_routing"] and _requests_weights(estimator):
            return "sample_weight"
        name, last = estimator.steps[-1]
        return f"{name}__{weight_argument(last)}"
    parameters = inspect.signature(estimator.fit).parameters
    if "sample_weight" in parameters:
        return "sample_weight"
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        # A wrapper (a grid search, a transformed target) passes its keywords to the wrapped estimator.
        for wrapped in ("estimator", "regressor", "classifier"):
            if getattr(estimator, wrapped, None) is not None:
                return weight_argument(getattr(estimator, wrapped))
    raise ValueError(
        f"{type(estimator).__name__} takes no sample_weight in fit, and without weights it cannot be made "
        "robust: choose an estimator that does"
    )


def weight_arguments(estimator: Any, weights: Any) -> dict[str, Any]:
    """Return the weights as arguments of ``fit``; none if all are 1, since learners may take far longer with weights.

    Example:
        >>> weight_arguments(LinearRegression(), np.ones(3)), weight_arguments(LinearRegression(), np.array([0.5]))
        ({}, {'sample_weight': array([0.5])})
    """
    return {} if (weights == 1).all() else {weight_argument(estimator): weights}


def _requests_weights(estimator: Any) -> bool:
    """Whether some step of a pipeline requests sample weights."""
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

    With few coefficients it cannot memorise its samples, and its training losses are informative.

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


ABSOLUTE_ERROR = {
    "GradientBoostingRegressor": ("loss", "absolute_error"),
    "HistGradientBoostingRegressor": ("loss", "absolute_error"),
    "LGBMRegressor": ("objective", "regression_l1"),
    "XGBRegressor": ("objective", "reg:absoluteerror"),
}
"""How learners that can minimise the absolute error are told to."""


def absolute_error_variant(estimator: Any) -> Any:
    """Return the estimator with the absolute error as its loss, or None if it has no such loss.

    Example:
        >>> from sklearn.ensemble import HistGradientBoostingRegressor
        >>> absolute_error_variant(HistGradientBoostingRegressor()).loss
        'absolute_error'
        >>> absolute_error_variant(LinearRegression()) is None
        True
    """
    if isinstance(estimator, Pipeline):
        last = absolute_error_variant(estimator.steps[-1][1])
        return None if last is None else clone(estimator).set_params(**{estimator.steps[-1][0]: last})
    name, value = ABSOLUTE_ERROR.get(type(estimator).__name__, (None, None))
    return None if name is None else clone(estimator).set_params(**{name: value})


def is_least_squares(estimator: Any) -> bool:
    """Whether an estimator is ordinary or ridge regression, which weighted normal equations solve."""
    if type(estimator) is LinearRegression:
        return not estimator.positive
    return type(estimator) is Ridge and not estimator.positive and np.isscalar(estimator.alpha)
