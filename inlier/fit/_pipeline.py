"""The pipeline: skrub's encoders turn each column into numbers, and a model is fitted to these robustly.

| column | ``linear`` | ``boosting`` |
|---|---|---|
| number, yes/no, duration | ``SquashingScaler``; median for missing, with an indicator column | as it is |
| date | ``DatetimeEncoder``, periodic parts as splines | ``DatetimeEncoder`` |
| text of few distinct values | one column for each | its code |
| other text | ``StringEncoder``: TF-IDF of character n-grams, then SVD | the same, fewer components |
| vectors of an encoder | standardized, SVD, each of length one | the same |
| model | Ridge, LogisticRegression | HistGradientBoosting |

What a column is was found when it was read (``_columns``). skrub's ``TableVectorizer`` would find it out again from
the texts, and take ``007`` for a number; and it goes through the columns one by one, which for 500 of them takes 80
times as long. The columns are transformed once, and the model is fitted to them many times.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import TruncatedSVD
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import Normalizer, OneHotEncoder, OrdinalEncoder, StandardScaler
from skrub import DatetimeEncoder, SquashingScaler, StringEncoder

from inlier._errors import InputError, quoted
from inlier.fit._columns import Array, Column
from inlier.fit._targets import Task
from inlier.sklearn import AdaptiveClassifier, AdaptiveRegressor

MODELS = ("linear", "boosting")
Vectorizer: TypeAlias = ColumnTransformer
"""What transforms the columns: first all categories, then all numbers, each date, each text, all vectors."""

CATEGORIES = 40
"""Text of at most this many distinct values is a category, as skrub has it."""
MAX_CELLS = 80_000_000
"""Largest matrix of a linear model, 0.6 GB: with many rows, fewer values and components of texts are kept apart."""
DATE_CELLS = 30
SQUASHED_AT = 30.0
"""Numbers are squashed softly to this many interquartile ranges: one absurd cell cannot pull a linear fit."""

# Components and penalty were chosen by `python -m benchmarks.fit_texts tune`; the rows for each component were not.
TEXT_COMPONENTS = {"linear": 300, "boosting": 30}
"""Components of all text columns together."""
ROWS_PER_COMPONENT = {"classification": 5, "regression": 100}
"""Rows for each component, at least: linear regressions score rows in-sample, and noise keeps boosting from finding
errors on one side (a column of distinct notes in ``houses`` of the tests, with 20 rows each)."""
TEXT_PENALTY = 10.0
ENCODED_TEXT_PENALTY = 3.0
"""``C`` of logistic regression where there is TF-IDF of text, and where an encoder made vectors of it; else 1."""


@dataclass(frozen=True)
class ModelSpec:
    """What is fitted to a table.

    Args:
        columns: The input columns.
        task: Regression or classification.
        model: ``linear`` or ``boosting``.
        inlier_fraction: A number, or "auto".
        seed: The seed of all randomness.
    """

    columns: Sequence[Column]
    task: Task
    model: str
    inlier_fraction: float | Literal["auto"]
    seed: int

    def names(self, *kinds: str) -> list[str]:
        """Return the names of the columns of some types."""
        return [column.name for column in self.columns if column.kind in kinds]


@dataclass(frozen=True)
class RobustFit:
    """A fitted pipeline, and what the robust fit found about the rows.

    Args:
        pipeline: From columns to predictions.
        estimator: The fitted alternation, whose model is that of the pipeline.
    """

    pipeline: Pipeline
    estimator: AdaptiveRegressor | AdaptiveClassifier


def fit_robust(spec: ModelSpec, frame: pd.DataFrame, y: Array) -> RobustFit:
    """Fit the pipeline robustly.

    Args:
        spec: What is fitted.
        frame: The columns.
        y: The target: float64, or class labels as text.

    Returns:
        The pipeline, and the fitted alternation.

    Raises:
        InputError: If there are too few rows, or rows too much alike, to fit the model to parts of them.
    """
    vectorizer = build_vectorizer(spec, frame)
    with warnings.catch_warnings():
        # About convergence and rare classes: the owner of the table can do nothing about them.
        warnings.simplefilter("ignore")
        x = np.asarray(vectorizer.fit_transform(frame))
        try:
            estimator = robust_model(spec, vectorizer).fit(x, y)
        except ValueError as error:
            raise InputError(
                f"the model cannot be fitted to these {len(frame):,} rows: {quoted(error)}"
            ) from error
    return RobustFit(joined(vectorizer, estimator.estimator_), estimator)


def joined(vectorizer: Vectorizer, model: Any) -> Pipeline:
    """Return the pipeline of a fitted vectorizer and a model that was fitted to the array of its output."""
    return Pipeline([("transform", vectorizer), ("model", model)])


def fit_unweighted(spec: ModelSpec, vectorizer: Vectorizer, frame: pd.DataFrame, y: Array) -> Pipeline:
    """Fit the same model to all rows with equal weights.

    Args:
        spec: What is fitted.
        vectorizer: The transformer of the columns, fitted to the same rows.
        frame: The columns.
        y: The target.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = clone(base_model(spec, vectorizer)).fit(np.asarray(vectorizer.transform(frame)), y)
    return joined(vectorizer, model)


