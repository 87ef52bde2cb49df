"""Reading tables as people have them, and refusing what is not a table before it costs memory.

A file is inspected before it is read: its first bytes tell the format, the encoding, the delimiter and the
columns. Cells of CSV and Excel files are read as text, and interpreted in ``_columns``. Rows are read in
blocks, and reading stops as soon as a limit is passed.
"""

from __future__ import annotations

import difflib
import stat
import zipfile
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from inlier._errors import InputError, quoted
from inlier.fit._csv import MAX_HEADER_BYTES, MISSING_VALUES, decompressed, inspect_csv, read_csv
from inlier.fit._layout import FIRST_ROW, INSPECTED_ROWS, Limits, TableFile, find_layout, is_number

__all__ = [
    "FIRST_ROW",
    "Limits",
    "TableFile",
    "check_columns",
    "check_type",
    "exceeds",
    "first_table",
    "inspect_table",
    "is_text",
    "is_vector",
    "parquet_parts",
    "parquet_schema",
    "read_columns",
    "with_plain_texts",
]

MAX_COLUMNS = 5000
COMPRESSIONS = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bz2"}
"""Compressions by the first bytes of a file."""
SHEET_ROWS = 10
"""A sheet with fewer rows, or one column, is a note if a larger one follows."""
CSV_NAMES = (".csv", ".tsv", ".txt")
SHEETS = (".xlsx", ".xlsm", ".xlsb", ".xls", ".ods")


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
            raise InputError(
                f"{quoted(path)} is a folder without Parquet files; name {first_table(path) or 'a table'}"
            )
        return _checked(TableFile(path, "parquet", tuple(parquet_schema(parts[0]).names)))
    head, complete = _head(path)
    compression = next((name for start, name in COMPRESSIONS.items() if head.startswith(start)), None)
    if compression:
        with decompressed(path, compression) as file:
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
    if not set(CSV_NAMES) & set(names[: 2 if compression else 1]):
        remedy = "rename it if it is one of these, or else convert it to one"
        raise InputError(
            f"{quoted(path)} is not a Parquet file, and its name ends neither in .csv, .tsv or .txt (with .gz, "
            f".zst or .bz2, if compressed) nor in .xlsx, .xls or .ods; {remedy}"
        )
    return _checked(
        inspect_csv(TableFile(path, "csv", (), compression=compression), head, complete, encoding)
    )


def first_table(folder: Path) -> str:
    """Return the first table of a folder that is no folder of Parquet files, quoted; an empty string if none."""
    ends = (*CSV_NAMES, *SHEETS)
    found = (path for path in sorted(folder.rglob("*")) if set(path.suffixes[-2:]) & {*ends, ".parquet"})
    first = next((path for path in found if path.is_file() and not path.name.startswith(".")), None)
    if first is None:
        return ""
    return quoted(first.parent if first.suffix == ".parquet" else first)


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
    if max(counts.values(), default=0) > 1 and all(map(is_number, table.names)):
        raise InputError(
            f"{quoted(path)} has no header: its first line holds numbers; put a line with the names of the columns "
            "above it"
        )
    for name, count in counts.items():
        if count > 1:
            raise InputError(f"{quoted(path)} has {count} columns named {quoted(name)}; rename them")
    return table


def parquet_parts(folder: Path) -> list[Path]:
    """Return the Parquet files of a folder, by name."""
    try:
        entries = sorted(folder.iterdir())
    except OSError as error:
        raise InputError(f"folder {quoted(folder)} cannot be read: {error.strerror}") from None
    return [path for path in entries if path.suffix.lower() in (".parquet", ".pq") and path.is_file()]


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
        cells = read_csv(table, list(columns), limits)
    for name in columns:
        check_type(name, cells.schema.field(name).type)
    return cells


def check_columns(table: TableFile, names: Sequence[str], argument: str) -> None:
    """Raise if a table lacks a column that an argument names, and suggest the one that may be meant."""
    for name in names:
        if name not in table.names:
            close = difflib.get_close_matches(name, table.names, 1, 0.6)
            near = close or [other for other in table.names if other.strip().lower() == name.strip().lower()]
            hint = f"did you mean {quoted(near[0])}?" if near else _what_it_has(table)
            raise InputError(f"{argument} {quoted(name)}: {quoted(table.path)} has no such column; {hint}")


