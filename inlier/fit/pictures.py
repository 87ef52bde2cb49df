"""Finding and reading pictures: a folder of class folders, or a Parquet file with a column of pictures.

What cannot be used is set aside by name, with the reason; only data that leave nothing to learn are refused.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from inlier.fit import InputError, shown
from inlier.fit.tables import check_columns, look, parquet_schema
from inlier.vision.images import Images, class_names, decode, rows_of

__all__ = ["Pictures", "holds_pictures", "listed", "read_labelled", "read_unlabelled"]

COLUMNS = ("img", "image")
"""Names of a Parquet file's column of pictures."""
SIZES = (32, 64)
"""Pictures are scaled to squares of one of these many pixels."""
LOOKED_AT = 20
"""So many pictures are looked at to choose the size."""
FEWEST = 10


@dataclass(frozen=True)
class Pictures:
    """Pictures of one size, and where each of them is from.

    Args:
        images: Pixels, labels and class names; labels are -1 where none are needed.
        kind: What names a picture: "file", or "index" for a row of a Parquet file, the first of which is 0.
        names: That of each picture.
        skipped: What was set aside, and why.
    """

    images: Images
    kind: str
    names: list[Any]
    skipped: dict[str, str]


@dataclass(frozen=True)
class _Found:
    """A picture file, not decoded yet.

    Args:
        name: Its file name or row.
        content: Reads it.
        label: The class it was given, if any.
        trouble: Why it cannot be used, if it cannot.
    """

    name: Any
    content: Callable[[], bytes]
    label: str = ""
    trouble: str = ""


def holds_pictures(path: Path, drop: Iterable[str] = ()) -> bool:
    """Whether data are pictures: a folder, or a Parquet file with a column of pictures that is not dropped.

    Args:
        path: The data.
        drop: Columns that are not used.
    """
    if path.is_dir():
        return True
    if not _is_parquet(path):
        return False
    column = _picture_column(path)
    return column is not None and column not in drop


def read_labelled(path: Path, label: str = "label", size: int | None = None) -> Pictures:
    """Return pictures with the labels they were given.

    Args:
        path: A folder of class folders, or a Parquet file.
        label: The column of labels of a Parquet file.
        size: Scale to this many pixels; None to choose by the size of the pictures.

    Raises:
        InputError: If there is too little to learn from.
    """
    skipped: dict[str, str] = {}
    if path.is_dir():
        kind, found = "file", _in_class_folders(path, skipped)
    else:
        check_columns(look(path), [label], "target")
        kind, found = "index", _in_rows(path, label)
    names_of, given, pixels = _read(path, kind, found, skipped, size)
    counts = Counter(given)
    rare = {name for name, count in counts.items() if count == 1}
    for name, own in zip(names_of, given, strict=True):
        if own in rare:
            skipped[_where(kind, name)] = f"the only picture of its class, {shown(own)}"
    kept = [place for place, own in enumerate(given) if own not in rare]
    names = [name for name in _in_order(path, label, counts) if name not in rare]
    if len(names) < 2:
        which = f"one class only, {shown(names[0])}" if names else "no class of two pictures or more"
        raise InputError(f"{shown(path)} has {which}: there is nothing to learn{_first(skipped)}")
    if len(kept) < FEWEST:
        raise InputError(
            f"{shown(path)} has {len(kept)} pictures that can be used; at least {FEWEST} are needed"
            + _first(skipped)
        )
    number = {name: place for place, name in enumerate(names)}
    labels = torch.tensor([number[given[place]] for place in kept])
    images = Images(pixels[kept] if rare else pixels, labels, tuple(names))
    return Pictures(images, kind, [names_of[place] for place in kept], skipped)


def read_unlabelled(path: Path, size: int) -> Pictures:
    """Return pictures whatever their labels: all in a folder or its folders, one file, or a Parquet file's.

    Args:
        path: A folder, a picture file, or a Parquet file.
        size: Scale to this many pixels.

    Raises:
        InputError: If there is no picture.
    """
    skipped: dict[str, str] = {}
    found: Iterator[_Found]
    if path.is_dir():
        kind, found = "file", (_file(path, file) for file in _files(path))
    elif _is_parquet(path):
        if _picture_column(path) is None:
            raise InputError(f"{shown(path)} has no column {' or '.join(COLUMNS)} of pictures")
        kind, found = "index", _in_rows(path, None)
    elif path.is_file():
        kind, found = "file", iter([_file(path.parent, path)])
    else:
        raise InputError(f"there is no file or folder {shown(path)}")
    names, _, pixels = _read(path, kind, found, skipped, size)
    return Pictures(Images(pixels, torch.full((len(names),), -1), ()), kind, names, skipped)


def _read(
    path: Path, kind: str, found: Iterator[_Found], skipped: dict[str, str], size: int | None
) -> tuple[list[Any], list[str], Tensor]:
    """Return names, labels and pixels of all pictures that can be read; enter the others in ``skipped``."""
    head = list(islice(found, LOOKED_AT))
    size = size or _size(head)
    names, labels, pixels = [], [], []
    for item in chain(head, found):
        try:
            if item.trouble:
                raise ValueError(item.trouble)
            pixels.append(decode(item.content(), size))
            names.append(item.name)
            labels.append(item.label)
        except OSError as error:
            skipped[_where(kind, item.name)] = error.strerror or "it cannot be read"
        except ValueError as error:
            skipped[_where(kind, item.name)] = str(error)
    if not names:
        raise InputError(f"{shown(path)} holds no picture that can be used{_first(skipped)}")
    return names, labels, torch.from_numpy(np.stack(pixels))


