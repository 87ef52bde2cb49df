"""``inlier fit``: from a table to a model, a ranking of suspects, and a report."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import torch

import inlier
from inlier import kernels
from inlier.fit import InputError, models, shown
from inlier.fit.columns import Array, frame_of, numbers, sort_out
from inlier.fit.common import Outcome, Say, check_settings, silent
from inlier.fit.heldout import HeldOut, compare
from inlier.fit.outputs import RECORD, TABLE_FILES, check_folder, new_folder, write_record, write_table
from inlier.fit.pipeline import MODELS, Learned, Recipe, learn, stages_of, written
from inlier.fit.suspects import Ranking, describe, rank, top
from inlier.fit.tables import FIRST_ROW, check_columns, look, read
from inlier.fit.targets import TASKS, Target, target_of
from inlier.fraction import InlierFit, fit_inliers
from inlier.report import Findings, write

STEPS = 5
"""How often :func:`fit` says what it does next."""
SHOWN = 10


@dataclass(frozen=True)
class Request:
    """What ``inlier fit`` was asked for; see its help.

    Args:
        data: A CSV or Parquet file.
        target: The column to predict.
        task: ``auto``, ``regression`` or ``classification``.
        model: ``linear`` or ``boosting``.
        inlier_fraction: A number, or "auto".
        out: The output folder.
        seed: Seeds all that is random.
        drop: Columns that are not used.
        overwrite: Whether an earlier output is replaced.
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


def fit(request: Request, say: Say = silent) -> Outcome:
    """Fit a table, and write the output folder.

    Args:
        request: What to do.
        say: Called with what happens next, :data:`STEPS` times.

    Returns:
        What to print.

    Raises:
        InputError: If the table or the request cannot be used; nothing is written then.
    """
    _check(request)
    check_folder(request.out, request.overwrite)
    say("reading the table")
    source = look(request.data)
    check_columns(source, [request.target], "target")
    check_columns(source, request.drop, "drop")
    cells = read(source, [name for name in source.names if name not in request.drop])
    target = target_of(request.target, cells[request.target], request.task)
    inputs = cells.drop_columns([request.target])
    if len(target.rows) < cells.num_rows:
        inputs = inputs.take(pa.array(target.rows))
    columns, unused = sort_out(inputs)
    if not columns:
        raise InputError(
            f"{shown(request.data)} has no column to learn from: {_reasons(unused) or 'only the target'}"
        )
    _check_numbers(cells, [column.name for column in columns if column.kind == "number"])
    frame = frame_of(inputs, columns)
    del inputs
    recipe = Recipe(columns, target.task, request.model, request.inlier_fraction, request.seed)
    say("fitting a part, to compare on the rest")
    held = compare(recipe, frame, target.values)
    say("fitting all rows")
    learned = learn(recipe, frame, target.values)
    say("ranking the rows")
    suggested = (
        learned.pipeline.predict(frame) if target.task == "regression" else learned.robust.suspected_label_
    )
    ranking = rank(target, learned, suggested)
    suspects = describe(ranking, target, frame, cells, columns)
    del frame, cells
    notes = _notes(request, target, recipe, unused, learned)
    summary = _summary(request, target, learned, held, ranking)
    record = _record(request, target, recipe, unused, learned, held, ranking)
    findings = Findings(
        f"{request.data.name}: {request.target}",
        learned.robust.losses_,
        learned.robust.inlier_probability_,
        kernels.get(learned.robust.kernel),
        float(learned.robust.scale_),
        float(learned.robust.inlier_fraction_),
        _groups(learned.robust.losses_),
        learned.robust.history_,
        suspects,
        _facts(learned, held),
        learned.robust.weights_,
    )
    say("writing the files")
    with new_folder(request.out, request.overwrite) as folder:
        models.save(learned.pipeline, folder / "model.skops")
        write_table(ranking.table, folder / "suspects.parquet")
        write_table(ranking.table, folder / "suspects.csv")
        write(folder / "report.html", findings)
        write_record(record, folder / RECORD)
    return Outcome(notes, summary, record)


def _check(request: Request) -> None:
    """Raise for arguments that are wrong whatever the table is."""
    if request.task not in TASKS:
        raise InputError(f"task {shown(request.task)} is unknown; choose from {', '.join(TASKS)}")
    if request.model not in MODELS:
        raise InputError(f"model {shown(request.model)} is unknown; choose from {', '.join(MODELS)}")
    check_settings(request.inlier_fraction, request.seed)
    if request.target in request.drop:
        raise InputError(f"drop {shown(request.target)}: this is the target, which is needed")


