"""Finding and reading images: a folder of class folders, or a Parquet file with a column of images.

What cannot be used is skipped and named, with the reason; only data that leave nothing to learn are refused.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor, nn

from inlier._errors import InputError, quoted
from inlier._vision.images import Images, class_names, decode, rows_of
from inlier.fit._tables import check_columns, inspect_table, parquet_parts, parquet_schema

__all__ = ["ImageSet", "holds_images", "join_reasons", "labels_of_files", "read_labelled", "read_unlabelled"]

IMAGE_COLUMNS = ("img", "image")
"""Names of a Parquet file's column of images."""
SIZES = (32, 64)
"""Images are scaled to squares with one of these sides, in pixels."""
SIZE_SAMPLE = 20
"""Number of images whose size decides between the two."""
MIN_IMAGES = 10
THREADS, CHUNK = 4, 64
"""Threads that decode images, and how many images each of them takes at a time."""


@dataclass(frozen=True)
class ImageSet:
    """Images of one size, and the source of each.

    Args:
        images: Pixels, labels and class names; labels are -1 where none are needed.
        kind: What names an image: "file", or "index" for a row of a Parquet file, counted from 0.
        names: The file or the index of each image.
        skipped: What was skipped, and why.
    """

    images: Images
    kind: str
    names: list[Any]
    skipped: dict[str, str]


@dataclass(frozen=True)
class _Candidate:
    """A file or row that should hold an image, not decoded yet.

    Args:
        name: Its file name or row.
        content: Reads its bytes.
        label: Its given class, if any.
        problem: Why it cannot be used, if it cannot.
    """

    name: Any
    content: Callable[[], bytes]
    label: str = ""
    problem: str = ""


def holds_images(path: Path, drop: Iterable[str] = ()) -> bool:
    """Return whether data are images: a folder of them, or a Parquet file with a column that is not dropped.

    Args:
        path: The data.
        drop: Columns that are not used.
    """
    if path.is_dir():
        return not parquet_parts(path)
    if not _is_parquet(path):
        return False
    column = _image_column(path)
    return column is not None and column not in drop


def read_labelled(path: Path, label: str = "label", size: int | None = None) -> ImageSet:
    """Return images with their given labels.

    Args:
        path: A folder of class folders, or a Parquet file.
        label: The column of labels of a Parquet file.
        size: Scale to this many pixels; None to choose by the size of the images.

    Raises:
        InputError: If there is too little to learn from.
    """
    skipped: dict[str, str] = {}
    if path.is_dir():
        kind, candidates = "file", _in_class_folders(path, skipped)
    else:
        check_columns(inspect_table(path), [label], "target")
        kind, candidates = "index", _in_rows(path, label)
    names, given, pixels = _read(path, kind, candidates, skipped, size)
    counts = Counter(given)
    single = {label for label, count in counts.items() if count == 1}
    for name, own in zip(names, given, strict=True):
        if own in single:
            skipped[_location(kind, name)] = f"the only image of its class, {quoted(own)}"
    kept = [position for position, own in enumerate(given) if own not in single]
    classes = [name for name in _class_order(path, label, counts) if name not in single]
    if len(classes) < 2:
        found = f"only one class, {quoted(classes[0])}" if classes else "no class of at least two images"
        raise InputError(f"{quoted(path)} has {found}; nothing can be learned{_first_skipped(skipped)}")
    if len(kept) < MIN_IMAGES:
        raise InputError(
            f"{quoted(path)} has {len(kept)} usable images; at least {MIN_IMAGES} are needed"
            + _first_skipped(skipped)
        )
    number = {name: position for position, name in enumerate(classes)}
    labels = torch.tensor([number[given[position]] for position in kept])
    images = Images(pixels[kept] if single else pixels, labels, tuple(classes))
    return ImageSet(images, kind, [names[position] for position in kept], skipped)


def read_unlabelled(path: Path, size: int) -> ImageSet:
    """Return images without labels: all in a folder and its subfolders, one file, or those of a Parquet file.

    Args:
        path: A folder, an image file, or a Parquet file.
        size: Scale to this many pixels.

    Raises:
        InputError: If there is no image.
    """
    skipped: dict[str, str] = {}
    candidates: Iterator[_Candidate]
    if path.is_dir():
        kind, candidates = "file", (_candidate(path, file) for file in _files(path))
    elif _is_parquet(path):
        if _image_column(path) is None:
            raise InputError(f"{quoted(path)} has no column {' or '.join(IMAGE_COLUMNS)} of images")
        kind, candidates = "index", _in_rows(path, None)
    elif path.is_file():
        kind, candidates = "file", iter([_candidate(path.parent, path)])
    else:
        raise InputError(f"{quoted(path)} {'is not a regular file' if path.exists() else 'does not exist'}")
    names, _, pixels = _read(path, kind, candidates, skipped, size)
    return ImageSet(Images(pixels, torch.full((len(names),), -1), ()), kind, names, skipped)


