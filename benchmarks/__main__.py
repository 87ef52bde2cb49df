"""Run every benchmark in one go and write docs/benchmarks.md: `make bench`, or `make bench QUICK=1`."""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks import (
    distributed,
    groups,
    label_noise,
    overhead,
    processes,
    regression,
    regressors,
    scale,
    training_curves,
)
from benchmarks.timing import machine

PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"


def batched_regression(quick: bool) -> list[dict[str, object]]:
    ratio = regression.run(steps=500 if quick else 2000)["ratio"]
    what = "regression experiment: a plain loop of one run after the other / one batched program"
    return [{"what": what, "measured": ratio, "goal": 50, "at_least": True}]


HEAD = """# Benchmarks

Written by `make bench`. Times are ratios within one run, since machines are noisy. The estimators on real tables are in
[When to use it, and when not](guides/when-to-use.md).
"""

TABLES = {
    "Scale solver": (scale.run, "How long the scale of many losses takes, and how exact it is."),
    "Overhead": (overhead.run, overhead.__doc__ or ""),
    "Many groups": (groups.run, groups.__doc__ or ""),
    "Many processes": (processes.run, processes.__doc__ or ""),
    "Regression experiment": (batched_regression, "All methods, rates and trials advance together."),
}


COMPARISONS = {
    "Regressors": regressors,
    "Label noise": label_noise,
    "Training curves": training_curves,
    "Large tables": distributed,
}
"""Benchmarks whose tables have a column for each method; what they measure is said by their docstrings."""


def table(rows: list[dict[str, object]]) -> str:
    lines = ["| what | measured | goal | reached |", "|---|---|---|---|"]
    for row in rows:
        measured, goal = float(row["measured"]), row["goal"]  # type: ignore[arg-type]
        least = bool(row.get("at_least"))
        reached = (
            "" if goal is None else "yes" if (measured >= goal if least else measured <= goal) else "**no**"
        )  # type: ignore[operator]
        shown = "" if goal is None else f"{'at least' if least else 'under'} {goal:g}"
        lines.append(f"| {row['what']} | {measured:.4g} | {shown} | {reached} |")
    return "\n".join(lines)


def measure(title: str, quick: bool) -> str:
    """Run one of the benchmarks; return its section of the page."""
    if title in TABLES:
        run, what = TABLES[title]
        return f"{what}\n\n{table(run(quick))}"
    module = COMPARISONS[title]
    result = module.run(quick)
    parts = [(module.__doc__ or "").strip()]
    for heading, text in module.sections(result):
        parts += [f"### {heading}", text]
    return "\n\n".join(parts + result["notes"])


def sections_of(page: str) -> dict[str, str]:
    """Return the sections of the page by title."""
    return dict(part.split("\n\n", 1) for part in page.split("\n## ")[1:])


def main() -> None:
    titles = [*TABLES, *COMPARISONS]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smaller sizes, and the page is not written")
    parser.add_argument("--only", nargs="+", choices=titles, default=titles, help="run some; the others stay")
    arguments = parser.parse_args()
    sections = sections_of(PAGE.read_text())
    for title in arguments.only:
        print(f"{title} ...", flush=True)
        sections[title] = f"{measure(title, arguments.quick)}\n\n*One run: {machine()}.*\n"
        print(sections[title], flush=True)
    if not arguments.quick:
        parts = [f"## {title}\n\n{sections[title].strip()}\n" for title in titles if title in sections]
        PAGE.write_text("\n".join([HEAD, *parts]))
        print(f"written: {PAGE}")


if __name__ == "__main__":
    main()
