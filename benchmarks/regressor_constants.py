"""What the thresholds of the regressor decide: `python -m benchmarks.regressor_constants [--quick]`.

On the development half of the real tables (:mod:`benchmarks.real_tables`), linear models: how strongly the evidence
speaks for errors, in standard errors, where there are none and where a part of the targets is wrong. A threshold that
is too low gives false alarms on clean tables, one that is too high misses planted errors. Shown for each threshold are
the share of clean tables above it, and of the cells of each kind of planted errors below it. TRUSTED and SUSPECTED are
2.5 and 0.75 in ``inlier.sklearn._residuals``.

Where outliers are not suspected, the choice between the unweighted fit and one with a bounded influence depends on
what it costs if everything is clean and what it gains if large errors are wrong (AFFORDABLE, LEAST_GAIN, ODDS and
CONFIDENCE, in ``inlier.sklearn._robust``). Shown for several values are the clean tables that are worse than unweighted
by more than 2 and 5 %, the planted cells behind the better of both fits by more than 2 %, and the geometric mean of the
error there per that of the bounded fit. Each table is split three times.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.real_tables import catalogue, errors
from benchmarks.real_tables.prepare import Split, split
from benchmarks.real_tables.run import RATES
from benchmarks.tables import Section, main
from inlier.sklearn import AdaptiveRegressor, _regressor, _robust
from inlier.sklearn._learners import LeastSquares
from inlier.sklearn._residuals import SUSPECTED, examine

THRESHOLDS = (-1.5, -1.0, 0.0, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0)
CHOSEN = {"AFFORDABLE": 0.02, "LEAST_GAIN": 0.15, "ODDS": 10.0, "CONFIDENCE": 3.0}
VARIED = {
    "AFFORDABLE": (0.0, 0.01, 0.02, 0.04),
    "LEAST_GAIN": (0.0, 0.1, 0.15, 0.2),
    "ODDS": (5.0, 10.0, 20.0, 1e9),
    "CONFIDENCE": (1.0, 2.0, 3.0, 4.0),
}
"""Each constant is varied with the others as they are in use."""
SEEDS = (0, 1, 2)
"""Of splits and planted errors for the choice."""


def cells(classes: bool, quick: bool, seed: int = 0) -> Iterator[tuple[str, Split, np.ndarray]]:
    """Yield kind, data and targets of each cell of the development half."""
    sources = catalogue.CLASSIFICATION if classes else catalogue.REGRESSION
    kinds = errors.CLASSIFICATION if classes else errors.REGRESSION
    chosen = [each for each in sources if catalogue.half(each.name) == "development"]
    for source in chosen[:: 6 if quick else 1]:
        data = split(source, classes, seed)
        for kind, rate in [("clean", 0.0), *((kind, rate) for rate in RATES for kind in kinds)]:
            yield f"{kind} {rate:g}", data, errors.plant(kind, rate, data.x, data.y, seed + 1)[0]


def scores(quick: bool) -> list[dict[str, Any]]:
    """Return the evidence of outliers in each cell of the regressions."""
    original, rows = _regressor.find_weights, []

    def watched(*arguments: Any) -> Any:
        found = original(*arguments)
        rows[-1]["score"] = float(found.evidence.score)
        return found

    _regressor.find_weights = watched
    try:
        for kind, data, y in cells(False, quick):
            rows.append({"kind": kind, "score": -np.inf})
            AdaptiveRegressor(random_state=0).fit(data.x, y)
    finally:
        _regressor.find_weights = original
    return rows


def choices(quick: bool) -> list[dict[str, Any]]:
    """Return cost, gain and test error of a bounded influence, where nothing is suspected."""
    rows = []
    for kind, data, y in (cell for seed in SEEDS for cell in cells(False, quick, seed)):
        center, ones = data.x.mean(0), np.ones(len(y))
        if len(y) < _robust.FEWEST_PER_UNKNOWN * (data.x.shape[1] + 1):
            continue
        learner, given = LeastSquares(data.x, y), _robust.Data(y, ones, ones, None)
        bounded = _robust._first(learner, given)
        left_out = _robust._left_out(bounded.fit, bounded.weights, given)
        if examine(left_out, y - left_out, y, ones).score > SUSPECTED:
            continue
        unweighted, huber = (
            held_out_rmse(data, center, fit.coefficients) for fit in (learner.fit(ones), bounded.fit)
        )
        cost, gain = _robust.cost_and_gain(bounded, given)
        expected = _robust.cost_and_gain(bounded, given, 0.0)[0]
        rows.append(
            {
                "clean": kind == "clean 0",
                "gain": gain,
                "cost": expected,
                "error": (cost - expected) / CHOSEN["CONFIDENCE"],
                "ratio": huber / unweighted,
            }
        )
    return rows


def held_out_rmse(data: Split, center: np.ndarray, coefficients: np.ndarray) -> float:
    """Return the RMSE on test rows of coefficients of centred inputs."""
    predictions = (data.x_test - center) @ coefficients[:-1] + coefficients[-1]
    return float(np.sqrt(np.mean((data.y_test - predictions) ** 2)))


def run(quick: bool = False) -> dict[str, Any]:
    """Return the scores, and what decides between the unweighted and Huber's fit."""
    warnings.simplefilter("ignore")
    return {
        "regression": scores(quick),
        "choices": choices(quick),
        "notes": [],
    }


