"""Real tables, clean and with planted errors: `make bench-tables`, or `python -m benchmarks.real_tables --help`.

Each table is prepared in one way (``prepare.py``), gets planted errors in its training rows only (``errors.py``), and
every method (``methods.py``) is measured on held-out clean rows. Results are added to a file as they come, so a run
that was stopped goes on where it stopped. Everything in :mod:`inlier.sklearn` was chosen on the development half; the
report half is for claims.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.real_tables.run import cells, read, run
from benchmarks.real_tables.summary import summary


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.real_tables")
    parser.add_argument("--half", choices=("development", "report"), default="development")
    parser.add_argument("--task", choices=("regression", "classification"))
    parser.add_argument("--base", choices=("linear", "boosting"))
    parser.add_argument("--quick", action="store_true", help="a few tables")
    parser.add_argument("--again", metavar="METHOD", help="measure a method anew")
    parser.add_argument("--skip", metavar="METHOD", nargs="*", default=[], help="leave methods out")
    parser.add_argument("--results", type=Path, default=Path(".bench/real_tables.jsonl"))
    parser.add_argument("--summary", action="store_true", help="only print the tables of what was measured")
    arguments = parser.parse_args()
    todo = list(cells(arguments.half, arguments.task, arguments.base, arguments.quick))
    if not arguments.summary:
        run(arguments.results, todo, arguments.again, arguments.skip)
    wanted = {(cell.source.name, cell.base, cell.kind, cell.rate) for cell in todo}
    rows = [
        row
        for row in read(arguments.results)
        if (row["table"], row["base"], row["kind"], row["rate"]) in wanted
    ]
    print(summary(rows))


if __name__ == "__main__":
    main()
