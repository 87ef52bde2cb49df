"""The scikit-learn pipeline: how columns of each kind are prepared, and the model at its end.

| column | ``linear`` | ``boosting`` |
|---|---|---|
| number | median for missing, a column that says so, standardized | the same, not standardized |
| category | a column of 0 and 1 for each frequent value, one for all others | its number |
| date | year, days, hour as numbers; months and days of the week as 0 and 1 | all as numbers |
| model | Ridge, LogisticRegression | HistGradientBoosting |

The columns are prepared once, and the model is fitted to them many times.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder

from inlier.fit import InputError, shown
from inlier.fit.columns import Array, Column
from inlier.fit.transformers import DateParts, Standardize
from inlier.sklearn import AdaptiveClassifier, AdaptiveRegressor

MODELS = ("linear", "boosting")
Task = Literal["regression", "classification"]

MOST_VALUES = {"linear": 50, "boosting": 200}
"""So many frequent values of a category are kept apart."""
MOST_CELLS = 80_000_000
"""A linear model's matrix has at most so many cells, 0.6 GB: where rows are many, fewer values are kept."""
DATE_CELLS = 23
MANY_ROWS = 100_000
"""With more rows, samples judged out of fold are judged in fewer rounds."""
FEWER_ROUNDS = 2


@dataclass(frozen=True)
class Recipe:
    """What is fitted.

    Args:
        columns: The columns that are used.
        task: Regression or classification.
        model: ``linear`` or ``boosting``.
        inlier_fraction: A number, or "auto".
        seed: Seeds all that is random.
    """

    columns: Sequence[Column]
    task: Task
    model: str
    inlier_fraction: float | Literal["auto"]
    seed: int

    def names(self, kind: str) -> list[str]:
        """Return the names of the columns of a kind."""
        return [column.name for column in self.columns if column.kind == kind]


def preparation(recipe: Recipe, rows: int) -> ColumnTransformer:
    """Return the unfitted transformer of all columns.

    Args:
        recipe: The columns, and the model.
        rows: The number of rows, which decides how many values of a category have room.
    """
    linear = recipe.model == "linear"
    parts = ("parts", DateParts(one_hot=linear))
    steps = [
        # Categories first: boosting must know their places, and how many columns numbers give is seen later.
        ("category", _categories(recipe, rows), recipe.names("category")),
        ("number", Pipeline(_filled(linear)), recipe.names("number")),
        ("date", Pipeline([parts, *_filled(linear)]), recipe.names("date")),
    ]
    return ColumnTransformer([step for step in steps if step[2]], sparse_threshold=0)


def _filled(linear: bool) -> list[tuple[str, Any]]:
    """Missing numbers become the median, beside a column that says so; linear models get all standardized.

    Boosting takes missing numbers too, but fails where all of a column are missing in rows with a weight.
    """
    imputer = SimpleImputer(strategy="median", add_indicator=True, keep_empty_features=True)
    return [("impute", imputer), *([("standardize", Standardize())] if linear else [])]


def _categories(recipe: Recipe, rows: int) -> OneHotEncoder | OrdinalEncoder:
    most = MOST_VALUES[recipe.model]
    if recipe.model == "boosting":
        return OrdinalEncoder(
            handle_unknown="use_encoded_value",
            unknown_value=np.nan,
            encoded_missing_value=np.nan,
            max_categories=most,
        )
    taken = 2 * len(recipe.names("number")) + DATE_CELLS * len(recipe.names("date"))
    room = (MOST_CELLS // rows - taken) // max(len(recipe.names("category")), 1)
    return OneHotEncoder(
        handle_unknown="infrequent_if_exist", max_categories=max(min(most, room), 2), sparse_output=False
    )


def plain_model(recipe: Recipe) -> Any:
    """Return the unfitted model at the end of the pipeline."""
    if recipe.model == "linear":
        return Ridge() if recipe.task == "regression" else LogisticRegression(max_iter=300)
    boosting = (
        HistGradientBoostingRegressor if recipe.task == "regression" else HistGradientBoostingClassifier
    )
    places = list(range(len(recipe.names("category"))))
    return boosting(categorical_features=places or None, random_state=recipe.seed)


def robust_model(recipe: Recipe, rows: int) -> AdaptiveRegressor | AdaptiveClassifier:
    """Return the unfitted model with the adaptive alternation around it."""
    folded = recipe.task == "classification" or recipe.model == "boosting"
    adaptive = AdaptiveRegressor if recipe.task == "regression" else AdaptiveClassifier
    return adaptive(
        plain_model(recipe),
        inlier_fraction=recipe.inlier_fraction,
        max_iter=FEWER_ROUNDS if folded and rows > MANY_ROWS else None,
        random_state=recipe.seed,
    )


@dataclass(frozen=True)
class Learned:
    """A fitted pipeline, and what was learned about the rows.

    Args:
        pipeline: Columns to predictions.
        robust: The fitted alternation, whose model is that of the pipeline.
    """

    pipeline: Pipeline
    robust: AdaptiveRegressor | AdaptiveClassifier


def learn(recipe: Recipe, frame: pd.DataFrame, y: Array) -> Learned:
    """Fit the pipeline robustly.

    Args:
        recipe: What is fitted.
        frame: The columns.
        y: The target: float64, or classes as text.

    Returns:
        The pipeline, and the alternation.

    Raises:
        InputError: If the rows are too few or too much alike to fit the model to parts of them.
    """
    prepare = preparation(recipe, len(frame))
    with warnings.catch_warnings():
        # Rounds that end early, rare classes: the table's owner can do nothing about them.
        warnings.simplefilter("ignore")
        x = prepare.fit_transform(frame)
        try:
            robust = robust_model(recipe, len(frame)).fit(x, y)
        except ValueError as error:
            raise InputError(
                f"the model cannot be fitted to these {len(frame):,} rows: {shown(error)}"
            ) from error
    return Learned(Pipeline([("prepare", prepare), ("model", robust.estimator_)]), robust)


def learn_plain(recipe: Recipe, prepare: ColumnTransformer, frame: pd.DataFrame, y: Array) -> Pipeline:
    """Fit the same model without the alternation.

    Args:
        recipe: What is fitted.
        prepare: The columns' transformer, fitted to the same rows.
        frame: The columns.
        y: The target.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = clone(plain_model(recipe)).fit(prepare.transform(frame), y)
    return Pipeline([("prepare", prepare), ("model", model)])


def stages_of(pipeline: Pipeline) -> list[tuple[str, list[str], list[Any]]]:
    """Return the kinds of columns of a fitted pipeline, with the columns and the steps of each.

    Example:
        >>> import numpy as np, pandas as pd
        >>> recipe = Recipe([Column("size", "number")], "regression", "linear", "auto", 0)
        >>> frame = pd.DataFrame({"size": np.arange(50.0)})
        >>> stages_of(learn(recipe, frame, 3 * np.arange(50.0)).pipeline)[0][:2]
        ('number', ['size'])
    """
    return [
        (kind, list(columns), [part for _, part in step.steps] if isinstance(step, Pipeline) else [step])
        for kind, step, columns in pipeline.named_steps["prepare"].transformers_
        if kind != "remainder"
    ]


def written(step: Any) -> str:
    """Return a step of a pipeline as one line of Python.

    Example:
        >>> written(Standardize(limit=5))
        'Standardize(limit=5)'
    """
    return " ".join(repr(step).split())
