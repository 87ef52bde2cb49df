"""The paper's linear regression (section 6.1, figures 2 and 3a): ``inlier reproduce regression``.

Two regimes: as printed (10^4 steps of one sample, in which nothing converges) and converged (10^6 steps). All
stochastic methods, rates and trials of a regime run as one program (:mod:`~.runner`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from inlier.experiments.regression.data import RegressionData, draw, rmse
from inlier.experiments.regression.direct import DIRECT, gradient_descent
from inlier.experiments.regression.figures import figures
from inlier.experiments.regression.runner import RunResult, Schedule, StepRule, run
from inlier.experiments.sweep import Experiment, PresetSettings, Row

__all__ = ["EXPERIMENT", "STOCHASTIC"]

_TL, _GM = "truncated", "geman-mcclure"

STOCHASTIC = {
    "sgd": StepRule("sgd"),
    "normalized-gradient": StepRule("normalized"),
    "gradient-clipping": StepRule("clipped"),
    # As in the paper: the true fraction from the start, weighted sums divided by n.
    "adaptive-tl": StepRule("adaptive", _TL),
    "adaptive-gm": StepRule("adaptive", _GM),
    "adaptive-t-gm": StepRule("adaptive", _GM, held=True),
    # One of two changes: the fraction is graduated from 1, or weights are divided by their expected mean.
    "adaptive-tl-graduated": StepRule("adaptive", _TL, graduated=True),
    "adaptive-gm-graduated": StepRule("adaptive", _GM, graduated=True),
    "adaptive-tl-divided": StepRule("adaptive", _TL, divided=True),
    "adaptive-gm-divided": StepRule("adaptive", _GM, divided=True),
    # Both changes: `inlier.Robust(divide_by="weights")` with a given fraction.
    "adaptive-tl-both": StepRule("adaptive", _TL, graduated=True, divided=True),
    "adaptive-gm-both": StepRule("adaptive", _GM, graduated=True, divided=True),
    "adaptive-t-gm-both": StepRule("adaptive", _GM, held=True, graduated=True, divided=True),
    # Both changes, without prior knowledge: the fraction is estimated.
    "adaptive-tl-auto": StepRule("adaptive", _TL, auto=True, graduated=True, divided=True),
    "adaptive-gm-auto": StepRule("adaptive", _GM, auto=True, graduated=True, divided=True),
    "adaptive-t-gm-auto": StepRule("adaptive", _GM, auto=True, held=True, graduated=True, divided=True),
}
"""The methods that take steps, by name."""

GRADIENT_DESCENT = "gradient-descent"

_DATA = {"samples": 1000, "dimension": 10, "noise": 0.1, "outlier": 5.0, "spread": "std"}
_PRINTED = {"steps": 10_000, "update_every": 100, "estimates": 5}
_TENTHS = [tenth / 10 for tenth in range(10)]

PRESETS: dict[str, dict[str, Any]] = {
    "paper": {
        "rates": _TENTHS,
        "seeds": 5,
        "data": _DATA,
        "step_size": 7e-4,
        "regimes": {
            "printed": _PRINTED,
            "converged": {"steps": 1_000_000, "update_every": 1000, "estimates": 20},
        },
    },
    # The printed regime with fewer rates and trials; a fifth of the steps that converge.
    "cpu": {
        "rates": [0.0, 0.2, 0.4, 0.6, 0.8, 0.9],
        "seeds": 3,
        "data": _DATA,
        "step_size": 7e-4,
        "regimes": {
            "printed": _PRINTED,
            "converged": {"steps": 200_000, "update_every": 1000, "estimates": 10},
        },
    },
    "smoke": {
        "rates": [0.0, 0.4],
        "seeds": 1,
        "data": _DATA | {"samples": 200, "dimension": 3},
        "step_size": 7e-4,
        "regimes": {
            "printed": {"steps": 1000, "update_every": 100, "estimates": 2},
            "converged": {"steps": 4000, "update_every": 200, "estimates": 2},
        },
    },
}


def make_rows(
    methods: Sequence[str], rates: Sequence[float], seeds: int, settings: PresetSettings
) -> list[Row]:
    """Return a row for each regime of a method that takes steps, and one for each that solves directly."""
    found = []
    for method in methods:
        common: dict[str, Any] = {"data": dict(settings["data"])}
        if method in DIRECT:
            variants: list[dict[str, Any]] = [common]
        else:
            common["step_size"] = settings["step_size"]
            variants = [common | {"regime": name} | dict(r) for name, r in settings["regimes"].items()]
        found += [Row(method, rate, seed, v) for v in variants for rate in rates for seed in range(seeds)]
    return found


def batches(waiting: Sequence[Row], jobs: int) -> list[list[Row]]:
    """Return units of work: each regime in as many parts as there are processes, then the direct methods."""
    stochastic = [row for row in waiting if row.method in STOCHASTIC]
    units = []
    for _, rows_of_regime in groupby(sorted(stochastic, key=_regime_key), key=_regime_key):
        regime = list(rows_of_regime)
        seeds = sorted({row.seed for row in regime})
        for part in range(min(jobs, len(seeds))):
            chosen = set(seeds[part::jobs])
            units.append([row for row in regime if row.seed in chosen])
    return units + [[row] for row in waiting if row.method not in STOCHASTIC]


def _regime_key(row: Row) -> tuple[int, str]:
    return -row.settings["steps"], str(dict(row.settings))


def compute(unit: Sequence[Row]) -> Iterator[tuple[Row, Mapping[str, float] | Exception]]:
    """Yield the test error of each row, and the final inlier fraction and scale of adaptive methods.

    Metrics are named after the regime: ``printed_rmse``; ``rmse`` is the converged one. Methods that take no
    steps have the same in both.
    """
    torch.set_num_threads(1)
    stochastic = [row for row in unit if row.method in STOCHASTIC]
    for row in unit:
        if row.method in STOCHASTIC:
            continue
        data = _draw(row)
        if row.method in DIRECT:
            error = rmse(data, DIRECT[row.method](data, row.seed))
            yield row, {"printed_rmse": error, "rmse": error}
        else:
            w = gradient_descent(data, row.settings["steps"], row.settings["step_size"])
            yield row, _metrics(row, data, w)
    for _, rows_of_regime in groupby(sorted(stochastic, key=_regime_key), key=_regime_key):
        yield from _run_regime(list(rows_of_regime))


def _run_regime(rows: Sequence[Row]) -> Iterator[tuple[Row, Mapping[str, float]]]:
    """Run all rows of one regime at once: every method on every problem that any of them names."""
    settings = rows[0].settings
    methods = list(dict.fromkeys(row.method for row in rows))
    trials = list(dict.fromkeys((row.rate, row.seed) for row in rows))
    problems = {(row.rate, row.seed): _draw(row) for row in rows}
    schedule = Schedule(
        steps=settings["steps"],
        step_size=settings["step_size"],
        update_every=settings["update_every"],
        estimates=settings["estimates"],
    )
    result = run(
        [problems[trial] for trial in trials],
        [seed for _, seed in trials],
        [STOCHASTIC[method] for method in methods],
        schedule,
    )
    for row in rows:
        at = methods.index(row.method), trials.index((row.rate, row.seed))
        data = problems[row.rate, row.seed]
        yield row, _metrics(row, data, result.w[at]) | _adaptive_metrics(row, result, at)


def _draw(row: Row) -> RegressionData:
    return draw(row.rate, row.seed, **row.settings["data"])


def _prefix(row: Row) -> str:
    return "" if row.settings["regime"] == "converged" else f"{row.settings['regime']}_"


def _metrics(row: Row, data: RegressionData, w: Tensor) -> dict[str, float]:
    return {f"{_prefix(row)}rmse": rmse(data, w)}


def _adaptive_metrics(row: Row, result: RunResult, at: tuple[int, int]) -> dict[str, float]:
    """The final inlier fraction and scale of an adaptive method."""
    if STOCHASTIC[row.method].kind != "adaptive":
        return {}
    return {
        f"{_prefix(row)}inlier_fraction": float(result.inlier_fraction[at]),
        f"{_prefix(row)}scale": float(result.scale[at]),
    }


EXPERIMENT = Experiment(
    name="regression",
    description="Linear regression with outliers: test error over the outlier rate (figures 2 and 3a)",
    methods=("inlier-least-squares", GRADIENT_DESCENT, *STOCHASTIC, *(name for name in list(DIRECT)[1:])),
    presets=PRESETS,
    metric="rmse",
    compute=compute,
    figures=figures,
    batches=batches,
    rows=make_rows,
)
