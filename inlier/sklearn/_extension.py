"""From a subsample to all rows: weights that a row gets from its own error, so that rows need not be in memory.

Decisions about a large table are made on a subsample (:mod:`inlier.sklearn._robust`), and so is the limit from which on
an influence is bounded. What is left is a few rounds of

1. each row's weight, from its error and its prediction alone;
2. weighted least squares, from moments that add up over parts of the rows.

So a round is one pass over the rows, in any partition of them, on any number of machines, and the result is the same up
to the order in which numbers are added. :class:`InMemory` has all rows at hand; the rows of
:mod:`inlier.distributed` are in files.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, Protocol

import numpy as np
import torch

from inlier.histogram import MANTISSA_BITS, bin_numbers
from inlier.sklearn._learners import Array, LeastSquares, solve_moments
from inlier.sklearn._residuals import Evidence

HUBER = 1.35
"""Huber's K: 95 % efficient for Gaussian errors."""
EXTENDED_STEPS = 3
"""Rounds with all rows after those with a subsample."""

Kind = Literal["probability", "bounded", "equal"]
"""Weights: the probability of being an inlier, Huber's, or 1."""


@dataclass(frozen=True)
class Weighting:
    """Weights of rows from their errors.

    Args:
        kind: Which weights.
        evidence: The distribution of errors behind a probability.
        limit: Huber's limit: the size of an error from which on its influence is bounded.
    """

    kind: Kind
    evidence: Evidence
    limit: float = math.inf

    def __call__(self, errors: Array, predictions: Array) -> Array:
        """Return the weight of each row."""
        if self.kind == "equal":
            return np.ones(len(errors))
        if self.kind == "bounded":
            return huber_weights(errors, self.limit)
        return self.evidence.probability(errors, predictions)

    def probability(self, errors: Array, predictions: Array) -> Array:
        """Return each row's probability of being an inlier; a nominal one where no outliers are proven."""
        if self.kind == "probability":
            return self.evidence.probability(errors, predictions)
        return self.evidence.nominal_probability(errors)


@dataclass(frozen=True)
class Extension:
    """Where the rounds with all rows have come to.

    Args:
        coefficients: Of the last fit.
        weighting: The weights of the next.
        done: The number of rounds.
    """

    coefficients: Array
    weighting: Weighting
    done: int = 0

    @property
    def rounds(self) -> int:
        """The number of all rounds: none if all weights are 1."""
        return 0 if self.weighting.kind == "equal" else EXTENDED_STEPS


class Rows(Protocol):
    """All rows: what passes over them tell."""

    def fit(self, coefficients: Array, weighting: Weighting) -> Array:
        """Return the coefficients that fit best with the weights of the errors of given ones."""


@dataclass(frozen=True)
class InMemory:
    """Rows in memory.

    Args:
        learner: The least-squares problem.
        sample_weight: The user's weights.
    """

    learner: LeastSquares
    sample_weight: Array

    def fit(self, coefficients: Array, weighting: Weighting) -> Array:
        """Return the coefficients that fit best with the weights of the errors of given ones."""
        moments = weighted_moments(self.learner, coefficients, weighting, self.sample_weight)
        return solve_moments(moments, self.learner.inputs, self.learner.penalty)[0]


def extend(begin: Extension, rows: Rows) -> Iterator[Extension]:
    """Yield the state after each round with all rows; the last has the weights of the final fit.

    Args:
        begin: The state so far, from a subsample or from an interrupted run.
        rows: All rows.
    """
    state = begin
    for done in range(begin.done + 1, begin.rounds + 1):
        state = replace(state, coefficients=rows.fit(state.coefficients, state.weighting), done=done)
        yield state


def weighted_moments(
    part: LeastSquares, coefficients: Array, weighting: Weighting, sample_weight: Array | float = 1.0
) -> Array:
    """Return the moments of a part of the rows, weighted by their errors under given coefficients."""
    predictions = part.predict(coefficients)
    return part.moments(weighting(part.y - predictions, predictions) * sample_weight)


def error_histogram(errors: Array, unit: float, frequency: Array | None = None) -> Array:
    """Count squared errors in the bins of a :class:`~inlier.LossHistogram`, and add them up in each.

    The mean of each bin, rather than its middle, makes Huber's limit exact but for the bin that it falls into.

    Args:
        errors: The errors.
        unit: The squared error that is counted as 1.
        frequency: How many rows each stands for.

    Returns:
        Counts and sums, [2, bins]; those of parts of the rows add up.

    Example:
        >>> counts, sums = error_histogram(np.array([1.0, -3.0, 3.0]), 1.0)
        >>> counts[counts > 0], sums[counts > 0]
        (array([1., 2.]), array([ 1., 18.]))
    """
    squares = errors**2
    bins = bin_numbers(torch.from_numpy((squares / unit).astype(np.float32)), MANTISSA_BITS).numpy()
    size = (255 << MANTISSA_BITS) + 1
    sums = np.bincount(bins, squares if frequency is None else frequency * squares, size)
    return np.stack((np.bincount(bins, frequency, size).astype(np.float64), sums))


def huber_limit(squares: Array, frequency: Array) -> float:
    """Return K s, with the scale s that belongs to Huber's weights: ``mean min(|e| / s, K)^2 = 1``.

    The scale at which Huber's objective ``sum_i s + s H(e_i / s)`` is smallest; it is found from above, so that it is
    never 0 unless all errors are.

    Args:
        squares: Squared errors.
        frequency: How many rows each stands for.
    """
    n = frequency.sum()
    scale = float(frequency @ squares / n)
    for _ in range(100):
        new = float(frequency @ np.minimum(squares, HUBER**2 * scale) / n)
        if new >= 0.999 * scale:
            break
        scale = new
    return HUBER * math.sqrt(scale)


def huber_weights(errors: Array, limit: float) -> Array:
    """Return Huber's weights ``min(1, limit / |e|)``."""
    return np.asarray(limit / np.maximum(np.abs(errors), limit)) if limit > 0 else np.ones(len(errors))
