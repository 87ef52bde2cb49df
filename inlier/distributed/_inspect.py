"""What the columns of a folder are: found on a sample of its rows, then checked on all of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from inlier._errors import InputError, quoted
from inlier.distributed._partitions import Folder
from inlier.distributed._passes import Passes
from inlier.distributed._plan import Numbers, Plan, TargetColumn
from inlier.distributed._survey import (
    PARTITION,
    ROW,
    SAMPLE,
    Sample,
    Summarize,
    Summary,
    decisive_rows,
    draw,
    merge_summaries,
)
from inlier.fit._columns import Array, infer_columns, sorted_cells, to_frame
from inlier.fit._leaks import find_leaks
from inlier.fit._pipeline import CATEGORIES, ModelSpec, build_vectorizer
from inlier.fit._table_fit import ReadTable, TableFitOptions, in_words
from inlier.fit._tables import TableFile
from inlier.fit._targets import infer_target


@dataclass(frozen=True)
class Columns:
    """What a sample of rows says about the columns.

    Args:
        cells: The sample, of the rows that have a target.
        spec: What is fitted.
        frame: The inputs of the sample.
        y: Its targets.
        plan: How any row is read.
        vectorizer: The fitted transformer.
        table: The columns in words; what is unusual about them.
    """

    cells: pa.Table
    spec: ModelSpec
    frame: pd.DataFrame
    y: Array
    plan: Plan
    vectorizer: Any
    table: ReadTable


def survey(passes: Passes, folder: Folder, options: TableFitOptions) -> tuple[Columns, Summary]:
    """Sample the rows, find out what the columns are, and add up what is needed of all rows."""
    places = draw(folder.rows, SAMPLE, options.seed)
    sample = passes.table("sample", Sample(folder.names, places), "drawing a sample")
    for attempt in range(len(passes.partitions) + 1):
        used = [partition.number for partition in passes.partitions]
        kept = np.flatnonzero(np.isin(sample[PARTITION].to_numpy(), used))
        columns = _columns(sample.take(kept), options, folder)
        names = [
            c.name
            for c in columns.plan.columns
            if c.kind == "text" and columns.frame[c.name].nunique() <= CATEGORIES
        ]
        chosen = decisive_rows(columns.spec.task, folder.rows, options.seed)
        categories = {name: frozenset(columns.frame[name].dropna()) for name in names}
        summarize = Summarize(columns.plan, categories, chosen)
        found = passes.arrays(f"summary-{attempt}", summarize, merge_summaries, "reading the columns")
        if len(passes.partitions) == len(used):
            break
    summary = Summary.from_arrays(found)
    if summary.n != folder.rows:
        summary = replace(summary, drawn={})  # Rows were counted that have no target.
    return replace(columns, plan=columns.plan.checked(summary.unread, tuple(summary.labels))), summary


def _columns(sample: pa.Table, options: TableFitOptions, folder: Folder) -> Columns:
    """Find out what the columns of a sample are, as ``inlier fit`` does of a whole table."""
    cells = sample.drop_columns([PARTITION, ROW])
    target = infer_target(options.target, cells[options.target], options.task)
    readings, unused = infer_columns(cells.drop_columns([options.target]))
    if not readings:
        raise InputError(
            f"{quoted(options.data)} has no column to learn from: {in_words(unused) or 'only the target'}"
        )
    if any(reading.column.kind == "embedding" for reading in readings):
        raise InputError("columns of vectors are fitted in memory only; leave them out with --drop")
    frame = to_frame(readings, cells.num_rows).iloc[target.rows].reset_index(drop=True)
    found = [reading.column for reading in readings]
    spec = ModelSpec(found, target.task, options.model, options.inlier_fraction, options.seed)
    vectorizer = build_vectorizer(spec, frame)
    vectorizer.fit(frame)
    plan = Plan(TargetColumn.of(target), tuple(found), vectorizer, Numbers.of(found, vectorizer))
    suspects = sorted_cells([*target.suspects, *(cell for reading in readings for cell in reading.suspects)])
    notes = {reading.column.name: list(reading.notes) for reading in readings if reading.notes}
    table = ReadTable(
        TableFile(options.data, "parquet", folder.names),
        target,
        {},
        unused | dict.fromkeys(options.drop, "dropped by --drop"),
        notes,
        find_leaks(frame, target.values, found, target.task),
        suspects,
        [],
    )
    return Columns(sample.take(target.rows), spec, frame, target.given, plan, vectorizer, table)
