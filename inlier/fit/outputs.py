"""Folders and files that are written whole or not at all."""

from __future__ import annotations

import json
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

from inlier.files import write_whole
from inlier.fit import InputError, shown

RECORD = "run.json"
MADE_BY = "inlier fit"
FOUND = ("suspects.parquet", "suspects.csv", "report.html", RECORD)
TABLE_FILES = ("model.skops", *FOUND)
"""What ``inlier fit`` writes into its folder for a table."""
PICTURE_FILES = ("model.safetensors", "model.json", *FOUND)
"""What it writes for pictures."""


def check_folder(folder: Path, overwrite: bool) -> None:
    """Raise unless a folder is new, empty, or the output of an earlier run that may be overwritten.

    Args:
        folder: Where output is to go.
        overwrite: Whether an earlier output may be replaced.
    """
    if not folder.exists():
        above = next(parent for parent in folder.absolute().parents if parent.exists())
        if not above.is_dir():
            raise InputError(f"out {shown(folder)}: {shown(above)} is no folder")
        return
    if not folder.is_dir():
        raise InputError(f"out {shown(folder)} is a file; name a folder")
    held = sorted(path.name for path in folder.iterdir())
    if not held:
        return
    if read_record(folder) is None:
        raise InputError(
            f"out {shown(folder)} is not empty, and no output of inlier fit; choose another folder"
        )
    strange = [name for name in held if name not in (*TABLE_FILES, *PICTURE_FILES)]
    if strange:
        raise InputError(
            f"out {shown(folder)} also holds {shown(strange[0])}, which inlier fit did not write; "
            "move it away or choose another folder"
        )
    if not overwrite:
        raise InputError(
            f"out {shown(folder)} holds an earlier output; choose another folder, or add --overwrite"
        )


@contextmanager
def new_folder(folder: Path, overwrite: bool) -> Iterator[Path]:
    """Give a folder to write into, and move it in place when all is written.

    Whatever ends the writing early leaves nothing behind, and an earlier output as it was.

    Args:
        folder: Its place in the end.
        overwrite: Whether an earlier output may be replaced.
    """
    check_folder(folder, overwrite)
    folder = folder.absolute()
    folder.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        inside = work / "new"
        inside.mkdir()
        yield inside
        check_folder(folder, overwrite)  # It may have been filled in the meantime.
        old = work / "old"
        if folder.exists():
            folder.rename(old)
        try:
            inside.rename(folder)
        except BaseException:
            if old.exists():
                old.rename(folder)
            raise
    finally:
        shutil.rmtree(work, ignore_errors=True)


def write_record(record: dict[str, Any], path: Path) -> None:
    """Write what is known of a run."""
    path.write_text(json.dumps({"made_by": MADE_BY, **record}, indent=2, allow_nan=False) + "\n", "utf-8")


def read_record(folder: Path) -> dict[str, Any] | None:
    """Return what is known of the run that wrote a folder; None if none did."""
    try:
        record = json.loads((folder / RECORD).read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) and record.get("made_by") == MADE_BY else None


def check_file(out: Path, data: Path, overwrite: bool) -> None:
    """Raise unless a file can be written: in a folder that is there, and new unless it may be replaced.

    Args:
        out: The file.
        data: What is read, which is never replaced.
        overwrite: Whether a file of this name may be replaced.
    """
    if not out.parent.is_dir():
        raise InputError(f"out {shown(out)}: there is no folder {shown(out.parent)}; make it first")
    if out.is_dir():
        raise InputError(f"out {shown(out)} is a folder; name a file")
    if out.exists() and data.exists() and out.samefile(data):
        raise InputError(f"out {shown(out)} is the table itself; choose another name")
    if out.exists() and not overwrite:
        raise InputError(f"out {shown(out)} exists; choose another name, or add --overwrite")


def write_table(table: pa.Table, out: Path) -> None:
    """Write a table whole: Parquet if the name ends so, else CSV."""
    content = pa.BufferOutputStream()
    if out.suffix.lower() in (".parquet", ".pq"):
        pa.parquet.write_table(table, content)
    else:
        pa.csv.write_csv(safe_for_spreadsheets(table), content)
    write_whole(out, content.getvalue())


def safe_for_spreadsheets(table: pa.Table) -> pa.Table:
    """Return a table whose texts a spreadsheet does not take for formulas.

    A text that begins with ``=``, ``@``, a tab or a line end, or with ``+`` or ``-`` without being that sign
    alone or a number, gets an apostrophe in front, which spreadsheets take as a mark of text.

    Example:
        >>> import pyarrow as pa
        >>> safe_for_spreadsheets(pa.table({"a": ["=1+1", "-2.5", "+", "-x", "b"]}))["a"].to_pylist()
        ["'=1+1", '-2.5', '+', "'-x", 'b']
    """
    for place, field in enumerate(table.schema):
        if pa.types.is_string(field.type):
            texts = table[field.name]
            risky = pc.or_(
                pc.match_substring_regex(texts, r"^[=@\t\r\n]"),
                pc.and_(
                    pc.match_substring_regex(texts, r"^[+-](?s:.)"),
                    pc.invert(pc.match_substring_regex(texts, r"^[+-]\d*\.?\d+(e[+-]?\d+)?$")),
                ),
            )
            guarded = pc.if_else(risky, pc.binary_join_element_wise("'", texts, ""), texts)
            table = table.set_column(place, field.name, guarded)
    return table
