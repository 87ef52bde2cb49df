"""``inlier predict``: applies a model of ``inlier fit`` to another table, or to other images."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from inlier._errors import InputError, quoted
from inlier.fit import _models as models
from inlier.fit._columns import read_column, to_frame
from inlier.fit._embeddings import read_vectors
from inlier.fit._outputs import check_output_file, write_table
from inlier.fit._record import ImageRun, read_run
from inlier.fit._tables import Limits, inspect_table, read_columns

LABEL_TYPES: dict[str, Any] = {"bool": pa.bool_(), "int64": pa.int64()}
"""Types to which predicted classes, which are text in the model, are converted back."""


@dataclass(frozen=True)
class Predictions:
    """What was predicted.

    Args:
        count: The number of rows, or of images.
        ignored: Columns of the table that the model does not use.
        out: The file.
        skipped: Images that could not be read, and why, on one line.
        unit: What was predicted, in the plural.
        unread: Cells that do not fit their column.
    """

    count: int
    ignored: list[str]
    out: Path
    skipped: str = ""
    unit: str = "rows"
    unread: int = 0


def predict(
    folder: Path,
    data: Path,
    out: Path,
    overwrite: bool = False,
    encoding: str | None = None,
    limits: Limits | None = None,
) -> Predictions:
    """Predict each row of a table, or each image, and write the predictions.

    Args:
        folder: The output of ``inlier fit``.
        data: A table with the columns that the model was fitted to; for a network, images.
        out: The file to write; Parquet if its name ends in .parquet, else CSV.
        overwrite: Whether a file of this name is replaced.
        encoding: The encoding of a CSV file; None to find it.
        limits: How much is read at most.

    Returns:
        How many rows were predicted, and which columns were not used.

    Raises:
        InputError: If the folder, the table or the file name cannot be used; nothing is written then.
    """
    run = read_run(folder)
    check_output_file(out, data, overwrite, folder)
    if isinstance(run, ImageRun):
        from inlier.fit._predict_images import predict_images

        count, skipped = predict_images(folder, data, out, run)
        return Predictions(count, [], out, skipped, "images")
    names = [column.name for column in run.columns if column.source != "npy"]
    table = inspect_table(data, encoding)
    missing = [name for name in names if name not in table.names]
    if missing:
        raise InputError(f"{quoted(data)} lacks columns of the model: {', '.join(map(quoted, missing[:5]))}")
    pipeline = models.load_pipeline(folder / models.MODEL_FILE)
    cells = read_columns(table, names, limits)
    readings = [
        read_column(column, cells[column.name])
        if column.source == "cells"
        else read_vectors(column, cells, data, run.encoder)
        for column in run.columns
    ]
    for reading in readings:
        if len(reading.suspects) > cells.num_rows / 2:
            first = reading.suspects[0]
            raise InputError(
                f"column {quoted(first.column)} of {quoted(data)} is not what the model was fitted to: "
                f"{quoted(first.value)} and {len(reading.suspects) - 1:,} more: {first.reason}"
            )
    frame = to_frame(readings, cells.num_rows)
    if not len(frame):
        raise InputError(f"{quoted(data)} has no rows")
    answer: dict[str, Any] = {"row": np.arange(len(frame)) + table.first_row}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Categories that the fit has not seen are allowed.
        if run.task == "classification":
            probability = pipeline.predict_proba(frame)
            best = probability.argmax(1)
            labels = pa.array(np.asarray(pipeline.classes_, dtype=object)[best], pa.string())
            answer["prediction"] = labels.cast(LABEL_TYPES.get(run.target.type, pa.string()))
            answer["probability"] = probability[np.arange(len(frame)), best]
        else:
            answer["prediction"] = pipeline.predict(frame)
    write_table(pa.table(answer), out)
    ignored = [name for name in table.names if name not in names]
    unread = sum(len(reading.suspects) for reading in readings)
    return Predictions(len(frame), ignored, out, unread=unread)
