"""The results of a sweep: tables (Parquet, JSON), a summary, and a README with the command that made them."""

from __future__ import annotations

import json
import math
import os
import platform
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pandas as pd
from rich.markup import escape
from rich.table import Table

from inlier._files import write_whole
from inlier.experiments.sweep._experiment import Plan
from inlier.experiments.sweep._journal import Record
from inlier.experiments.sweep._sweep import Sweep

__all__ = [
    "Results",
    "cells",
    "frame_of",
    "summary_table",
    "write_readme",
    "write_results",
]


@dataclass(frozen=True)
class Results:
    """The state of a sweep: its plan, and the rows that ended.

    Args:
        plan: The plan.
        command: The command line.
        done: The finished rows.
        failed: The rows that failed.
        seconds: The time of this run.
    """

    plan: Plan
    command: str
    done: list[Record]
    failed: list[Record]
    seconds: float

    @classmethod
    def of(cls, sweep: Sweep, plan: Plan, command: str, seconds: float) -> Results:
        """Return the results of a sweep."""
        return cls(plan, command, sweep.done, sweep.failed, seconds)

    @property
    def meta(self) -> dict[str, Any]:
        """What the results depend on, as JSON values."""
        return {
            "experiment": self.plan.experiment.name,
            "description": self.plan.experiment.description,
            "command": self.command,
            "preset": self.plan.preset,
            "methods": list(self.plan.methods),
            "rates": list(self.plan.rates),
            "seeds": list(range(self.plan.seeds)),
            "settings": dict(self.plan.settings),
            "versions": {"python": platform.python_version()}
            | {package: _version(package) for package in ("inlier", "torch", "numpy")},
            "cores": os.cpu_count(),
            "seconds_of_this_run": round(self.seconds, 3),
            "seconds_of_all_rows": round(sum(record.seconds for record in self.done), 3),
        }


def frame_of(records: Sequence[Record]) -> pd.DataFrame:
    """Return finished rows as a table: ``method``, ``rate``, ``seed``, then one column per metric."""
    rows = [
        {"method": r.row.method, "rate": r.row.rate, "seed": r.row.seed, **(r.metrics or {})} for r in records
    ]
    names = list(dict.fromkeys(name for row in rows for name in row)) or ["method", "rate", "seed"]
    return pd.DataFrame(rows, columns=names)


def write_results(results: Results, out: Path) -> None:
    """Write ``results.parquet`` and ``results.json``, each atomically.

    Non-finite numbers are null in JSON, which has none; Parquet keeps them.

    Args:
        results: The results.
        out: The output folder.
    """
    frame = frame_of(results.done)
    write_whole(out / "results.parquet", frame.to_parquet(engine="pyarrow", index=False))
    content = {
        "meta": results.meta,
        "rows": [
            {name: None if _is_not_finite(value) else value for name, value in row.items()}
            for row in frame.to_dict(orient="records")
        ],
        "failed": [
            {"method": r.row.method, "rate": r.row.rate, "seed": r.row.seed, "error": r.error}
            for r in results.failed
        ],
    }
    write_whole(out / "results.json", (json.dumps(content, indent=1, allow_nan=False) + "\n").encode())


def cells(results: Results) -> tuple[list[str], list[list[str]]]:
    """Return the summary as text: a header, then a line per method with mean ± std of the metric."""
    metric = results.plan.experiment.metric
    frame = frame_of(results.done)
    planned = results.plan.rows
    rates = sorted({row.rate for row in planned})
    lines = []
    for method in dict.fromkeys(row.method for row in planned):
        line = [method]
        for rate in rates:
            here = frame[(frame["method"] == method) & (frame["rate"] == rate)]
            values = here[metric].dropna() if metric in here else pd.Series(dtype=float)
            failed = sum(r.row.method == method and r.row.rate == rate for r in results.failed)
            parts = [f"{values.mean():.3g}" if len(values) else ""]
            parts += [f"± {values.std():.2g}"] if len(values) > 1 else []
            parts += [f"{failed} failed"] if failed else []
            line.append(" ".join(part for part in parts if part) or "-")
        lines.append(line)
    return ["method", *(f"{rate:g}" for rate in rates)], lines


def summary_table(results: Results) -> Table:
    """Return the summary for the terminal: methods by outlier rates; cells with failed rows are red."""
    header, lines = cells(results)
    experiment = results.plan.experiment
    table = Table(
        title=f"{experiment.name}: {experiment.metric}", caption="mean ± std over seeds, by outlier rate"
    )
    table.add_column(header[0], no_wrap=True)
    for name in header[1:]:
        table.add_column(name, justify="right")
    for line in lines:
        table.add_row(*(f"[red]{escape(cell)}[/red]" if "failed" in cell else escape(cell) for cell in line))
    return table


def write_readme(results: Results, figures: Sequence[tuple[str, str]], out: Path) -> None:
    """Write ``README.md``: the command, versions, seeds and time, the summary, and the figures.

    Args:
        results: The results.
        figures: File name and caption of each figure.
        out: The output folder.
    """
    meta = results.meta
    header, lines = cells(results)
    versions = ", ".join(f"{name} {number}" for name, number in meta["versions"].items())
    text = [
        f"# {meta['experiment']}",
        f"{meta['description'].rstrip('.')}. Made by",
        f"    {results.command}",
        f"with {versions}; seeds 0 to {results.plan.seeds - 1}; {len(results.done)} rows, which took "
        f"{duration(meta['seconds_of_all_rows'])} to compute (the last run: {duration(results.seconds)}, "
        f"{meta['cores']} cores). The same command resumes a stopped run, and computes no row twice.",
        f"## {results.plan.experiment.metric}, mean ± std over seeds, by outlier rate",
        "\n".join("| " + " | ".join(line) + " |" for line in [header, ["---"] * len(header), *lines]),
    ]
    if results.failed:
        text.append("## Failed rows")
        by_error: dict[tuple[str, str | None], list[Record]] = defaultdict(list)
        for record in results.failed:
            by_error[record.row.method, record.error].append(record)
        text.append(
            "\n".join(_failure(method, error, records) for (method, error), records in by_error.items())
        )
    if figures:
        text.append("## Figures")
    for name, caption in figures:
        other = Path(name).with_suffix(".svg").name
        vector = f" ([SVG]({other}))" if other != name and (out / other).exists() else ""
        text.append(f"![{caption}]({name})\n\n{caption}{vector}")
    text += [
        "## Files",
        "- `results.parquet`: method, rate, seed, then one column per metric.\n"
        "- `results.json`: the same, with the settings of the run.\n"
        "- `rows.jsonl`: the journal from which a stopped run resumes.",
    ]
    write_whole(out / "README.md", ("\n\n".join(text) + "\n").encode())


def duration(seconds: float) -> str:
    """Return a readable duration.

    Example:
        >>> duration(3.21), duration(200), duration(8000)
        ('3.2 s', '3 min 20 s', '2 h 13 min')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def _failure(method: str, error: str | None, records: list[Record]) -> str:
    """Return one line of the list of failures, for rows that failed in the same way."""
    first = records[0].row
    return f"- {method}: {len(records)}, the first at rate {first.rate:g}, seed {first.seed}: {error}"


def _version(package: str) -> str:
    if package == "inlier":
        from inlier import __version__

        return __version__
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _is_not_finite(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)
