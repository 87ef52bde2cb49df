"""Arrow arrays of a column as NumPy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from inlier.fit._tables import is_text

__all__ = ["MAX_MAGNITUDE", "Array", "decoded", "distinct_texts", "floats", "is_time", "plain_numbers"]

Array = npt.NDArray[Any]
MAX_MAGNITUDE = 1e100
"""Larger numbers are taken to be errors like infinite ones: their squares overflow."""


def decoded(values: Any) -> Any:
    """Return values without dictionary encoding, texts without blanks around them and none that is blank."""
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    if is_text(values.type):
        values = values.cast(pa.large_string())
        values = pc.utf8_trim_whitespace(values)
        blank = pc.equal(values, "")
        if pc.any(blank).as_py():
            values = pc.if_else(blank, pa.scalar(None, values.type), values)
    return values


def floats(values: Any) -> Array:
    """Return an Arrow array of numbers, booleans, times of day or durations as float64, NaN for missing."""
    kind = values.type
    if pa.types.is_time(kind):
        values = pc.divide(values.cast(pa.time64("us")).cast(pa.int64()).cast(pa.float64()), 1e6)
    elif pa.types.is_duration(kind):
        values = pc.divide(
            values.cast(pa.duration("us"), safe=False).cast(pa.int64()).cast(pa.float64()), 1e6
        )
    else:
        values = values.cast(pa.float64(), safe=False)
    return np.array(values.to_numpy(), dtype=np.float64)


def plain_numbers(texts: Any) -> Array | None:
    """Return texts that are all numbers in the computer's notation, without going through each of them."""
    code = pc.match_substring_regex(texts, r"^[-+]?0\d|[a-df-zA-DF-Z]")
    if pc.any(code).as_py():
        return None
    try:
        values = np.array(texts.cast(pa.float64()).to_numpy(), dtype=np.float64)
    except pa.ArrowInvalid:
        return None
    return None if (np.abs(values) > MAX_MAGNITUDE).any() else values


def distinct_texts(texts: Any) -> tuple[list[str], Array]:
    """Return the distinct texts, and the place of each row's text among them; -1 if missing."""
    encoded = texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts
    if isinstance(encoded, pa.ChunkedArray):  # More than one array can hold.
        encoded = pa.concat_arrays(encoded.chunks)
    encoded = encoded.dictionary_encode()
    codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    return encoded.dictionary.to_pylist(), codes


def is_time(kind: Any) -> bool:
    """Return whether an Arrow type is a date or a time."""
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind))
