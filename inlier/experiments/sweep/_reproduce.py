"""One experiment from its plan to its figures: the sweep with its progress, the tables, the README."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from inlier.experiments.sweep._experiment import Plan
from inlier.experiments.sweep._results import Results, frame_of, write_readme, write_results
from inlier.experiments.sweep._sweep import Sweep

WRITE_EVERY = 30.0
"""Seconds between two writings of the results while the sweep runs."""


class Stopped(KeyboardInterrupt):
    """Ctrl-C; the message says how many rows are done."""


@dataclass(frozen=True)
class Reproduction:
    """A finished run: the results, and the paths of the figures."""

    results: Results
    figures: list[Path]


def reproduce(
    plan: Plan,
    out: Path,
    command: str,
    jobs: int = 1,
    backend: str = "loky",
    address: str | None = None,
    console: Console | None = None,
    write_every: float = WRITE_EVERY,
    data: Path | None = None,
) -> Reproduction:
    """Compute the missing rows of a plan, and write results, figures and README.

    Args:
        plan: What to compute.
        out: The output folder; finished rows of this plan in its journal are kept.
        command: The command line, for the README.
        jobs: Number of local processes.
        backend: ``loky``, ``dask`` or ``ray``.
        address: Address of the cluster.
        console: Shows progress, if it is a terminal.
        write_every: Seconds between two writings of the results while the sweep runs.
        data: The folder of the data, for experiments that need some.
    """
    start = written = time.monotonic()
    sweep = Sweep(plan.experiment, plan.rows, out, data)

    def results() -> Results:
        return Results.of(sweep, plan, command, time.monotonic() - start)

    with _progress(console) as show:

        def on_progress(sweep: Sweep) -> None:
            nonlocal written
            show(sweep)
            if time.monotonic() - written >= write_every:
                write_results(results(), out)
                written = time.monotonic()

        try:
            sweep.run(jobs, backend, address, on_progress)
        except KeyboardInterrupt:
            # Before the journal is read nothing is known: then leave the results of earlier runs.
            if sweep.done:
                write_results(results(), out)
            raise Stopped(f"{len(sweep.done)} of {len(sweep.rows)} rows are done and kept in {out}") from None
    final = results()
    write_results(final, out)
    figures = plan.experiment.figures(frame_of(final.done), plan.settings, out) if final.done else []
    write_readme(final, figures, out)
    return Reproduction(final, [out / name for name, _ in figures])


@contextmanager
def _progress(console: Console | None) -> Iterator[Callable[[Sweep], None]]:
    """Show a progress bar, and yield the function that updates it; without a terminal do nothing."""
    if console is None or not console.is_terminal:
        yield lambda sweep: None
        return
    bar = Progress(
        TextColumn("{task.completed}/{task.total} rows"),
        BarColumn(),
        TextColumn("{task.fields[running]} running{task.fields[failed]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        # Rows may take minutes: estimate the speed over more than the default half minute.
        speed_estimate_period=3600.0,
    )
    with bar:
        task = bar.add_task("rows", total=None, running=0, failed="")

        def show(sweep: Sweep) -> None:
            if bar.tasks[0].total is None:
                # Rows of earlier runs say nothing about the speed of this one.
                bar.reset(task, total=len(sweep.rows), completed=len(sweep.done))
            failed = f", {len(sweep.failed)} failed" if sweep.failed else ""
            bar.update(task, completed=len(sweep.done), running=sweep.running, failed=failed)

        yield show
