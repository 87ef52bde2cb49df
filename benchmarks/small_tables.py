"""A bounded influence on small clean tables: `python -m benchmarks.small_tables`.

Development tables (:mod:`benchmarks.real_tables`), cut to so many rows for each unknown, four draws each. Shown is the
share of tables on which Huber's weights are taken though nothing is suspected, and on which that makes the RMSE on the
test rows worse than the unweighted one by more than 2 and 5 %, or better by more than 2 %: with errors by a Newton step
without the row (in use), and with the weights of the fit to all rows, which depend on the row's own target.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from benchmarks.real_tables import catalogue
from benchmarks.real_tables.prepare import Split, split
from benchmarks.regressor_constants import held_out_rmse
from inlier.sklearn import _robust
from inlier.sklearn._learners import LeastSquares
from inlier.sklearn._residuals import examine

ROWS = (4, 6, 10, 20)
DRAWS = 4
FEWEST = 40
"""Tables that are cut to fewer rows are left out."""


def trial(data: Split, rows: np.ndarray) -> tuple[bool, bool, float]:
    """Return whether a bounded influence is chosen, in use and by weights, and its RMSE to the unweighted one."""
    varied = data.x[rows].std(0) > 0
    part = Split(data.x[rows][:, varied], data.y[rows], data.x_test[:, varied], data.y_test)
    center, ones = part.x.mean(0), np.ones(len(rows))
    learner, given = LeastSquares(part.x, part.y), _robust.Data(part.y, ones, ones, None)
    bounded = _robust._first(learner, given)
    errors = _robust._left_out(bounded.fit, bounded.weights, given)
    evidence = replace(examine(errors, part.y - errors, part.y, ones), score=0.0)
    in_use, by_weights = (
        np.isfinite(_robust.bound_influence(each, evidence, given).limit)
        for each in (bounded, replace(bounded, left_out=errors))
    )
    huber, unweighted = (
        held_out_rmse(part, center, fit.coefficients) for fit in (bounded.fit, learner.fit(ones))
    )
    return bool(in_use), bool(by_weights), huber / unweighted


def main() -> None:
    print(
        "| rows for each unknown | errors | tables | chosen | worse by > 2 % | by > 5 % | better by > 2 % |"
    )
    print("|---" * 7 + "|")
    tables = [
        split(source, False)
        for source in catalogue.REGRESSION
        if catalogue.half(source.name) == "development"
    ]
    for each in ROWS:
        found = []
        for data in tables:
            size = each * (data.x.shape[1] + 1)
            if FEWEST <= size <= 0.8 * len(data.y):
                for draw in range(DRAWS):
                    rows = np.random.default_rng(draw).permutation(len(data.y))[:size]
                    found.append(trial(data, rows))
        for place, name in enumerate(("Newton step", "weights of all rows")):
            chosen = np.array([row[place] for row in found])
            ratio = np.array([row[2] for row in found])
            shares = [chosen, chosen & (ratio > 1.02), chosen & (ratio > 1.05), chosen & (ratio < 0.98)]
            print(
                f"| {each} | {name} | {len(found)} | "
                + " | ".join(f"{share.mean():.2f}" for share in shares)
                + " |"
            )


if __name__ == "__main__":
    main()