def choices_table(rows: list[dict[str, Any]]) -> str:
    """Return harm and misses for several values of each constant."""
    lines = [
        "| constant | value | clean: worse by > 2 % | by > 5 % | planted: behind by > 2 % | to the bounded fit |",
        "|" + "---|" * 6,
    ]
    for name, values in VARIED.items():
        for value in values:
            used = CHOSEN | {name: value}
            clean, planted, huber = [], [], []
            for row in rows:
                allowed = used["AFFORDABLE"] + row["gain"] / used["ODDS"]
                cost = row["cost"] + used["CONFIDENCE"] * row["error"]
                is_bounded = cost < (allowed if row["gain"] > used["LEAST_GAIN"] else 0.0)
                ratio = row["ratio"] if is_bounded else 1.0
                if row["clean"]:
                    clean.append(ratio)
                else:
                    planted.append(ratio / min(1.0, row["ratio"]))
                    huber.append(ratio / row["ratio"])
            harm = [sum(ratio > limit for ratio in clean) for limit in (1.02, 1.05)]
            behind = sum(ratio > 1.02 for ratio in planted)
            lines.append(
                f"| {name} | {value:g} | {harm[0]} of {len(clean)} | {harm[1]} | "
                f"{behind} of {len(planted)} | {np.exp(np.mean(np.log(huber))):.2f} |"
            )
    return "\n".join(lines)


def table(rows: list[dict[str, Any]]) -> str:
    """Return false alarms and misses at each threshold."""
    kinds = list(dict.fromkeys(row["kind"] for row in rows))
    lines = [
        "| threshold | clean: false alarms | " + " | ".join(f"{kind}: misses" for kind in kinds[1:]) + " |",
        "|" + "---|" * (len(kinds) + 1),
    ]
    for threshold in THRESHOLDS:
        above = [np.mean([row["score"] > threshold for row in rows if row["kind"] == kind]) for kind in kinds]
        shares = [above[0], *(1 - share for share in above[1:])]
        lines.append(f"| {threshold:g} | " + " | ".join(f"{share:.2f}" for share in shares) + " |")
    return "\n".join(lines)


def sections(result: dict[str, Any]) -> list[Section]:
    """The tables of a run."""
    return [
        ("Regression: outliers explain the errors better than one law", table(result["regression"])),
        (
            "Regression, nothing suspected: unweighted, or a bounded influence",
            choices_table(result["choices"]),
        ),
    ]


if __name__ == "__main__":
    main(run, sections)
