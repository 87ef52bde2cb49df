"""The ranking of rows, most suspect first: as a table, and described for the report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from scipy.special import ndtri
from sklearn.pipeline import Pipeline

from inlier.fit._columns import Array, Column
from inlier.fit._pipeline import CATEGORIES, RobustFit
from inlier.fit._tables import is_text
from inlier.fit._targets import Target
from inlier.fit._words import telling_words
from inlier.report import Deviation, Suspect
from inlier.report._wording import number as number_text

MAX_REPORTED = 500
"""Suspects that the report shows."""
MAX_DEVIATIONS = 8
UNUSUAL = 1.0
"""Deviations that are shown are larger than this: most values are no farther from the middle."""
MAX_CELL_LENGTH = 200
MAX_DIGITS = 12
"""Longer numbers are rounded beside what is usual; among the values of a row they are as in the file."""


@dataclass(frozen=True)
class Ranking:
    """All rows that have a target, most suspect first.

    Args:
        order: Positions among these rows, most suspect first.
        table: ``row``, ``index``, ``inlier_probability``, ``loss``, ``given``, ``suggested``, in this order.
    """

    order: Array
    table: pa.Table


def rank_rows(
    target: Target, fit: RobustFit, suggested: Array, first_row: int, decided: Sequence[int] = ()
) -> Ranking:
    """Return the ranking: targets that do not fit their column first, then by inlier probability, then by loss.

    Args:
        target: The target.
        fit: The robust fit of these rows.
        suggested: The value or label that the robust model predicts for each of them.
        first_row: The number of the first row of the table.
        decided: Positions of rows that a person has approved, which come last.
    """
    probability, losses = fit.estimator.inlier_probability_, fit.estimator.losses_
    approved = np.isin(target.rows, decided)
    probability = np.where(approved, 1.0, probability)
    named = np.isin(target.rows, [cell.position for cell in target.suspects]) & ~approved
    order = np.lexsort((-losses, probability, ~named, approved))
    rows = target.rows[order]
    columns = {
        "row": rows + first_row,
        "index": rows,
        "inlier_probability": probability[order],
        "loss": losses[order],
        "given": target.given[order],
        "suggested": suggested[order],
    }
    return Ranking(order, pa.table({name: pa.array(values) for name, values in columns.items()}))


def confusion(table: pa.Table) -> list[tuple[str, str, int]]:
    """Return how many labels that are probably wrong have each pair of given and suggested label.

    Example:
        >>> import pyarrow as pa
        >>> columns = {"inlier_probability": [0.1, 0.2, 0.9], "given": ["a", "a", "b"], "suggested": ["b", "b", "a"]}
        >>> confusion(pa.table(columns))
        [('a', 'b', 2)]
    """
    doubtful = table.filter(pc.less(table["inlier_probability"], 0.5))
    pairs = Counter(zip(doubtful["given"].to_pylist(), doubtful["suggested"].to_pylist(), strict=True))
    return [(str(a), str(b), count) for (a, b), count in pairs.most_common() if a != b]


def top_rows(ranking: Ranking, count: int) -> list[int]:
    """Return the row numbers of the most suspect rows."""
    return [int(row) for row in ranking.table["row"].slice(0, count).to_pylist()]


def describe_suspects(
    ranking: Ranking,
    target: Target,
    frame: pd.DataFrame,
    cells: pa.Table,
    columns: Sequence[Column],
    pipeline: Pipeline,
) -> list[Suspect]:
    """Return the most suspect rows for the report, each with its cells and its largest deviations.

    The deviation of a number is its distance from the median, in units that are a standard deviation for
    Gaussian values (interquartile range / 1.349); that of a category of frequency p is the Gaussian distance
    that is exceeded as rarely; that of a number as target is its error relative to the typical one.

    Args:
        ranking: The ranking.
        target: The target.
        frame: The columns of all rows with a target, as the pipeline takes them.
        cells: All columns of all rows, as they are in the file.
        columns: The columns of the frame and their types.
        pipeline: The fitted pipeline.
    """
    first = ranking.order[:MAX_REPORTED]
    reported = cells.take(pa.array(target.rows[first]))
    texts = {name: [_text(cell) for cell in reported[name].to_pylist()] for name in cells.column_names}
    found: list[list[Deviation]] = [[] for _ in first]
    for column in columns:
        if column.kind == "embedding":
            continue
        values = frame[column.name]
        if column.kind == "text" and values.nunique() > CATEGORIES:
            continue
        for position, (usual, score) in enumerate(_deviations(values, first, column.kind)):
            if score > UNUSUAL:
                cell = texts[column.name][position]
                if column.kind == "number" and len(cell) > MAX_DIGITS:
                    cell = _value(values.iloc[first[position]], column.kind)
                found[position].append(Deviation(column.name, cell, usual, score))
    suspects = []
    head = ranking.table.slice(0, len(first)).to_pylist()
    if target.task == "classification":
        spelled = dict(zip(target.given, target.values, strict=True))  # As the model knows them.
        labels = [
            [spelled.get(entry["given"], entry["given"]) for entry in head],
            [entry["suggested"] for entry in head],
        ]
        for column in columns:
            if column.kind == "text":
                words = telling_words(pipeline, column.name, reported[column.name].to_pylist(), *labels)
                if any(words):
                    texts[f"{column.name}: words for the suggested label"] = words
    losses = ranking.table["loss"].to_numpy()
    errors = np.sqrt(np.maximum(losses, 0.0))
    typical = 1.4826 * float(np.median(errors)) or 1.0
    for position, entry in enumerate(head):
        given, suggested = texts[target.name][position], _text(entry["suggested"])
        deviations = list(found[position])
        numbers = None
        if target.task == "regression":
            numbers = float(entry["given"]), float(entry["suggested"])
            if is_text(cells.schema.field(target.name).type):
                suggested = written_number(target.column, numbers[1])
            deviations.append(Deviation(target.name, given, suggested, float(errors[position]) / typical))
        deviations = [item for item in deviations if np.isfinite(item.score)]
        deviations.sort(key=lambda item: -item.score)
        suspects.append(
            Suspect(
                entry["row"],
                float(entry["inlier_probability"]),
                float(entry["loss"]),
                given,
                suggested,
                {name: texts[name][position] for name in texts if name != target.name},
                deviations[:MAX_DEVIATIONS],
                numbers=numbers,
            )
        )
    return suspects


def _deviations(values: pd.Series[Any], rows: Array, kind: str) -> list[tuple[str, float]]:
    """Return the usual value and the distance from it for some rows; 0 where a cell is missing."""
    if kind in ("text", "yes/no"):
        frequency = values.value_counts(normalize=True)
        usual = "" if frequency.empty else _value(frequency.index[0], kind)
        shares = values.iloc[rows].map(frequency).to_numpy(dtype=float, na_value=1.0)
        return [(usual, float(-ndtri(share / 2))) if share < 1 else (usual, 0.0) for share in shares]
    numbers = values.to_numpy()
    if kind == "date":
        numbers = np.where(
            np.isnat(numbers), np.nan, numbers.astype("datetime64[us]").astype(np.int64) / 86.4e9
        )
    present = numbers[~np.isnan(numbers)]
    if not len(present):
        return [("", 0.0)] * len(rows)
    low, median, high = np.quantile(present, (0.25, 0.5, 0.75))
    spread = (high - low) / 1.349 or float(present.std()) or 1.0
    distance = np.nan_to_num(np.abs(numbers[rows] - median) / spread)
    usual = f"{_value(low, kind)} to {_value(high, kind)}"
    return [(usual, float(far)) for far in distance]


def written_number(column: Column, value: float) -> str:
    """Return a number as the texts of its column have it, so that it can be written there.

    Example:
        >>> written_number(Column("price", "number", ","), 472.834), written_number(Column("took", "duration"), 4950.0)
        ('472,834', '1:22:30')
    """
    if column.kind != "duration":
        return _text(value).replace(".", column.decimal)
    minutes, seconds = divmod(round(abs(value)), 60)
    return f"{'-' if value < 0 else ''}{minutes // 60}:{minutes % 60:02}:{seconds:02}"


def _value(value: Any, kind: str) -> str:
    """Return a usual value of a column as text.

    Example:
        >>> _value(18000.0, "date"), _value(4950.0, "duration"), _value(1.0, "yes/no"), _value(2.5, "number")
        ('2019-04-14', '1:22:30', 'yes', '2.5')
    """
    if kind == "date":
        return str(np.datetime64(int(value), "D"))
    if kind == "duration":
        return str(timedelta(seconds=round(value)))
    if kind == "yes/no":
        return "yes" if value else "no"
    return _text(value)


def _text(cell: Any) -> str:
    """Return a cell as text, shortened; empty if missing."""
    text = "" if cell is None else number_text(cell) if isinstance(cell, float) else str(cell)
    return text if len(text) <= MAX_CELL_LENGTH else text[: MAX_CELL_LENGTH - 3] + "..."
