"""Output folders and files, written completely or not at all."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from inlier._errors import InputError, quoted
from inlier._files import write_whole
from inlier.fit._record import MADE_BY, RUN_FILE, is_output

RESULT_FILES = ("suspects.parquet", "suspects.csv", "report.html", RUN_FILE)
TABLE_FILES = ("model.skops", "cells.csv", *RESULT_FILES)
"""What ``inlier fit`` writes for a table."""
IMAGE_FILES = ("model.safetensors", "model.json", *RESULT_FILES)
"""What it writes for images."""


def check_output_folder(folder: Path, overwrite: bool) -> None:
    """Raise unless a folder is new, empty, or the output of an earlier run that may be overwritten.

    Args:
        folder: The output folder.
        overwrite: Whether an earlier output may be replaced.
    """
    if folder.is_symlink():
        raise InputError(f"out {quoted(folder)} is a link; name the folder that it leads to")
    if not folder.exists():
        above = next(parent for parent in folder.absolute().parents if parent.exists())
        if not above.is_dir():
            raise InputError(f"out {quoted(folder)}: {quoted(above)} is not a folder")
        return
    if not folder.is_dir():
        raise InputError(f"out {quoted(folder)} is a file; name a folder")
    names = sorted(path.name for path in folder.iterdir())
    if not names:
        return
    if not is_output(folder):
        raise InputError(
            f"out {quoted(folder)} is not empty, and not an output of inlier fit; choose another folder"
        )
    foreign = [name for name in names if name not in (*TABLE_FILES, *IMAGE_FILES)]
    if foreign:
        raise InputError(
            f"out {quoted(folder)} also holds {quoted(foreign[0])}, which inlier fit did not write; "
            "move it away or choose another folder"
        )
    if not overwrite:
        raise InputError(
            f"out {quoted(folder)} holds an earlier output; choose another folder, or add --overwrite"
        )


@contextmanager
def atomic_folder(folder: Path, overwrite: bool) -> Iterator[Path]:
    """Give a temporary folder to write into, and move it into place when all is written.

    Whatever interrupts the writing leaves nothing behind, and an earlier output as it was.

    Args:
        folder: The final folder.
        overwrite: Whether an earlier output may be replaced.
    """
    check_output_folder(folder, overwrite)
    folder = folder.absolute()
    folder.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        new, old = work / "new", work / "old"
        new.mkdir()
        yield new
        check_output_folder(folder, overwrite)  # It may have been filled in the meantime.
        if folder.exists() and _exchange(new, folder):
            return
        if folder.exists():
            folder.rename(old)
        try:
            new.rename(folder)
        except BaseException:
            if old.exists():
                old.rename(folder)
            raise
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _exchange(new: Path, folder: Path) -> bool:
    """Exchange two folders in one step, so that even a killed process leaves one of them whole in its place.

    Returns:
        False where the system cannot do that: two steps are needed then.
    """
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return False
    here, exchange = -100, 2
    return bool(rename(here, os.fsencode(new), here, os.fsencode(folder), exchange) == 0)


def write_run(record: dict[str, Any], path: Path) -> None:
    """Write the record of a run."""
    path.write_text(json.dumps({"made_by": MADE_BY, **record}, indent=2, allow_nan=False) + "\n", "utf-8")


def check_output_file(out: Path, data: Path, overwrite: bool, model: Path) -> None:
    """Raise unless a file can be written: in an existing folder, and new unless it may be replaced.

    Args:
        out: The file.
        data: The input, which is never replaced.
        overwrite: Whether a file of this name may be replaced.
        model: The output of ``inlier fit``, into which nothing else is written.
    """
    if not out.parent.is_dir():
        raise InputError(f"out {quoted(out)}: folder {quoted(out.parent)} does not exist; create it first")
    if out.is_dir():
        raise InputError(f"out {quoted(out)} is a folder; name a file")
    if out.parent.resolve().is_relative_to(model.resolve()):
        raise InputError(f"out {quoted(out)} is inside the model; choose another folder")
    if out.is_symlink() or (out.exists() and not out.is_file()):
        raise InputError(f"out {quoted(out)} is a link, or not a regular file; choose another name")
    if out.exists() and data.exists() and out.samefile(data):
        raise InputError(f"out {quoted(out)} is the input itself; choose another name")
    if out.exists() and not overwrite:
        raise InputError(f"out {quoted(out)} exists; choose another name, or add --overwrite")


def write_table(table: pa.Table, out: Path) -> None:
    """Write a table: as Parquet if the name says so, else as CSV."""
    content = pa.BufferOutputStream()
    if out.suffix.lower() in (".parquet", ".pq"):
        pa.parquet.write_table(table, content)
    else:
        pa.csv.write_csv(escape_formulas(table), content)
    write_whole(out, content.getvalue())


def escape_formulas(table: pa.Table) -> pa.Table:
    """Return a table whose texts a spreadsheet does not evaluate as formulas.

    A text that begins with ``=``, ``@``, a tab or a line break, or with ``+`` or ``-`` without being that
    sign alone or a number, gets an apostrophe in front, by which spreadsheets mark text.

    Example:
        >>> import pyarrow as pa
        >>> escape_formulas(pa.table({"a": ["=1+1", "-2.5", "+", "-x", "b"]}))["a"].to_pylist()
        ["'=1+1", '-2.5', '+', "'-x", 'b']
    """
    for position, field in enumerate(table.schema):
        if pa.types.is_string(field.type):
            texts = table[field.name]
            risky = pc.or_(
                pc.match_substring_regex(texts, r"^[=@\t\r\n]"),
                pc.and_(
                    pc.match_substring_regex(texts, r"^[+-](?s:.)"),
                    pc.invert(pc.match_substring_regex(texts, r"^[+-]\d*\.?\d+(e[+-]?\d+)?$")),
                ),
            )
            escaped = pc.if_else(risky, pc.binary_join_element_wise("'", texts, ""), texts)
            table = table.set_column(position, field.name, escaped)
    return table
