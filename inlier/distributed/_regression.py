"""Linear regression over partitions: the rounds of :mod:`inlier.sklearn._extension`, each by one pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.utils import check_random_state

from inlier.distributed._partitions import Partition
from inlier.distributed._passes import Arrays, Passes
from inlier.distributed._plan import BLOCK, Plan
from inlier.distributed._score import Fitted, Scorer, Scores
from inlier.distributed._survey import Summary, fetch
from inlier.fit._columns import Array
from inlier.fraction import GivenFraction
from inlier.sklearn._extension import Extension, Weighting, extend
from inlier.sklearn._learners import LeastSquares, solve_moments
from inlier.sklearn._regressor import estimate_of
from inlier.sklearn._robust import Data, begin_extension, find_linear_weights, subsample


@dataclass(frozen=True)
class Equations:
    """The least-squares problem of any part of the rows.

    Args:
        plan: What is read.
        base: The unfitted estimator.
        center: What is subtracted from the inputs before they are multiplied with each other, against rounding.
    """

    plan: Plan
    base: Any
    center: Array

    def of(self, x: Array, y: Array) -> LeastSquares:
        """Return the problem of some rows."""
        return LeastSquares.of(self.base, x, y, self.center)

    def predict(self, x: Array, coefficients: Array) -> Array:
        """Return the predictions of given coefficients."""
        slopes = coefficients[:-1]
        return np.asarray(slopes @ x.T + (coefficients[-1] - slopes @ self.center))

    def moments(self, x: Array, y: Array, weights: Array) -> Array:
        """Return the weighted sums of all products of inputs, ones and targets: those of :class:`LeastSquares`.

        With inputs column after column, a block at a time, in a third of the time.
        """
        size = len(self.center) + 2
        total, length = np.zeros((size, size)), min(BLOCK, len(y))
        table, weighted = np.ones((size, length)), np.empty((size, length))
        for first in range(0, len(y), BLOCK):
            block = slice(first, first + BLOCK)
            rows = len(y[block])
            part, product = table[:, :rows], weighted[:, :rows]
            np.subtract(x[block].T, self.center[:, None], out=part[:-2])
            part[-1] = y[block]
            np.multiply(part, weights[block], out=product)
            total += product @ part.T
        return total


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
            weights = np.ones(len(batch.y))
            if self.weighting is not None:
                predictions = self.equations.predict(batch.x, self.coefficients)
                weights = self.weighting(batch.y - predictions, predictions)
            total = total + self.equations.moments(batch.x, batch.y, weights)
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
        predictions = self.equations.predict(x, self.coefficients)
        errors = y - predictions
        suggested = self.equations.predict(x, self.final)
        if self.weighting is None:
            return Scores(np.ones(len(y)), errors**2, np.ones(len(y)), suggested)
        probability, weights = probability_and_weights(self.weighting, errors, predictions)
        return Scores(probability, errors**2, weights, suggested)


def probability_and_weights(weighting: Weighting, errors: Array, predictions: Array) -> tuple[Array, Array]:
    """Return each row's probability of being an inlier, and its weight, which is often the same."""
    probability = weighting.probability(errors, predictions)
    return probability, probability if weighting.kind == "probability" else weighting(errors, predictions)


def fit_regression(
    passes: Passes, plan: Plan, summary: Summary, base: Any, share: float | None, seed: int, sample: Array
) -> Fitted:
    """Fit a linear regression to more rows than fit in memory; equal to :class:`inlier.sklearn.AdaptiveRegressor`.

    Args:
        passes: Passes over the partitions.
        plan: What is read.
        summary: What is known of all rows.
        base: The unfitted estimator: ordinary or ridge regression.
        share: The share of inliers, if it is given.
        seed: Draws the subsample and the beginnings.
        sample: Inputs of a sample.
    """
    equations = Equations(plan, base, sample.mean(0))
    rows = PartitionedRows(equations, passes)
    if share == 1:
        final = rows.fit(np.zeros(len(equations.center) + 1), None)
        estimate = GivenFraction(1.0).estimate()
        return Fitted(_model(equations, final), estimate, ErrorScorer(equations, final, None, final), 1)
    generator = check_random_state(seed)
    chosen = subsample(summary.n, generator)
    part = fetch(passes, plan, summary, chosen)
    ones = np.ones(len(part["y"]))
    data = Data(part["y"], ones, ones, share)
    found = find_linear_weights(equations.of(part["x"], part["y"]), data, generator)
    state: Extension = begin_extension(found)
    for after in extend(state, rows):
        state = after
    final = rows.fit(state.coefficients, state.weighting)
    given = None if share is None else GivenFraction(share).estimate()
    estimate = given or estimate_of(found.weighting, summary.n, found.noticed)
    scorer = ErrorScorer(equations, state.coefficients, state.weighting, final)
    return Fitted(_model(equations, final), estimate, scorer, found.n_iter + state.done)


def _model(equations: Equations, coefficients: Array) -> Any:
    """Return the fitted estimator with these coefficients."""
    model, inputs = clone(equations.base), len(equations.center)
    model.coef_, model.n_features_in_ = coefficients[:inputs].copy(), inputs
    model.intercept_ = float(coefficients[-1] - equations.center @ model.coef_)
    return model
