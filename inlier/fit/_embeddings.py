"""Columns of vectors: those of an ``.npy`` file beside the table, and free texts through an encoder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from inlier._errors import InputError, quoted
from inlier.fit._columns import Array, Column, Reading, decoded
from inlier.fit._encoders import encode_texts
from inlier.fit._pipeline import CATEGORIES

__all__ = ["read_vectors", "with_vectors"]

BESIDE = "npy"
"""The name of the column of an ``.npy`` file."""


def with_vectors(readings: Sequence[Reading], data: Path, rows: int, encoder: str | None) -> list[Reading]:
    """Return columns with free texts encoded, and with the vectors of an ``.npy`` file beside the table.

    Args:
        readings: The columns of the table.
        data: The table.
        rows: Its number of rows.
        encoder: The encoder of free texts; None leaves them as they are.
    """
    found = []
    for reading in readings:
        if encoder is not None and _is_free_text(reading):
            vectors = _encoded(encoder, reading.values)
            column = Column(reading.column.name, "embedding", width=vectors.shape[1], source="text")
            found.append(Reading(column, vectors))
        else:
            found.append(reading)
    if data.with_suffix(".npy").is_file():
        vectors = _beside(data, rows)
        column = Column(BESIDE, "embedding", width=vectors.shape[1], source="npy")
        found.append(Reading(column, vectors, notes=(f"from {data.with_suffix('.npy').name}",)))
    return found


def read_vectors(column: Column, cells: pa.Table, data: Path, encoder: str | None) -> Reading:
    """Return a column of vectors of another table, as that of the fit was made."""
    if column.source == "npy":
        vectors = _beside(data, cells.num_rows)
    elif encoder is None:
        raise InputError(f"column {quoted(column.name)} needs an encoder, which run.json does not name")
    else:
        vectors = _encoded(encoder, decoded(cells[column.name]))
    if vectors.shape[1] != column.width:
        raise InputError(
            f"the vectors of {quoted(column.name)} have {vectors.shape[1]} numbers, and had {column.width}"
        )
    return Reading(replace(column), vectors)


def _is_free_text(reading: Reading) -> bool:
    distinct = pc.count_distinct(reading.values).as_py() if reading.column.kind == "text" else 0
    return bool(distinct > CATEGORIES)


def _encoded(encoder: str, texts: Any) -> Array:
    """Return the vectors of texts, each distinct one encoded once."""
    values = np.asarray(texts.cast(pa.string()).fill_null("").to_numpy(), dtype=object).astype(str)
    distinct, place = np.unique(values, return_inverse=True)
    return np.asarray(encode_texts(encoder, distinct.tolist())[place])


def _beside(data: Path, rows: int) -> Array:
    """Return the matrix of the ``.npy`` file beside a table."""
    path = data.with_suffix(".npy")
    try:
        if not path.is_file():  # A pipe would wait for a writer.
            raise OSError
        matrix = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError):
        raise InputError(f"{quoted(path)}, beside the table, is missing or not a matrix of numbers") from None
    if matrix.ndim != 2 or matrix.dtype.kind != "f" or len(matrix) != rows:
        raise InputError(
            f"{quoted(path)} holds {matrix.dtype} of shape {matrix.shape}; for this table it must be floats of "
            f"shape ({rows}, length)"
        )
    return np.nan_to_num(np.asarray(matrix, dtype=np.float32), nan=0.0, posinf=0.0, neginf=0.0)
