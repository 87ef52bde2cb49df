"""The last pass: a score for each row, suspects as partitioned Parquet, and what the report shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from inlier._files import write_whole
from inlier.distributed._partitions import Partition
from inlier.distributed._plan import Plan
from inlier.fit._columns import Array
from inlier.fit._ranking import MAX_REPORTED
from inlier.fraction import FractionEstimate

ASCENDING = ("row", "index", "file_row")
"""Columns whose differences are stored, which takes a byte or two for each."""


@dataclass(frozen=True)
class Scores:
    """Scores of some rows.

    Args:
        probability: Of being an inlier.
        losses: The losses.
        weights: In the final fit.
        suggested: The values or labels that the robust model predicts.
    """

    probability: Array
    losses: Array
    weights: Array
    suggested: Array


class Scorer(Protocol):
    """Scores rows."""

    def __call__(self, x: Array, y: Array, start: int, places: Array) -> Scores:
        """Return the scores of some rows.

        Args:
            x: Inputs of the model.
            y: Targets: numbers, or places among the classes.
            start: How many rows with a target are before them in all partitions.
            places: Their places among all rows.
        """


@dataclass(frozen=True)
class Stored:
    """Scores that were computed in memory.

    Args:
        scores: Of all rows that have a target, in order.
    """

    scores: Scores

    def __call__(self, x: Array, y: Array, start: int, places: Array) -> Scores:
        """Return the scores of some rows."""
        part, all_ = slice(start, start + len(y)), self.scores
        return Scores(all_.probability[part], all_.losses[part], all_.weights[part], all_.suggested[part])


@dataclass(frozen=True)
class Fitted:
    """A fitted model, and what was found about the rows.

    Args:
        model: The fitted estimator.
        estimate: The share of inliers.
        scorer: What scores each row.
        n_iter: The number of fits before the last.
    """

    model: Any
    estimate: FractionEstimate
    scorer: Scorer
    n_iter: int


@dataclass(frozen=True)
class Ranked:
    """What a part of the rows adds to the report.

    Args:
        cells: The most suspect rows, most suspect first: their cells, and their scores in columns named ``inlier:...``.
        suspects: How many rows are suspects.
        smallest: The smallest loss of a suspect.
    """

    cells: pa.Table
    suspects: int
    smallest: float

    def __add__(self, other: Ranked) -> Ranked:
        """Return what two parts add together."""
        cells = most_suspect(pa.concat_tables([self.cells, other.cells]))
        return Ranked(cells, self.suspects + other.suspects, min(self.smallest, other.smallest))


@dataclass(frozen=True)
class Score:
    """Writes the suspects of a partition, and returns the most suspect of its rows with their cells.

    Args:
        plan: What is read.
        names: All columns.
        scorer: What scores each row.
        starts: How many rows with a target are before each partition.
        folder: Where suspects are written, a file for each partition.
        first_row: The number of the first row of all.
    """

    plan: Plan
    names: tuple[str, ...]
    scorer: Scorer
    starts: Mapping[int, int]
    folder: Path
    first_row: int

    def __call__(self, partition: Partition) -> Ranked:
        """Return the most suspect rows of a partition."""
        used = {self.plan.target.column.name, *(column.name for column in self.plan.columns)}
        others = [name for name in self.names if name not in used]
        start, suspects, found = self.starts[partition.number], [], []
        limit = 1.0
        for batch in self.plan.batches(partition, others):
            scores = self.scorer(batch.x, batch.y, start, partition.offset + batch.rows)
            start += len(batch.y)
            doubtful = np.flatnonzero(scores.probability < 0.5)
            head = first_rows(scores, limit)
            suspects.append(scored_rows(partition, batch.rows, batch.given, scores, self.first_row, doubtful))
            chosen = scored_rows(partition, batch.rows, batch.given, scores, self.first_row, head)
            cells = batch.cells.take(batch.present[head]).select(list(self.names))
            for name in chosen.column_names:
                cells = cells.append_column(f"inlier:{name}", chosen[name])
            found.append(Ranked(cells, len(doubtful), float(scores.losses[doubtful].min(initial=np.inf))))
            if len(head) == MAX_REPORTED:
                limit = float(scores.probability[head].max())
        content = pa.BufferOutputStream()
        pa.parquet.write_table(
            pa.concat_tables(suspects),
            content,
            use_dictionary=["file"],
            column_encoding=dict.fromkeys(ASCENDING, "DELTA_BINARY_PACKED"),
        )
        write_whole(self.folder / f"part-{partition.number:05d}.parquet", content.getvalue())
        return reduce(add, found)


def first_rows(scores: Scores, limit: float = 1.0) -> Array:
    """Return the places of the most suspect rows, most suspect first, without sorting all of them.

    Args:
        scores: The scores.
        limit: So many rows are known that are at least as suspect as one of this probability.
    """
    rows = np.flatnonzero(scores.probability <= limit)
    if len(rows) > MAX_REPORTED:
        probability = scores.probability[rows]
        rows = rows[probability <= np.partition(probability, MAX_REPORTED)[MAX_REPORTED]]
    return rows[np.lexsort((-scores.losses[rows], scores.probability[rows]))[:MAX_REPORTED]]


def scored_rows(
    partition: Partition, rows: Array, given: Array, scores: Scores, first_row: int, chosen: Array
) -> pa.Table:
    """Return the scores of some rows of a partition as ``suspects.parquet`` has them.

    Args:
        partition: The partition.
        rows: Places in it.
        given: Their targets.
        scores: Their scores.
        first_row: The number of the first row of all.
        chosen: Which of them.
    """
    index = partition.offset + rows[chosen]
    columns = {
        "row": index + first_row,
        "index": index,
        "inlier_probability": scores.probability[chosen],
        "loss": scores.losses[chosen],
        "given": given[chosen],
        "suggested": scores.suggested[chosen],
    }
    # A file without suspects has the types of the others.
    types = {name: pa.string() if values.dtype == object else None for name, values in columns.items()}
    table = pa.table({name: pa.array(values, types[name]) for name, values in columns.items()})
    names = pa.DictionaryArray.from_arrays(np.zeros(len(chosen), np.int32), [Path(partition.path).name])
    return table.append_column("file", names).append_column(
        "file_row", pa.array(partition.first + rows[chosen])
    )


def most_suspect(cells: pa.Table) -> pa.Table:
    """Return the most suspect rows, most suspect first."""
    probability, losses = (cells[f"inlier:{name}"].to_numpy() for name in ("inlier_probability", "loss"))
    return cells.take(np.lexsort((-losses, probability))[:MAX_REPORTED])
