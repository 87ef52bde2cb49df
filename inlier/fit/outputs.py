"""Folders and files that are written whole or not at all."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from inlier.fit import InputError, shown

RECORD = "run.json"
MADE_BY = "inlier fit"
FILES = ("model.skops", "suspects.parquet", "suspects.csv", "report.html", RECORD)
"""What ``inlier fit`` writes into its folder."""


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
    strange = [name for name in held if name not in FILES]
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
