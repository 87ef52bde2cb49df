"""The ranking of rows, most suspect first: as tables in files, and in words for the report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from scipy.special import ndtri

from inlier.fit.columns import Array, Column
from inlier.fit.pipeline import Learned
from inlier.fit.tables import FIRST_ROW
from inlier.fit.targets import Target
from inlier.report import Deviation, Suspect
from inlier.report.words import number as number_text

IN_REPORT = 500
"""So many suspects are shown in the report."""
MOST_DEVIATIONS = 8
LONGEST_CELL = 200


@dataclass(frozen=True)
class Ranking:
    """All rows that have a target, most suspect first.

    Args:
        order: Places among them, of the most suspect row first.
        table: ``row``, ``index``, ``inlier_probability``, ``loss``, ``given``, ``suggested``, in order.
    """

    order: Array
    table: pa.Table


def rank(target: Target, learned: Learned, suggested: Array) -> Ranking:
    """Return the ranking: by inlier probability, and by loss where that is the same.

    Args:
        target: The target.
        learned: What was learned about its rows.
        suggested: The value or label that the robust model believes in, for each of them.
    """
    probability, losses = learned.robust.inlier_probability_, learned.robust.losses_
    order = np.lexsort((-losses, probability))
    rows = target.rows[order]
    columns = {
        "row": rows + FIRST_ROW,
        "index": rows,
        "inlier_probability": probability[order],
        "loss": losses[order],
        "given": target.values[order],
        "suggested": suggested[order],
    }
    return Ranking(order, pa.table({name: pa.array(values) for name, values in columns.items()}))


def top(ranking: Ranking, count: int) -> list[int]:
    """Return the row numbers of the most suspect rows."""
    return [int(row) for row in ranking.table["row"].slice(0, count).to_pylist()]


def describe(
    ranking: Ranking, target: Target, frame: pd.DataFrame, cells: pa.Table, columns: Sequence[Column]
) -> list[Suspect]:
    """Return the most suspect rows for the report, each with its cells and its largest deviations.

    A number deviates by its distance from the median, in units of what is a standard deviation for Gaussian
    values (interquartile range / 1.349); a category of frequency p by the Gaussian distance that is exceeded
    as rarely; the target by its error beside the usual one, or by the probability of its class.

    Args:
        ranking: The ranking.
        target: The target.
        frame: The columns of all rows with a target, as the pipeline takes them.
        cells: All columns of all rows, as they are in the file.
        columns: What the columns of the frame are.
    """
    first = ranking.order[:IN_REPORT]
    shown_cells = cells.take(pa.array(target.rows[first]))
    texts = {name: [_text(cell) for cell in shown_cells[name].to_pylist()] for name in cells.column_names}
    found: list[list[Deviation]] = [[] for _ in first]
    for column in columns:
        for place, (usual, score) in enumerate(_deviations(frame[column.name], first, column.kind)):
            if score > 0:
                found[place].append(Deviation(column.name, texts[column.name][place], usual, score))
    suspects = []
    head = ranking.table.slice(0, len(first)).to_pylist()
    losses = ranking.table["loss"].to_numpy()
    errors = np.sqrt(np.maximum(losses, 0.0))
    typical = 1.4826 * float(np.median(errors)) or 1.0
    for place, entry in enumerate(head):
        if target.task == "regression":
            score = float(errors[place]) / typical
        else:
            score = float(-ndtri(max(np.exp(-losses[place]) / 2, 1e-300)))
        given, suggested = _text(entry["given"]), _text(entry["suggested"])
        deviations = [*found[place], Deviation(target.name, given, suggested, score)]
        deviations = [item for item in deviations if np.isfinite(item.score)]
        deviations.sort(key=lambda item: -item.score)
        suspects.append(
            Suspect(
                entry["row"],
                float(entry["inlier_probability"]),
                float(entry["loss"]),
                given,
                suggested,
                {name: texts[name][place] for name in texts if name != target.name},
                deviations[:MOST_DEVIATIONS],
            )
        )
    return suspects


def _deviations(values: pd.Series[Any], rows: Array, kind: str) -> list[tuple[str, float]]:
    """Return what is usual, and how far from it each of some rows is; 0 where a cell is missing."""
    if kind == "category":
        frequency = values.value_counts(normalize=True)
        usual = "" if frequency.empty else _text(frequency.index[0])
        shares = values.iloc[rows].map(frequency).to_numpy(dtype=float, na_value=1.0)
        return [(usual, float(-ndtri(share / 2))) if share < 1 else (usual, 0.0) for share in shares]
    numbers = values.to_numpy()
    if kind == "date":
        numbers = np.where(
            np.isnat(numbers), np.nan, numbers.astype("datetime64[us]").astype(np.int64) / 86.4e9
        )
    some = numbers[~np.isnan(numbers)]
    low, middle, high = np.quantile(some, (0.25, 0.5, 0.75))
    spread = (high - low) / 1.349 or float(some.std()) or 1.0
    distance = np.nan_to_num(np.abs(numbers[rows] - middle) / spread)
    usual = f"{_value(low, kind)} to {_value(high, kind)}"
    return [(usual, float(far)) for far in distance]


def _value(number: float, kind: str) -> str:
    """Return a quartile as text."""
    return number_text(number) if kind == "number" else str(np.datetime64(int(number), "D"))


def _text(cell: Any) -> str:
    """Return a cell as text, not too long; empty if missing."""
    text = "" if cell is None else number_text(cell) if isinstance(cell, float) else str(cell)
    return text if len(text) <= LONGEST_CELL else text[: LONGEST_CELL - 3] + "..."
