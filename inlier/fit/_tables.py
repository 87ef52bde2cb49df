"""Reading tables as people have them, and refusing what is not a table before it costs memory.

A file is inspected before it is read: its first bytes tell the format, the encoding, the delimiter and the
columns. Cells of CSV and Excel files are read as text, and interpreted in ``_columns``. Rows are read in
blocks, and reading stops as soon as a limit is passed.
"""

from __future__ import annotations

import codecs
import csv
import difflib
import io
import stat
import zipfile
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from inlier._errors import InputError, quoted

MAX_HEADER_BYTES = 2**20
MAX_ROW_BYTES = 2**22
MAX_COLUMNS = 5000
INSPECTED_ROWS = 50
"""Rows from which the delimiter, and titles above the header, are found."""
REGULAR = 0.8
"""A delimiter fits if it divides this share of the rows into as many cells as the header."""
DELIMITERS = (",", ";", "\t", "|")
COMPRESSIONS = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bz2"}
"""Compressions by the first bytes of a file."""
SHEETS = (".xlsx", ".xlsm", ".xlsb", ".xls", ".ods")
MISSING_VALUES = (
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
"""Cells of a CSV file that stand for a missing value."""
FIRST_ROW = 2
"""Number of the first data row, as in a spreadsheet: the header is row 1."""


@dataclass(frozen=True)
class Limits:
    """How much is read at most.

    Args:
        rows: Rows of a table.
        gigabytes: Uncompressed size of a file.
    """

    rows: int = 20_000_000
    gigabytes: float = 8.0

    def check(self, path: Path, rows: int = 0, size: float = 0.0) -> None:
        """Raise if a table is larger."""
        if rows > self.rows:
            raise InputError(
                f"{quoted(path)} has {rows:,} rows or more; the limit is {self.rows:,} (--max-rows raises it)"
            )
        if size > self.gigabytes * 1e9:
            raise InputError(
                f"{quoted(path)} needs {size / 1e9:.1f} GB or more; the limit is {self.gigabytes:g} "
                "(--max-gigabytes raises it)"
            )


@dataclass(frozen=True)
class TableFile:
    """A file that holds a table, inspected but not read.

    Args:
        path: The file, or a folder of Parquet files.
        format: ``csv``, ``parquet`` or ``excel``.
        names: Its column names.
        delimiter: The delimiter of a CSV file.
        encoding: Its encoding.
        compression: Its compression, if any.
        skipped: Lines above its header.
        notes: What is worth knowing about how it is read.
    """

    path: Path
    format: str
    names: tuple[str, ...]
    delimiter: str = ","
    encoding: str = "utf-8"
    compression: str | None = None
    skipped: int = 0
    notes: tuple[str, ...] = ()

    @property
    def first_row(self) -> int:
        """The number of the first data row, as a spreadsheet or an editor shows it."""
        return FIRST_ROW + self.skipped


def inspect_table(path: Path, encoding: str | None = None) -> TableFile:
    """Return the format and the columns of a file.

    Args:
        path: A CSV, Parquet or Excel file, which may be compressed; or a folder of Parquet files.
        encoding: The encoding of a CSV file; None to find it.

    Raises:
        InputError: If it is none of these, is empty, or has duplicate column names.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp(), "a.csv")
        >>> _ = path.write_text("Sales of May\\n\\nsize;price\\n1;2\\n")
        >>> inspect_table(path).names
        ('size', 'price')
    """
    if path.is_dir():
        parts = parquet_parts(path)
        if not parts:
            raise InputError(f"{quoted(path)} is a folder without Parquet files; name a table")
        return _checked(TableFile(path, "parquet", tuple(parquet_schema(parts[0]).names)))
    head, complete = _head(path)
    compression = next((name for start, name in COMPRESSIONS.items() if head.startswith(start)), None)
    if compression:
        with _opened(path, compression) as file:
            head = file.read(MAX_HEADER_BYTES)
            complete = not file.read(1)
    if not head.strip():
        raise InputError(f"{quoted(path)} is empty" + ("" if complete else ": it starts with blanks"))
    names = [path.suffix.lower(), Path(path.stem).suffix.lower()]
    if head.startswith(b"PAR1"):
        if compression:
            raise InputError(f"{quoted(path)} is a compressed Parquet file; decompress it first")
        return _checked(TableFile(path, "parquet", tuple(parquet_schema(path).names)))
    if names[0] in SHEETS:
        return _checked(_inspect_sheet(path))
    if not {".csv", ".tsv", ".txt"} & set(names[: 2 if compression else 1]):
        raise InputError(
            f"{quoted(path)} is not a Parquet file, and its name ends neither in .csv, .tsv or .txt (with .gz, "
            ".zst or .bz2, if compressed) nor in .xlsx, .xls or .ods"
        )
    return _checked(
        _inspect_csv(TableFile(path, "csv", (), compression=compression), head, complete, encoding)
    )


def _head(path: Path) -> tuple[bytes, bool]:
    """Return the first bytes of a regular file, and whether these are all."""
    if not path.exists():
        raise InputError(f"file {quoted(path)} does not exist")
    if not stat.S_ISREG(path.stat().st_mode):
        raise InputError(f"{quoted(path)} is not a regular file; name a CSV, Parquet or Excel file")
    try:
        with path.open("rb") as file:
            return file.read(MAX_HEADER_BYTES), not file.read(1)
    except OSError as error:
        raise InputError(f"{quoted(path)} cannot be read: {error.strerror}") from None


def _checked(table: TableFile) -> TableFile:
    """Return a table whose columns are not too many, and have different names."""
    path, counts = table.path, Counter(table.names)
    if len(table.names) > MAX_COLUMNS:
        raise InputError(f"{quoted(path)} has {len(table.names):,} columns; the maximum is {MAX_COLUMNS:,}")
    for name, count in counts.items():
        if count > 1:
            raise InputError(f"{quoted(path)} has {count} columns named {quoted(name)}; rename them")
    return table


def parquet_parts(folder: Path) -> list[Path]:
    """Return the Parquet files of a folder, by name."""
    return sorted(
        path for path in folder.iterdir() if path.suffix.lower() in (".parquet", ".pq") and path.is_file()
    )


def exceeds(data: Path, limits: Limits, drop: Collection[str] = ()) -> bool:
    """Return whether a folder of Parquet files is larger than what is read into memory.

    Args:
        data: Any path.
        limits: How much is read into memory at most.
        drop: Columns that are not used.
    """
    if not data.is_dir():
        return False
    rows = cells = 0
    for part in parquet_parts(data):
        try:
            file = pa.parquet.read_metadata(part)
        except (pa.ArrowException, OSError, ValueError):
            continue
        rows += file.num_rows
        cells += file.num_rows * sum(name not in drop for name in file.schema.to_arrow_schema().names)
    return rows > limits.rows or 8 * cells > limits.gigabytes * 1e9


def read_columns(table: TableFile, columns: Sequence[str], limits: Limits | None = None) -> pa.Table:
    """Read some columns of a table; those of CSV and Excel files as text.

    Args:
        table: The table.
        columns: Column names, all of which the table has.
        limits: How much to read at most.

    Returns:
        The columns, in this order.

    Raises:
        InputError: If the rows are malformed, too many, or a column holds something other than numbers, text,
            times and lists of numbers.
    """
    limits = limits or Limits()
    if table.format == "parquet":
        cells = _read_parquet(table.path, list(columns), limits)
    elif table.format == "excel":
        cells = _read_sheet(table, list(columns), limits)
    else:
        cells = _read_csv(table, list(columns), limits)
    for name in columns:
        check_type(name, cells.schema.field(name).type)
    return cells


def check_columns(table: TableFile, names: Sequence[str], argument: str) -> None:
    """Raise if a table lacks a column that an argument names, and suggest the one that may be meant."""
    for name in names:
        if name not in table.names:
            close = difflib.get_close_matches(name, table.names, 1, 0.6)
            near = close or [other for other in table.names if other.strip().lower() == name.strip().lower()]
            hint = f"did you mean {quoted(near[0])}?" if near else f"it has {_join_names(table.names)}"
            raise InputError(f"{argument} {quoted(name)}: {quoted(table.path)} has no such column; {hint}")


def _join_names(names: Sequence[str], limit: int = 8) -> str:
    more = f" and {len(names) - limit:,} more" if len(names) > limit else ""
    return ", ".join(quoted(name) for name in names[:limit]) + more


def _inspect_csv(table: TableFile, head: bytes, complete: bool, encoding: str | None) -> TableFile:
    """Return the encoding, the delimiter and the columns of a CSV file from its first bytes."""
    path = table.path
    encoding = encoding or _encoding(path, head, complete)
    try:
        codecs.lookup(encoding)
        decoder = codecs.getincrementaldecoder(encoding)()
        text = decoder.decode(head, final=complete).removeprefix("\ufeff")
    except LookupError:
        raise InputError(f"encoding {quoted(encoding)} is unknown; choose one like utf-8 or cp1252") from None
    except UnicodeError:
        raise InputError(f"{quoted(path)} is not {encoding}; name its encoding with --encoding") from None
    if not complete:
        end = max(text.rfind("\n"), text.rfind("\r"))
        if end < 0:
            raise InputError(
                f"{quoted(path)} has no line break in its first {MAX_HEADER_BYTES:,} bytes: not a CSV file"
            )
        text = text[: end + 1]
    if "\0" in text:
        raise InputError(f"{quoted(path)} contains zero bytes, so it is not a CSV file in {encoding}")
    try:
        layouts = [_layout(_csv_rows(text, delimiter), delimiter) for delimiter in DELIMITERS]
    except csv.Error as error:
        raise InputError(f"{quoted(path)} does not start with a CSV header: {error}") from None
    best = max(layouts, key=lambda layout: layout.score)
    notes = [] if encoding in ("utf-8", "ascii") else [f"read as {encoding} (--encoding names another)"]
    if best.skipped:
        lines = "line above it is" if best.skipped == 1 else f"{best.skipped} lines above it are"
        notes.append(f"the header is line {best.skipped + 1}: the {lines} skipped")
    return replace(
        table,
        names=best.names,
        delimiter=best.delimiter,
        encoding=encoding,
        skipped=best.skipped,
        notes=tuple(notes),
    )


def _encoding(path: Path, head: bytes, complete: bool) -> str:
    """Return the encoding of text: by its mark, UTF-8 if it is valid, else that of Windows."""
    marks = {codecs.BOM_UTF32_LE: "utf-32", codecs.BOM_UTF32_BE: "utf-32", codecs.BOM_UTF16_LE: "utf-16",
             codecs.BOM_UTF16_BE: "utf-16"}  # fmt: skip
    for mark, encoding in marks.items():
        if head.startswith(mark):
            return encoding
    zeros = [head[start::2].count(0) for start in (0, 1)]
    if sum(zeros):
        if max(zeros) > len(head) / 4 and min(zeros) < len(head) / 50:
            return "utf-16-be" if zeros[0] > zeros[1] else "utf-16-le"
        raise InputError(f"{quoted(path)} contains zero bytes, so it is not text; name a CSV file")
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head, final=complete)
        return "utf-8"
    except UnicodeDecodeError:
        return _legacy(head)