def build_vectorizer(spec: ModelSpec, frame: pd.DataFrame) -> Vectorizer:
    """Return the unfitted transformer of all columns.

    Args:
        spec: The columns, and the model.
        frame: Their values, which limit how many components of text and values of categories are kept apart.
    """
    linear, rows = spec.model == "linear", len(frame)
    numbers, dates = spec.names("number", "yes/no", "duration"), spec.names("date")
    categories = [name for name in spec.names("text") if frame[name].nunique() <= CATEGORIES]
    texts = [name for name in spec.names("text") if name not in categories]
    vectors = [output for column in spec.columns if column.kind == "embedding" for output in column.outputs]
    left = MAX_CELLS // rows - 2 * len(numbers) - DATE_CELLS * len(dates)
    components = min(TEXT_COMPONENTS[spec.model], rows // ROWS_PER_COMPONENT[spec.task], left // 2)
    components //= max(len(texts), 1)
    room = (left - components * len(texts)) // max(len(categories), 1)
    codes = (
        OneHotEncoder(
            handle_unknown="infrequent_if_exist",
            max_categories=max(min(CATEGORIES, room), 2),
            sparse_output=False,
        )
        if linear
        else OrdinalEncoder(
            handle_unknown="use_encoded_value", unknown_value=np.nan, encoded_missing_value=np.nan
        )
    )
    calendar = DatetimeEncoder(add_weekday=True, periodic_encoding="spline" if linear else None)
    words = StringEncoder(n_components=max(components, 2), random_state=spec.seed)
    parts = [
        ("categories", codes, categories),
        ("numbers", make_pipeline(*_filled(linear)), numbers),
        *((f"date {k}", make_pipeline(calendar, *_filled(linear)), name) for k, name in enumerate(dates)),
        *((f"text {k}", words, name) for k, name in enumerate(texts)),
        ("vectors", make_pipeline(*_compressed(spec, len(vectors), rows)), vectors),
    ]
    return ColumnTransformer([part for part in parts if part[2]], sparse_threshold=0)


def _compressed(spec: ModelSpec, width: int, rows: int) -> list[Any]:
    """Return the steps that make vectors of an encoder comparable with each other, and not too long."""
    components = max(min(TEXT_COMPONENTS["linear"], rows // ROWS_PER_COMPONENT[spec.task]), 2)
    svd = [TruncatedSVD(components, random_state=spec.seed)] if width > components else []
    return [StandardScaler(), *svd, Normalizer()]


def _filled(linear: bool) -> list[Any]:
    """Return the steps that fill in missing numbers and, for linear models, scale them.

    Boosting takes missing numbers too, but fails where a column is missing in all rows with a weight.
    """
    imputer = SimpleImputer(strategy="median", add_indicator=True, keep_empty_features=True)
    return [*([SquashingScaler(max_absolute_value=SQUASHED_AT)] if linear else []), imputer]


def base_model(spec: ModelSpec, vectorizer: Vectorizer) -> Any:
    """Return the unfitted model at the end of the pipeline."""
    parts = {name: columns for name, _, columns in vectorizer.transformers}
    if spec.model == "linear":
        encoded = any(column.source == "text" for column in spec.columns)
        penalty = TEXT_PENALTY if "text 0" in parts else ENCODED_TEXT_PENALTY if encoded else 1.0
        return Ridge() if spec.task == "regression" else LogisticRegression(C=penalty, max_iter=300)
    boosting = HistGradientBoostingRegressor if spec.task == "regression" else HistGradientBoostingClassifier
    codes = list(range(len(parts.get("categories", []))))  # They come first.
    return boosting(categorical_features=codes or None, random_state=spec.seed)


def robust_model(spec: ModelSpec, vectorizer: Vectorizer) -> AdaptiveRegressor | AdaptiveClassifier:
    """Return the unfitted adaptive estimator around the model."""
    adaptive = AdaptiveRegressor if spec.task == "regression" else AdaptiveClassifier
    base = base_model(spec, vectorizer)
    return adaptive(base, inlier_fraction=spec.inlier_fraction, random_state=spec.seed)


def treatments(spec: ModelSpec, pipeline: Pipeline) -> dict[str, str]:
    """Return what became of each column, in words.

    Example:
        >>> import numpy as np, pandas as pd
        >>> spec = ModelSpec([Column("size", "number", unit="kg")], "regression", "linear", "auto", 0)
        >>> frame = pd.DataFrame({"size": np.arange(50.0)})
        >>> treatments(spec, fit_robust(spec, frame, 3 * np.arange(50.0)).pipeline)
        {'size': 'number, unit kg'}
    """
    parts = pipeline.named_steps["transform"].transformers
    words = {name: "category" for part, _, names in parts if part == "categories" for name in names}
    words |= {name: "free text" for part, _, name in parts if part.startswith("text")}
    return {column.name: words.get(column.name, str(column)) for column in spec.columns}
