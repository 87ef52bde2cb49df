"""From the cells of a batch to the inputs and the target of a model, the same on every worker.

What the columns are, and how they become numbers, is found on a sample of the rows with the means of ``inlier fit``. A
table of numbers alone is transformed without data frames, which would take ten times as long as reading it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from inlier.distributed._partitions import Partition
from inlier.fit._arrays import distinct_texts
from inlier.fit._columns import Array, Column, Reading, decoded, read_column, to_frame
from inlier.fit._pipeline import SQUASHED_AT, Vectorizer
from inlier.fit._targets import Target

BLOCK = 16_384
"""Rows that are transformed at a time: they stay in cache."""


@dataclass(frozen=True)
class TargetColumn:
    """How the target is read.

    Args:
        column: Its column.
        task: Regression or classification.
        type: The type of its values, as Arrow calls it.
        classes: The labels, in order; none for regression.
    """

    column: Column
    task: str
    type: str
    classes: tuple[str, ...] = ()

    @classmethod
    def of(cls, target: Target) -> TargetColumn:
        """Return how the target of a sample was read."""
        return cls(target.column, target.task, target.type)

    def read(self, cells: Any) -> Targets:
        """Return the targets of some rows."""
        if self.task != "classification":
            values = read_column(self.column, cells).values
            missing = np.isnan(values)
            if not missing.any():
                return Targets(None, values)
            present = np.flatnonzero(~missing)
            return Targets(present, values[present])
        names, codes = self._labels(decoded(cells))
        if self.classes:
            codes = np.append(self.codes(names), -1)[codes]
            names = self.classes
        present = np.flatnonzero(codes >= 0)
        return Targets(None if len(present) == len(codes) else present, codes[codes >= 0], names)

    def _labels(self, cells: Any) -> tuple[tuple[str, ...], Array]:
        """Return distinct labels, and the place of each row's among them; -1 if it has none."""
        if self.column.kind in ("text", "yes/no") or pa.types.is_boolean(cells.type):
            names, codes = distinct_texts(cells.cast(pa.large_string()))
            return tuple(names), codes
        values = read_column(self.column, cells).values
        encoded = pa.array(values, from_pandas=True).dictionary_encode()
        distinct = encoded.dictionary.to_numpy()
        distinct = distinct.astype(np.int64) if self.type == "int64" else distinct
        return tuple(distinct.astype(str).tolist()), encoded.indices.fill_null(-1).to_numpy()

    def codes(self, labels: Sequence[str] | Array) -> Array:
        """Return the place of each label among the classes."""
        return np.searchsorted(np.array(self.classes), np.asarray(labels).astype(str))


@dataclass(frozen=True)
class Targets:
    """The targets of some rows.

    Args:
        present: The places of the rows that have one; None for all of them.
        values: Numbers, or places among the names.
        names: Labels; none for regression.
    """

    present: Array | None
    values: Array
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Numbers:
    """The transformation of a table of numbers, as the fitted steps of skrub and scikit-learn would do it.

    Args:
        center: What is subtracted from each column.
        factor: What it is then multiplied by.
        fill: What stands for a missing number after that.
        indicated: Whether a column has another one, behind all numbers, that says whether the number is missing.
        scaled: Whether numbers are scaled and squashed; boosting takes them as they are.
    """

    center: Array
    factor: Array
    fill: Array
    indicated: tuple[bool, ...]
    scaled: bool = True

    @classmethod
    def of(cls, columns: Sequence[Column], vectorizer: Vectorizer) -> Numbers | None:
        """Return the same as a fitted vectorizer; None if it does more than scale numbers."""
        if any(column.kind != "number" for column in columns):
            return None
        *scalers, imputer = (step for _, step in vectorizer.named_transformers_["numbers"].steps)
        center, factor = np.zeros(len(columns)), np.ones(len(columns))
        for scaler in scalers:
            if scaler.zero_cols_.any():
                return None
            if scaler.robust_cols_.any():
                center[scaler.robust_cols_] = scaler.robust_scaler_.center_
                factor[scaler.robust_cols_] = 1 / scaler.robust_scaler_.scale_
            if scaler.minmax_cols_.any():
                center[scaler.minmax_cols_] = scaler.minmax_scaler_.median_
                factor[scaler.minmax_cols_] = scaler.minmax_scaler_.scale_
        indicated = np.isin(np.arange(len(columns)), imputer.indicator_.features_)
        fill = np.asarray(imputer.statistics_)
        return cls(center, factor, fill, tuple(indicated.tolist()), scaled=bool(scalers))

    def __call__(self, readings: Sequence[Reading]) -> Array:
        """Return the inputs of the model, column after column in memory."""
        rows = len(readings[0].values)
        x = np.empty((len(readings) + sum(self.indicated), rows))
        length = np.empty(min(BLOCK, rows))
        for first in range(0, rows, BLOCK):
            block, place = slice(first, first + BLOCK), len(readings)
            for k, reading in enumerate(readings):
                values = x[k, block]
                np.subtract(reading.values[block], self.center[k], out=values)
                if self.scaled:
                    values *= self.factor[k]
                    root = length[: len(values)]
                    np.multiply(values, values, out=root)
                    root *= SQUASHED_AT**-2
                    root += 1
                    np.sqrt(root, out=root)
                    values /= root
                missing = np.isnan(values) if self.indicated[k] or np.isnan(values.sum()) else None
                if missing is not None:
                    values[missing] = self.fill[k]
                if self.indicated[k]:
                    x[place, block] = missing
                    place += 1
        return x.T


