"""A folder of Parquet files as partitions: some row groups of one file each, read a batch at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from inlier._errors import InputError, quoted
from inlier.fit._tables import check_type, parquet_parts, with_plain_texts

PARTITION_ROWS = 1_000_000
"""Row groups of a file are put together up to about so many rows: a task of a cluster."""
BATCH_ROWS = 65_536
"""Rows that are in memory at a time."""


@dataclass(frozen=True)
class Partition:
    """Some rows of a file.

    Args:
        number: Its place among all partitions, in which results are merged.
        path: The file.
        groups: Its row groups.
        first: The place of its first row in the file.
        rows: The number of its rows.
        offset: The place of its first row among those of all partitions.
    """

    number: int
    path: str
    groups: tuple[int, ...]
    first: int
    rows: int
    offset: int

    def __str__(self) -> str:
        """Return the name of the file, and which rows of it."""
        return f"{Path(self.path).name}, rows {self.first} to {self.first + self.rows - 1}"

    def batches(self, columns: Sequence[str]) -> Iterator[tuple[int, pa.Table]]:
        """Yield some columns of all rows, a batch at a time, each with the place of its first row in the partition.

        Raises:
            PartitionError: If the file cannot be read.
        """
        place = 0
        try:
            with pa.parquet.ParquetFile(self.path) as file:
                for batch in file.iter_batches(
                    BATCH_ROWS, row_groups=list(self.groups), columns=list(columns)
                ):
                    # PyArrow also returns columns whose dotted names start with a requested one.
                    yield place, with_plain_texts(pa.Table.from_batches([batch]).select(list(columns)))
                    place += batch.num_rows
        except (pa.ArrowException, OSError) as error:
            raise PartitionError(self, f"cannot be read: {quoted(str(error).splitlines()[0])}") from None
        if place != self.rows:
            raise PartitionError(self, f"has {place:,} rows, and had {self.rows:,} before")


class PartitionError(InputError):
    """A partition that cannot be used, and why."""

    def __init__(self, partition: Partition, reason: str) -> None:
        super().__init__(f"{quoted(str(partition))} {reason}")
        self.partition, self.reason = partition, reason

    def __reduce__(self) -> tuple[Any, ...]:
        """Tell pickle how to build it again."""
        return PartitionError, (self.partition, self.reason)


@dataclass(frozen=True)
class Folder:
    """A folder of Parquet files.

    Args:
        path: The folder.
        names: Its columns.
        partitions: All rows that can be read.
        skipped: Files that are left out, and why.
        fingerprint: What tells whether the files are the same as before: name, size and time of each.
    """

    path: Path
    names: tuple[str, ...]
    partitions: tuple[Partition, ...]
    skipped: dict[str, str]
    fingerprint: tuple[tuple[str, int, int], ...]

    @property
    def rows(self) -> int:
        """The number of all rows."""
        return sum(partition.rows for partition in self.partitions)


def open_folder(
    path: Path, drop: Sequence[str] = (), skip: bool = False, rows: int = PARTITION_ROWS
) -> Folder:
    """Return the partitions of a folder, from the metadata of its files.

    The columns are those of most of its rows; a file with other columns or types, without rows or without readable
    metadata is refused, or skipped.

    Args:
        path: The folder.
        drop: Columns that are not used, and need not be the same everywhere.
        skip: Whether files that cannot be used are skipped; else the first is an error.
        rows: Rows of a partition.

    Raises:
        InputError: If no file can be used, or one cannot and none is to be skipped.
    """
    if not path.is_dir() or not (parts := parquet_parts(path)):
        raise InputError(f"{quoted(path)} is not a folder of Parquet files")
    files: dict[Path, Any] = {}
    problems: dict[str, str] = {}
    for part in parts:
        try:
            files[part] = pa.parquet.read_metadata(part)
            if files[part].num_rows == 0:
                problems[part.name] = "has no rows"
        except (pa.ArrowException, OSError, ValueError):
            problems[part.name] = "is a broken Parquet file"
    kinds = {part: _types(file, drop) for part, file in files.items() if part.name not in problems}
    if not kinds:
        raise InputError(f"{quoted(path)} has no readable Parquet file with rows")
    weight: Counter[frozenset[tuple[str, str]]] = Counter()
    for part, kind in kinds.items():
        weight[frozenset(kind.items())] += files[part].num_rows
    expected = max(kinds.values(), key=lambda kind: weight[frozenset(kind.items())])
    for part, kind in kinds.items():
        if difference := _difference(expected, kind):
            problems[part.name] = difference
    if problems and not skip:
        name = min(problems)
        raise InputError(
            f"{quoted(name)} in {quoted(path)} {problems[name]}; repair it, or add --on-error skip"
        )
    good = {part: files[part] for part in kinds if part.name not in problems}
    schema = next(iter(good.values())).schema.to_arrow_schema()
    names = tuple(name for name in schema.names if name not in drop)
    for name in names:
        check_type(name, schema.field(name).type)
    states = [(part.name, part.stat().st_size, part.stat().st_mtime_ns) for part in parts]
    return Folder(path, names, tuple(_partitions(good, rows)), dict(sorted(problems.items())), tuple(states))


def _types(file: Any, drop: Sequence[str]) -> dict[str, str]:
    return {field.name: str(field.type) for field in file.schema.to_arrow_schema() if field.name not in drop}


def _difference(expected: dict[str, str], kind: dict[str, str]) -> str:
    """Return how the columns of a file differ from the expected ones; an empty string if they do not."""
    for name, type_ in expected.items():
        if name not in kind:
            return f"lacks column {quoted(name)}"
        if kind[name] != type_:
            return f"has {quoted(kind[name])} in column {quoted(name)}, and other files {quoted(type_)}"
    return ""


def _partitions(files: dict[Path, Any], rows: int) -> Iterator[Partition]:
    """Yield the partitions of all files in order: row groups together up to so many rows."""
    number = offset = 0
    for path, file in files.items():
        first, groups, held = 0, [], 0
        for group in range(file.num_row_groups):
            groups.append(group)
            held += file.row_group(group).num_rows
            last = group + 1 == file.num_row_groups
            if held and (last or held + file.row_group(group + 1).num_rows > rows):
                yield Partition(number, str(path), tuple(groups), first, held, offset)
                number, offset, first = number + 1, offset + held, first + held
                groups, held = [], 0
