"""What the thresholds of the estimators decide: `python -m benchmarks.regressor_constants [--quick]`.

On the development half of the real tables (:mod:`benchmarks.real_tables`), linear models: how strongly the evidence
speaks for errors, in standard errors, where there are none and where a part of the targets is wrong. A threshold that
is too low gives false alarms on clean tables, one that is too high misses planted errors. Shown for each threshold are
the share of clean tables above it, and of the cells of each kind of planted errors below it. TRUSTED and SUSPECTED are
2.5 and 1 in ``inlier.sklearn._residuals``, 2 and 1.5 in ``inlier.sklearn._labels``.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression

from benchmarks.real_tables import catalogue, errors
from benchmarks.real_tables.prepare import split
from benchmarks.real_tables.run import RATES
from benchmarks.tables import Section, main
from inlier.sklearn import AdaptiveClassifier, AdaptiveRegressor, _classifier, _regressor

THRESHOLDS = (-1.0, 0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0)


def scores(classes: bool, quick: bool) -> list[dict[str, Any]]:
    """Return the evidence in each cell of the development half."""
    module, name = (_classifier, "gain_score") if classes else (_regressor, "find_weights")
    original, seen = getattr(module, name), []

    def watched(*arguments: Any) -> Any:
        found = original(*arguments)
        seen.append(found if classes else found.evidence.score)
        return found

    sources = catalogue.CLASSIFICATION if classes else catalogue.REGRESSION
    kinds = errors.CLASSIFICATION if classes else errors.REGRESSION
    rows = []
    setattr(module, name, watched)
    try:
        for source in [each for each in sources if catalogue.half(each.name) == "development"][
            :: 6 if quick else 1
        ]:
            data = split(source, classes)
            for kind, rate in [("clean", 0.0), *((kind, rate) for rate in RATES for kind in kinds)]:
                y, _ = errors.plant(kind, rate, data.x, data.y, seed=1)
                model = (
                    AdaptiveClassifier(LogisticRegression(max_iter=300)) if classes else AdaptiveRegressor()
                )
                model.set_params(random_state=0).fit(data.x, y)
                rows.append({"kind": f"{kind} {rate:g}", "score": float(seen[-1])})
    finally:
        setattr(module, name, original)
    return rows


def run(quick: bool = False) -> dict[str, Any]:
    """Return the scores of both estimators."""
    warnings.simplefilter("ignore")
    return {"regression": scores(False, quick), "classification": scores(True, quick), "notes": []}


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
        ("Classification: held-out labels are predicted better", table(result["classification"])),
    ]


if __name__ == "__main__":
    main(run, sections)