@dataclass(frozen=True)
class Batch:
    """Rows that have a target. What is not asked for is not computed.

    Args:
        plan: What is read.
        place: The place of the first row of the batch in the partition.
        cells: All cells of all rows of the batch.
        targets: The targets.
    """

    plan: Plan
    place: int
    cells: pa.Table
    targets: Targets

    @property
    def y(self) -> Array:
        """The targets: numbers, or places among the classes."""
        return self.targets.values

    @property
    def given(self) -> Array:
        """The targets as they are shown: numbers, or labels as text."""
        return np.array(self.targets.names, dtype=object)[self.y] if self.targets.names else self.y

    @cached_property
    def present(self) -> Array:
        """The places of the rows in the batch."""
        return np.arange(self.cells.num_rows) if self.targets.present is None else self.targets.present

    @cached_property
    def rows(self) -> Array:
        """Their places in the partition."""
        return self.place + self.present

    @cached_property
    def readings(self) -> list[Reading]:
        """The columns of all rows of the batch."""
        return self.plan.readings(self.cells)

    @cached_property
    def x(self) -> Array:
        """Inputs of the model."""
        x = self.plan.transformed(self.readings, self.cells.num_rows)
        return x if self.targets.present is None else x[self.targets.present]

    def taken(self, chosen: Array) -> dict[str, Array]:
        """Return inputs and shown targets of some of the rows, and nothing of the others."""
        given = self.given[chosen]
        x = self.plan.inputs(self.cells.take(self.present[chosen]))
        return {"x": x, "y": given.astype(str) if self.targets.names else given}


@dataclass(frozen=True)
class Plan:
    """What is read from each row.

    Args:
        target: The target.
        columns: The input columns.
        vectorizer: The fitted transformer of these.
        numbers: The same for a table of numbers; None for any other.
        sound: Columns of numbers that are known to fit in every row, and need not be checked again.
    """

    target: TargetColumn
    columns: tuple[Column, ...]
    vectorizer: Vectorizer
    numbers: Numbers | None
    sound: frozenset[str] = frozenset()

    def checked(self, unread: Mapping[str, int], classes: Sequence[str]) -> Plan:
        """Return the plan when all rows have been read once.

        Args:
            unread: How many cells of each column do not fit.
            classes: All labels, in order.
        """
        numbers = [each for each in self.columns if each.kind == "number" and not each.missing]
        sound = frozenset(each.name for each in numbers if each.name not in unread)
        return replace(self, target=replace(self.target, classes=tuple(classes)), sound=sound)

    def batches(self, partition: Partition, others: Sequence[str] = ()) -> Iterator[Batch]:
        """Yield the rows of a partition that have a target, a batch at a time.

        Args:
            partition: The partition.
            others: Further columns, which are only kept as cells.
        """
        names = [column.name for column in self.columns]
        for place, cells in partition.batches([self.target.column.name, *names, *others]):
            targets = self.target.read(cells[self.target.column.name])
            if len(targets.values):
                yield Batch(self, place, cells, targets)

    def readings(self, cells: pa.Table) -> list[Reading]:
        """Return the columns of some cells."""
        return [self._reading(column, cells[column.name]) for column in self.columns]

    def _reading(self, column: Column, cells: Any) -> Reading:
        """Return a column, without a copy of it where nothing about it is open."""
        whole = pa.types.is_float64(cells.type) and cells.null_count == 0 and cells.num_chunks == 1
        if whole and column.name in self.sound:
            return Reading(column, cells.chunk(0).to_numpy())
        return read_column(column, cells)

    def transformed(self, readings: Sequence[Reading], rows: int) -> Array:
        """Return the inputs of the model for some columns."""
        if self.numbers is not None:
            return self.numbers(readings)
        return np.asarray(self.vectorizer.transform(to_frame(readings, rows)))

    def inputs(self, cells: pa.Table) -> Array:
        """Return the inputs of the model for some cells."""
        return self.transformed(self.readings(cells), cells.num_rows)
