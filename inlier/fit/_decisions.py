"""What a person decided about suspect rows and images: to keep, to fix or to drop them."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from inlier._errors import InputError, quoted
from inlier.fit._tables import Limits, check_columns, inspect_table, read_columns
from inlier.fit._written import MARKS, duration, split_number

if TYPE_CHECKING:
    from inlier.fit._image_data import ImageSet

__all__ = ["Decision", "apply_decisions", "apply_to_images", "check_label", "image_of", "read_decisions"]

ACTIONS = ("keep", "fix", "drop")
COLUMNS = ("row", "decision", "given", "value", "file")
MAX_BYTES = 100_000_000


@dataclass(frozen=True)
class Decision:
    """What to do about one row.

    Args:
        row: Its number, as in the ranking.
        action: ``keep``, ``fix`` or ``drop``.
        given: The target in the table when this was decided; empty if unknown.
        value: The target that it gets, if it is fixed.
        file: The name of an image, whose number changes when files come and go.
    """

    row: int
    action: str
    given: str = ""
    value: str = ""
    file: str = ""


def read_decisions(path: Path) -> list[Decision]:
    """Return the decisions of a table: its columns are ``row``, ``decision``, ``given``, ``value`` and ``file``.

    A spreadsheet program may have saved it, and a person may have typed in it: case and blanks do not count, and lines
    without a decision are skipped.

    Raises:
        InputError: If a line is not a decision, or a row has two.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp(), "decisions.csv")
        >>> _ = path.write_text("row,decision,given,value\\n7,fix,cat,dog\\n9,drop,cat,\\n")
        >>> read_decisions(path)[0]
        Decision(row=7, action='fix', given='cat', value='dog', file='')
    """
    table = inspect_table(path)
    if table.format != "parquet":  # A person may have typed the header.
        table = replace(
            table,
            names=tuple(name.casefold() if name.casefold() in COLUMNS else name for name in table.names),
        )
    check_columns(table, ["row", "decision"], "decisions")
    names = [name for name in COLUMNS if name in table.names]
    found: dict[int, Decision] = {}
    for place, entry in enumerate(read_columns(table, names, Limits(gigabytes=MAX_BYTES / 1e9)).to_pylist()):
        number = str("" if entry["row"] is None else entry["row"]).strip().removesuffix(".0")
        action = str(entry["decision"] or "").strip().casefold()
        if not action:
            continue  # Nothing was decided about this row.
        line = f"decisions {quoted(path)}, line {place + table.first_row}"
        if not number.isdecimal():
            raise InputError(f"{line}: row {quoted(number)} is not a number")
        if action not in ACTIONS:
            raise InputError(f"{line}: {quoted(action)} is no decision; choose from {', '.join(ACTIONS)}")
        value = unescaped(entry.get("value") or "")
        if action == "fix" and not value:
            raise InputError(f"{line}: row {number} is to be fixed, but no value is given")
        if int(number) in found:
            raise InputError(f"{line}: row {number} was decided before")
        given, file = (unescaped(entry.get(name) or "") for name in ("given", "file"))
        found[int(number)] = Decision(int(number), action, given, value, file)
    return list(found.values())


def unescaped(text: str) -> str:
    """Return a text without the apostrophe that keeps a spreadsheet from evaluating it.

    Example:
        >>> unescaped("'=rose"), unescaped("'tis")
        ('=rose', "'tis")
    """
    return text[1:] if text[:1] == "'" and text[1:2] in ("=", "@", "+", "-", "\t", "\r", "\n") else text


def apply_decisions(
    cells: pa.Table, target: str, decisions: Sequence[Decision], first_row: int
) -> tuple[pa.Table, set[int]]:
    """Return the table with fixed targets, and the positions of the rows to drop.

    Args:
        cells: The table.
        target: The column that is fixed.
        decisions: What was decided.
        first_row: The number of its first row.

    Raises:
        InputError: If a row does not exist, or its target is not what it was when this was decided.
    """
    if not decisions:
        return cells, set()
    column = cells[target]
    values = column.to_pylist()
    dropped = set()
    for decision in decisions:
        position = decision.row - first_row
        if not 0 <= position < len(values):
            raise InputError(
                f"decisions: row {decision.row} does not exist; the last is {len(values) + first_row - 1}"
            )
        if not _same(values[position], decision.given):
            raise InputError(
                f"decisions: {quoted(target)} of row {decision.row} is {quoted(values[position])}, and was "
                f"{quoted(decision.given)} when this was decided: the table has changed"
            )
        if decision.action == "drop":
            dropped.add(position)
        elif decision.action == "fix":
            values[position] = _converted(decision, column.type)
    fixed = pa.chunked_array([pa.array(values, column.type)])
    return cells.set_column(cells.schema.get_field_index(target), target, fixed), dropped


def apply_to_images(data: ImageSet, decisions: Sequence[Decision]) -> tuple[ImageSet, list[Any]]:
    """Return images with fixed labels and without the dropped ones, and the names of the others that were decided.

    Args:
        data: Images with their labels.
        decisions: What was decided.

    Raises:
        InputError: If there is no such image or class, or a label is not what it was when this was decided.
    """
    places = {name: place for place, name in enumerate(data.names)}
    classes, labels = data.images.class_names, data.images.labels.clone()
    dropped: dict[int, str] = {}
    names = []
    for decision in decisions:
        name = image_of(decision, data.kind, data.names, places)
        place = places[name]
        check_label(decision, name, classes[labels[place]], classes)
        if decision.action == "drop":
            dropped[place] = f"row {name}" if data.kind == "index" else name
            continue
        if decision.action == "fix":
            labels[place] = classes.index(decision.value)
        names.append(name)
    some = [place for place in range(len(labels)) if place not in dropped]
    if len(set(labels[some].tolist())) < 2:
        raise InputError("decisions: they leave images of one class only; nothing can be learned")
    images = replace(data.images, pixels=data.images.pixels[some], labels=labels[some])
    skipped = data.skipped | dict.fromkeys(dropped.values(), "dropped, as decided")
    return replace(data, images=images, names=[data.names[place] for place in some], skipped=skipped), names


def image_of(decision: Decision, kind: str, names: Sequence[Any], known: Container[Any]) -> Any:
    """Return the name of the image that was decided about.

    Args:
        decision: What was decided.
        kind: ``file``, or ``index`` for a row of a Parquet file.
        names: The names of all images, in order: where only a number is given, it counts these.
        known: The same names.

    Raises:
        InputError: If there is no such image.
    """
    name: Any = decision.row
    if kind == "file":
        name = decision.file or next(iter(names[decision.row : decision.row + 1]), decision.row)
    if name not in known:
        raise InputError(f"decisions: there is no usable image {quoted(name)}")
    return name


def check_label(decision: Decision, name: Any, given: str, classes: Sequence[str]) -> None:
    """Raise if a label is not what it was when this was decided, or is to become one that is no class."""
    if decision.given not in ("", given):
        raise InputError(
            f"decisions: the label of {quoted(name)} is {quoted(given)}, and was {quoted(decision.given)} when "
            "this was decided: the images have changed"
        )
    if decision.action == "fix" and decision.value not in classes:
        raise InputError(
            f"decisions: {quoted(name)} cannot become {quoted(decision.value)}; the classes are "
            f"{', '.join(map(quoted, classes[:8]))}{' ...' if len(classes) > 8 else ''}"
        )


def _same(cell: Any, given: str) -> bool:
    """Return whether a cell is what it was: the same text, or the same number."""
    if not given or cell is None or str(cell).strip() == given.strip():
        return True
    number = split_number(str(cell))
    try:
        wanted = float(given)
    except ValueError:
        return False
    read = [] if number is None else [number.value(mark) for mark in MARKS]
    return any(abs(value - wanted) <= 1e-4 * abs(wanted) for value in read)


def _converted(decision: Decision, kind: Any) -> Any:
    """Return what a cell of a type becomes: an integer is the nearest one to what a model suggests."""
    text = decision.value.strip()
    try:
        if pa.types.is_integer(kind) and not text.lstrip("+-").isdecimal():
            return pa.scalar(round(float(text)), kind).as_py()
        if pa.types.is_duration(kind):
            seconds = duration(text)
            return timedelta(seconds=seconds if seconds == seconds else float(text))
        return pa.scalar(decision.value).cast(kind).as_py()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError, OverflowError):
        raise InputError(
            f"decisions: row {decision.row} cannot become {quoted(decision.value)}: the column holds {kind}"
        ) from None
