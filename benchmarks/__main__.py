"""Run every benchmark in one go and write docs/benchmarks.md: `make bench`, or `make bench QUICK=1`."""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks import label_noise, overhead, regression, regressors, scale
from benchmarks.timing import machine

PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"


def batched_regression(quick: bool) -> list[dict[str, object]]:
    ratio = regression.run(steps=500 if quick else 2000)["ratio"]
    what = "regression experiment: a plain loop of one run after the other / one batched program"
    return [{"what": what, "measured": ratio, "goal": 50, "at_least": True}]


TABLES = {
    "Scale solver": (scale.run, "How long the scale of many losses takes, and how exact it is."),
    "Overhead": (
        overhead.run,
        "What `Robust` adds to a training step: steps of one network with and without it take turns.\n"
        "Processor time, median over rounds.",
    ),
    "Regression experiment": (batched_regression, "All methods, rates and trials advance together."),
}


COMPARISONS = {
    "Regressors": regressors,
    "Label noise": label_noise,
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smaller sizes, and the page is not written")
    quick = parser.parse_args().quick
    parts = [
        "# Benchmarks",
        f"Written by `make bench` from one run: {machine()}. Times are ratios within that run.",
    ]
    for title, (run, what) in TABLES.items():
        print(f"{title} ...", flush=True)
        parts += [f"## {title}", what, table(run(quick))]
        print(parts[-1], flush=True)
    for title, module in COMPARISONS.items():
        print(f"{title} ...", flush=True)
        result = module.run(quick)
        parts += [f"## {title}", (module.__doc__ or "").strip()]
        for heading, text in module.sections(result):
            parts += [f"### {heading}", text]
            print(f"{heading}\n\n{text}\n", flush=True)
        parts += result["notes"]
    if not quick:
        PAGE.write_text("\n\n".join(parts) + "\n")
        print(f"written: {PAGE}")


if __name__ == "__main__":
    main()
