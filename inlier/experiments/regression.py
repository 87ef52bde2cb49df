"""The paper's linear regression (section 6.1, figures 2 and 3a): ``inlier reproduce regression``.

Two regimes: as printed (10^4 steps of one sample, in which nothing converges) and converged (10^6 steps). All
stochastic methods, rates and trials of a regime advance as one program (:mod:`regression_runner`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from inlier.experiments import Experiment, Row, Settings
from inlier.experiments.regression_data import RegressionData, draw, rmse
from inlier.experiments.regression_direct import DIRECT, gradient_descent
from inlier.experiments.regression_figures import figures
from inlier.experiments.regression_runner import Outcome, Rule, Schedule, run

__all__ = ["EXPERIMENT", "RULES"]

_TL, _GM = "truncated", "geman-mcclure"

RULES = {
    "sgd": Rule("sgd"),
    "normalised-gradient": Rule("normalised"),
    "gradient-clipping": Rule("clipped"),
    # As in the paper: the true fraction from the start, weighted sums divided by n.
    "adaptive-tl": Rule("adaptive", _TL),
    "adaptive-gm": Rule("adaptive", _GM),
    "adaptive-t-gm": Rule("adaptive", _GM, held=True),
    # One of two changes: the fraction is lowered from 1, or weights are divided by their expected mean.
    "adaptive-tl-lowered": Rule("adaptive", _TL, lowered=True),
    "adaptive-gm-lowered": Rule("adaptive", _GM, lowered=True),
    "adaptive-tl-divided": Rule("adaptive", _TL, divided=True),
    "adaptive-gm-divided": Rule("adaptive", _GM, divided=True),
    # Both changes: `inlier.Robust(divide_by="weights")` with a given fraction.
    "adaptive-tl-both": Rule("adaptive", _TL, lowered=True, divided=True),
    "adaptive-gm-both": Rule("adaptive", _GM, lowered=True, divided=True),
    "adaptive-t-gm-both": Rule("adaptive", _GM, held=True, lowered=True, divided=True),
    # Both changes, and nothing given: the fraction is estimated.
    "adaptive-tl-auto": Rule("adaptive", _TL, auto=True, lowered=True, divided=True),
    "adaptive-gm-auto": Rule("adaptive", _GM, auto=True, lowered=True, divided=True),
    "adaptive-t-gm-auto": Rule("adaptive", _GM, auto=True, held=True, lowered=True, divided=True),
}
"""The stochastic methods."""

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
    # The printed regime as it is, of fewer rates and trials; a fifth of the steps that converge.
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


def rows(methods: Sequence[str], rates: Sequence[float], seeds: int, settings: Settings) -> list[Row]:
    """Return a row for each regime of a method that takes steps, and one for each that solves directly."""
    found = []
    for method in methods:
        common = {"data": dict(settings["data"])}
        if method in DIRECT:
            variants: list[dict[str, Any]] = [common]
        else:
            common["step_size"] = settings["step_size"]
            variants = [common | {"regime": name} | dict(r) for name, r in settings["regimes"].items()]
        found += [Row(method, rate, seed, v) for v in variants for rate in rates for seed in range(seeds)]
    return found


def batches(waiting: Sequence[Row], jobs: int) -> list[list[Row]]:
    """Return units of work: each regime in as many parts as there are processes, then the rest."""
    stepped = [row for row in waiting if row.method in RULES]
    units = []
    for _, same in groupby(sorted(stepped, key=_steps_last), key=_steps_last):
        regime = list(same)
        seeds = sorted({row.seed for row in regime})
        for part in range(min(jobs, len(seeds))):
            chosen = set(seeds[part::jobs])
            units.append([row for row in regime if row.seed in chosen])
    return units + [[row] for row in waiting if row.method not in RULES]


def _steps_last(row: Row) -> tuple[int, str]:
    return -row.settings["steps"], str(dict(row.settings))


def compute(unit: Sequence[Row]) -> Iterator[tuple[Row, Mapping[str, float] | Exception]]:
    """Yield the test error of each row, and what the adaptive methods believed in the end.

    Metrics are named after the regime: ``printed_rmse``; ``rmse`` is the converged one. Methods that take no
    steps have the same in both.
    """
    torch.set_num_threads(1)
    stepped = [row for row in unit if row.method in RULES]
    for row in unit:
        if row.method in RULES:
            continue
        data = _draw(row)
        if row.method in DIRECT:
            error = rmse(data, DIRECT[row.method](data, row.seed))
            yield row, {"printed_rmse": error, "rmse": error}
        else:
            w = gradient_descent(data, row.settings["steps"], row.settings["step_size"])
            yield row, _metrics(row, data, w)
    for _, same in groupby(sorted(stepped, key=_steps_last), key=_steps_last):
        yield from _advance(list(same))


def _advance(same: Sequence[Row]) -> Iterator[tuple[Row, Mapping[str, float]]]:
    """Run all rows of one regime together: every method on every problem that any of them names."""
    settings = same[0].settings
    methods = list(dict.fromkeys(row.method for row in same))
    places = list(dict.fromkeys((row.rate, row.seed) for row in same))
    problems = {(row.rate, row.seed): _draw(row) for row in same}
    schedule = Schedule(
        steps=settings["steps"],
        step_size=settings["step_size"],
        update_every=settings["update_every"],
        estimates=settings["estimates"],
    )
    end = run(
        [problems[place] for place in places],
        [seed for _, seed in places],
        [RULES[method] for method in methods],
        schedule,
    )
    for row in same:
        at = methods.index(row.method), places.index((row.rate, row.seed))
        data = problems[row.rate, row.seed]
        yield row, _metrics(row, data, end.w[at]) | _beliefs(row, end, at)


def _draw(row: Row) -> RegressionData:
    return draw(row.rate, row.seed, **row.settings["data"])


def _prefix(row: Row) -> str:
    return "" if row.settings["regime"] == "converged" else f"{row.settings['regime']}_"


def _metrics(row: Row, data: RegressionData, w: Tensor) -> dict[str, float]:
    return {f"{_prefix(row)}rmse": rmse(data, w)}


def _beliefs(row: Row, end: Outcome, at: tuple[int, int]) -> dict[str, float]:
    """The inlier fraction and scale that an adaptive run ends with."""
    if RULES[row.method].kind != "adaptive":
        return {}
    return {
        f"{_prefix(row)}inlier_fraction": float(end.inlier_fraction[at]),
        f"{_prefix(row)}scale": float(end.scale[at]),
    }


EXPERIMENT = Experiment(
    name="regression",
    description="Linear regression with outliers: test error over the outlier rate (figures 2 and 3a)",
    methods=("inlier-least-squares", GRADIENT_DESCENT, *RULES, *(name for name in list(DIRECT)[1:])),
    presets=PRESETS,
    metric="rmse",
    compute=compute,
    figures=figures,
    batches=batches,
    rows=rows,
)