def _check_numbers(cells: pa.Table, names: list[str]) -> None:
    """Refuse infinite values by their row in the file, before rows without a target are set aside."""
    for name in names:
        numbers(name, cells[name])


def _groups(losses: Array) -> InlierFit | None:
    """Return the groups of losses for the report; None where they do not fit into a histogram of float32."""
    with suppress(ValueError):
        if not (losses > 1e37).any():
            return fit_inliers(torch.from_numpy(np.asarray(losses, dtype=np.float64)))
    return None


def _reasons(unused: dict[str, str]) -> str:
    return ", ".join(f"{shown(name)} ({reason})" for name, reason in unused.items())


def _notes(
    request: Request, target: Target, recipe: Recipe, unused: dict[str, str], learned: Learned
) -> list[str]:
    """Return what was made of the table, a line each."""
    how = (
        "" if request.task != "auto" else f" ({shown(target.name)} holds {target.why}; --task says otherwise)"
    )
    notes = [f"task: {target.task}{how}"]
    if unused:
        notes.append(f"columns not used: {_reasons(unused)}")
    notes.extend(
        f"dates in {shown(column.name)} are read as {column.format}"
        for column in recipe.columns
        if column.format
    )
    parts = [
        f"{len(columns)} {kind}: {' > '.join(type(step).__name__ for step in steps)}"
        for kind, columns, steps in stages_of(learned.pipeline)
    ]
    parts.append(f"model: {type(learned.pipeline.named_steps['model']).__name__}")
    return [*notes, f"columns used, {'; '.join(parts)}"]


def _summary(
    request: Request, target: Target, learned: Learned, held: HeldOut | None, ranking: Ranking
) -> list[tuple[str, str]]:
    aside = target.total - len(target.rows)
    more = f" ({aside:,} more set aside: no {shown(target.name)})" if aside else ""
    given = "estimated" if request.inlier_fraction == "auto" else "as given"
    error = "not measured: too few rows of each class"
    if held is not None:
        error = f"robust {held.robust:.4g}, plain {held.plain:.4g} ({held.measure}, held out)"
    rows = ", ".join(str(row) for row in top(ranking, SHOWN))
    return [
        ("rows", f"{len(target.rows):,}{more}"),
        ("inlier fraction", f"{learned.robust.inlier_fraction_:.3f}, {given}"),
        ("held-out error", error),
        ("most suspect", f"rows {rows} (the header is row 1)"),
        ("files", f"{request.out}: {', '.join(TABLE_FILES)}"),
    ]


def _facts(learned: Learned, held: HeldOut | None) -> dict[str, str]:
    """Return what the report says beside its own numbers."""
    facts = {
        "Row numbers": "as in a spreadsheet: the header is row 1",
        "Model": type(learned.pipeline.named_steps["model"]).__name__,
    }
    if held is not None:
        facts["Held-out error, robust"] = f"{held.robust:.4g}"
        facts["Held-out error, plain"] = f"{held.plain:.4g}"
        facts["Measured as"] = held.measure
    return facts


def _record(
    request: Request,
    target: Target,
    recipe: Recipe,
    unused: dict[str, str],
    learned: Learned,
    held: HeldOut | None,
    ranking: Ranking,
) -> dict[str, Any]:
    """Return all that is known of the run, for ``run.json``."""
    robust = learned.robust
    return {
        "kind": "table",
        "data": str(request.data),
        "target": {"name": target.name, "type": target.type},
        "task": target.task,
        "model": request.model,
        "seed": request.seed,
        "rows": len(target.rows),
        "rows_without_target": target.total - len(target.rows),
        "columns": [asdict(column) for column in recipe.columns],
        "columns_not_used": unused | dict.fromkeys(request.drop, "dropped by --drop"),
        "pipeline": {
            "stages": [
                {"kind": kind, "columns": columns, "steps": [written(step) for step in steps]}
                for kind, columns, steps in stages_of(learned.pipeline)
            ],
            "model": written(learned.pipeline.named_steps["model"]),
        },
        "inlier_fraction": float(robust.inlier_fraction_),
        "inlier_fraction_given": request.inlier_fraction != "auto",
        "scale": float(robust.scale_) if math.isfinite(robust.scale_) else None,
        "rounds": int(robust.n_iter_),
        "held_out": None if held is None else asdict(held),
        "most_suspect_rows": top(ranking, SHOWN),
        "first_row": FIRST_ROW,
        "versions": {
            "inlier": inlier.__version__,
            **{name: version(name) for name in ("scikit-learn", "numpy", "pyarrow", "skops", "torch")},
        },
    }
