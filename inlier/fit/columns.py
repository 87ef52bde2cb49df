"""What each column is, and its values as the pipeline takes them: float64, categories, datetime64."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from inlier.fit import InputError, shown
from inlier.fit.tables import FIRST_ROW, is_text

Array = npt.NDArray[Any]
Kind = Literal["number", "category", "date"]

LARGEST = 1e100
"""Beyond this a number is as good as infinite: its square has no room beside others."""
FEW_VALUES = 20
"""A text column with at most so many different values is a category; one with more if each has 5 rows."""
ROWS_A_VALUE = 5
ISO = "ISO 8601"
DATE_FORMATS = (ISO, "%Y/%m/%d", "%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y", "%Y%m%dT%H%M%S", "%d-%b-%Y", "%b %d, %Y")
"""How dates may be written in text, in the order in which they are tried."""
ID_NAME = re.compile(
    r"(.*[ _.-])?(id|uuid|guid|index|row|rownames|row_?number)|.*Id|unnamed: \d+|__index_.*|", re.I
)


@dataclass(frozen=True)
class Column:
    """A column that is used.

    Args:
        name: Its name.
        kind: ``number``, ``category`` or ``date``.
        format: How dates in text are written, if they are text.
    """

    name: str
    kind: Kind
    format: str = ""


def sort_out(table: pa.Table) -> tuple[list[Column], dict[str, str]]:
    """Return the columns that can be used, and why each of the others cannot.

    Args:
        table: The columns to look at, without the target.

    Returns:
        The used columns, and reasons by name.

    Example:
        >>> import pyarrow as pa
        >>> used, unused = sort_out(pa.table({"size": [1.5, None, 3.0], "one": ["a", "a", "a"]}))
        >>> [column.kind for column in used], unused
        (['number'], {'one': 'one value only'})
    """
    used, unused = [], {}
    for name in table.column_names:
        answer = _kind(name, table[name])
        if isinstance(answer, Column):
            used.append(answer)
        else:
            unused[name] = answer
    return used, unused


def _kind(name: str, values: Any) -> Column | str:
    """Return the column, or why it is not used."""
    values = plain(values)
    if pa.types.is_floating(values.type):
        values = pc.if_else(pc.is_nan(values), pa.scalar(None, values.type), values)
    present = len(values) - values.null_count
    if present == 0:
        return "empty"
    distinct = pc.count_distinct(values, mode="only_valid").as_py()
    if distinct == 1 and present == len(values):
        return "one value only"
    whole = pa.types.is_integer(values.type) or is_text(values.type)
    if whole and distinct == len(values) and ID_NAME.fullmatch(name.strip()):
        return "a different number or name for each row"
    if pa.types.is_timestamp(values.type) or pa.types.is_date(values.type):
        return Column(name, "date")
    if not is_text(values.type):
        return Column(name, "number")
    form = _date_format(values)
    if form:
        return Column(name, "date", form)
    if distinct <= present / 2 and (distinct <= FEW_VALUES or distinct <= present / ROWS_A_VALUE):
        return Column(name, "category")
    return f"free text, {distinct:,} different values"


def _date_format(values: Any) -> str:
    """Return how all of the texts can be read as dates, or an empty string."""
    sample = values.drop_null().slice(0, 100)
    for form in DATE_FORMATS:
        try:
            if _dates(sample, form).null_count == 0 and _dates(values, form).null_count == values.null_count:
                return form
        except pa.ArrowInvalid:
            continue
    return ""


def plain(values: Any) -> Any:
    """Return values without dictionary encoding, and with blank text as missing."""
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    if is_text(values.type):
        values = values.cast(pa.string()) if not pa.types.is_large_string(values.type) else values
        blank = pc.equal(pc.utf8_trim_whitespace(values), "")
        if pc.any(blank).as_py():
            values = pc.if_else(blank, pa.scalar(None, values.type), values)
    return values


def frame_of(table: pa.Table, columns: Sequence[Column]) -> pd.DataFrame:
    """Return columns as the pipeline takes them.

    Args:
        table: The table, which has all of the columns.
        columns: Which columns, and what they are.

    Returns:
        A frame of float64 with NaN for missing, categories, and datetime64.

    Raises:
        InputError: If a value is infinite, or not of its column's kind.

    Example:
        >>> import pyarrow as pa
        >>> frame_of(pa.table({"size": [1, None]}), [Column("size", "number")])["size"].tolist()
        [1.0, nan]
    """
    convert = {"number": _number_column, "category": _category_column, "date": _date_column}
    frame = pd.DataFrame(
        {column.name: convert[column.kind](column, table[column.name]) for column in columns}
    )
    # Without columns, a frame would forget how many rows there are.
    return frame if columns else pd.DataFrame(index=range(table.num_rows))


def numbers(name: str, values: Any) -> Array:
    """Return values as float64, NaN for missing; refuse infinite ones and text."""
    values = plain(values)
    kind = values.type
    try:
        if pa.types.is_time(kind):
            values = pc.divide(values.cast(pa.time64("us")).cast(pa.int64()).cast(pa.float64()), 1e6)
        elif pa.types.is_duration(kind):
            values = pc.divide(
                values.cast(pa.duration("us"), safe=False).cast(pa.int64()).cast(pa.float64()), 1e6
            )
        elif pa.types.is_date(kind) or pa.types.is_timestamp(kind):
            raise InputError(f"column {shown(name)} holds dates where numbers are expected")
        else:
            values = values.cast(pa.float64(), safe=False)
    except pa.ArrowInvalid:
        raise InputError(
            f"column {shown(name)} holds {_first_bad(values)} where numbers are expected"
        ) from None
    array = np.asarray(values.to_numpy(), dtype=np.float64)
    bad = np.abs(array) > LARGEST
    if bad.any():
        place = int(bad.argmax())
        raise InputError(
            f"column {shown(name)} holds {array[place]:g} in row {place + FIRST_ROW} (the header is row 1); "
            "put in a number, or leave the cell empty"
        )
    return array


def _first_bad(texts: Any) -> str:
    """Return the first text that is no number, for a message."""
    for text in texts.drop_null().to_pylist():
        try:
            float(text)
        except ValueError:
            return shown(text)
    return "text"


def _number_column(column: Column, values: Any) -> Array:
    return numbers(column.name, values)


def _category_column(column: Column, values: Any) -> Any:
    texts = plain(plain(values).cast(pa.string()))
    return pd.Series(texts.dictionary_encode().to_pandas())


def _date_column(column: Column, values: Any) -> Array:
    values = plain(values)
    text = is_text(values.type)
    try:
        dates = _dates(values, column.format or ISO) if text else values.cast(pa.timestamp("us"), safe=False)
    except pa.ArrowException:
        dates = None
    if dates is None or dates.null_count > values.null_count:
        form = f" written like {column.format}" if column.format else ""
        raise InputError(f"column {shown(column.name)} holds values that are no dates{form}")
    return np.asarray(dates.to_numpy(), dtype="datetime64[us]")


def _dates(texts: Any, form: str) -> Any:
    """Return texts as times without zone; missing where a format does not fit."""
    if form == ISO:
        try:
            return texts.cast(pa.timestamp("us"))
        except pa.ArrowInvalid:
            return texts.cast(pa.timestamp("us", "UTC")).cast(pa.timestamp("us"))
    return pc.strptime(texts, form, "us", error_is_null=True)
