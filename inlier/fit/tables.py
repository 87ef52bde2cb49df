"""Reading CSV and Parquet files, and refusing what is no table before it costs memory.

A file is looked at before it is read: its first bytes say what it is and which columns it has. Rows are then
read in blocks, so that a line without an end is refused when the first block is full.
"""

from __future__ import annotations

import csv
import difflib
import io
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from inlier.fit import InputError, shown

HEAD = 2**20
"""The header must end within so many bytes."""
BLOCK = 2**22
"""The longest row of a CSV file, in bytes."""
MOST_COLUMNS = 5000
DELIMITERS = (",", ";", "\t", "|")
MISSING = (
    "",
    "NA",
    "N/A",
    "n/a",
    "NaN",
    "nan",
    "-nan",
    "-NaN",
    "null",
    "NULL",
    "None",
    "<NA>",
    "#N/A",
    "#NA",
)
"""Cells of a CSV file that hold no value."""
FIRST_ROW = 2
"""The number of the first row of data, as a spreadsheet counts: the header is row 1."""


@dataclass(frozen=True)
class Source:
    """A table in a file, looked at but not read.

    Args:
        path: The file.
        format: ``csv`` or ``parquet``.
        names: The names of its columns.
        delimiter: What stands between two cells of a CSV file.
    """

    path: Path
    format: str
    names: tuple[str, ...]
    delimiter: str = ","


def look(path: Path) -> Source:
    """Look at a file and return what it is.

    Raises:
        InputError: If it is no CSV or Parquet file, is empty, or has columns of the same name.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp(), "a.csv")
        >>> _ = path.write_text("size;price\\n1;2\\n")
        >>> look(path).names
        ('size', 'price')
    """
    if path.is_dir():
        raise InputError(f"{shown(path)} is a folder; name a CSV or Parquet file")
    if not path.exists():
        raise InputError(f"there is no file {shown(path)}")
    if not path.is_file():
        raise InputError(f"{shown(path)} is no regular file; name a CSV or Parquet file")
    try:
        with path.open("rb") as file:
            head = file.read(HEAD)
            file.seek(0, io.SEEK_END)
            size = file.tell()
    except OSError as error:
        raise InputError(f"{shown(path)} cannot be read: {error.strerror}") from None
    if not head.strip():
        raise InputError(
            f"{shown(path)} is empty" + ("" if len(head) == size else ": it begins with blanks only")
        )
    if head.startswith(b"PAR1"):
        source = Source(path, "parquet", tuple(parquet_schema(path).names))
    elif path.suffix.lower() in (".csv", ".tsv", ".txt"):
        source = _look_at_csv(path, head, whole=len(head) == size)
    else:
        raise InputError(f"{shown(path)} is no Parquet file, and its name does not end in .csv, .tsv or .txt")
    if len(source.names) > MOST_COLUMNS:
        raise InputError(
            f"{shown(path)} has {len(source.names):,} columns; at most {MOST_COLUMNS:,} can be used"
        )
    for name in source.names:
        if source.names.count(name) > 1:
            raise InputError(
                f"{shown(path)} has {source.names.count(name)} columns named {shown(name)}; rename them"
            )
    return source


def read(source: Source, columns: Sequence[str], as_text: Collection[str] = ()) -> pa.Table:
    """Read some columns of a table.

    Args:
        source: The table.
        columns: Their names, which the table must have.
        as_text: Those of them that are text in a CSV file, whatever they look like: ``007`` stays ``007``.

    Returns:
        The columns, in this order.

    Raises:
        InputError: If the rows are no table, or a column holds something else than numbers, text and times.
    """
    if source.format == "parquet":
        table = _read_parquet(source.path, list(columns))
    else:
        table = _read_csv(source, list(columns), as_text)
    for name in columns:
        _check_type(name, table.schema.field(name).type, source.format)
    return table


def check_columns(source: Source, wanted: Sequence[str], argument: str) -> None:
    """Raise if a table lacks a column that an argument names, and name the one that may be meant."""
    for name in wanted:
        if name not in source.names:
            close = difflib.get_close_matches(name, source.names, 1, 0.6)
            near = close or [other for other in source.names if other.strip().lower() == name.strip().lower()]
            hint = f"did you mean {shown(near[0])}?" if near else f"it has {_listed(source.names)}"
            raise InputError(f"{argument} {shown(name)}: {shown(source.path)} has no such column; {hint}")


