"""The output folder of a fit in passes: the same files as ``inlier fit``, the report from the sample and counts."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

import inlier
from inlier._errors import quoted
from inlier.distributed._inspect import Columns
from inlier.distributed._partitions import Folder
from inlier.distributed._passes import Passes
from inlier.distributed._plan import Plan
from inlier.distributed._score import Fitted, Ranked, scored_rows
from inlier.distributed._survey import PARTITION, ROW, Summary
from inlier.fit import _models as models
from inlier.fit._columns import to_frame
from inlier.fit._common import FitSummary, describe_estimate
from inlier.fit._holdout import HoldoutErrors, compare_on_holdout
from inlier.fit._outputs import atomic_folder, write_run, write_table
from inlier.fit._pipeline import RobustFit, joined, robust_model, treatments
from inlier.fit._ranking import Ranking, confusion, describe_suspects
from inlier.fit._record import RUN_FILE
from inlier.fit._table_fit import (
    MAX_PRINTED,
    TableFitOptions,
    cell_table,
    column_table,
    table_facts,
    table_notes,
    table_record,
)
from inlier.fit._tables import FIRST_ROW
from inlier.report import Findings, write

FILES = ("model.skops", "cells.csv", "suspects.parquet", "suspects.csv", "report.html", RUN_FILE)


@dataclass(frozen=True)
class FolderFit:
    """A fit of a folder.

    Args:
        pipeline: From a data frame of the columns to predictions.
        fraction_estimate: The estimate of the inlier fraction.
        rows: How many rows have a target.
        passes: How often all rows were read.
        out: The output folder.
        summary: What the command prints and records.
    """

    pipeline: Any
    fraction_estimate: inlier.FractionEstimate
    rows: int
    passes: int
    out: Path
    summary: FitSummary

    @property
    def inlier_fraction(self) -> float:
        """The fraction of inliers, as given or estimated."""
        return float(self.fraction_estimate.value)


def write_output(
    options: TableFitOptions,
    folder: Folder,
    passes: Passes,
    columns: Columns,
    summary: Summary,
    fitted: Fitted,
    ranked: Ranked,
    backend: str,
) -> FolderFit:
    """Write the output folder: the sample stands for all rows in what the report draws."""
    spec, target = columns.spec, columns.table.target
    estimator = robust_model(spec, columns.vectorizer)
    estimator.estimator_, estimator.fraction_estimate_ = fitted.model, fitted.estimate
    estimator.n_iter_, estimator.scale_ = fitted.n_iter, ranked.smallest
    robust = RobustFit(joined(columns.vectorizer, fitted.model), estimator)
    holdout = compare_on_holdout(spec, columns.frame, columns.y)
    table = replace(columns.table, treatments=treatments(spec, robust.pipeline))
    sample = _scored_sample(columns, passes, summary, fitted)
    top, table_of = ranked.cells.num_rows, sample["scores"]
    prefix = [name for name in ranked.cells.column_names if name.startswith("inlier:")]
    head = pa.table({name.removeprefix("inlier:"): ranked.cells[name] for name in prefix})
    head = head.cast(table_of.schema)
    ranking = Ranking(np.arange(top + len(columns.y)), pa.concat_tables([head, table_of]))
    both = pa.concat_tables([ranked.cells.select(folder.names), columns.cells.select(folder.names)])
    frame = pd.concat([_frame(columns.plan, ranked.cells), columns.frame], ignore_index=True)
    shown = replace(target, rows=np.arange(both.num_rows))
    suspects = describe_suspects(ranking, shown, frame, both, spec.columns, robust.pipeline)
    listed = cell_table(table, columns.cells)
    n, scores = summary.n, sample["values"]
    facts = table_facts(robust, holdout, table) | {"Drawn from": f"a sample of {len(columns.y):,} rows"}
    findings = Findings(
        title=f"{options.data.name}: {options.target}",
        losses=scores.losses,
        inlier_probability=scores.probability,
        estimate=fitted.estimate,
        scale=ranked.smallest,
        suspects=suspects,
        facts=facts,
        weights=scores.weights,
        columns=column_table(table),
        confusion=[] if spec.task == "regression" else confusion(ranking.table.slice(top)),
        total=n,
        doubtful=ranked.suspects,
    )
    skipped = folder.skipped | dict(passes.skipped.values())
    record = table_record(options, spec, robust, holdout, ranking, table) | {
        "rows": n,
        "rows_without_target": sum(partition.rows for partition in passes.partitions) - n,
        "suspects": ranked.suspects,
        "partitions": len(passes.partitions),
        "skipped": skipped,
        "unread_cells": dict(summary.unread),
        "unknown_categories": [[*names, count] for names, count in summary.unknown.items()],
        "sample": len(columns.y),
        "backend": backend,
        "passes": passes.done,
    }
    with atomic_folder(options.out, options.overwrite) as new:
        models.save_pipeline(robust.pipeline, new / models.MODEL_FILE)
        (passes.work / "suspects.parquet").rename(new / "suspects.parquet")
        write_table(head, new / "suspects.csv")
        write_table(listed, new / "cells.csv")
        write(new / "report.html", findings)
        write_run(record, new / RUN_FILE)
    shutil.rmtree(passes.work, ignore_errors=True)
    notes = [*table_notes(options, table), *_named(skipped, summary)]
    lines = _summary(options, fitted, holdout, head, record)
    return FolderFit(
        robust.pipeline, fitted.estimate, n, passes.done, options.out, FitSummary(notes, lines, record)
    )


def _frame(plan: Plan, cells: pa.Table) -> pd.DataFrame:
    return to_frame(plan.readings(cells), cells.num_rows)


def _scored_sample(columns: Columns, passes: Passes, summary: Summary, fitted: Fitted) -> dict[str, Any]:
    """Return the scores of the sample."""
    x, y = columns.plan.inputs(columns.cells), columns.y
    target = columns.plan.target
    index = columns.cells[ROW].to_numpy()
    numbers = columns.cells[PARTITION].to_numpy()
    parts = {partition.number: partition for partition in passes.partitions}
    offsets = np.array([parts[number].offset for number in numbers.tolist()])
    given = target.codes(y) if target.task == "classification" else y
    scores = fitted.scorer(x, given, 0, offsets + index)
    tables = [
        scored_rows(parts[number], index, y, scores, FIRST_ROW, np.flatnonzero(numbers == number))
        for number in np.unique(numbers).tolist()
    ]
    return {"values": scores, "scores": pa.concat_tables(tables)}


def _named(skipped: dict[str, str], summary: Summary) -> list[str]:
    """Return what was left out, and what could not be read, line by line."""
    lines = [f"skipped: {quoted(name)} {reason}" for name, reason in skipped.items()]
    lines += [f"{count:,} cells of {quoted(name)} do not fit it" for name, count in summary.unread.items()]
    return lines + [
        f"category {quoted(value)} of {quoted(name)} in {count:,} rows is not in the sample: counted as rare"
        for (name, value), count in summary.unknown.items()
    ]


def _summary(
    options: TableFitOptions,
    fitted: Fitted,
    holdout: HoldoutErrors | None,
    head: pa.Table,
    record: dict[str, Any],
) -> list[tuple[str, str]]:
    n, without = record["rows"], record["rows_without_target"]
    more = f" ({without:,} more without {quoted(options.target)} were left out)" if without else ""
    errors = "not measured: too few rows of each class" if holdout is None else str(holdout)
    first = ", ".join(
        f"{row} of {name}"
        for name, row in zip(
            head["file"].slice(0, MAX_PRINTED).to_pylist(),
            head["file_row"].slice(0, MAX_PRINTED).to_pylist(),
            strict=True,
        )
    )
    unlikely = record["suspects"] if record["task"] == "classification" else 0
    return [
        *describe_estimate(fitted.estimate, n, "rows", unlikely=unlikely),
        ("rows", f"{n:,}{more} in {record['partitions']:,} partitions, read {record['passes']} times"),
        ("held-out error", f"{errors}, in the sample"),
        ("most suspect", f"rows {first} (counted from 0 in each file)"),
        ("suspects", f"{record['suspects']:,} rows with an inlier probability below 0.5"),
        ("files", f"{options.out}: {', '.join(FILES)}"),
    ]
