"""``inlier fix``: the data of a fit with accepted corrections and without what was dropped, next to the original."""

from __future__ import annotations

import csv
import io
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet

from inlier._errors import InputError, quoted
from inlier._files import write_whole
from inlier.fit._csv import csv_rows, csv_text
from inlier.fit._decisions import Decision, apply_decisions, check_label, image_of, read_decisions
from inlier.fit._outputs import check_output_file, write_table
from inlier.fit._record import ImageRun, TableRun, read_run
from inlier.fit._tables import Limits, TableFile, check_columns, inspect_table, read_columns

__all__ = ["Fixed", "fix"]


class Fixed(NamedTuple):
    """What was written.

    Args:
        path: The new file.
        fixed: How many rows or images have another target.
        dropped: How many were left out.
        unit: What they are, in the singular.
    """

    path: Path
    fixed: int
    dropped: int
    unit: str


def fix(folder: Path, decisions: Path, out: Path | None = None) -> Fixed:
    """Write the data of a fit with what was decided.

    A table becomes a table, a Parquet file of images another one, and a folder of images a list of its files with their
    labels: files are never moved or changed.

    Args:
        folder: The output of ``inlier fit``.
        decisions: The decisions.
        out: The new file; by default that of the original with ``-fixed`` in its name.

    Raises:
        InputError: If something does not fit, or the file exists.
    """
    run = read_run(folder)
    data = Path(run.data)
    if not data.exists():
        raise InputError(
            f"{quoted(run.data)}, which {quoted(folder)} was fitted to, does not exist; run inlier fix in the folder "
            "where inlier fit was run"
        )
    decided = read_decisions(decisions)
    if isinstance(run, TableRun):
        return _fix_table(run, folder, decided, out)
    if data.is_dir():
        return _list_images(run, folder, decided, out)
    return _fix_parquet_images(run, folder, decided, out)


def _fix_table(run: TableRun, folder: Path, decided: list[Decision], out: Path | None) -> Fixed:
    source = inspect_table(Path(run.data), run.encoding)
    check_columns(source, [run.target.name], "target")
    cells = read_columns(source, [run.target.name] if source.format == "csv" else source.names)
    fixed, dropped = apply_decisions(cells, run.target.name, decided, source.first_row)
    out = _checked_out(out or _beside(source), source.path, folder)
    changed = {d.row - source.first_row: d.value for d in decided if d.action == "fix"}
    if source.format == "csv":
        write_whole(out, _rewritten(source, run.target.name, changed, dropped))
    else:
        kept = [position for position in range(fixed.num_rows) if position not in dropped]
        write_table(fixed.take(pa.array(kept, pa.int64())), out)
    return Fixed(out, len(changed), len(dropped), "row")


def _checked_out(out: Path, data: Path, folder: Path) -> Path:
    if out.exists() or out.is_symlink():
        raise InputError(f"out {quoted(out)} exists; choose another name with --out")
    check_output_file(out, data, False, folder)
    return out


def _beside(source: TableFile) -> Path:
    suffix = ".parquet" if source.format == "parquet" else ".csv"
    stem = source.path.with_suffix("") if source.compression else source.path
    return source.path.with_name(f"{stem.stem}-fixed{suffix}")


def _rewritten(source: TableFile, target: str, changed: dict[int, str], dropped: set[int]) -> bytes:
    """Return a CSV file with some targets changed and some rows left out; all else as it was."""
    text, encoding = csv_text(source, Limits())
    lines, out = io.StringIO(text, newline=""), io.StringIO(newline="")
    out.writelines(islice(lines, source.skipped))
    reader = csv_rows(lines, source)
    ending = "\r\n" if "\r\n" in text else "\n"
    writer = csv.writer(out, delimiter=source.delimiter, lineterminator=ending)
    writer.writerow(next(row for row in reader if row))
    place = source.names.index(target)
    for position, row in enumerate(row for row in reader if row):
        if position not in dropped:
            if position in changed:
                row[place] = changed[position]
            writer.writerow(row)
    return out.getvalue().encode(encoding)


def _fix_parquet_images(run: ImageRun, folder: Path, decided: list[Decision], out: Path | None) -> Fixed:
    """Write a Parquet file of images again, with other labels, and without some rows."""
    from inlier._vision.images import class_names

    data, label = Path(run.data), run.label or "label"
    check_columns(inspect_table(data), [label], "target")
    names = class_names(data, label)
    column = pa.parquet.read_table(data, columns=[label])[label]
    values = column.to_pylist()
    numbers = {name: place for place, name in enumerate(names)}
    changed, dropped = {}, set()
    for decision in decided:
        row = image_of(decision, "index", (), range(len(values)))
        given = names[values[row]] if names and values[row] in range(len(names)) else str(values[row])
        check_label(decision, row, given, run.classes)
        if decision.action == "drop":
            dropped.add(row)
        elif decision.action == "fix":
            value = pa.scalar(numbers[decision.value] if names else decision.value)
            changed[row] = value.cast(column.type).as_py()
    out = _checked_out(out or data.with_name(f"{data.stem}-fixed.parquet"), data, folder)
    fixed = pa.array([changed.get(row, value) for row, value in enumerate(values)], column.type)
    table = pa.parquet.read_table(data)
    place = table.schema.get_field_index(label)
    table = table.set_column(place, table.schema.field(label), fixed)
    kept = [row for row in range(table.num_rows) if row not in dropped]
    write_table(table.take(pa.array(kept, pa.int64())), out)
    return Fixed(out, len(changed), len(dropped), "image")


def _list_images(run: ImageRun, folder: Path, decided: list[Decision], out: Path | None) -> Fixed:
    """Write the files of a folder of images that are kept, each with its label."""
    from inlier.fit._image_data import labels_of_files

    data = Path(run.data)
    labels = {name: label for name, label in labels_of_files(data).items() if name not in run.skipped}
    names, fixed, dropped = list(labels), 0, 0
    for decision in decided:
        name = image_of(decision, "file", names, names)
        check_label(decision, name, labels.get(name, ""), run.classes)
        if decision.action == "drop":
            del labels[name]
            dropped += 1
        elif decision.action == "fix":
            labels[name] = decision.value
            fixed += 1
    out = _checked_out(out or data.with_name(f"{data.resolve().name}-fixed.csv"), data, folder)
    write_table(pa.table({"file": list(labels), "label": list(labels.values())}), out)
    return Fixed(out, fixed, dropped, "image")
