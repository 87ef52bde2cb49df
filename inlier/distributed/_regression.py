"""Linear regression over partitions: the rounds of :mod:`inlier.sklearn._extension`, each by one or two passes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.utils import check_random_state

from inlier.distributed._partitions import Partition
from inlier.distributed._passes import Arrays, Passes
from inlier.distributed._plan import Plan
from inlier.distributed._score import Fitted, Scorer, Scores
from inlier.distributed._survey import Fetch, Summary, join
from inlier.fit._columns import Array
from inlier.fraction import GivenFraction
from inlier.sklearn._extension import (
    Extension,
    Weighting,
    error_histogram,
    extend,
    weighted_moments,
    with_limit,
)
from inlier.sklearn._learners import LeastSquares, solve_moments
from inlier.sklearn._regressor import estimate_of
from inlier.sklearn._robust import Data, begin_extension, find_linear_weights, subsample


@dataclass(frozen=True)
class Equations:
    """The least-squares problem of any part of the rows.

    Args:
        plan: What is read.
        base: The unfitted estimator.
        center: What is subtracted from the inputs.
    """

    plan: Plan
    base: Any
    center: Array

    def of(self, x: Array, y: Array) -> LeastSquares:
        """Return the problem of some rows."""
        return LeastSquares.of(self.base, x, y, self.center)


@dataclass(frozen=True)
class Moments:
    """Adds up weighted moments.

    Args:
        equations: The problem.
        coefficients: Those under which errors are measured.
        weighting: The weights of these; None for 1.
    """

    equations: Equations
    coefficients: Array
    weighting: Weighting | None

    def __call__(self, partition: Partition) -> Arrays:
        """Return the moments of a partition."""
        total: Array | float = 0.0
        for batch in self.equations.plan.batches(partition):
            part = self.equations.of(batch.x, batch.y)
            if self.weighting is None:
                total = total + part.moments(np.ones(len(batch.y)))
            else:
                total = total + weighted_moments(part, self.coefficients, self.weighting)
        return {"total": np.asarray(total)}


@dataclass(frozen=True)
class Histogram:
    """Counts squared errors.

    Args:
        equations: The problem.
        coefficients: Those under which errors are measured.
        unit: The squared error that is counted as 1.
    """

    equations: Equations
    coefficients: Array
    unit: float

    def __call__(self, partition: Partition) -> Arrays:
        """Return the histogram of a partition."""
        total: Array | float = 0.0
        for batch in self.equations.plan.batches(partition):
            part = self.equations.of(batch.x, batch.y)
            total = total + error_histogram(batch.y - part.predict(self.coefficients), self.unit)
        return {"total": np.asarray(total)}


def add(a: Arrays, b: Arrays) -> Arrays:
    """Add up the results of two parts."""
    return {key: a[key] + b[key] for key in a}


@dataclass
class PartitionedRows:
    """All rows, as the rounds of an extension see them.

    Args:
        equations: The problem.
        passes: Passes over the partitions.
        fits: The number of fits so far.
    """

    equations: Equations
    passes: Passes
    fits: int = 0

    def histogram(self, coefficients: Array, unit: float) -> Array:
        """Return the counts and the sums of squared errors in bins."""
        function = Histogram(self.equations, coefficients, unit)
        return self.passes.arrays(f"errors-{self.fits}", function, add, "measuring errors")["total"]

    def fit(self, coefficients: Array, weighting: Weighting | None) -> Array:
        """Return the coefficients that fit best with the weights of the errors of given ones."""
        self.fits += 1
        function = Moments(self.equations, coefficients, weighting)
        moments = self.passes.arrays(
            f"moments-{self.fits}", function, add, f"fitting all rows, round {self.fits}"
        )
        inputs = len(self.equations.center)
        return solve_moments(moments["total"], inputs, getattr(self.equations.base, "alpha", 0.0))[0]


@dataclass(frozen=True)
class ErrorScorer(Scorer):
    """Scores rows by the errors of the last round.

    Args:
        equations: The problem.
        coefficients: Those under which errors are measured.
        weighting: The weights of these; None if all rows are inliers.
        final: The coefficients of the final model.
    """

    equations: Equations
    coefficients: Array
    weighting: Weighting | None
    final: Array

    def __call__(self, x: Array, y: Array, start: int, places: Array) -> Scores:
        """Return the scores of some rows."""
        part = self.equations.of(x, y)
        predictions = part.predict(self.coefficients)
        errors = y - predictions
        suggested = part.predict(self.final)
        if self.weighting is None:
            return Scores(np.ones(len(y)), errors**2, np.ones(len(y)), suggested)
        probability = self.weighting.evidence.probability(errors, predictions)
        return Scores(probability, errors**2, self.weighting(errors, predictions), suggested)


def fit_regression(
    passes: Passes, plan: Plan, summary: Summary, base: Any, share: float | None, seed: int
) -> Fitted:
    """Fit a linear regression to more rows than fit in memory; equal to :class:`inlier.sklearn.AdaptiveRegressor`.

    Args:
        passes: Passes over the partitions.
        plan: What is read.
        summary: What is known of all rows.
        base: The unfitted estimator: ordinary or ridge regression.
        share: The share of inliers, if it is given.
        seed: Draws the subsample and the beginnings.
    """
    equations = Equations(plan, base, summary.total / summary.n)
    rows = PartitionedRows(equations, passes)
    if share == 1:
        final = rows.fit(np.zeros(len(equations.center) + 1), None)
        estimate = GivenFraction(1.0).estimate()
        return Fitted(_model(equations, final), estimate, ErrorScorer(equations, final, None, final), 1)
    generator = check_random_state(seed)
    chosen = subsample(summary.n, generator)
    fetch = Fetch(plan, chosen, summary.starts())
    part = passes.arrays("subsample", fetch, join, "drawing rows")
    ones = np.ones(len(part["y"]))
    data = Data(part["y"], ones, ones, share)
    found = find_linear_weights(equations.of(part["x"], part["y"]), data, generator)
    state: Extension = begin_extension(found, data)
    for after in extend(state, rows):
        state = after
    state = with_limit(state, rows)
    final = rows.fit(state.coefficients, state.weighting)
    estimate = estimate_of(found, summary.n) if share is None else GivenFraction(share).estimate()
    scorer = ErrorScorer(equations, state.coefficients, state.weighting, final)
    return Fitted(_model(equations, final), estimate, scorer, found.n_iter + state.done)


def _model(equations: Equations, coefficients: Array) -> Any:
    """Return the fitted estimator with these coefficients."""
    model, inputs = clone(equations.base), len(equations.center)
    model.coef_, model.n_features_in_ = coefficients[:inputs].copy(), inputs
    model.intercept_ = float(coefficients[-1] - equations.center @ model.coef_)
    return model
