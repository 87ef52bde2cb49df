"""A file that holds a table, how much of it is read, and where its header is: below titles and comments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from inlier._errors import InputError, quoted

__all__ = ["FIRST_ROW", "INSPECTED_ROWS", "Layout", "Limits", "TableFile", "find_layout", "is_number"]

FIRST_ROW = 2
"""Number of the first data row, as in a spreadsheet: the header is row 1."""
INSPECTED_ROWS = 50
"""Rows from which the delimiter, and titles above the header, are found."""
REGULAR = 0.8
"""A delimiter fits if it divides this share of the rows into as many cells as the header."""


@dataclass(frozen=True)
class Limits:
    """How much is read at most.

    Args:
        rows: Rows of a table.
        gigabytes: Uncompressed size of a file.
    """

    rows: int = 20_000_000
    gigabytes: float = 8.0

    def __post_init__(self) -> None:
        if not (self.rows > 0 and self.gigabytes > 0):
            raise InputError(
                f"limits of {self.rows:,} rows and {self.gigabytes:g} GB: choose numbers above 0"
            )

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
        escape: What stands before a quote inside quotes, if that is not doubled.
        encoding: Its encoding.
        compression: Its compression, if any.
        skipped: Lines above its header.
        notes: What is worth knowing about how it is read.
    """

    path: Path
    format: str
    names: tuple[str, ...]
    delimiter: str = ","
    escape: str | None = None
    encoding: str = "utf-8"
    compression: str | None = None
    skipped: int = 0
    notes: tuple[str, ...] = ()

    @property
    def first_row(self) -> int:
        """The number of the first data row, as a spreadsheet or an editor shows it."""
        return FIRST_ROW + self.skipped


@dataclass(frozen=True)
class Layout:
    """The header of some rows.

    Args:
        names: The names of the columns; one without a name is called ``Unnamed: 3``, as in pandas.
        skipped: Lines above the header.
        score: The higher, the more regular are the rows.
    """

    names: tuple[str, ...]
    skipped: int
    score: tuple[bool, bool, bool, float]

    @property
    def is_regular(self) -> bool:
        """Whether there are several columns, and most rows have them all."""
        return self.score[0] and self.score[1]


def find_layout(rows: Sequence[tuple[int, list[str]]]) -> Layout:
    """Return the header of some rows: the first that is as wide as most, below any titles.

    Args:
        rows: The first rows that are not empty, each with the number of lines above it.

    Example:
        >>> rows = [(0, ["Sales of May"]), (2, ["size", "", "price"]), (3, ["1", "x", "2"]), (4, ["3", "", "4"])]
        >>> layout = find_layout(rows)
        >>> layout.names, layout.skipped
        (('size', 'Unnamed: 1', 'price'), 2)
    """
    rows = _without_comments(rows)
    widths = Counter(len(row) for _, row in rows)
    if not widths:
        return Layout((), 0, (False, False, False, 0.0))
    width = max(widths, key=lambda count: (widths[count], count))
    place = next((k for k, (_, row) in enumerate(rows) if len(row) == width and _filled(row) > width / 2), 0)
    if place and not (_holds_names(rows[place][1]) and _filled(rows[0][1]) <= max(width / 2, 1)):
        # The first row is a header of another width than the rows: reading it names the row that is wrong.
        place = 0
    above, header = rows[place]
    if len(rows) > 1 and all(len(row) == len(header) + 1 and not row[-1].strip() for _, row in rows[1:]):
        header = [*header, ""]  # All rows but the header end in a delimiter.
    share = sum(len(row) == len(header) for _, row in rows[place + 1 :]) / max(len(rows) - place - 1, 1)
    names = tuple(name.strip() or f"Unnamed: {k}" for k, name in enumerate(header))
    score = (len(names) > 1, share >= REGULAR or len(rows) == 1, place == 0, len(names) * share)
    return Layout(names, above, score)


def _without_comments(rows: Sequence[tuple[int, list[str]]]) -> Sequence[tuple[int, list[str]]]:
    """Return rows without those at the top that begin with ``#``, if names and then numbers follow them."""
    first = next((k for k, (_, row) in enumerate(rows) if not row[0].startswith("#")), 0)
    below = [cell for _, row in rows[first + 1 :] for cell in row]
    named = first > 0 and _holds_names(rows[first][1]) and any(map(is_number, below))
    return rows[first:] if named else rows


def _holds_names(row: Sequence[str]) -> bool:
    """Return whether a row may be a header: different texts, most of them not blank, and none a number."""
    names = [cell.strip() for cell in row if cell.strip()]
    return len(names) > len(row) / 2 and len(set(names)) == len(names) and not any(map(is_number, names))


def _filled(row: Sequence[str]) -> int:
    return sum(bool(cell.strip()) for cell in row)


def is_number(cell: str) -> bool:
    """Return whether a cell is a number, with a decimal point or comma."""
    try:
        float(cell.replace(",", "."))
    except ValueError:
        return False
    return True
