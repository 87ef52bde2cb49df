"""What ``run.json`` says to later commands, checked against a schema: the file may have been edited."""

from __future__ import annotations

import json
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError

from inlier._errors import InputError, quoted
from inlier.fit._columns import Column

__all__ = ["MADE_BY", "RUN_FILE", "ImageRun", "TableRun", "is_output", "read_run"]

RUN_FILE = "run.json"
MADE_BY = "inlier fit"
MAX_BYTES = 100_000_000


@dataclass(frozen=True)
class TargetEntry:
    """The target of a table: its name, and its Arrow type."""

    name: str
    type: str


@dataclass(frozen=True)
class TableRun:
    """A fit of a table.

    Args:
        kind: What was fitted.
        target: The target.
        task: Regression or classification.
        columns: The input columns, and how they are read.
        data: The table, as it was named.
        encoder: The encoder of texts, if any.
        encoding: The encoding of a CSV file, if it was named.
    """

    kind: Literal["table"]
    data: str
    target: TargetEntry
    task: Literal["regression", "classification"]
    columns: list[Column]
    encoder: str | None = None
    encoding: str | None = None


@dataclass(frozen=True)
class ImageRun:
    """A fit of images.

    Args:
        kind: What was fitted.
        data: The images, as they were named.
        classes: The classes.
        label: The column of labels of a Parquet file.
        skipped: The files that were not used, and why.
        encoder: The encoder; None for a network that was trained from scratch.
        head: Whether a network of one hidden layer is behind it, or a linear model.
    """

    kind: Literal["images"]
    data: str
    classes: list[str] = field(default_factory=list)
    label: str | None = None
    skipped: dict[str, str] = field(default_factory=dict)
    encoder: str | None = None
    head: bool = False


SCHEMA: TypeAdapter[TableRun | ImageRun] = TypeAdapter(
    Annotated[TableRun | ImageRun, Field(discriminator="kind")]
)


def _content(folder: Path) -> Any:
    """Return the content of ``run.json``; None if there is no such file of ``inlier fit``."""
    path = folder / RUN_FILE
    try:
        state = path.stat()
        if not stat.S_ISREG(state.st_mode) or state.st_size > MAX_BYTES:
            return None
        record = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) and record.get("made_by") == MADE_BY else None


def is_output(folder: Path) -> bool:
    """Return whether a folder is an output of ``inlier fit``."""
    return _content(folder) is not None


def read_run(folder: Path) -> TableRun | ImageRun:
    """Return the record of the run that wrote a folder.

    Raises:
        InputError: If there is none, or it does not follow the schema: the first mistake is named.
    """
    record = _content(folder)
    if record is None:
        raise InputError(f"{quoted(folder)} is not an output of inlier fit: it lacks its {RUN_FILE}")
    try:
        return SCHEMA.validate_python(record)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"][1:]) or "kind"
        raise InputError(
            f"{quoted(folder / RUN_FILE)} is broken, or of another version of inlier: {quoted(place)}: "
            f"{first['msg'].lower()}"
        ) from None
