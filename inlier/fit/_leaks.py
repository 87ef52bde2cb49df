"""Columns that determine the target: what was copied from it would not be known for new rows.

A copy of the target has the errors of the target too. So a leak is exact, unlike a good predictor of a target
of which a part is wrong.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy.stats import spearmanr

from inlier.fit._columns import Array, Column
from inlier.fit._targets import Task

EXACT = 0.999
"""Share of rows (or rank correlation) from which a column determines the target."""
REPEATED = 2
"""Values of a column occur at least this often on average, or they determine anything."""
MAX_ROWS = 50_000
"""So many rows suffice to find a leak."""


def find_leaks(frame: pd.DataFrame, y: Array, columns: Sequence[Column], task: Task) -> list[str]:
    """Return the columns that determine the target.

    A column of discrete values does if its rows with one value have one target; a column of numbers does if it
    orders the rows as the target does, or keeps the classes apart.

    Args:
        frame: The columns.
        y: The target.
        columns: Their types.
        task: Regression or classification.

    Example:
        >>> import numpy as np, pandas as pd
        >>> y = np.random.default_rng(0).normal(size=100)
        >>> frame = pd.DataFrame({"euros": 0.9 * y, "size": y + np.random.default_rng(1).normal(size=100)})
        >>> find_leaks(frame, y, [Column("euros", "number"), Column("size", "number")], "regression")
        ['euros']
    """
    if len(y) > MAX_ROWS:
        some = np.random.default_rng(0).permutation(len(y))[:MAX_ROWS]
        frame, y = frame.iloc[some], y[some]
    target = pd.Series(y, index=frame.index)
    return [
        column.name
        for column in columns
        if column.kind != "embedding" and _determines(frame[column.name], target, task)
    ]


def _determines(values: pd.Series, target: pd.Series, task: Task) -> bool:
    known = values.notna().to_numpy()
    values, target = values[known], target[known]
    if len(values) < len(known) / 2 or target.nunique() < 2:
        return False
    distinct = values.nunique()
    if distinct > 1 and len(values) >= REPEATED * distinct:
        majority = target.groupby(values).transform(lambda part: part.value_counts().index[0])
        # Where most rows have one target, a column may seem to determine it by saying nothing.
        rare = target != target.value_counts().index[0]
        return bool((majority == target).mean() >= EXACT and (majority == target)[rare].mean() >= EXACT)
    if values.dtype.kind not in "fM" or distinct == 1:
        return False
    if task == "regression":
        return bool(abs(spearmanr(values.to_numpy().astype(float), target).statistic) >= EXACT)
    ordered = target.to_numpy()[np.argsort(values.to_numpy(), kind="stable")]
    changes = int((ordered[1:] != ordered[:-1]).sum())
    return changes <= target.nunique() - 1 + (1 - EXACT) * len(target)