def _read(
    path: Path, kind: str, candidates: Iterator[_Candidate], skipped: dict[str, str], size: int | None
) -> tuple[list[Any], list[str], Tensor]:
    """Return names, labels and pixels of all readable images; add the others to ``skipped``."""
    head = list(islice(candidates, SIZE_SAMPLE))
    size = size or _choose_size(head)
    names, labels, pixels = [], [], []
    remaining = chain(head, candidates)
    chunks = iter(lambda: list(islice(remaining, CHUNK)), [])
    with ThreadPoolExecutor(THREADS) as threads:  # Pillow decodes and scales beside Python.
        while several := list(islice(chunks, THREADS)):
            decoded = threads.map(partial(_decode_chunk, size=size), several)
            for candidate, image in zip(
                chain.from_iterable(several), chain.from_iterable(decoded), strict=True
            ):
                if isinstance(image, str):
                    skipped[_location(kind, candidate.name)] = image
                else:
                    names.append(candidate.name)
                    labels.append(candidate.label)
                    pixels.append(image)
    if not names:
        raise InputError(f"{quoted(path)} holds no usable image{_first_skipped(skipped)}")
    return names, labels, torch.stack(pixels)


def _decode_chunk(chunk: list[_Candidate], size: int) -> list[Any]:
    """Return the pixels of some images, or in words why there are none.

    Small images are enlarged together, those of one size at a time: five times as fast as one by one.
    """
    found = [_decoded(candidate, size) for candidate in chunk]
    sides = [0 if isinstance(image, str) else image.shape[-1] for image in found]
    for side in set(sides) - {0, size}:
        places = [place for place, own in enumerate(sides) if own == side]
        small = torch.from_numpy(np.stack([found[place] for place in places]))
        large = nn.functional.interpolate(small, size=(size, size), mode="bicubic", antialias=True)
        for place, image in zip(places, large, strict=True):
            found[place] = image
    return [torch.from_numpy(image) if isinstance(image, np.ndarray) else image for image in found]


def _decoded(candidate: _Candidate, size: int) -> Any:
    """Return the pixels of an image; or in words why there are none."""
    if candidate.problem:
        return candidate.problem
    try:
        return decode(candidate.content(), size, enlarge=False)
    except OSError as error:
        return error.strerror or "cannot be read"
    except ValueError:
        return "not a readable image"


def _choose_size(candidates: list[_Candidate]) -> int:
    """Return the size to scale to: the smaller one unless most images are larger than that."""
    sides = []
    for candidate in candidates:
        if candidate.problem:
            continue
        try:
            sides.append(min(decode(candidate.content()).shape[1:]))
        except (OSError, ValueError):
            continue
    return SIZES[0] if not sides or float(np.median(sides)) < 1.5 * SIZES[0] else SIZES[1]


def labels_of_files(path: Path) -> dict[str, str]:
    """Return the files of all class folders with their labels, whether they are images or not."""
    return {candidate.name: candidate.label for candidate in _in_class_folders(path, {})}


def _in_class_folders(path: Path, skipped: dict[str, str]) -> Iterator[_Candidate]:
    """Yield the files of all class folders; the first folder below ``path`` is the class."""
    classes = []
    for entry in _entries(path):
        if entry.is_dir():
            classes.append(entry)
        else:
            skipped[_utf8(entry.name)] = "not in a class folder"
    if not classes:
        raise InputError(
            f"{quoted(path)} has no class folders; put the images of each class into a folder of its own"
        )
    _refuse_splits(path, classes)
    for folder in classes:
        files = list(_files(folder))
        if not files:
            skipped[_utf8(folder.name) + "/"] = "an empty class folder"
        for file in files:
            yield _candidate(path, file, folder.name)


def _refuse_splits(path: Path, classes: list[Path]) -> None:
    """Raise for a folder that holds splits, like ``data/train/cat`` and ``data/test/cat``."""
    inside = [_entries(folder) for folder in classes]
    loose = any(not entry.is_dir() for entries in inside for entry in entries)
    if len(classes) > 1 and not loose and set.intersection(*({e.name for e in part} for part in inside)):
        raise InputError(
            f"{quoted(path)} holds {quoted(classes[0].name)} and {quoted(classes[1].name)} with the same "
            f"subfolders: splits of the data, not classes; name one of them, like {classes[0].name}"
        )