def _what_it_has(table: TableFile) -> str:
    """Return the columns of a table, and what may be wrong if these are not the right ones."""
    hint = f"it has {_join_names(table.names)}"
    if table.names and all(map(is_number, table.names)):
        return f"{hint}: the first line holds numbers; put a line with the names of the columns above it"
    if table.format == "csv" and table.encoding not in ("utf-8", "ascii"):
        return f"{hint}, read as {table.encoding} (--encoding names another)"
    if table.format == "csv" and len(table.names) == 1:
        return f"{hint}: cells have to be separated by a comma, a semicolon, a tab, a bar or one blank"
    return hint


def _join_names(names: Sequence[str], limit: int = 8) -> str:
    more = f" and {len(names) - limit:,} more" if len(names) > limit else ""
    return ", ".join(quoted(name) for name in names[:limit]) + more


def _sheet(path: Path, limits: Limits) -> tuple[Any, list[str]]:
    """Return the first sheet of a workbook that holds a table (else the first), and the names of all sheets."""
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
        book = python_calamine.CalamineWorkbook.from_path(str(path))
        sheets = map(book.get_sheet_by_name, book.sheet_names)
        large = (sheet for sheet in sheets if sheet.height >= SHEET_ROWS and sheet.width > 1)
        return next(large, None) or book.get_sheet_by_index(0), book.sheet_names
    except Exception as error:  # Its errors have no common type but this.
        raise InputError(f"{quoted(path)} is not a readable workbook: {quoted(error)}") from None


def _sheet_rows(path: Path, limits: Limits, sheet: Any = None) -> list[list[str]]:
    sheet = sheet or _sheet(path, limits)[0]
    limits.check(path, rows=sheet.height)
    return [[_cell_text(cell) for cell in row] for row in sheet.to_python(skip_empty_area=False)]


def _cell_text(cell: Any) -> str:
    """Return a cell of a workbook as it would be in a CSV file."""
    if isinstance(cell, float) and cell.is_integer() and abs(cell) < 2**53:
        return str(int(cell))
    return str(cell)


def _inspect_sheet(path: Path) -> TableFile:
    sheet, names = _sheet(path, Limits())
    rows = [_without_end(row) for row in _sheet_rows(path, Limits(), sheet)[:INSPECTED_ROWS]]
    layout = find_layout([(above, row) for above, row in enumerate(rows) if row])
    if not layout.names:
        raise InputError(f"{quoted(path)} has an empty first sheet")
    notes = (f"sheet {quoted(sheet.name)} is read, of {len(names)}",) * (len(names) > 1) + (
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
    for part, file in zip(parts, files, strict=True):
        for name in columns:
            place = file.schema_arrow.get_field_index(name)
            if place < 0:
                raise InputError(f"{quoted(part)} lacks column {quoted(name)}, which {quoted(parts[0])} has")
            check_type(name, file.schema_arrow.field(place).type)
    rows = sum(file.metadata.num_rows for file in files)
    # Repeated values cost nothing in the file, and eight bytes each in memory.
    limits.check(path, rows=rows, size=8.0 * rows * len(columns))
    limits.check(path, size=float(sum(_uncompressed(file, set(columns)) for file in files)))
    try:
        # PyArrow also returns columns whose dotted names start with a requested one.
        cells = [with_plain_texts(file.read(columns=columns).select(columns)) for file in files]
    except (pa.ArrowException, OSError, ValueError):
        raise InputError(f"{quoted(path)} is a broken Parquet file") from None
    for name in columns:
        try:
            # Integers in one part and floats in another, or nothing at all, are one column.
            pa.unify_schemas([part.select([name]).schema for part in cells], promote_options="permissive")
        except pa.ArrowException:
            raise InputError(
                f"column {quoted(name)} of {quoted(path)} has one type in some files and another in others; write "
                f"them with one type, or leave it out with --drop {quoted(name)}"
            ) from None
    return pa.concat_tables(cells, promote_options="permissive")


def with_plain_texts(cells: pa.Table) -> pa.Table:
    """Return a table whose texts are not views, which few functions of Arrow take."""
    view = getattr(pa, "string_view", str)()
    for place, field in enumerate(cells.schema):
        if field.type == view:
            cells = cells.set_column(place, field.name, cells[field.name].cast(pa.large_string()))
    return cells


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