def _size(found: list[_Found]) -> int:
    """Return the size for pictures like these: the smaller one unless most of them are larger than that."""
    sides = []
    for item in found:
        if item.trouble:
            continue
        try:
            sides.append(min(decode(item.content()).shape[1:]))
        except (OSError, ValueError):
            continue
    return SIZES[0] if not sides or float(np.median(sides)) < 1.5 * SIZES[0] else SIZES[1]


def _in_class_folders(path: Path, skipped: dict[str, str]) -> Iterator[_Found]:
    """Yield the files of all class folders; the first folder below ``path`` is the class."""
    classes = []
    for entry in _entries(path):
        if entry.is_dir():
            classes.append(entry)
        else:
            skipped[_text(entry.name)] = "not in a class folder"
    if not classes:
        raise InputError(
            f"{shown(path)} has no class folders; put the pictures of each class into a folder of its own"
        )
    _refuse_splits(path, classes)
    for folder in classes:
        files = list(_files(folder))
        if not files:
            skipped[_text(folder.name) + "/"] = "an empty class folder"
        for file in files:
            yield _file(path, file, folder.name)


def _refuse_splits(path: Path, classes: list[Path]) -> None:
    """Raise for a folder like ``photos`` with ``photos/train/cat`` and ``photos/test/cat``."""
    inside = [_entries(folder) for folder in classes]
    loose = any(not entry.is_dir() for entries in inside for entry in entries)
    if len(classes) > 1 and not loose and set.intersection(*({e.name for e in part} for part in inside)):
        raise InputError(
            f"{shown(path)} holds {shown(classes[0].name)} and {shown(classes[1].name)} with equal folders "
            f"in them: parts of the data, no classes; name one of them, like {classes[0].name}"
        )


def _entries(folder: Path) -> list[Path]:
    """Return what is in a folder, in order, but what is hidden."""
    try:
        return sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))
    except OSError as error:
        raise InputError(f"folder {shown(folder)} cannot be read: {error.strerror}") from None


def _files(folder: Path) -> Iterator[Path]:
    """Yield all files in a folder and its folders, in order, but hidden ones."""

    def refuse(error: OSError) -> None:
        raise InputError(f"folder {shown(error.filename)} cannot be read: {error.strerror}")

    for place, folders, files in os.walk(folder, onerror=refuse):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (Path(place, name) for name in sorted(files) if not name.startswith("."))


def _file(base: Path, file: Path, label: str = "") -> _Found:
    return _Found(_text(file.relative_to(base).as_posix()), file.read_bytes, _text(label))


def _text(name: str) -> str:
    """Return a file name that can be written anywhere: bytes that are no UTF-8 have a mark in their place."""
    return os.fsencode(name).decode("utf-8", "replace")


def _in_rows(path: Path, label: str | None) -> Iterator[_Found]:
    """Yield the rows of a Parquet file; without a column of labels, no label is asked for."""
    names = class_names(path, label) if label else ()
    try:
        for row, (content, given) in enumerate(rows_of(path, str(_picture_column(path)), label)):
            named, trouble = ("", "") if label is None else _label(given, names)
            if content is None:
                trouble = trouble or "no picture in it"
            yield _Found(row, partial(bytes, content or b""), named, trouble)
    except (pa.ArrowException, OSError):
        raise InputError(f"{shown(path)} is a broken Parquet file") from None


def _label(given: Any, names: tuple[str, ...]) -> tuple[str, str]:
    """Return the class that a label says, and what is wrong with the label, if anything."""
    if given is None or given == "":
        return "", "without a label"
    if isinstance(given, bool | str):
        return str(given), ""
    if not isinstance(given, int):
        raise InputError(f"labels like {shown(given)} are no classes; give whole numbers or text")
    if given < 0 or (names and given >= len(names)):
        known = f"; there are classes 0 to {len(names) - 1}" if names else ""
        return "", f"label {given} is out of range{known}"
    return (names[given] if names else str(given)), ""


def _in_order(path: Path, label: str, counts: Counter[str]) -> list[str]:
    """Return the classes that have pictures in the order of the file's own list, or by number, or by name."""
    known = [] if path.is_dir() else list(class_names(path, label))
    rest = [name for name in counts if name not in known]
    key = (lambda name: (len(name), name)) if all(name.isdecimal() for name in rest) else str
    return [name for name in known if name in counts] + sorted(rest, key=key)


def _where(kind: str, name: Any) -> str:
    return f"row {name}" if kind == "index" else str(name)


def _first(skipped: dict[str, str]) -> str:
    """Return the first thing that was set aside, to end a message with."""
    return f"; set aside: {listed(skipped, 1)}" if skipped else ""


def listed(skipped: dict[str, str], most: int = 5) -> str:
    """Return what was set aside and why, on one line.

    Example:
        >>> print(listed({"a.txt": "no picture", "b.txt": "no picture"}, 1))
        'a.txt' (no picture) and 1 more
    """
    first = ", ".join(f"{shown(name)} ({reason})" for name, reason in list(skipped.items())[:most])
    return first + (f" and {len(skipped) - most:,} more" if len(skipped) > most else "")


def _is_parquet(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(4) == b"PAR1"
    except OSError:
        return False


def _picture_column(path: Path) -> str | None:
    """Return the name of a Parquet file's column of pictures: bytes, or structures with bytes."""
    schema = parquet_schema(path)
    for name in COLUMNS:
        if name in schema.names:
            kind = schema.field(name).type
            if pa.types.is_struct(kind) and kind.get_field_index("bytes") >= 0:
                kind = kind.field("bytes").type
            if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
                return name
    return None
