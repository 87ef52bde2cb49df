"""CSV files: their encoding and delimiter from the first bytes, and their rows in blocks, as text."""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv

from inlier._errors import InputError, quoted
from inlier.fit._layout import INSPECTED_ROWS, Layout, Limits, TableFile, find_layout

__all__ = [
    "FOOTER",
    "MAX_HEADER_BYTES",
    "MISSING_VALUES",
    "csv_rows",
    "csv_text",
    "decompressed",
    "inspect_csv",
    "read_csv",
]

MAX_HEADER_BYTES = 2**20
MAX_ROW_BYTES = 2**22
DELIMITERS = (",", ";", "\t", "|")
MAX_FOOTER, MAX_NOTE = 10, 1000
"""Lines of notes below a table, and characters of each."""
FOOTER = b"footer"
"""In the metadata of a table that was read: how many lines below it are not part of it."""
SCRIPTS = ("cp1251", "gb18030", "cp932", "euc_kr", "big5", "euc_jp", "koi8_r", "cp1253", "cp1256", "cp1255")
"""Encodings of scripts that are not Latin, those that are used more first."""
WORD = re.compile(rb'[^\s,;|"0-9]*[\x80-\xff][^\s,;|"]*')
NOT_IN_CP1252 = (b"\x81", b"\x8d", b"\x8f", b"\x90", b"\x9d")
ESCAPES = (None, "\\")
MISSING_VALUES = (
    *("", "NA", "N/A", "n/a", "NaN", "nan", "-nan", "-NaN"),
    *("null", "NULL", "None", "<NA>", "#N/A", "#NA"),
)
"""Cells that stand for a missing value."""


@contextmanager
def decompressed(path: Path, compression: str | None) -> Iterator[Any]:
    """Open a file, decompressed."""
    try:
        with pa.input_stream(str(path), compression=compression) as file:
            yield file
    except OSError as error:
        reason = (
            "is broken, or has something behind its end"
            if compression
            else f"cannot be read: {error.strerror}"
        )
        raise InputError(f"{quoted(path)} {reason}") from None


def inspect_csv(table: TableFile, head: bytes, complete: bool, encoding: str | None) -> TableFile:
    """Return the encoding, the delimiter and the columns of a CSV file.

    Args:
        table: The file.
        head: Its first bytes, decompressed.
        complete: Whether these are all.
        encoding: Its encoding; None to find it.
    """
    path = table.path
    encoding = encoding or _encoding(path, head, complete)
    try:
        "x".encode(encoding)  # Raises for what is no encoding of text, like base64.
        decoder = codecs.getincrementaldecoder(encoding)()
        text = decoder.decode(head, final=complete).removeprefix("\ufeff")
    except LookupError:
        raise InputError(f"encoding {quoted(encoding)} is unknown; choose one like utf-8 or cp1252") from None
    except UnicodeError:
        raise _not_in(path, encoding) from None
    if not complete:
        end = max(text.rfind("\n"), text.rfind("\r"))
        if end < 0:
            raise InputError(
                f"{quoted(path)} has no line break in its first {MAX_HEADER_BYTES:,} bytes: not a CSV file"
            )
        text = text[: end + 1]
    if "\0" in text:
        raise InputError(f"{quoted(path)} contains zero bytes, so it is not a CSV file in {encoding}")
    layout, table = _layout(replace(table, encoding=encoding), text, DELIMITERS)
    if not layout.is_regular:  # Blanks divide texts too, so they come last.
        blank = _layout(replace(table, encoding=encoding), text, (" ",))
        layout, table = blank if blank[0].is_regular else (layout, table)
    notes = [] if encoding in ("utf-8", "ascii") else [f"read as {encoding} (--encoding names another)"]
    if layout.skipped:
        lines = "line above it is" if layout.skipped == 1 else f"{layout.skipped} lines above it are"
        notes.append(f"the header is line {layout.skipped + 1}: the {lines} skipped")
    return replace(table, names=layout.names, skipped=layout.skipped, notes=tuple(notes))


def _layout(table: TableFile, text: str, delimiters: Sequence[str]) -> tuple[Layout, TableFile]:
    """Return the most regular layout of a text, with its delimiter."""
    found = []
    for escape in ESCAPES:
        for delimiter in delimiters:
            tried = replace(table, delimiter=delimiter, escape=escape)
            try:
                found.append((find_layout(_first_rows(text, tried)), tried))
            except csv.Error as error:
                raise InputError(f"{quoted(table.path)} does not start with a CSV header: {error}") from None
    return max(found, key=lambda entry: entry[0].score)


def _not_in(path: Path, encoding: str) -> InputError:
    return InputError(f"{quoted(path)} is not {encoding}; name its encoding with --encoding")


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
    """Return the encoding of text that is not UTF-8: that of Windows, unless it makes no words there."""
    content = content[: content.rfind(b"\n") + 1] or content  # A character may be cut at the end.
    try:
        text = content.decode("cp1252")
    except UnicodeDecodeError:
        return _guessed(content, (*SCRIPTS, "mac_roman")) or "latin-1"
    # In Western texts letters with accents are rare; in others read as Western ones, nearly all letters have them.
    accented = [place for place, letter in enumerate(text) if letter > "\x7f"]
    beside = sum(b - a == 1 for a, b in pairwise(accented))
    scripts = SCRIPTS if beside > len(accented) / 2 else ()
    return (_guessed(content, scripts) if scripts else None) or "cp1252"


