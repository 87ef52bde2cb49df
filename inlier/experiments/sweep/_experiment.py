"""Experiments: a grid of rows (method, rate, seed), computed once each, then drawn.

An :class:`Experiment` has names of methods, three presets, a function that computes rows and one that draws
figures. The resumable sweep (:mod:`inlier.experiments.sweep._sweep`) does the rest: processes, clusters, the
journal, progress, the tables and the README of the output folder.

To add one, write a module with an ``EXPERIMENT`` and enter it in :data:`EXPERIMENTS`. One that lives
elsewhere needs no entry: ``inlier reproduce package.module:ATTRIBUTE`` imports it.

    def compute(rows):                              # runs in a worker process
        for row in rows:
            yield row, {"error": train(row.method, row.rate, row.seed, **row.settings)}

    def figures(frame, settings, out):              # runs once, at the end, on the finished rows
        curve_plot(frame, "error", out / "error", ylabel="error of w")
        return [("error.png", "Error of w over the outlier rate.")]

    EXPERIMENT = Experiment(
        name="mine",
        description="What it shows, in one line",
        methods=("sgd", "adaptive-gm"),
        presets={
            "paper": {"rates": [0, 0.2, 0.4], "seeds": 5, "steps": 10_000},
            "cpu": {"rates": [0, 0.4], "seeds": 3, "steps": 10_000},
            "smoke": {"rates": [0.4], "seeds": 1, "steps": 10},
        },
        metric="error",
        compute=compute,
        figures=figures,
    )

What the sweep relies on:

- ``compute`` gives the same numbers for a row whichever rows are computed beside it: seed from ``row.seed``.
- It yields each row once, as soon as it is done. A row that fails on its own may be yielded with the
  exception in place of the metrics; an exception that is raised fails all rows not yet yielded. Failed rows
  are retried on the next run.
- ``compute`` and ``batches`` are functions of a module, so that worker processes can import them.
- All that changes the numbers of a row is in ``row.settings``. When the code changes so that finished rows no
  longer hold, raise a number such as ``"version": 2`` in the presets, or in the settings of those rows.

This module imports nothing heavy, so that ``inlier --help`` is fast.
"""

from __future__ import annotations

import hashlib
import importlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import pandas as pd

PresetSettings: TypeAlias = Mapping[str, Any]
"""JSON values by name: what a preset holds besides ``methods``, ``rates`` and ``seeds``."""

EXPERIMENTS = {
    "classification": "inlier.experiments.classification.experiment:EXPERIMENT",
    "regression": "inlier.experiments.regression.experiment:EXPERIMENT",
    "scene": "inlier.experiments.scene.experiment:EXPERIMENT",
    "theory": "inlier.experiments.theory.experiment:EXPERIMENT",
}
"""The place of each experiment, ``package.module:ATTRIBUTE``; :func:`load` imports it on demand."""


class SweepError(RuntimeError):
    """A run that cannot start or continue, with a reason of one line: a lock, a cluster, a package."""


@dataclass(frozen=True, eq=False)
class Row:
    """One row of the results: a method at an outlier rate with a seed. Equal rows have equal keys.

    Args:
        method: The name of the method.
        rate: The outlier rate, rounded to 12 digits, so that 0.1 + 0.2 and 0.3 are one row.
        seed: The seed of the trial.
        settings: All else that the metrics depend on; JSON values.

    Example:
        >>> Row("sgd", 0.2, 0, {"steps": 10}) == Row("sgd", 0.2, 0, {"steps": 10})
        True
        >>> Row("sgd", 0.2, 0, {"steps": 10}).key == Row("sgd", 0.2, 0, {"steps": 20}).key
        False
    """

    method: str
    rate: float
    seed: int
    settings: PresetSettings

    def __post_init__(self) -> None:
        object.__setattr__(self, "rate", round(float(self.rate), 12))

    @cached_property
    def key(self) -> str:
        """The identity of the row, equal in every run: a hash of its canonical JSON."""
        parts = [self.method, self.rate, self.seed, dict(self.settings)]
        text = json.dumps(parts, sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()[:20]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Row) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


def grid(methods: Sequence[str], rates: Sequence[float], seeds: int, settings: PresetSettings) -> list[Row]:
    """Return one row for every method, rate and seed: the default of ``Experiment.rows``."""
    return [Row(method, rate, seed, settings) for method, rate, seed in product(methods, rates, range(seeds))]


def one_row_each(rows: Sequence[Row], jobs: int) -> list[list[Row]]:
    """Return a unit of work for each row: the default of ``Experiment.batches``."""
    return [[row] for row in rows]


def no_figures(frame: pd.DataFrame, settings: PresetSettings, out: Path) -> list[tuple[str, str]]:
    """Draw nothing: the default of ``Experiment.figures``."""
    return []


@dataclass(frozen=True)
class Folders:
    """The folders of a long computation; no metric depends on them.

    Args:
        checkpoints: For the state of unfinished rows, one file each, by ``Row.key``.
        data: The folder of the data, if one was given.
    """

    checkpoints: Path
    data: Path | None = None


