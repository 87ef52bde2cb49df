"""The fit of a folder of Parquet files that need not fit in memory: passes, then the same files as ``inlier fit``."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa

import inlier
from inlier._errors import InputError, quoted
from inlier.distributed._classification import SUBSAMPLE, fit_classification
from inlier.distributed._engines import BACKENDS, engine
from inlier.distributed._partitions import PARTITION_ROWS, Folder, open_folder
from inlier.distributed._passes import Passes, open_passes
from inlier.distributed._plan import Numbers, Plan, TargetColumn
from inlier.distributed._regression import Fitted, fit_regression
from inlier.distributed._score import Ranked, Score, Scores, Stored, scored_rows
from inlier.distributed._survey import (
    PARTITION,
    ROW,
    SAMPLE,
    Sample,
    Summarize,
    Summary,
    draw,
    merge_summaries,
)
from inlier.fit import _models as models
from inlier.fit._columns import Array, infer_columns, sorted_cells, to_frame
from inlier.fit._command import default_output_folder
from inlier.fit._common import FitSummary, Progress, describe_estimate, no_progress
from inlier.fit._holdout import HoldoutErrors, compare_on_holdout
from inlier.fit._leaks import find_leaks
from inlier.fit._outputs import atomic_folder, check_output_folder, write_run, write_table
from inlier.fit._pipeline import (
    CATEGORIES,
    ModelSpec,
    RobustFit,
    base_model,
    build_vectorizer,
    joined,
    robust_model,
    treatments,
)
from inlier.fit._ranking import Ranking, confusion, describe_suspects
from inlier.fit._record import RUN_FILE
from inlier.fit._table_fit import (
    MAX_PRINTED,
    ReadTable,
    TableFitOptions,
    cell_table,
    check_options,
    column_table,
    in_words,
    table_facts,
    table_notes,
    table_record,
)
from inlier.fit._tables import FIRST_ROW, TableFile, check_columns
from inlier.fit._targets import infer_target
from inlier.report import Findings, write
from inlier.sklearn._robust import LARGE

ON_ERROR = ("raise", "skip")
IN_MEMORY = {"regression": LARGE, "classification": SUBSAMPLE}
"""So many rows are fitted in memory: the decisions about more are made on a part of them anyway."""
STEPS = 10
"""Number of steps that :func:`fit` shows, about."""
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


def fit(
    data: str | Path,
    target: str,
    *,
    out: str | Path | None = None,
    task: str = "auto",
    inlier_fraction: float | Literal["auto"] = "auto",
    seed: int = 0,
    drop: Sequence[str] = (),
    overwrite: bool = False,
    backend: str = "stream",
    address: str | None = None,
    workers: int = 2,
    on_error: str = "raise",
    partition_rows: int = PARTITION_ROWS,
    progress: Progress = no_progress,
) -> FolderFit:
    """Fit a linear model to a folder of Parquet files robustly, a pass over the files for each round.

    The result is that of :class:`inlier.sklearn.AdaptiveRegressor` on the same rows up to rounding, however they are
    divided into files and whoever reads them. Types and transformations of columns are those of a sample of 100,000
    rows. An interrupted fit goes on where it was when it is started again.

    Args:
        data: The folder; on a cluster, a path that all workers see.
        target: The column to predict.
        out: The output folder; by default ``runs/NAME-fit``.
        task: ``auto``, ``regression`` or ``classification``.
        inlier_fraction: A number, or "auto" to estimate it.
        seed: The seed of all randomness.
        drop: Columns that are not used.
        overwrite: Whether an earlier output is replaced.
        backend: ``stream`` for this process, ``dask`` or ``ray`` for a cluster.
        address: A running cluster; by default that of ``DASK_SCHEDULER_ADDRESS`` or ``RAY_ADDRESS``, and without one
            a cluster is started here.
        workers: Workers of a cluster that is started here.
        on_error: ``raise`` or ``skip`` files and parts of files that cannot be read or are unlike the others.
        partition_rows: About how many rows a task reads.
        progress: Shows each step as it begins.

    Returns:
        The fitted pipeline, the estimate, and what to print.

    Raises:
        InputError: If the folder or the options cannot be used.
        ClusterError: If the cluster cannot be used.

    Example:
        >>> import tempfile, numpy as np, pyarrow as pa, pyarrow.parquet
        >>> from inlier import distributed
        >>> rng = np.random.default_rng(0)
        >>> folder = Path(tempfile.mkdtemp())
        >>> for part in range(3):
        ...     x = rng.normal(size=400)
        ...     y = 2 * x + 0.1 * rng.normal(size=400) + 30 * (rng.random(400) < 0.2)
        ...     pa.parquet.write_table(pa.table({"x": x, "y": y}), folder / f"{part}.parquet")
        >>> fitted = distributed.fit(folder, "y", out=folder / "out")
        >>> fitted.rows, round(fitted.inlier_fraction, 1)
        (1200, 0.8)
    """
    data = Path(data)
    out = default_output_folder(data) if out is None else Path(out)
    options = TableFitOptions(data, target, out, task, "linear", inlier_fraction, seed, drop, overwrite)
    check_options(options)
    for name, value, known in (("backend", backend, BACKENDS), ("on_error", on_error, ON_ERROR)):
        if value not in known:
            raise InputError(f"{name} {quoted(value)} is unknown; choose from {', '.join(known)}")
    if workers < 1:
        raise InputError(f"workers {workers}: choose 1 or more")
    check_output_folder(out, overwrite)
    folder = open_folder(data, drop, on_error == "skip", partition_rows)
    check_columns(TableFile(data, "parquet", folder.names), [target], "target")
    key = {
        "version": inlier.__version__,
        "data": str(data.resolve()),
        "files": folder.fingerprint,
        "options": [target, task, inlier_fraction, seed, sorted(drop), on_error, partition_rows],
    }
    work = out.absolute().parent / f".{out.name}-unfinished"
    with warnings.catch_warnings(), engine(backend, workers, address) as started:
        # About convergence, rare classes and categories that the sample lacks, which are named elsewhere.
        warnings.simplefilter("ignore")
        passes = open_passes(started, folder.partitions, work, key, on_error == "skip", progress)
        columns, summary = _survey(passes, folder, options)
        passes.skip = False  # From here on all passes have to see the same rows.
        fitted = _fitted(passes, columns, summary, options)
        suspects = work / "suspects.parquet"
        suspects.mkdir(exist_ok=True)
        score = Score(columns.plan, folder.names, fitted.scorer, summary.starts(), suspects, FIRST_ROW)
        ranked: Ranked = passes.run(score, Ranked.__add__, "scoring the rows")
        progress("writing the files")
        return _written(options, folder, passes, columns, summary, fitted, ranked, backend)


def _survey(passes: Passes, folder: Folder, options: TableFitOptions) -> tuple[Columns, Summary]:
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
        categories = {name: frozenset(columns.frame[name].dropna()) for name in names}
        summarize = Summarize(columns.plan, categories)
        found = passes.arrays(f"summary-{attempt}", summarize, merge_summaries, "reading the columns")
        if len(passes.partitions) == len(used):
            break
    summary = Summary.from_arrays(found)
    target = replace(columns.plan.target, classes=tuple(summary.labels))
    return replace(columns, plan=replace(columns.plan, target=target)), summary


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
    spec = ModelSpec(found, target.task, "linear", options.inlier_fraction, options.seed)
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
    return Columns(sample.take(target.rows), spec, frame, target.values, plan, vectorizer, table)


def _fitted(passes: Passes, columns: Columns, summary: Summary, options: TableFitOptions) -> Fitted:
    """Fit the model: in memory if there are few rows, else by passes."""
    share = None if options.inlier_fraction == "auto" else float(options.inlier_fraction)
    spec, plan = columns.spec, columns.plan
    if summary.n <= IN_MEMORY[spec.task] and summary.n == len(columns.y):
        x = plan.inputs(columns.cells)[0]
        estimator = robust_model(spec, columns.vectorizer).fit(x, columns.y)
        regression = spec.task == "regression"
        suggested = estimator.predict(x) if regression else estimator.suspected_label_
        scores = Scores(estimator.inlier_probability_, estimator.losses_, estimator.weights_, suggested)
        return Fitted(estimator.estimator_, estimator.fraction_estimate_, Stored(scores), estimator.n_iter_)
    base = base_model(spec, columns.vectorizer)
    run = fit_regression if spec.task == "regression" else fit_classification
    return run(passes, plan, summary, base, share, options.seed)


def _written(
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
    return to_frame(plan.inputs(cells)[1], cells.num_rows)


def _scored_sample(columns: Columns, passes: Passes, summary: Summary, fitted: Fitted) -> dict[str, Any]:
    """Return the scores of the sample."""
    x = columns.plan.inputs(columns.cells)[0]
    y = columns.y
    scores = fitted.scorer(x, y, 0)
    index = columns.cells[ROW].to_numpy()
    numbers = columns.cells[PARTITION].to_numpy()
    parts = {partition.number: partition for partition in passes.partitions}
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
    errors = "not measured: too few rows of each class"
    if holdout is not None:
        better = "" if holdout.robust < holdout.unweighted else ": not better"
        errors = (
            f"robust {holdout.robust:.4g}, unweighted {holdout.unweighted:.4g}{better} ({holdout.measure})"
        )
    first = ", ".join(
        f"{row} of {name}"
        for name, row in zip(
            head["file"].slice(0, MAX_PRINTED).to_pylist(),
            head["file_row"].slice(0, MAX_PRINTED).to_pylist(),
            strict=True,
        )
    )
    return [
        *describe_estimate(fitted.estimate, n, "rows"),
        ("rows", f"{n:,}{more} in {record['partitions']:,} partitions, read {record['passes']} times"),
        ("held-out error", f"{errors}, in the sample"),
        ("most suspect", f"rows {first} (counted from 0 in each file)"),
        ("suspects", f"{record['suspects']:,} rows with an inlier probability below 0.5"),
        ("files", f"{options.out}: {', '.join(FILES)}"),
    ]