def _guessed(content: bytes, among: Sequence[str]) -> str | None:
    """Return which of some encodings text most probably has; None if it can be none of them."""
    from charset_normalizer import from_bytes

    # Numbers and repeated words say nothing about it.
    words = dict.fromkeys(islice(map(bytes, WORD.findall(content)), 20_000))
    found = from_bytes(b" ".join(words), cp_isolation=list(among), threshold=0.5)
    best = min(
        found, key=lambda match: (match.chaos, -match.coherence, among.index(match.encoding)), default=None
    )
    return None if best is None else best.encoding


def csv_rows(lines: Iterator[str], table: TableFile) -> Any:
    """Return a reader of the rows of a CSV file."""
    csv.field_size_limit(MAX_ROW_BYTES)
    return csv.reader(lines, delimiter=table.delimiter, escapechar=table.escape)


def _first_rows(text: str, table: TableFile) -> list[tuple[int, list[str]]]:
    """Return the first rows that are not empty, each with the number of lines above it."""
    reader = csv_rows(io.StringIO(text, newline=""), table)
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


def read_csv(table: TableFile, columns: list[str], limits: Limits) -> pa.Table:
    """Return some columns of a CSV file, as text."""
    limits.check(table.path, size=table.path.stat().st_size)
    if table.encoding == "utf-8":
        try:
            with decompressed(table.path, table.compression) as file:
                return _read_rows(table, file, columns, limits)
        except UnicodeError:
            pass  # Not all of it is: text that was pasted from elsewhere, say.
    return _read_rows(table, pa.BufferReader(csv_text(table, limits)[0].encode()), columns, limits)


def csv_text(table: TableFile, limits: Limits) -> tuple[str, str]:
    """Return the content of a CSV file, decompressed, and its encoding."""
    most = int(limits.gigabytes * 1e9) + 1
    with decompressed(table.path, table.compression) as file:
        content: bytes = file.read(most)
    limits.check(table.path, size=len(content))
    encoding = table.encoding
    if encoding == "utf-8":
        try:
            return content.decode(), encoding
        except UnicodeDecodeError as error:
            encoding = _legacy(content[max(error.start - MAX_HEADER_BYTES, 0) :][: 2 * MAX_HEADER_BYTES])
            if encoding == "cp1252" and any(byte in content for byte in NOT_IN_CP1252):
                encoding = "latin-1"
    try:
        return content.decode(encoding), encoding
    except UnicodeError:
        raise _not_in(table.path, encoding) from None


def _set_aside(short: list[Any], row: Any) -> str:
    """Keep a row with too few cells, which may be one of a few notes below the table; others are errors.

    An open quote makes one row of all that follows.
    """
    is_note = row.actual_columns < row.expected_columns and '"' not in row.text and len(row.text) <= MAX_NOTE
    if not is_note or len(short) == MAX_FOOTER:
        return "error"
    short.append(row)
    return "skip"


def _read_rows(table: TableFile, source: Any, columns: list[str], limits: Limits) -> pa.Table:
    """Read a CSV file in blocks; raise ``UnicodeError`` if it is not UTF-8."""
    path, rows, size, batches = table.path, 0, 0, []
    short: list[Any] = []
    convert = pa.csv.ConvertOptions(
        include_columns=columns,
        column_types={name: pa.string() for name in columns},
        null_values=list(MISSING_VALUES),
        strings_can_be_null=True,
    )
    read = pa.csv.ReadOptions(
        block_size=MAX_ROW_BYTES,
        use_threads=False,
        column_names=table.names,
        skip_rows=table.skipped,
        skip_rows_after_names=1,  # The header, whose names were found already.
    )
    parse = pa.csv.ParseOptions(
        delimiter=table.delimiter,
        escape_char=table.escape or False,
        newlines_in_values=True,
        invalid_row_handler=partial(_set_aside, short),
    )
    try:
        reader = pa.csv.open_csv(source, read, parse, convert)
        for batch in reader:
            rows, size = rows + batch.num_rows, size + batch.nbytes
            limits.check(path, rows, size)
            batches.append(batch)
        if short and short[0].number <= table.skipped + 1 + rows:  # The header is a row too.
            raise InputError(
                f"{quoted(path)} is not a valid CSV file: row {short[0].number} has {short[0].actual_columns} of "
                f"{short[0].expected_columns} cells: {quoted(short[0].text)}; give each row as many cells as the header"
            )
        footer = {FOOTER: str(len(short)).encode()} if short else None
        return pa.Table.from_batches(batches, reader.schema).replace_schema_metadata(footer)
    except (pa.ArrowInvalid, pa.ArrowKeyError) as error:
        message = str(error)
        if "UTF8" in message:
            raise UnicodeError from None
        if "straddl" in message:
            long = (
                "a row of more than {MAX_ROW_BYTES:,} bytes" if size else "no complete row below its header"
            )
            raise InputError(
                f"{quoted(path)} has {long.format(MAX_ROW_BYTES=MAX_ROW_BYTES)}: a closing quote is missing, or it "
                "is not a CSV file"
            ) from None
        hint = (
            " (is a closing quote missing?)"
            if '"' in message
            else "; give each row as many cells as the header"
        )
        message = message.removeprefix("CSV parse error: ")
        raise InputError(f"{quoted(path)} is not a valid CSV file: {quoted(message)}{hint}") from None
