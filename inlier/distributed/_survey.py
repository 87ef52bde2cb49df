"""The passes before a fit: a sample of rows, then what is needed of all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sklearn.utils import check_random_state

from inlier._errors import quoted
from inlier.distributed._partitions import Partition, PartitionError
from inlier.distributed._passes import Arrays, Passes
from inlier.distributed._plan import Batch, Plan
from inlier.fit._columns import Array
from inlier.sklearn._robust import SUBSAMPLE, subsample

SAMPLE = 100_000
"""Rows from which types and transformations of columns are found; see `python -m benchmarks.distributed sample`."""
MOST_LABELS = 20_000
"""Rows that decisions about labels are made on: as many as their noise is fitted to in memory."""
MOST_UNREAD = 0.5
"""A partition of which more than this share of a column does not fit is not what the others are, as in `predict`."""
MOST_NAMED = 100
"""Unknown categories that are named."""
PARTITION, ROW = "inlier:partition", "inlier:row"
"""Names of two columns of the sample."""


def draw(rows: int, count: int, seed: int) -> Array:
    """Return places of some of so many rows, in order; all if there are no more."""
    if rows <= count:
        return np.arange(rows)
    return np.sort(np.random.default_rng(seed).choice(rows, count, replace=False))


def decisive_rows(task: str, rows: int, seed: int) -> Array:
    """Return places, among so many rows with a target, of those that all decisions are made on, in order."""
    if task == "classification":
        return draw(rows, MOST_LABELS, seed)
    # The rows that the estimator in memory would draw.
    return subsample(rows, check_random_state(seed)) if rows > SUBSAMPLE else np.arange(rows)


@dataclass(frozen=True)
class Sample:
    """Takes the cells of some rows, and reads all others to see whether that is possible.

    Args:
        names: The columns.
        places: Places among the rows of all partitions, in order.
    """

    names: tuple[str, ...]
    places: Array

    def __call__(self, partition: Partition) -> pa.Table:
        """Return the cells of those of the rows that are in a partition, with its number and their places in it."""
        first, last = np.searchsorted(self.places, (partition.offset, partition.offset + partition.rows))
        wanted = self.places[first:last] - partition.offset
        parts = []
        for place, cells in partition.batches(self.names):
            chosen = wanted[(wanted >= place) & (wanted < place + cells.num_rows)]
            parts.append(_with_places(cells.take(chosen - place), partition, chosen))
        return pa.concat_tables(parts)


def _with_places(cells: pa.Table, partition: Partition, rows: Array) -> pa.Table:
    cells = cells.append_column(PARTITION, pa.array(np.full(len(rows), partition.number)))
    return cells.append_column(ROW, pa.array(rows))


@dataclass(frozen=True)
class Summary:
    """What is known of all rows.

    Args:
        numbers: The numbers of the partitions.
        rows: How many rows of each have a target.
        labels: How many rows have each label.
        unknown: How many rows have each category that the sample lacks, by column and category.
        unread: How many cells of each column do not fit.
        drawn: Some rows, if all have a target: ``places`` among these, inputs ``x`` and targets ``y``.
    """

    numbers: Array
    rows: Array
    labels: Mapping[str, int] = field(default_factory=dict)
    unknown: Mapping[tuple[str, str], int] = field(default_factory=dict)
    unread: Mapping[str, int] = field(default_factory=dict)
    drawn: Arrays = field(default_factory=dict)

    def to_arrays(self) -> Arrays:
        """Return it as arrays."""
        columns, values = zip(*self.unknown, strict=True) if self.unknown else ((), ())
        return {
            "numbers": self.numbers,
            "rows": self.rows,
            "labels": np.array(list(self.labels), dtype=str),
            "label_counts": np.array(list(self.labels.values()), dtype=np.int64),
            "columns": np.array(columns, dtype=str),
            "values": np.array(values, dtype=str),
            "counts": np.array(list(self.unknown.values()), dtype=np.int64),
            "unread": np.array(list(self.unread), dtype=str),
            "unread_counts": np.array(list(self.unread.values()), dtype=np.int64),
            **{f"drawn_{key}": values for key, values in self.drawn.items()},
        }

    @classmethod
    def from_arrays(cls, a: Arrays) -> Summary:
        """Return it from arrays."""
        unknown = zip(
            zip(a["columns"].tolist(), a["values"].tolist(), strict=True), a["counts"].tolist(), strict=True
        )
        return cls(
            a["numbers"],
            a["rows"],
            dict(zip(a["labels"].tolist(), a["label_counts"].tolist(), strict=True)),
            dict(unknown),
            dict(zip(a["unread"].tolist(), a["unread_counts"].tolist(), strict=True)),
            {key: a[f"drawn_{key}"] for key in ("places", "x", "y") if f"drawn_{key}" in a},
        )

    @property
    def n(self) -> int:
        """How many rows have a target."""
        return int(self.rows.sum())

    def starts(self) -> dict[int, int]:
        """Return for each partition how many rows with a target are before it."""
        before = np.cumsum(self.rows) - self.rows
        return dict(zip(self.numbers.tolist(), before.tolist(), strict=True))


def merge_summaries(a: Arrays, b: Arrays) -> Arrays:
    """Return what is known of the rows of two parts together."""
    one, other = Summary.from_arrays(a), Summary.from_arrays(b)
    return Summary(
        np.concatenate((one.numbers, other.numbers)),
        np.concatenate((one.rows, other.rows)),
        _added(one.labels, other.labels),
        dict(
            sorted(_added(one.unknown, other.unknown).items(), key=lambda entry: (-entry[1], entry[0]))[
                :MOST_NAMED
            ]
        ),
        _added(one.unread, other.unread),
        join(one.drawn, other.drawn),
    ).to_arrays()


def _added(a: Mapping[Any, int], b: Mapping[Any, int]) -> dict[Any, int]:
    return {key: a.get(key, 0) + b.get(key, 0) for key in sorted({*a, *b})}


@dataclass(frozen=True)
class Summarize:
    """Adds up what is needed of all rows, and refuses a partition that is not what the sample is.

    Args:
        plan: What is read.
        categories: The categories of each column of few distinct texts in the sample.
        places: Places among all rows, in order: these rows are taken too, which saves a pass if all have a target.
    """

    plan: Plan
    categories: Mapping[str, frozenset[str]]
    places: Array

    def __call__(self, partition: Partition) -> Arrays:
        """Return the summary of a partition."""
        rows, labels, drawn = 0, Counter[str](), []
        unknown, unread = Counter[tuple[str, str]](), Counter[str]()
        for batch in self.plan.batches(partition):
            drawn += take(self.places, partition.offset + rows, batch)
            rows += len(batch.y)
            if batch.targets.names:
                counts = np.bincount(batch.y, minlength=len(batch.targets.names))
                labels.update(dict(zip(batch.targets.names, counts.tolist(), strict=True)))
            for reading in batch.readings:
                unread[reading.column.name] += len(reading.suspects)
            unknown.update(self._unknown(batch))
        limit = MOST_UNREAD * partition.rows
        for name, count in unread.items():
            if count > limit:
                raise PartitionError(
                    partition, f"has {count:,} cells in column {quoted(name)} that do not fit it"
                )
        for name in self.categories:
            found = {value: count for (column, value), count in unknown.items() if column == name}
            if sum(found.values()) > limit:
                worst = max(found, key=lambda value: found[value])
                raise PartitionError(
                    partition,
                    f"has categories in column {quoted(name)} that other rows lack: {quoted(worst)}",
                )
        if not rows:
            raise PartitionError(
                partition, f"has no row with a target {quoted(self.plan.target.column.name)}"
            )
        summary = Summary(
            np.array([partition.number]),
            np.array([rows]),
            dict(labels),
            dict(unknown.most_common(MOST_NAMED)),
            {name: count for name, count in unread.items() if count},
            _joined(drawn) if drawn else {},
        )
        return summary.to_arrays()

    def _unknown(self, batch: Batch) -> dict[tuple[str, str], int]:
        found = {}
        for reading in batch.readings:
            name = reading.column.name
            if name in self.categories:
                for entry in pc.value_counts(reading.values).to_pylist():
                    value, count = entry["values"], entry["counts"]
                    if value is not None and value not in self.categories[name]:
                        found[name, value] = count
        return found


@dataclass(frozen=True)
class Fetch:
    """Takes the inputs and targets of some rows.

    Args:
        plan: What is read.
        places: Places among all rows that have a target, in order.
        starts: How many of these are before each partition.
    """

    plan: Plan
    places: Array
    starts: Mapping[int, int]

    def __call__(self, partition: Partition) -> Arrays:
        """Return inputs, targets and places of those of the rows that are in a partition."""
        place, parts = self.starts[partition.number], []
        for batch in self.plan.batches(partition):
            parts += take(self.places, place, batch)
            place += len(batch.y)
        return _joined(parts) if parts else {}


def take(places: Array, start: int, batch: Batch) -> list[Arrays]:
    """Return those of some rows that are in a batch: their places, inputs and targets; nothing if none is.

    Args:
        places: Places among rows with a target, in order.
        start: How many of these are before the batch.
        batch: The batch.
    """
    first, last = np.searchsorted(places, (start, start + len(batch.y)))
    if first == last:
        return []
    return [{"places": places[first:last], **batch.taken(places[first:last] - start)}]


def fetch(passes: Passes, plan: Plan, summary: Summary, places: Array) -> Arrays:
    """Return inputs and targets of some rows, by a pass unless the survey has taken the same ones.

    Args:
        passes: Passes over the partitions.
        plan: What is read.
        summary: What is known of all rows.
        places: Places among all rows that have a target, in order.
    """
    if np.array_equal(summary.drawn.get("places", ()), places):
        return dict(summary.drawn)
    return passes.arrays("subsample", Fetch(plan, places, summary.starts()), join, "drawing rows")


def join(a: Arrays, b: Arrays) -> Arrays:
    """Put the rows of two parts together."""
    return _joined([part for part in (a, b) if part]) if a or b else {}


def _joined(parts: Sequence[Arrays]) -> Arrays:
    return {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
