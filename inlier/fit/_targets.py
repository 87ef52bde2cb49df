"""The target column: regression or classification, its values, and the cells that do not fit."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from inlier._errors import InputError, quoted
from inlier.fit._columns import (
    Array,
    Column,
    SuspectCell,
    decoded,
    infer_column,
    mixed_units,
    units_in_words,
)
from inlier.fit._totals import is_sum_of_others
from inlier.fit._written import is_currency

Task = Literal["regression", "classification"]
TASKS = ("auto", "regression", "classification")
MAX_INTEGER_CLASSES, ROWS_PER_CLASS = 10, 10
"""Integers are classes if at most this many are distinct, each with this many rows on average."""
MIN_ROWS = 10
MORE_FREQUENT = 20
SHORTEST = 3
"""A label of at least three letters may be a misspelled one that is this many times as frequent: measured by
``python -m benchmarks.fit_spelling``. Codes of two letters are next to each other by design."""
MAX_CLASSES = 1000
MAX_PROBABILITIES = 30_000_000
"""Limit of rows times classes: the probability of each class is kept in memory for every row."""


@dataclass(frozen=True)
class Target:
    """The target of the rows that have one.

    Args:
        column: Its column, and how it was read.
        task: What it is a target for.
        content: What its values are, in words.
        type: The type of its values, as Arrow calls it.
        values: float64, or class labels as text; spellings of one class are one label.
        given: The same as they are in the table.
        rows: Positions of the rows that have a target.
        total: The number of all rows.
        dropped: How many of these somebody decided to drop.
        suspects: Cells that are no target, or an odd one.
        notes: What is worth knowing about it.
    """

    column: Column
    task: Task
    content: str
    type: str
    values: Array
    given: Array
    rows: Array
    total: int
    suspects: list[SuspectCell] = field(default_factory=list)
    notes: tuple[str, ...] = ()
    dropped: int = 0

    @property
    def name(self) -> str:
        """The name of its column."""
        return self.column.name

    def without(self, dropped: Collection[int]) -> Target:
        """Return the target without some rows."""
        kept = ~np.isin(self.rows, list(dropped))
        cells = [cell for cell in self.suspects if cell.position not in dropped]
        return replace(
            self,
            values=self.values[kept],
            given=self.given[kept],
            rows=self.rows[kept],
            suspects=cells,
            dropped=len(dropped),
        )


def infer_target(name: str, column: Any, task: str) -> Target:
    """Return the target, and whether it is for regression or classification.

    Args:
        name: The name of its column.
        column: The column, an Arrow array.
        task: ``regression``, ``classification``, or ``auto``: text, booleans and integers of few distinct
            values (:data:`MAX_INTEGER_CLASSES`) are classes. Texts of which more than 95 % are numbers are
            numbers; rows with another text are named and left out.

    Raises:
        InputError: If there is nothing to learn, or text where numbers are required.

    Example:
        >>> import pyarrow as pa
        >>> infer_target("pet", pa.chunked_array([["cat", "dog", None] * 10]), "auto").task
        'classification'
        >>> target = infer_target("size", pa.chunked_array([[f"{k}.5 kg" for k in range(30)] + ["large"]]), "auto")
        >>> target.task, target.suspects[0].value
        ('regression', 'large')
    """
    column = decoded(column)
    if len(column) == column.null_count:
        raise InputError(f"target {quoted(name)} has no value in any of {len(column):,} rows")
    reading = infer_column(name, column)
    kind = reading.column.kind
    if kind == "date":
        raise InputError(f"target {quoted(name)} holds dates; choose a column of numbers or classes")
    boolean = pa.types.is_boolean(column.type)
    texts = kind in ("text", "yes/no") or boolean
    present = np.asarray(column.is_valid().to_numpy())
    if kind == "yes/no":  # Words that stand for a missing answer are none; other words are, if an odd one.
        named = [cell.position for cell in reading.suspects]
        present = ~np.isnan(reading.values) | np.isin(np.arange(len(present)), named)
    elif not texts:
        present = ~np.isnan(reading.values)
    total = kind == "number" and is_sum_of_others(reading.values)
    if total:
        present[-1] = False
    rows = np.flatnonzero(present)
    _check_rows(name, len(rows))
    labels = np.asarray(column.cast(pa.string()).to_numpy(), dtype=object) if texts else reading.values
    given = labels[rows]
    notes, suspects = reading.notes, list(reading.suspects)
    if total:
        suspects.append(SuspectCell(len(column) - 1, name, str(column[-1]), "the sum of all rows above"))
    values = given
    if texts:
        answers = reading.values[rows] if kind == "yes/no" else np.full(len(rows), np.nan)
        values, variants = in_one_spelling(given, answers)
        notes += variants
    distinct = np.unique(values.astype(str) if texts else values)
    if len(distinct) == 1:
        raise InputError(
            f"target {quoted(name)} is {quoted(distinct[0])} in every row; nothing can be learned"
        )
    if texts:
        content = "true and false" if boolean else f"{len(distinct):,} distinct texts"
        if task == "regression":
            raise InputError(f"target {quoted(name)} holds {content}; regression needs numbers")
        chosen: Task = "classification"
        if task == "auto" and len(distinct) > _few(len(rows)):
            units = mixed_units(distinct[:MAX_CLASSES].tolist())
            if any(map(is_currency, units)):
                raise _in_several_units(name, units)
    else:
        integers = bool((distinct == np.round(distinct)).all())
        few = integers and len(distinct) <= _few(len(rows))
        chosen = "classification" if task == "classification" or (task == "auto" and few) else "regression"
        words = "durations, in seconds" if kind == "duration" else "integers" if integers else "numbers"
        content = f"{len(distinct):,} distinct {words}{str(reading.column).removeprefix(kind)}"
    if chosen == "classification":
        if not texts:
            values = given = _as_text(values)
        _check_classes(name, values)
        known = {cell.position for cell in suspects}
        reasons = misspelled(given)
        suspects += [
            SuspectCell(int(row), name, label, reasons[label])
            for row, label in zip(rows, given, strict=True)
            if label in reasons and int(row) not in known
        ]
    return Target(
        reading.column,
        chosen,
        content,
        _label_type(kind, values) if chosen == "classification" else "double",
        values,
        given,
        rows,
        len(column),
        suspects,
        notes,
    )


def _few(rows: int) -> float:
    """Return how many distinct numbers may be classes."""
    return min(MAX_INTEGER_CLASSES, rows / ROWS_PER_CLASS)


def _in_several_units(name: str, units: Sequence[str]) -> InputError:
    return InputError(
        f"target {quoted(name)} holds numbers in several units ({units_in_words(units[:5])}) that are not converted; "
        "write them in one"
    )


def in_one_spelling(labels: Array, answers: Array) -> tuple[Array, tuple[str, ...]]:
    """Return labels with each class in its most frequent spelling, and which classes have several, in words.

    One class are answers of one meaning, and labels that differ only in case, blanks and punctuation. Two letters in
    another case are reported, but kept apart: ``Aa`` and ``aa`` may be genotypes.

    Args:
        labels: Texts.
        answers: Their meaning, 1 or 0, if they are answers; else NaN.

    Example:
        >>> import numpy as np
        >>> labels = np.array(["Bonn", "Bonn", "bonn ", "NY", "NY", "N.Y.", "ny"], dtype=object)
        >>> in_one_spelling(labels, np.full(7, np.nan))[0].tolist()
        ['Bonn', 'Bonn', 'Bonn', 'NY', 'NY', 'NY', 'ny']
        >>> print(*in_one_spelling(labels, np.full(7, np.nan))[1], sep="\\n")
        one class in 2 spellings: 'Bonn' (2), 'bonn ' (1)
        one class in 3 spellings: 'NY' (2), 'N.Y.' (1), 'ny' (1); 'ny' is kept apart
    """
    names, first, counts = np.unique(labels.astype(str), return_index=True, return_counts=True)
    groups: dict[Any, list[tuple[str, int]]] = {}
    for name, meaning, count in zip(names.tolist(), answers[first], counts.tolist(), strict=True):
        groups.setdefault(_letters(name) if np.isnan(meaning) else meaning, []).append((name, count))
    usual, found = {}, []
    for key, spellings in groups.items():
        if len(spellings) == 1:
            continue
        spellings.sort(key=lambda entry: -entry[1])
        each = ", ".join(f"{quoted(name)} ({count:,})" for name, count in spellings)
        kinds: dict[Any, str] = {}
        for name, _ in spellings:
            short = isinstance(key, str) and len(key) < SHORTEST
            usual[name] = kinds.setdefault(_letters(name, short) if short else key, name)
        apart = [quoted(name) for name in list(kinds.values())[1:]]
        words = f"; {', '.join(apart)} {'is' if len(apart) == 1 else 'are'} kept apart" if apart else ""
        found.append(f"one class in {len(spellings)} spellings: {each}{words}")
    merged = [usual.get(label, label) for label in labels]
    return np.array(merged, dtype=object), tuple(found)


def _letters(label: str, case: bool = False) -> str:
    """Return a label without case, unless that counts, and without the blanks and marks that do not tell classes apart.

    Example:
        >>> _letters("N.Y. ") == _letters("ny"), _letters("A-") == _letters("A"), _letters("v1.5") == _letters("v15")
        (True, False, False)
    """
    folded = label if case else label.casefold()
    return re.sub(r"[\s_.,'’]+(?!\d)|[-/](?=[^\W\d_])", "", folded) or label


def misspelled(labels: Array) -> dict[str, str]:
    """Return the labels that look like a slip of the pen in a far more frequent one, each with the reason.

    That is, they differ by one letter (replaced, left out, added or swapped with the next), or only in case, blanks
    and punctuation, and the other is :data:`MORE_FREQUENT` times as frequent. Digits tell classes apart, and never
    count.

    Example:
        >>> import numpy as np
        >>> misspelled(np.array(["yes"] * 40 + ["yxs", "no", "t1"] + ["t2"] * 40, dtype=object))
        {'yxs': "spelled like 'yes', which is 40 times as frequent"}
    """
    names, counts = np.unique(labels.astype(str), return_counts=True)
    entries = [
        (name, _letters(name), count) for name, count in zip(names.tolist(), counts.tolist(), strict=True)
    ]
    found = {}
    for name, letters, count in entries:
        near = [
            (other, times)
            for other, same, often in entries
            if (times := often // count) >= MORE_FREQUENT
            and (letters == same or (len(name) >= SHORTEST and _one_slip(name, other)))
        ]
        if near:
            other, times = max(near, key=lambda entry: entry[1])
            found[name] = f"spelled like {quoted(other)}, which is {times:,} times as frequent"
    return found


def _one_slip(a: str, b: str) -> bool:
    """Return whether two texts differ by one letter, or by two neighbours swapped."""
    if a == b or abs(len(a) - len(b)) > 1:
        return False
    start = next((k for k, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    rest_a, rest_b = a[start:], b[start:]
    if re.fullmatch(r"\d\d|\d[.,-]|[.,-]\d", rest_a[:1] + rest_b[:1]):
        return False
    swapped = rest_a[:2] == rest_b[:2][::-1] and rest_a[2:] == rest_b[2:]
    return rest_a[1:] == rest_b[1:] or rest_a[1:] == rest_b or rest_a == rest_b[1:] or swapped


def _as_text(numbers: Array) -> Array:
    """Return numbers that are class labels as text: 1, not 1.0, where all are integers."""
    integers = bool((numbers == np.round(numbers)).all() and np.abs(numbers).max() < 2**53)
    return (numbers.astype(np.int64) if integers else numbers).astype(str).astype(object)


def _label_type(kind: str, values: Array) -> str:
    """Return the type of class labels, which predictions have too."""
    distinct = set(values.tolist())
    if kind == "number" and all(re.fullmatch(r"-?\d{1,18}", label) for label in distinct):
        return "int64"
    return "bool" if {label.casefold() for label in distinct} == {"true", "false"} else "string"


def _check_rows(name: str, rows: int) -> None:
    if rows < MIN_ROWS:
        raise InputError(
            f"target {quoted(name)} has a value in only {rows} row{'s' if rows != 1 else ''}; "
            f"at least {MIN_ROWS} are needed"
        )


def _check_classes(name: str, values: Array) -> None:
    """Raise if there are too many classes, or only one with enough rows."""
    counts = np.sort(np.unique(values.astype(str), return_counts=True)[1])
    limit = min(MAX_CLASSES, len(values) // 2, MAX_PROBABILITIES // len(values))
    if len(counts) > limit:
        units = mixed_units(np.unique(values.astype(str))[:MAX_CLASSES].tolist())
        if units:
            raise _in_several_units(name, units)
        raise InputError(
            f"target {quoted(name)} has {len(counts):,} distinct values in {len(values):,} rows, too many "
            f"for classes (the limit here is {limit:,}); choose another target"
        )
    if counts[-2] < 2:
        raise InputError(
            f"target {quoted(name)} has only one class with more than one row; at least 2 are needed"
        )