def _listed(names: Sequence[str], most: int = 8) -> str:
    """Return some names, for a message."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(shown(name) for name in names[:most]) + more


def _look_at_csv(path: Path, head: bytes, whole: bool) -> Source:
    """Return the columns of a CSV file from its first bytes."""
    if b"\0" in head:
        raise InputError(f"{shown(path)} holds zero bytes, as no CSV file in UTF-8 does; save it as UTF-8")
    end = len(head) if whole else max(head.rfind(b"\n"), head.rfind(b"\r"))
    if end < 0:
        raise InputError(f"{shown(path)} has no end of line in its first {HEAD:,} bytes: this is no CSV file")
    try:
        text = head[:end].decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{shown(path)} is not in UTF-8 (byte {error.start:,} is {error.object[error.start]:#04x}); "
            "save it as UTF-8"
        ) from None
    try:
        headers = {delimiter: _header(text, delimiter) for delimiter in DELIMITERS}
    except csv.Error as error:
        raise InputError(f"{shown(path)} begins with no header of a CSV file: {error}") from None
    best = max(DELIMITERS, key=lambda delimiter: len(headers[delimiter]))
    return Source(path, "csv", tuple(headers[best]), best)


def _header(text: str, delimiter: str) -> list[str]:
    """Return the first line that is not empty, cut into cells."""
    return next((row for row in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter) if row), [])


def _read_csv(source: Source, columns: list[str], as_text: Collection[str]) -> pa.Table:
    def attempt(threads: bool) -> pa.Table:
        with pa.OSFile(str(source.path), "rb") as file:
            return pa.csv.read_csv(
                file,
                pa.csv.ReadOptions(block_size=BLOCK, use_threads=threads),
                pa.csv.ParseOptions(delimiter=source.delimiter, newlines_in_values=True),
                pa.csv.ConvertOptions(
                    include_columns=columns,
                    column_types={name: pa.string() for name in as_text},
                    null_values=list(MISSING),
                    strings_can_be_null=True,
                ),
            )

    try:
        try:
            return attempt(threads=True)
        except pa.ArrowInvalid:
            return attempt(threads=False)  # Only so does the error tell the row.
    except UnicodeDecodeError:
        raise InputError(f"{shown(source.path)} is not in UTF-8; save it as UTF-8") from None
    except (pa.ArrowInvalid, pa.ArrowKeyError) as error:
        message = str(error)
        if "straddling" in message:
            raise InputError(
                f"{shown(source.path)} has a row of more than {BLOCK:,} bytes: a closing quote is missing, "
                "or this is no CSV file"
            ) from None
        if "UTF8" in message:
            raise InputError(f"{shown(source.path)} is not in UTF-8; save it as UTF-8") from None
        hint = " (is a closing quote missing?)" if '"' in message else ""
        message = message.removeprefix("CSV parse error: ")
        raise InputError(f"{shown(source.path)} is no CSV table: {shown(message)}{hint}") from None


def parquet_schema(path: Path) -> Any:
    """Return the Arrow schema of a Parquet file."""
    return _parquet(path).schema_arrow


def _parquet(path: Path) -> Any:
    try:
        return pa.parquet.ParquetFile(path)
    except (pa.ArrowException, OSError, ValueError):
        raise InputError(f"{shown(path)} is a broken Parquet file") from None


def _read_parquet(path: Path, columns: list[str]) -> pa.Table:
    file = _parquet(path)
    for name in columns:
        _check_type(name, file.schema_arrow.field(name).type, "parquet")
    try:
        # A name may be the beginning of another one with a dot, which is then read too.
        return file.read(columns=columns).select(columns)
    except (pa.ArrowException, OSError, ValueError):
        raise InputError(f"{shown(path)} is a broken Parquet file") from None


def _check_type(name: str, kind: Any, form: str) -> None:
    """Raise for a column that holds neither numbers, nor text, nor times."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_binary(kind) and form == "csv":
        raise InputError(f"column {shown(name)} is not in UTF-8; save the file as UTF-8")
    if not any(test(kind) for test in USABLE):
        raise InputError(
            f"column {shown(name)} holds {shown(kind)}, neither numbers, text nor times; "
            f"leave it out with --drop {shown(name)}"
        )


def is_text(kind: Any) -> bool:
    """Whether an Arrow type is text."""
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or kind == getattr(pa, "string_view", str)()
    )


USABLE = (
    pa.types.is_null,
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_decimal,
    pa.types.is_date,
    pa.types.is_time,
    pa.types.is_timestamp,
    pa.types.is_duration,
    is_text,
)
"""Types of Arrow that a column may have."""
