"""What the benchmarks that compare methods share: seeds, tables, and their command line."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

FIRST_SEED = 100
"""The estimators were developed on other seeds than those from here on."""

Row = dict[str, Any]
Section = tuple[str, str]
"""A heading, and a table in Markdown."""


def pivot(
    rows: Sequence[Row], keys: Sequence[str], value: str, digits: str = ".3g", mean: bool = False
) -> str:
    """One line for each combination of keys, one column for each method, means where there are several rows.

    Args:
        rows: What was measured; those without the value are left out.
        keys: The entries that name a line.
        value: The entry to show.
        digits: How numbers are written.
        mean: Whether a last line has the mean over all lines, of each method that is in all of them.
    """
    rows = [row for row in rows if value in row]
    names = list(dict.fromkeys(row["method"] for row in rows))
    cells: dict[tuple[Any, ...], dict[str, list[float]]] = {}
    for row in rows:
        line = cells.setdefault(tuple(row[key] for key in keys), {})
        line.setdefault(row["method"], []).append(row[value])
    shown = {
        key: {name: float(np.mean(each)) for name, each in by_name.items()} for key, by_name in cells.items()
    }
    if mean:
        everywhere = [name for name in names if all(name in line for line in shown.values())]
        means = {name: float(np.mean([line[name] for line in shown.values()])) for name in everywhere}
        shown[("mean", *[""] * (len(keys) - 1))] = means
    lines = ["| " + " | ".join([*keys, *names]) + " |", "|" + "---|" * (len(keys) + len(names))]
    for key, line in shown.items():
        numbers = [format(line[name], digits) if name in line else "" for name in names]
        lines.append("| " + " | ".join([*map(str, key), *numbers]) + " |")
    return "\n".join(lines)


def missing(packages: Sequence[str]) -> list[str]:
    """Return a note for each of these packages that cannot be imported, and is therefore left out."""
    notes = []
    for package in packages:
        try:
            __import__(package)
        except ImportError:
            notes.append(f'{package} is not installed and is left out: pip install "inlier[bench]"')
    return notes


def main(run: Callable[[bool], dict[str, Any]], sections: Callable[[dict[str, Any]], list[Section]]) -> None:
    """The command of one benchmark: run it and print its tables, or all numbers as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="fewer rates, trials and rows")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    arguments = parser.parse_args()
    result = run(arguments.quick)
    if arguments.json:
        print(json.dumps(result, indent=1))
        return
    for title, table in sections(result):
        print(f"{title}\n\n{table}\n")
    print(*result["notes"], sep="\n")
