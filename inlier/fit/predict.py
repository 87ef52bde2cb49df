"""``inlier predict``: what a model of ``inlier fit`` says of another table."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from inlier.files import write_whole
from inlier.fit import InputError, models, shown
from inlier.fit.columns import Column, frame_of
from inlier.fit.outputs import read_record
from inlier.fit.suspects import safe_for_spreadsheets
from inlier.fit.tables import FIRST_ROW, look, read

TYPES: dict[str, Any] = {"bool": pa.bool_(), "int64": pa.int64(), "int32": pa.int32()}
"""Types to which predicted classes, which are text in the model, go back."""


@dataclass(frozen=True)
class Predictions:
    """What was predicted.

    Args:
        rows: The number of rows.
        ignored: Columns of the table that the model does not use.
        out: The file.
    """

    rows: int
    ignored: list[str]
    out: Path


def predict(folder: Path, data: Path, out: Path, overwrite: bool = False) -> Predictions:
    """Predict each row of a table, and write the predictions.

    Args:
        folder: The output of ``inlier fit``.
        data: A CSV or Parquet file with the columns that the model was fitted to.
        out: The file to write; Parquet if its name ends in .parquet, else CSV.
        overwrite: Whether a file of this name is replaced.

    Returns:
        How many rows were predicted, and which columns were not used.

    Raises:
        InputError: If the folder, the table or the name of the file cannot be used; nothing is written then.
    """
    _check_out(out, data, overwrite)
    record = read_record(folder)
    if record is None:
        raise InputError(f"{shown(folder)} is no output of inlier fit: it has no run.json of it")
    try:
        columns = [Column(**entry) for entry in record["columns"]]
        label_type, task = str(record["target"]["type"]), record["task"]
        names = [column.name for column in columns]
        kinds = {column.kind for column in columns}
        if not kinds <= {"number", "category", "date"}:
            raise TypeError
    except (KeyError, TypeError):
        raise InputError(f"{shown(folder / 'run.json')} is broken, or of another version of inlier") from None
    source = look(data)
    missing = [name for name in names if name not in source.names]
    if missing:
        raise InputError(
            f"{shown(data)} lacks {', '.join(map(shown, missing[:5]))}, of the columns that the model needs"
        )
    pipeline = models.load(folder / "model.skops")
    as_text = [column.name for column in columns if column.kind == "category" or column.format]
    table = read(source, names, as_text)
    frame = frame_of(table, columns)
    del table
    if not len(frame):
        raise InputError(f"{shown(data)} has no rows")
    answer: dict[str, Any] = {"row": np.arange(len(frame)) + FIRST_ROW}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Values that were not seen in the fit are allowed.
        if task == "classification":
            probability = pipeline.predict_proba(frame)
            best = probability.argmax(1)
            labels = pa.array(np.asarray(pipeline.classes_, dtype=object)[best], pa.string())
            answer["prediction"] = labels.cast(TYPES.get(label_type, pa.string()))
            answer["probability"] = probability[np.arange(len(frame)), best]
        else:
            answer["prediction"] = pipeline.predict(frame)
    _write(pa.table(answer), out)
    ignored = [name for name in source.names if name not in names]
    return Predictions(len(frame), ignored, out)


def _check_out(out: Path, data: Path, overwrite: bool) -> None:
    if not out.parent.is_dir():
        raise InputError(f"out {shown(out)}: there is no folder {shown(out.parent)}; make it first")
    if out.is_dir():
        raise InputError(f"out {shown(out)} is a folder; name a file")
    if out.exists() and data.exists() and out.samefile(data):
        raise InputError(f"out {shown(out)} is the table itself; choose another name")
    if out.exists() and not overwrite:
        raise InputError(f"out {shown(out)} exists; choose another name, or add --overwrite")


def _write(table: pa.Table, out: Path) -> None:
    content = pa.BufferOutputStream()
    if out.suffix.lower() in (".parquet", ".pq"):
        pa.parquet.write_table(table, content)
    else:
        pa.csv.write_csv(safe_for_spreadsheets(table), content)
    write_whole(out, content.getvalue())
