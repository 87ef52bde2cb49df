"""The errors of the robust and the unweighted model on held-out rows, some of which may be wrong too.

Both are measured on the same rows. If the inlier fraction zeta is trusted (or given), these are the zeta n rows with
the smallest loss under the better of the two models for each row: a row is left out only if it is unlikely under
both, so neither is favoured, and what the robust fit cut is not left out for that. If it is not trusted, all rows
count.

- regression: the mean absolute error;
- classification: the error rate, rows chosen by their log loss.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from sklearn.pipeline import Pipeline

from inlier.fit._columns import Array
from inlier.fit._pipeline import ModelSpec, fit_robust, fit_unweighted
from inlier.sklearn._classifier import probabilities

HOLDOUT_FRACTION = 0.2


@dataclass(frozen=True)
class HoldoutErrors:
    """Errors of both models on held-out rows.

    Args:
        measure: What the error is, in words.
        robust: The error of the robust model.
        unweighted: The error of the unweighted model.
        rows: The number of held-out rows.
    """

    measure: str
    robust: float
    unweighted: float
    rows: int

    def __str__(self) -> str:
        """Return both in words, for the summary.

        Example:
            >>> print(HoldoutErrors("mean absolute error, 120 rows", 7234.9, 288012.0, 120))
            robust 7,235, unweighted 288,012 (mean absolute error, 120 rows)
        """
        both = f"robust {error_text(self.robust)}, unweighted {error_text(self.unweighted)}"
        better = ": the same" if self.robust == self.unweighted else ": not better"
        return f"{both}{'' if self.robust < self.unweighted else better} ({self.measure})"


def error_text(error: float) -> str:
    """Return an error with four digits, or all in front of the decimal point."""
    return f"{error:,.0f}" if 1000 <= error < 1e9 else f"{error:.4g}"


def compare_on_holdout(spec: ModelSpec, frame: pd.DataFrame, y: Array) -> HoldoutErrors | None:
    """Fit both models to one part of the rows, and measure them on the other.

    Args:
        spec: What is fitted.
        frame: The columns.
        y: The target.

    Returns:
        The errors; None if there are too few rows of each class to hold any out.
    """
    test = holdout_mask(y, spec)
    if not test.any():
        return None
    train = np.flatnonzero(~test)
    x_train, y_train = frame.iloc[train], y[train]
    fit = fit_robust(spec, x_train, y_train)
    estimate, robust = fit.estimator.fraction_estimate_, fit.pipeline
    zeta = float(estimate.value) if estimate.trusted else 1.0
    del fit  # Its losses and weights are large, and no longer needed.
    unweighted = fit_unweighted(spec, robust.named_steps["transform"], x_train, y_train)
    return measure_errors(spec, robust, unweighted, frame.iloc[np.flatnonzero(test)], y[test], zeta)


def holdout_mask(y: Array, spec: ModelSpec) -> Array:
    """Return which rows are held out: a random fifth of them, of each class for classification.

    Example:
        >>> import numpy as np
        >>> spec = ModelSpec([], "classification", "linear", "auto", 0)
        >>> y = np.array(["a"] * 50 + ["b"] * 2)
        >>> test = holdout_mask(y, spec)
        >>> int(test[:50].sum()), int(test[50:].sum())
        (10, 0)
    """
    generator = np.random.default_rng(spec.seed)
    groups = np.zeros(len(y), dtype=int)
    if spec.task == "classification":
        groups = np.unique(y.astype(str), return_inverse=True)[1]
    test = np.zeros(len(y), dtype=bool)
    for group in range(groups.max() + 1):
        members = generator.permutation(np.flatnonzero(groups == group))
        test[members[: round(HOLDOUT_FRACTION * len(members))]] = True
    return test


def measure_errors(
    spec: ModelSpec, robust: Pipeline, unweighted: Pipeline, frame: pd.DataFrame, y: Array, zeta: float
) -> HoldoutErrors:
    """Return the errors of two fitted pipelines on rows of which a fraction zeta is counted."""
    n = len(y)
    rows = (
        f"{n:,} rows"
        if zeta >= 1
        else f"the {100 * zeta:.0f} % of {n:,} rows that one of both models fits best"
    )
    models = (robust, unweighted)
    if spec.task == "regression":
        sizes = losses = [np.abs(y - model.predict(frame)) for model in models]
        measure = "mean absolute error"
    else:
        classes = np.unique(y.astype(str))
        sizes, losses = [], []
        for model in models:
            every = np.union1d(classes, model.classes_.astype(str)).astype(object)
            probability = probabilities(model, frame, every)
            given = probability[np.arange(n), np.searchsorted(every.astype(str), y.astype(str))]
            losses.append(-np.log(np.clip(given, 1e-15, 1.0)))
            sizes.append(every[probability.argmax(1)] != y)
        measure = "error rate"
    counted = np.argsort(np.minimum(*losses), kind="stable")[: max(round(zeta * n), 1)]
    errors = [float(each[counted].mean()) for each in sizes]
    return HoldoutErrors(f"{measure}, {rows}", errors[0], errors[1], n)