def _legacy(content: bytes) -> str:
    """Return the encoding of text that is not UTF-8: that of Windows if it has no gaps there."""
    try:
        content.decode("cp1252")
    except UnicodeDecodeError:
        return "latin-1"
    return "cp1252"


@dataclass(frozen=True)
class _Layout:
    """A delimiter, and the header that it gives; the higher the score, the more regular the rows."""

    delimiter: str
    names: tuple[str, ...]
    skipped: int
    score: tuple[bool, bool, bool, float]


def _csv_rows(text: str, delimiter: str) -> list[tuple[int, list[str]]]:
    """Return the first rows that are not empty, each with the number of lines above it."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    rows, above = [], 0
    try:
        for row in islice(reader, INSPECTED_ROWS):
            if row:
                rows.append((above, row))
            above = reader.line_num
    except csv.Error:
        if not rows:
            raise
    return rows


def _layout(rows: list[tuple[int, list[str]]], delimiter: str = "") -> _Layout:
    """Return the header of some rows: the first that is as wide as most, below any titles."""
    widths = Counter(len(row) for _, row in rows)
    if not widths:
        return _Layout(delimiter, (), 0, (False, False, False, 0.0))
    width = max(widths, key=lambda count: (widths[count], count))
    place = next((k for k, (_, row) in enumerate(rows) if len(row) == width and _filled(row) > width / 2), 0)
    header = rows[place][1]
    named = all(cell.strip() and not _is_number(cell) for cell in header) and len(set(header)) == width
    if place and not (named and _filled(rows[0][1]) <= max(width / 2, 1)):
        # The first row is a header of another width than the rows: reading it names the row that is wrong.
        place, header = 0, rows[0][1]
    share = sum(len(row) == len(header) for _, row in rows[place:]) / len(rows[place:])
    score = (len(header) > 1, share >= REGULAR, place == 0, len(header) * share)
    return _Layout(delimiter, tuple(header), rows[place][0], score)


def _filled(row: Sequence[str]) -> int:
    return sum(bool(cell.strip()) for cell in row)


def _is_number(cell: str) -> bool:
    try:
        float(cell.replace(",", "."))
    except ValueError:
        return False
    return True


@contextmanager
def _opened(path: Path, compression: str | None) -> Iterator[Any]:
    """Open a file, decompressed."""
    try:
        with pa.input_stream(str(path), compression=compression) as file:
            yield file
    except OSError as error:
        reason = "is broken" if compression else f"cannot be read: {error.strerror}"
        raise InputError(f"{quoted(path)} {reason}") from None


def _read_csv(table: TableFile, columns: list[str], limits: Limits) -> pa.Table:
    path = table.path
    limits.check(path, size=path.stat().st_size)
    if table.encoding == "utf-8":
        try:
            with _opened(path, table.compression) as file:
                return _read_rows(table, file, columns, limits)
        except UnicodeError:
            pass  # Not all of it is: text that was pasted from elsewhere, say.
    return _read_rows(table, pa.BufferReader(_as_utf8(table, limits)), columns, limits)


def _as_utf8(table: TableFile, limits: Limits) -> bytes:
    """Return the content of a file in another encoding as UTF-8."""
    most = int(limits.gigabytes * 1e9) + 1
    with _opened(table.path, table.compression) as file:
        content: bytes = file.read(most)
    limits.check(table.path, size=len(content))
    encoding = table.encoding if table.encoding != "utf-8" else _legacy(content)
    try:
        return content.decode(encoding).encode()
    except UnicodeError:
        raise InputError(
            f"{quoted(table.path)} is not {encoding}; name its encoding with --encoding"
        ) from None


def _read_rows(table: TableFile, source: Any, columns: list[str], limits: Limits) -> pa.Table:
    """Read a CSV file in blocks; raise ``UnicodeError`` if it is not UTF-8."""
    path, rows, size, batches = table.path, 0, 0, []
    convert = pa.csv.ConvertOptions(
        include_columns=columns,
        column_types={name: pa.string() for name in columns},
        null_values=list(MISSING_VALUES),
        strings_can_be_null=True,
    )
    read = pa.csv.ReadOptions(block_size=MAX_ROW_BYTES, use_threads=False, skip_rows=table.skipped)
    parse = pa.csv.ParseOptions(delimiter=table.delimiter, newlines_in_values=True)
    try:
        reader = pa.csv.open_csv(source, read, parse, convert)
        for batch in reader:
            rows, size = rows + batch.num_rows, size + batch.nbytes
            limits.check(path, rows, size)
            batches.append(batch)
        return pa.Table.from_batches(batches, reader.schema)
    except (pa.ArrowInvalid, pa.ArrowKeyError) as error:
        message = str(error)
        if "straddling" in message:
            raise InputError(
                f"{quoted(path)} has a row of more than {MAX_ROW_BYTES:,} bytes: a closing quote is "
                "missing, or it is not a CSV file"
            ) from None
        if "UTF8" in message:
            raise UnicodeError from None
        hint = " (is a closing quote missing?)" if '"' in message else ""
        message = message.removeprefix("CSV parse error: ")
        raise InputError(f"{quoted(path)} is not a valid CSV file: {quoted(message)}{hint}") from None


def _workbook(path: Path, limits: Limits) -> Any:
    """Return the first sheet of a workbook."""
    try:
        import python_calamine
    except ModuleNotFoundError:
        raise InputError(
            f'{quoted(path)}: Excel files need one more package: pip install "inlier[excel]"'
        ) from None
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            limits.check(path, size=sum(entry.file_size for entry in archive.infolist()))
    try:
        return python_calamine.CalamineWorkbook.from_path(str(path)).get_sheet_by_index(0)
    except Exception as error:  # Its errors have no common type but this.
        raise InputError(f"{quoted(path)} is not a readable workbook: {quoted(error)}") from None


def _sheet_rows(path: Path, limits: Limits) -> list[list[str]]:
    sheet = _workbook(path, limits)
    limits.check(path, rows=sheet.height)
    return [[_cell_text(cell) for cell in row] for row in sheet.to_python(skip_empty_area=False)]


def _cell_text(cell: Any) -> str:
    """Return a cell of a workbook as it would be in a CSV file."""
    if isinstance(cell, float) and cell.is_integer() and abs(cell) < 2**53:
        return str(int(cell))
    return str(cell)


def _inspect_sheet(path: Path) -> TableFile:
    rows = [_without_end(row) for row in _sheet_rows(path, Limits())[:INSPECTED_ROWS]]
    layout = _layout([(above, row) for above, row in enumerate(rows) if row])
    if not layout.names:
        raise InputError(f"{quoted(path)} has an empty first sheet")
    notes = ("the first sheet is read",) + (
        (f"the header is row {layout.skipped + 1}",) * bool(layout.skipped)
    )
    return TableFile(path, "excel", layout.names, skipped=layout.skipped, notes=notes)


def _without_end(row: list[str]) -> list[str]:
    """Return a row without the empty cells at its end."""
    while row and not row[-1].strip():
        row = row[:-1]
    return row


def _read_sheet(table: TableFile, columns: list[str], limits: Limits) -> pa.Table:
    rows = _sheet_rows(table.path, limits)[table.skipped + 1 :]
    while rows and not _without_end(rows[-1]):
        rows.pop()
    place = {name: position for position, name in enumerate(table.names)}
    return pa.table(
        {
            name: pa.array(
                [None if row[place[name]] in MISSING_VALUES else row[place[name]] for row in rows],
                pa.string(),
            )
            for name in columns
        }
    )


def parquet_schema(path: Path) -> Any:
    """Return the Arrow schema of a Parquet file."""
    return _parquet(path).schema_arrow


def _parquet(path: Path) -> Any:
    try:
        return pa.parquet.ParquetFile(path)
    except (pa.ArrowException, OSError, ValueError):
        raise InputError(f"{quoted(path)} is a broken Parquet file") from None


def _read_parquet(path: Path, columns: list[str], limits: Limits) -> pa.Table:
    parts = parquet_parts(path) if path.is_dir() else [path]
    files = [_parquet(part) for part in parts]
    schema = files[0].schema_arrow
    for part, file in zip(parts, files, strict=True):
        for name in columns:
            place = file.schema_arrow.get_field_index(name)
            if place < 0:
                raise InputError(f"{quoted(part)} lacks column {quoted(name)}, which {quoted(parts[0])} has")
            if file.schema_arrow.field(place).type != schema.field(name).type:
                raise InputError(f"column {quoted(name)} of {quoted(part)} has another type than elsewhere")
            check_type(name, schema.field(name).type)
    rows = sum(file.metadata.num_rows for file in files)
    # Repeated values cost nothing in the file, and eight bytes each in memory.
    limits.check(path, rows=rows, size=8.0 * rows * len(columns))
    limits.check(path, size=float(sum(_uncompressed(file, set(columns)) for file in files)))
    try:
        # PyArrow also returns columns whose dotted names start with a requested one.
        return pa.concat_tables([file.read(columns=columns).select(columns) for file in files])
    except (pa.ArrowException, OSError, ValueError):
        raise InputError(f"{quoted(path)} is a broken Parquet file") from None


def _uncompressed(file: Any, columns: Collection[str]) -> int:
    """Return the uncompressed bytes of some columns of a Parquet file, as it states them."""
    groups = [file.metadata.row_group(number) for number in range(file.metadata.num_row_groups)]
    return sum(
        max(chunk.total_uncompressed_size, 0)
        for group in groups
        for chunk in map(group.column, range(group.num_columns))
        if chunk.path_in_schema.partition(".")[0] in columns
    )


def check_type(name: str, kind: Any) -> None:
    """Raise for a column that holds neither numbers, nor text, nor times."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if not any(test(kind) for test in SUPPORTED_TYPES):
        raise InputError(
            f"column {quoted(name)} holds {quoted(kind)}, which is neither numbers, text, times nor vectors of floats; "
            f"leave it out with --drop {quoted(name)}"
        )


def is_text(kind: Any) -> bool:
    """Return whether an Arrow type is text."""
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or kind == getattr(pa, "string_view", str)()
    )


def is_vector(kind: Any) -> bool:
    """Return whether an Arrow type is a list of numbers."""
    lists = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    return bool(lists and pa.types.is_floating(kind.value_type))


SUPPORTED_TYPES = (
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
    is_vector,
)
"""Predicates of the Arrow types that a column may have."""