def _entries(folder: Path) -> list[Path]:
    """Return the content of a folder, sorted, without hidden entries."""
    try:
        return sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))
    except OSError as error:
        raise InputError(f"folder {quoted(folder)} cannot be read: {error.strerror}") from None


def _files(folder: Path) -> Iterator[Path]:
    """Yield all files in a folder and its subfolders, sorted, without hidden ones."""

    def refuse(error: OSError) -> None:
        raise InputError(f"folder {quoted(error.filename)} cannot be read: {error.strerror}")

    for place, folders, files in os.walk(folder, onerror=refuse):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (Path(place, name) for name in sorted(files) if not name.startswith("."))


def _candidate(base: Path, file: Path, label: str = "") -> _Candidate:
    # A pipe or a device would be read without an end.
    problem = "not a regular file" if file.exists() and not file.is_file() else ""
    return _Candidate(_utf8(file.relative_to(base).as_posix()), file.read_bytes, _utf8(label), problem)


def _utf8(name: str) -> str:
    """Return a file name that can be written anywhere: invalid bytes become replacement characters."""
    return os.fsencode(name).decode("utf-8", "replace")


def _in_rows(path: Path, label: str | None) -> Iterator[_Candidate]:
    """Yield the rows of a Parquet file, with their labels if a column is named."""
    names = class_names(path, label) if label else ()
    try:
        for row, (content, given) in enumerate(rows_of(path, str(_image_column(path)), label)):
            class_label, problem = ("", "") if label is None else _class_label(given, names)
            if content is None:
                problem = problem or "without an image"
            yield _Candidate(row, partial(bytes, content or b""), class_label, problem)
    except (pa.ArrowException, OSError):
        raise InputError(f"{quoted(path)} is a broken Parquet file") from None


def _class_label(given: Any, names: tuple[str, ...]) -> tuple[str, str]:
    """Return the class of a label, and the problem with the label, if any."""
    if given is None or given == "":
        return "", "without a label"
    if isinstance(given, bool | str):
        return str(given), ""
    if not isinstance(given, int):
        raise InputError(f"labels like {quoted(given)} are not classes; use integers or text")
    if given < 0 or (names and given >= len(names)):
        known = f"; the classes are 0 to {len(names) - 1}" if names else ""
        return "", f"label {given} is out of range{known}"
    return (names[given] if names else str(given)), ""


def _class_order(path: Path, label: str, counts: Counter[str]) -> list[str]:
    """Return the classes that have images in the order of the file's own list, by number, or by name."""
    known = [] if path.is_dir() else list(class_names(path, label))
    rest = [name for name in counts if name not in known]
    key = (lambda name: (len(name), name)) if all(name.isdecimal() for name in rest) else str
    return [name for name in known if name in counts] + sorted(rest, key=key)


def _location(kind: str, name: Any) -> str:
    return f"row {name}" if kind == "index" else str(name)


def _first_skipped(skipped: dict[str, str]) -> str:
    """Return the first skipped item, as the end of a message."""
    return f"; skipped: {join_reasons(skipped, 1)}" if skipped else ""


def join_reasons(reasons: dict[str, str], limit: int = 5) -> str:
    """Return names with their reasons on one line.

    Example:
        >>> print(join_reasons({"a.txt": "not a readable image", "b.txt": "not a readable image"}, 1))
        'a.txt' (not a readable image) and 1 more
    """
    first = ", ".join(f"{quoted(name)} ({reason})" for name, reason in list(reasons.items())[:limit])
    return first + (f" and {len(reasons) - limit:,} more" if len(reasons) > limit else "")


def _is_parquet(path: Path) -> bool:
    try:
        if not path.is_file():  # A pipe would wait for a writer.
            return False
        with path.open("rb") as file:
            return file.read(4) == b"PAR1"
    except OSError:
        return False


def _image_column(path: Path) -> str | None:
    """Return the name of a Parquet file's column of images: bytes, or structures with bytes."""
    schema = parquet_schema(path)
    for name in IMAGE_COLUMNS:
        if name in schema.names:
            kind = schema.field(name).type
            if pa.types.is_struct(kind) and kind.get_field_index("bytes") >= 0:
                kind = kind.field("bytes").type
            if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
                return name
    return None
