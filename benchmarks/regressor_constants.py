"""What the thresholds of the regressor decide: `python -m benchmarks.regressor_constants [--quick]`.

On the development half of the real tables (:mod:`benchmarks.real_tables`), linear models: how strongly the evidence
speaks for errors, in standard errors, where there are none and where a part of the targets is wrong. A threshold that
is too low gives false alarms on clean tables, one that is too high misses planted errors. Shown for each threshold are
the share of clean tables above it, and of the cells of each kind of planted errors below it. TRUSTED and SUSPECTED are
2.5 and 0.75 in ``inlier.sklearn._residuals``.

Where outliers are not suspected, the choice between the unweighted fit and one with a bounded influence depends on
what it costs if everything is clean, what it gains if large errors are wrong, and what it gains if they are not
(AFFORDABLE, LEAST_GAIN, ODDS, CONFIDENCE, EFFICIENT, in ``inlier.sklearn._robust``). Shown for several values are the
clean tables that are worse than unweighted by more than 2 and 5 %, the planted cells behind the better of both fits by
more than 2 %, and the geometric mean of the error there per that of the bounded fit. Each table is split three times.
Beside them: the generated regressions without outliers (:mod:`benchmarks.regressors`) that are behind the bounded, and
the unweighted fit by more than 5 %, by the error against the noise-free targets.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks.real_tables import catalogue, errors
from benchmarks.real_tables.prepare import Split, split
from benchmarks.real_tables.run import RATES
from benchmarks.regressors import GRID, generated
from benchmarks.tables import Section, main
from inlier.sklearn import AdaptiveRegressor, _regressor, _robust
from inlier.sklearn._learners import Fit, LeastSquares
from inlier.sklearn._residuals import SUSPECTED, examine

THRESHOLDS = (-1.5, -1.0, 0.0, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0)
CHOSEN = {"AFFORDABLE": 0.02, "LEAST_GAIN": 0.15, "ODDS": 10.0, "CONFIDENCE": 3.0, "EFFICIENT": 0.9}
VARIED = {
    "AFFORDABLE": (0.0, 0.01, 0.02, 0.04),
    "LEAST_GAIN": (0.0, 0.1, 0.15, 0.2),
    "ODDS": (5.0, 10.0, 20.0, 1e9),
    "CONFIDENCE": (1.0, 2.0, 3.0, 4.0),
    "EFFICIENT": (0.0, 0.7, 0.8, 0.9, 1.0),
}
"""Each constant is varied with the others as they are in use."""
SEEDS = (0, 1, 2)
"""Of splits and planted errors for the choice."""
GENERATED = 100
"""So many generated regressions without outliers."""


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
    rows = [
        row | {"kind": "generated"}
        for x, y, truth in clean_regressions(quick)
        for row in choice(
            x, y, lambda fit, truth=truth: float(np.sqrt(np.mean((fit.predictions - truth) ** 2)))
        )
    ]
    for kind, data, y in (cell for seed in SEEDS for cell in cells(False, quick, seed)):
        center = data.x.mean(0)
        found = choice(
            data.x,
            y,
            lambda fit, data=data, center=center: held_out_rmse(data, center, fit.coefficients),
        )
        rows += [row | {"kind": "clean" if kind == "clean 0" else "planted"} for row in found]
    return rows


def clean_regressions(quick: bool) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield inputs, targets and noise-free targets of generated regressions without outliers."""
    rng = np.random.default_rng(1)
    for number in range(GENERATED // 5 if quick else GENERATED):
        cell = {name: values[rng.integers(len(values))] for name, values in GRID.items()} | {"rate": 0.0}
        cell["n"] = min(cell["n"], _robust.SUBSAMPLE)
        if cell["columns"] == "n / 3" and cell["n"] > 1000:
            cell["columns"] = 50
        x, y, _, truth = generated(cell, 1 + number)
        yield x, y, truth


def choice(x: np.ndarray, y: np.ndarray, error_of: Callable[[Fit], float]) -> list[dict[str, float]]:
    """Return what decides about one regression, and the error of the bounded fit per that of the unweighted one."""
    ones = np.ones(len(y))
    if len(y) < _robust.FEWEST_PER_UNKNOWN * (x.shape[1] + 1):
        return []
    learner, given = LeastSquares(x, y), _robust.Data(y, ones, ones, None)
    bounded = _robust._first(learner, given)
    left_out = _robust._left_out(bounded.fit, bounded.weights, given)
    if examine(left_out, y - left_out, y, ones).score > SUSPECTED:
        return []
    cost, gain = _robust.cost_and_gain(bounded, given)
    expected = _robust.cost_and_gain(bounded, given, 0.0)[0]
    error = (cost - expected) / CHOSEN["CONFIDENCE"]
    ratio = error_of(bounded.fit) / error_of(learner.fit(ones))
    return [{"gain": gain, "cost": expected, "error": error, "risk": bounded.risk, "ratio": ratio}]


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
        "| constant | value | clean: worse by > 2 % | by > 5 % | planted: behind by > 2 % | to the bounded fit | "
        "generated, clean: behind the bounded fit by > 5 % | the unweighted one |",
        "|" + "---|" * 8,
    ]
    for name, values in VARIED.items():
        for value in values:
            used = CHOSEN | {name: value}
            clean, planted, huber, behind_bounded, behind_unweighted = [], [], [], [], []
            for row in rows:
                allowed = used["AFFORDABLE"] + row["gain"] / used["ODDS"]
                cost = row["cost"] + used["CONFIDENCE"] * row["error"]
                worthwhile = row["gain"] > used["LEAST_GAIN"] or row["risk"] < used["EFFICIENT"]
                is_bounded = cost < (allowed if worthwhile else 0.0)
                ratio = row["ratio"] if is_bounded else 1.0
                if row["kind"] == "generated":
                    behind_bounded.append(ratio > 1.05 * row["ratio"])
                    behind_unweighted.append(ratio > 1.05)
                elif row["kind"] == "clean":
                    clean.append(ratio)
                else:
                    planted.append(ratio / min(1.0, row["ratio"]))
                    huber.append(ratio / row["ratio"])
            harm = [sum(ratio > limit for ratio in clean) for limit in (1.02, 1.05)]
            behind = sum(ratio > 1.02 for ratio in planted)
            lines.append(
                f"| {name} | {value:g} | {harm[0]} of {len(clean)} | {harm[1]} | "
                f"{behind} of {len(planted)} | {np.exp(np.mean(np.log(huber))):.2f} | "
                f"{sum(behind_bounded)} of {len(behind_bounded)} | {sum(behind_unweighted)} |"
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
        ("Regression: outliers explain the errors better than one distribution", table(result["regression"])),
        (
            "Regression, nothing suspected: unweighted, or a bounded influence",
            choices_table(result["choices"]),
        ),
    ]


if __name__ == "__main__":
    main(run, sections)
