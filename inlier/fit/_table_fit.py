"""``inlier fit`` for a table: from its rows to a model, a ranking of suspects, and a report."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

import inlier
from inlier._errors import InputError, quoted
from inlier.fit import _models as models
from inlier.fit._columns import SuspectCell, infer_columns, sorted_cells, to_frame
from inlier.fit._common import (
    FitSummary,
    Progress,
    check_settings,
    describe_estimate,
    no_progress,
    record_estimate,
)
from inlier.fit._csv import FOOTER
from inlier.fit._decisions import apply_decisions, read_decisions
from inlier.fit._embeddings import with_vectors
from inlier.fit._encoders import is_image_encoder
from inlier.fit._holdout import HoldoutErrors, compare_on_holdout, error_text
from inlier.fit._input_errors import CLAIMED, ScoredCell, score_cells
from inlier.fit._leaks import find_leaks
from inlier.fit._outputs import (
    TABLE_FILES,
    atomic_folder,
    check_output_folder,
    write_run,
    write_table,
)
from inlier.fit._pipeline import MODELS, ModelSpec, RobustFit, fit_robust, treatments
from inlier.fit._ranking import Ranking, confusion, describe_suspects, rank_rows, top_rows
from inlier.fit._record import RUN_FILE
from inlier.fit._tables import Limits, TableFile, check_columns, inspect_table, read_columns
from inlier.fit._targets import TASKS, Target, infer_target
from inlier.fit._totals import count_totals
from inlier.report import Findings, write

STEPS = 6
"""Number of steps that :func:`fit_table` shows."""
MAX_PRINTED = 10
MAX_LISTED_CELLS = 200
"""Suspect cells in the report."""
ERRORS = ("target", "inputs")
MAX_PRINTED_COLUMNS = 30


@dataclass(frozen=True)
class TableFitOptions:
    """The arguments of ``inlier fit`` for a table.

    Args:
        data: A file, or a folder of Parquet files.
        target: The column to predict.
        out: The output folder.
        task: ``auto``, ``regression`` or ``classification``.
        model: ``linear`` or ``boosting``.
        inlier_fraction: A number, or "auto".
        seed: The seed of all randomness.
        drop: Columns that are not used.
        overwrite: Whether an earlier output is replaced.
        encoding: The encoding of a CSV file; None to find it.
        limits: How much is read at most.
        decisions: A file of decisions about rows, which are honoured.
        encoder: The encoder of free texts; None for TF-IDF.
        errors: ``target``, or ``inputs`` to search the cells of the inputs for errors too.
    """

    data: Path
    target: str
    out: Path
    task: str = "auto"
    model: str = "linear"
    inlier_fraction: float | Literal["auto"] = "auto"
    seed: int = 0
    drop: Sequence[str] = ()
    overwrite: bool = False
    encoding: str | None = None
    limits: Limits = field(default_factory=Limits)
    decisions: Path | None = None
    encoder: str | None = None
    errors: str = "target"


@dataclass(frozen=True)
class ReadTable:
    """What was made of a table.

    Args:
        source: The file.
        target: The target.
        treatments: What became of each used column, in words.
        unused: Why each of the others is not used.
        notes: What is worth knowing about each column.
        leaks: Columns that determine the target.
        suspects: Cells that do not fit their column, by row.
        scored: Cells that do not fit the rest of their row, most suspect first.
    """

    source: TableFile
    target: Target
    treatments: dict[str, str]
    unused: dict[str, str]
    notes: dict[str, list[str]]
    leaks: list[str]
    suspects: list[SuspectCell]
    scored: list[ScoredCell]

    @property
    def claimed(self) -> list[ScoredCell]:
        """The cells with strong evidence against them."""
        return [cell for cell in self.scored if cell.score > CLAIMED]


def fit_table(options: TableFitOptions, progress: Progress = no_progress) -> FitSummary:
    """Fit a table robustly, and write the output folder.

    Args:
        options: What to do.
        progress: Shows each step as it begins, :data:`STEPS` in all.

    Returns:
        What to print.

    Raises:
        InputError: If the table or the options cannot be used; nothing is written then.
    """
    check_options(options)
    if options.encoder is not None and is_image_encoder(options.encoder):
        raise InputError(
            f"encoder {quoted(options.encoder)} is for images, and {quoted(options.data)} is a table"
        )
    check_output_folder(options.out, options.overwrite)
    progress("reading the table")
    source = inspect_table(options.data, options.encoding)
    check_columns(source, [options.target], "target")
    check_columns(source, options.drop, "drop")
    cells = read_columns(source, [name for name in source.names if name not in options.drop], options.limits)
    footer = int((cells.schema.metadata or {}).get(FOOTER, 0))
    if footer:
        lines = "the last line is" if footer == 1 else f"the last {footer} lines are"
        source = replace(source, notes=(*source.notes, f"{lines} no row, and skipped"))
    totals = count_totals(cells)
    if totals:
        rows = (
            "the last row adds up the others" if totals == 1 else f"the last {totals} rows add up the others"
        )
        source = replace(
            source, notes=(*source.notes, f"{rows}, and {'is' if totals == 1 else 'are'} skipped")
        )
        cells = cells.slice(0, cells.num_rows - totals)
    decisions = read_decisions(options.decisions) if options.decisions else []
    cells, dropped = apply_decisions(cells, options.target, decisions, source.first_row)
    target = infer_target(options.target, cells[options.target], options.task).without(dropped)
    readings, unused = infer_columns(cells.drop_columns([options.target]))
    progress("encoding texts" if options.encoder else "reading the columns")
    readings = with_vectors(readings, options.data, cells.num_rows, options.encoder)
    if not readings:
        raise InputError(
            f"{quoted(options.data)} has no column to learn from: {in_words(unused) or 'only the target'}"
        )
    frame = to_frame(readings, cells.num_rows).iloc[target.rows].reset_index(drop=True)
    columns = [reading.column for reading in readings]
    suspect_cells = sorted_cells(
        [*target.suspects, *(cell for reading in readings for cell in reading.suspects)]
    )
    notes = {reading.column.name: list(reading.notes) for reading in readings if reading.notes}
    del readings
    spec = ModelSpec(columns, target.task, options.model, options.inlier_fraction, options.seed)
    progress("fitting a part, to compare on the rest")
    holdout = compare_on_holdout(spec, frame, target.values)
    progress("fitting all rows")
    fit = fit_robust(spec, frame, target.values)
    progress("ranking the rows")
    scored: list[ScoredCell] = []
    if options.errors == "inputs":
        texts = cells.select([column.name for column in columns if column.source != "npy"])
        texts = texts.take(pa.array(target.rows))
        scored = score_cells(
            frame, texts, columns, options.seed, lambda name: progress(f"checking the cells of {name}", 0)
        )
        known = {(cell.position, cell.column) for cell in suspect_cells}
        scored = [replace(cell, position=int(target.rows[cell.position])) for cell in scored]
        scored = [cell for cell in scored if (cell.position, cell.column) not in known]
    table = ReadTable(
        source,
        target,
        treatments(spec, fit.pipeline),
        unused | dict.fromkeys(options.drop, "dropped by --drop"),
        notes,
        find_leaks(frame, target.values, columns, target.task),
        suspect_cells,
        scored,
    )
    regression = target.task == "regression"
    suggested = fit.pipeline.predict(frame) if regression else fit.estimator.suspected_label_
    decided = [decision.row - source.first_row for decision in decisions]
    ranking = rank_rows(target, fit, suggested, source.first_row, decided)
    suspects = describe_suspects(ranking, target, frame, cells, columns, fit.pipeline)
    del frame
    listed = cell_table(table, cells)
    del cells
    findings = Findings(
        title=f"{options.data.name}: {options.target}",
        losses=fit.estimator.losses_,
        inlier_probability=fit.estimator.inlier_probability_,
        estimate=fit.estimator.fraction_estimate_,
        scale=float(fit.estimator.scale_),
        suspects=suspects,
        facts=table_facts(fit, holdout, table),
        weights=fit.estimator.weights_,
        columns=column_table(table),
        confusion=[] if regression else confusion(ranking.table),
        named=len(target.suspects),
        cells=[
            (entry["row"], entry["column"], entry["value"], entry["expected"] or "", entry["reason"])
            for entry in listed.slice(0, MAX_LISTED_CELLS).to_pylist()
            if entry["score"] is None or entry["score"] > CLAIMED
        ],
    )
    record = table_record(options, spec, fit, holdout, ranking, table)
    progress("writing the files")
    with atomic_folder(options.out, options.overwrite) as folder:
        models.save_pipeline(fit.pipeline, folder / models.MODEL_FILE)
        write_table(ranking.table, folder / "suspects.parquet")
        write_table(ranking.table, folder / "suspects.csv")
        write_table(listed, folder / "cells.csv")
        write(folder / "report.html", findings)
        write_run(record, folder / RUN_FILE)
    return FitSummary(table_notes(options, table), _summary(options, fit, holdout, ranking, table), record)


def check_options(options: TableFitOptions) -> None:
    """Raise for arguments that are wrong whatever the table is."""
    if options.task not in TASKS:
        raise InputError(f"task {quoted(options.task)} is unknown; choose from {', '.join(TASKS)}")
    if options.model not in MODELS:
        raise InputError(f"model {quoted(options.model)} is unknown; choose from {', '.join(MODELS)}")
    if options.errors not in ERRORS:
        raise InputError(f"errors {quoted(options.errors)} is unknown; choose from {', '.join(ERRORS)}")
    check_settings(options.inlier_fraction, options.seed)
    if options.target in options.drop:
        raise InputError(f"drop {quoted(options.target)}: the target cannot be dropped")


def in_words(unused: dict[str, str]) -> str:
    return ", ".join(f"{quoted(name)} ({reason})" for name, reason in unused.items())


def cell_table(table: ReadTable, cells: pa.Table) -> pa.Table:
    """Return suspect cells for ``cells.csv``: those that do not fit their column, then those of their row.

    Args:
        table: What was made of the table.
        cells: Its cells.
    """
    rows: list[tuple[Any, ...]] = [
        (cell.position, cell.column, cell.value, cell.reason, None, None) for cell in table.suspects
    ]
    for cell in table.scored:
        value = cells[cell.column][cell.position].as_py()
        text = "" if value is None else str(value)
        rows.append(
            (cell.position, cell.column, text, "unlike the rest of its row", cell.expected, cell.score)
        )
    names = ("row", "column", "value", "reason", "expected", "score")
    types = (pa.int64(), pa.string(), pa.string(), pa.string(), pa.string(), pa.float64())
    columns: list[Any] = [list(part) for part in zip(*rows, strict=True)] or [[]] * len(names)
    columns[0] = [position + table.source.first_row for position in columns[0]]
    return pa.table(
        {name: pa.array(column, kind) for name, column, kind in zip(names, columns, types, strict=True)}
    )


def column_table(table: ReadTable) -> list[tuple[str, str, str]]:
    """Return name, treatment and remarks of all columns, the target first."""
    found: dict[str, list[SuspectCell]] = {}
    for cell in table.suspects:
        found.setdefault(cell.column, []).append(cell)
    target = table.target
    rows = [
        (target.name, f"target, {target.content}", _remarks(found.get(target.name, []), target.notes, table))
    ]
    for name, words in table.treatments.items():
        remarks = list(table.notes.get(name, []))
        if name in table.leaks:
            remarks.append(f"determines {quoted(target.name)}: drop it unless it is known for new rows")
        rows.append((name, words, _remarks(found.get(name, []), remarks, table)))
    return [*rows, *((name, "not used", reason) for name, reason in table.unused.items())]


def _remarks(cells: Sequence[SuspectCell], notes: Sequence[str], table: ReadTable) -> str:
    """Return notes and the number of suspect cells by reason, each with the first one, in words."""
    words = list(notes)
    for reason, count in Counter(cell.reason for cell in cells).most_common(3):
        first = next(cell for cell in cells if cell.reason == reason)
        row = first.position + table.source.first_row
        many = f"{count:,} cells: " if count > 1 else ""
        words.append(f"{many}{reason} (row {row}: {quoted(first.value)})")
    return "; ".join(words)


def table_notes(options: TableFitOptions, table: ReadTable) -> list[str]:
    """Return how the table was read, line by line."""
    target = table.target
    inferred = f" ({quoted(target.name)} holds {target.content}; --task overrides this)"
    notes = [f"task: {target.task}{inferred if options.task == 'auto' else ''}", *table.source.notes]
    entries = column_table(table)
    shown = entries[:MAX_PRINTED_COLUMNS]
    names = [quoted(name) for name, _, _ in shown]
    width = min(max(map(len, names)), 24)
    for name, (_, words, remarks) in zip(names, shown, strict=True):
        notes.append(f"  {name:<{width}}  {words}{f': {remarks}' if remarks else ''}")
    if len(entries) > len(shown):
        notes.append(f"  and {len(entries) - len(shown):,} more columns, in {RUN_FILE}")
    return notes


def _summary(
    options: TableFitOptions,
    fit: RobustFit,
    holdout: HoldoutErrors | None,
    ranking: Ranking,
    table: ReadTable,
) -> list[tuple[str, str]]:
    target = table.target
    skipped = [
        (target.total - target.dropped - len(target.rows), f"without {quoted(target.name)}", "skipped"),
        (target.dropped, "", f"dropped by {options.decisions.name}" if options.decisions else ""),
    ]
    parts = [
        f"{count:,} more {f'{which} ' if which else ''}{'was' if count == 1 else 'were'} {what}"
        for count, which, what in skipped
        if count
    ]
    more = f" ({', '.join(parts)})" if parts else ""
    errors = "not measured: too few rows of each class" if holdout is None else str(holdout)
    rows = ", ".join(str(row) for row in top_rows(ranking, MAX_PRINTED))
    header = f"the header is row {table.source.first_row - 1}"
    lines = [
        *describe_estimate(
            fit.estimator.fraction_estimate_,
            len(target.rows),
            "rows",
            len(target.suspects),
            int((fit.estimator.inlier_probability_ < 0.5).sum()) if target.task == "classification" else 0,
        ),
        ("rows", f"{len(target.rows):,}{more}"),
        ("held-out error", errors),
        ("most suspect", f"rows {rows} ({header})"),
    ]
    if table.suspects or options.errors == "inputs":
        text = f"{len(table.suspects):,} that do not fit their column"
        if options.errors == "inputs":
            text += f", {len(table.claimed):,} that do not fit the rest of their row"
        lines.append(("suspect cells", f"{text}: see cells.csv"))
    return [*lines, ("files", f"{options.out}: {', '.join(TABLE_FILES)}")]


def table_facts(fit: RobustFit, holdout: HoldoutErrors | None, table: ReadTable) -> dict[str, str]:
    """Return further lines for the report."""
    facts = {
        "Row numbers": f"as in a spreadsheet: the header is row {table.source.first_row - 1}",
        "Model": type(fit.pipeline.named_steps["model"]).__name__,
    }
    if holdout is not None:
        facts["Held-out error, robust"] = error_text(holdout.robust)
        facts["Held-out error, unweighted"] = error_text(holdout.unweighted)
        facts["Error measure"] = holdout.measure
    if table.suspects:
        facts["Cells that do not fit their column"] = f"{len(table.suspects):,}, listed in cells.csv"
    return facts


def table_record(
    options: TableFitOptions,
    spec: ModelSpec,
    fit: RobustFit,
    holdout: HoldoutErrors | None,
    ranking: Ranking,
    table: ReadTable,
) -> dict[str, Any]:
    """Return the record of the run, for ``run.json``."""
    estimator, target = fit.estimator, table.target
    return {
        "kind": "table",
        "data": str(options.data),
        "target": {"name": target.name, "type": target.type},
        "task": target.task,
        "model": options.model,
        "encoder": options.encoder,
        "encoding": options.encoding,
        "seed": options.seed,
        "rows": len(target.rows),
        "rows_without_target": target.total - target.dropped - len(target.rows),
        "decisions": None if options.decisions is None else str(options.decisions),
        "columns": [asdict(column) for column in spec.columns],
        "columns_read": [
            {"name": name, "as": words, "remarks": remarks} for name, words, remarks in column_table(table)
        ],
        "columns_not_used": table.unused,
        "leaks": table.leaks,
        "suspect_cells": len(table.suspects),
        "suspect_cells_of_rows": len(table.claimed) if options.errors == "inputs" else None,
        "errors": options.errors,
        "final_model": " ".join(repr(fit.pipeline.named_steps["model"]).split()),
        **record_estimate(estimator.fraction_estimate_, options.inlier_fraction != "auto"),
        "scale": float(estimator.scale_) if math.isfinite(estimator.scale_) else None,
        "iterations": int(estimator.n_iter_),
        "held_out": None if holdout is None else asdict(holdout),
        "most_suspect_rows": top_rows(ranking, MAX_PRINTED),
        "first_row": table.source.first_row,
        "versions": {
            "inlier": inlier.__version__,
            **{
                name: version(name)
                for name in ("scikit-learn", "skrub", "numpy", "pyarrow", "skops", "torch")
            },
        },
    }