@dataclass(frozen=True)
class Experiment:
    """An experiment, as the sweep sees it; the docstring of the module has an example.

    Args:
        name: Its name on the command line and in the journal.
        description: What it shows, in one line.
        methods: The names of all methods, in the order of tables and legends.
        presets: ``paper``, ``cpu`` and ``smoke``, each with ``rates`` (a list), ``seeds`` (how many) and, if
            the preset leaves some out, ``methods``; the rest becomes the ``settings`` of every row.
        metric: The metric that the summary table shows.
        compute: Takes the rows of one unit of work; yields each with its metrics (floats by name; NaN and
            infinity are allowed), or with an exception if that row failed.
        figures: Takes the finished rows (columns ``method``, ``rate``, ``seed``, then the metrics), the
            settings and the output folder; saves figures there and returns (file name, caption) of each. It
            must handle missing methods, rates and seeds.
        batches: Takes the rows still to do and the number of processes; returns the units of work.
        rows: Takes methods, rates, number of seeds and settings; returns the rows, by default all
            combinations.
        needs_folders: Whether ``compute`` takes :class:`Folders` as its argument ``folders``.
        describe_data: For an experiment on data of the user's choice: takes the folder, if one was given, and
            returns settings that identify the data, so that rows of other data are other rows; raises
            ``ValueError`` if the folder is unsuitable.
    """

    name: str
    description: str
    methods: tuple[str, ...]
    presets: Mapping[str, PresetSettings]
    metric: str
    compute: Callable[..., Iterable[tuple[Row, Mapping[str, float] | Exception]]]
    figures: Callable[[pd.DataFrame, PresetSettings, Path], list[tuple[str, str]]] = no_figures
    batches: Callable[[Sequence[Row], int], list[list[Row]]] = one_row_each
    rows: Callable[[Sequence[str], Sequence[float], int, PresetSettings], list[Row]] = grid
    needs_folders: bool = False
    describe_data: Callable[[Path | None], PresetSettings] | None = None


@dataclass(frozen=True)
class Plan:
    """What one run computes: an experiment at a preset, with parts of the preset replaced."""

    experiment: Experiment
    preset: str
    methods: tuple[str, ...]
    rates: tuple[float, ...]
    seeds: int
    settings: PresetSettings

    @property
    def rows(self) -> list[Row]:
        """The rows of the plan, each once."""
        rows = self.experiment.rows(self.methods, self.rates, self.seeds, self.settings)
        return list(dict.fromkeys(rows))


def plan(
    experiment: Experiment,
    preset: str = "cpu",
    methods: Sequence[str] | None = None,
    rates: Sequence[float] | None = None,
    seeds: int | None = None,
    data: Path | None = None,
) -> Plan:
    """Return the plan of a run; raise ``ValueError`` with the choices for an unknown name.

    Args:
        experiment: What to run.
        preset: The name of a preset.
        methods: Names out of ``experiment.methods``, in place of those of the preset.
        rates: Outlier rates in [0, 1), in place of those of the preset.
        seeds: Number of trials, in place of that of the preset.
        data: The folder of the data, if the experiment needs one.
    """
    if preset not in experiment.presets:
        raise ValueError(f"preset {preset!r} is unknown; choose from {', '.join(experiment.presets)}")
    settings = dict(experiment.presets[preset])
    standard = {name: settings.pop(name, None) for name in ("methods", "rates", "seeds")}
    methods = tuple(methods or standard["methods"] or experiment.methods)
    for method in methods:
        if method not in experiment.methods:
            raise ValueError(f"method {method!r} is unknown; choose from {', '.join(experiment.methods)}")
    rates = tuple(float(rate) for rate in (standard["rates"] if rates is None else rates))
    for rate in rates:
        # A rate of 1 would leave nothing to learn from. Written with `not`, this refuses NaN too.
        if not 0 <= rate < 1:
            raise ValueError(f"rate {rate:g} is not an outlier rate; choose from 0 <= rate < 1")
    seeds = standard["seeds"] if seeds is None else seeds
    if seeds < 1:
        raise ValueError(f"seeds {seeds} is not a number of trials; choose 1 or more")
    if experiment.describe_data is not None:
        settings |= experiment.describe_data(data)
    return Plan(experiment, preset, methods, rates, seeds, settings)


def load(name: str) -> Experiment:
    """Return an experiment by its name in :data:`EXPERIMENTS`, or by its place ``package.module:ATTRIBUTE``.

    Args:
        name: As above; the module is imported now.
    """
    if name not in EXPERIMENTS and ":" not in name:
        choices = ", ".join([*EXPERIMENTS, "or your own as package.module:ATTRIBUTE"])
        raise ValueError(f"experiment {name!r} is unknown; choose from {choices}")
    module, _, attribute = EXPERIMENTS.get(name, name).partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute, None)
    except ModuleNotFoundError as error:
        # A module that the experiment itself fails to import is another error.
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        raise ValueError(f"experiment {name!r}: there is no module {error.name!r}") from error
    if not isinstance(found, Experiment):
        raise ValueError(f"experiment {name!r}: {module} has no Experiment named {attribute!r}")
    return found
