"""The target: whether it asks for a number or for a class, and its values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from inlier.fit import InputError, shown
from inlier.fit.columns import Array, numbers, plain
from inlier.fit.pipeline import Task
from inlier.fit.tables import is_text

TASKS = ("auto", "regression", "classification")
FEW_NUMBERS, ROWS_A_NUMBER = 10, 10
"""Whole numbers are classes if there are at most so many, each with so many rows in the mean."""
FEWEST_ROWS = 10
MOST_CLASSES = 1000
MOST_PROBABILITIES = 30_000_000
"""Rows times classes: every row has a probability for each class in memory."""


@dataclass(frozen=True)
class Target:
    """The target of those rows that have one.

    Args:
        name: Its name.
        task: What it asks for.
        why: Why it asks for that, in words.
        type: Its Arrow type in the file, as text.
        values: float64, or classes as text.
        rows: Places of the rows that have a target.
        total: The number of all rows.
    """

    name: str
    task: Task
    why: str
    type: str
    values: Array
    rows: Array
    total: int


def target_of(name: str, column: Any, task: str) -> Target:
    """Return the target.

    Args:
        name: The name of its column.
        column: The column, an Arrow array.
        task: ``regression``, ``classification``, or ``auto`` for the rule of :data:`FEW_NUMBERS`.

    Raises:
        InputError: If there is nothing to learn, or a class where a number is asked for.

    Example:
        >>> import pyarrow as pa
        >>> target_of("pet", pa.chunked_array([["cat", "dog", None] * 10]), "auto").task
        'classification'
    """
    column = plain(column)
    kind = column.type
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        raise InputError(f"target {shown(name)} holds dates; choose a column of numbers or classes")
    text, logical = is_text(kind), pa.types.is_boolean(kind)
    array: Array
    if text or logical:
        array = np.asarray(column.cast(pa.string()).to_numpy(), dtype=object)
        present = np.asarray(column.is_valid().to_numpy())
    else:
        array = numbers(name, column)
        present = ~np.isnan(array)
    rows = np.flatnonzero(present)
    if len(rows) == 0:
        raise InputError(f"target {shown(name)} has no value in any of {len(array):,} rows")
    if len(rows) < FEWEST_ROWS:
        raise InputError(
            f"target {shown(name)} has a value in {len(rows)} rows; at least {FEWEST_ROWS} are needed"
        )
    values = array[rows]
    different = np.unique(values.astype(str) if text or logical else values)
    if len(different) == 1:
        raise InputError(
            f"target {shown(name)} is {shown(different[0])} in every row: there is nothing to learn"
        )
    if text or logical:
        if task == "regression":
            raise InputError(f"target {shown(name)} holds {'text' if text else 'true and false'}, no numbers")
        chosen, why = "classification", f"{len(different):,} different texts" if text else "true and false"
    else:
        whole = bool((different == np.round(different)).all())
        few = whole and len(different) <= min(FEW_NUMBERS, len(rows) / ROWS_A_NUMBER)
        chosen = task if task != "auto" else "classification" if few else "regression"
        why = f"{len(different):,} different {'whole ' if whole else ''}numbers"
    if chosen == "classification":
        if not (text or logical):
            values = _as_text(column, rows)
        _check_classes(name, values)
        return Target(name, "classification", why, str(kind), values, rows, len(array))
    return Target(name, "regression", why, str(kind), values.astype(np.float64), rows, len(array))


def _as_text(column: Any, rows: Array) -> Array:
    """Return numbers as the texts of their classes: 1, not 1.0, where all are whole."""
    wide = column.cast(pa.float64(), safe=False)
    if pc.all(pc.equal(wide, pc.round(wide))).as_py() and pc.max(pc.abs(wide)).as_py() < 2**53:
        column = wide.cast(pa.int64(), safe=False)
    return np.asarray(column.cast(pa.string()).to_numpy(), dtype=object)[rows]


def _check_classes(name: str, values: Array) -> None:
    """Raise if classes are too many, or too rare, to be learned."""
    counts = np.sort(np.unique(values.astype(str), return_counts=True)[1])
    most = min(MOST_CLASSES, len(values) // 2, MOST_PROBABILITIES // len(values))
    if len(counts) > most:
        raise InputError(
            f"target {shown(name)} has {len(counts):,} different values in {len(values):,} rows, and at most "
            f"{most:,} classes can be learned from so many; choose another target"
        )
    if counts[-2] < 2:
        raise InputError(f"target {shown(name)} has one class with more than one row; at least 2 are needed")
