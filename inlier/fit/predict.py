"""``inlier predict``: what a model of ``inlier fit`` says of another table."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from inlier.fit import InputError, models, shown
from inlier.fit.columns import Column, frame_of
from inlier.fit.outputs import check_file, read_record, write_table
from inlier.fit.tables import FIRST_ROW, look, read

TYPES: dict[str, Any] = {"bool": pa.bool_(), "int64": pa.int64(), "int32": pa.int32()}
"""Types to which predicted classes, which are text in the model, go back."""


@dataclass(frozen=True)
class Predictions:
    """What was predicted.

    Args:
        rows: The number of rows, or of pictures.
        ignored: Columns of the table that the model does not use.
        out: The file.
        skipped: Pictures that could not be read, and why, on one line.
        unit: What was predicted, in the plural.
    """

    rows: int
    ignored: list[str]
    out: Path
    skipped: str = ""
    unit: str = "rows"


def predict(folder: Path, data: Path, out: Path, overwrite: bool = False) -> Predictions:
    """Predict each row of a table, or each picture, and write the predictions.

    Args:
        folder: The output of ``inlier fit``.
        data: A CSV or Parquet file with the columns that the model was fitted to; for a network, pictures.
        out: The file to write; Parquet if its name ends in .parquet, else CSV.
        overwrite: Whether a file of this name is replaced.

    Returns:
        How many rows were predicted, and which columns were not used.

    Raises:
        InputError: If the folder, the table or the name of the file cannot be used; nothing is written then.
    """
    check_file(out, data, overwrite)
    record = read_record(folder)
    if record is None:
        raise InputError(f"{shown(folder)} is no output of inlier fit: it has no run.json of it")
    if record.get("kind") == "pictures":
        from inlier.fit.predict_images import predict_pictures

        count, skipped = predict_pictures(folder, data, out)
        return Predictions(count, [], out, skipped, "pictures")
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
    write_table(pa.table(answer), out)
    ignored = [name for name in source.names if name not in names]
    return Predictions(len(frame), ignored, out)
