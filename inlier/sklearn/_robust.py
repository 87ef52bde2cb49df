"""Weights for a regression: a robust first fit, then as much more as the errors are evidence for.

1. A fit whose influence is bounded: Huber's weights ``min(1, K s / |e|)``, or the absolute error where the learner has
   that loss. Its errors are examined (:mod:`inlier.sklearn._residuals`).
2. While outliers are suspected: fit with the probability of being an inlier, and examine again. That is the EM
   algorithm for the mixture of both groups, and the mean weight is the share of inliers: the paper's Rule 1.
3. For least squares other beginnings are tried too (:mod:`inlier.sklearn._starts`): outliers that agree with each
   other may have attracted the first fit. One of them is taken if its outliers are trusted and the errors more likely.
4. Where outliers remain an open question, Huber's weights are kept if they are cheap even when everything is clean: the
   predictions of both fits, each without the row itself, tell that before anything is decided about the errors.

Reference: P. J. Huber (1964), Robust estimation of a location parameter; A. P. Dempster, N. M. Laird, D. B. Rubin
(1977), Maximum likelihood from incomplete data via the EM algorithm; Algorithm 1 of the paper.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from inlier.sklearn._extension import (
    Extension,
    InMemory,
    Kind,
    Weighting,
    extend,
    huber_limit,
    huber_weights,
    with_limit,
)
from inlier.sklearn._learners import Array, Fit, InSample, LeastSquares
from inlier.sklearn._residuals import Evidence, examine
from inlier.sklearn._starts import starts

TOLERANCE = 1e-3
"""Iterations end when the mean change of a weight is below this."""
HUBER_TOLERANCE = 2e-4
HUBER_STEPS, EM_STEPS = 60, 10
"""The most iterations of least squares."""
AFFORDABLE = 0.04
"""A bounded influence may cost so much of the squared error if everything is clean: 2 % of the error."""
NOT_FOOLED = 0.8
"""With more inliers than this, proven, Huber's fit was not led astray by outliers."""
TRIAL_STEPS, MARGIN = 1, 5.0
"""So many for each other beginning, and the gain in log-likelihood that it needs."""
FEW_STEPS = 1
"""EM steps where a fit is expensive."""
SUBSAMPLE, LARGE = 2500, 15_000
"""With more than LARGE rows, all decisions are made on a subsample: they do not get better with more."""


@dataclass(frozen=True)
class Data:
    """What stays the same through all fits.

    Args:
        y: Targets.
        sample_weight: The user's weights, which multiply into every fit.
        frequency: How many rows each stands for.
        share: The share of inliers, if it is given.
    """

    y: Array
    sample_weight: Array
    frequency: Array
    share: float | None

    def rows(self, chosen: Array) -> Data:
        """Return some of the rows."""
        return replace(
            self, y=self.y[chosen], sample_weight=self.sample_weight[chosen], frequency=self.frequency[chosen]
        )


@dataclass(frozen=True)
class First:
    """The robust first fit.

    Args:
        fit: The fit.
        weights: Huber's weights.
        n_iter: The number of fits.
        price: What these weights cost if everything is clean: the mean squared distance between the predictions of
            this fit and of the unweighted one, each without the row itself, per mean squared error of the latter.
    """

    fit: Fit
    weights: Array
    n_iter: int
    price: float = math.inf

    @property
    def advisable(self) -> bool:
        """Whether a bounded influence is worth its price where outliers are an open question."""
        return self.price <= AFFORDABLE


@dataclass(frozen=True)
class Result:
    """Weights, and what they rest on.

    Args:
        first: The robust first fit.
        bounded: Huber's weights; of a large table, those that are called for.
        probability: The probability of being an inlier.
        errors: The errors behind it.
        evidence: What they say.
        n_iter: The number of fits.
        fit: The last of them.
    """

    first: First
    bounded: Array
    probability: Array
    errors: Array
    evidence: Evidence
    n_iter: int
    fit: Fit

    @property
    def soft(self) -> bool:
        """Whether the influence of each row is to be bounded, though none is proven to be an outlier."""
        return self.evidence.suspected or (self.evidence.open and self.first.advisable)


def find_weights(
    learner: LeastSquares | InSample, data: Data, variant: Any, generator: np.random.RandomState
) -> Result:
    """Return the weights of a regression.

    Args:
        learner: What is fitted.
        data: Targets and weights.
        variant: The estimator with the absolute error as its loss, or None if it has none.
        generator: Draws subsamples and subsets.
    """
    if not isinstance(learner, LeastSquares):
        if variant is not None:
            # Soft weights on gross errors would still attract a squared error; the last fit alone has it.
            learner = learner.with_estimator(variant)
        return _refine(_first(learner, data, variant is not None), learner, data, FEW_STEPS)
    usable = np.flatnonzero(data.frequency)
    if len(usable) <= LARGE:
        return find_linear_weights(learner, data, generator)
    chosen = usable[subsample(len(usable), generator)]
    small = data.rows(chosen)
    part = find_linear_weights(learner.rows(chosen), small, generator)
    return _extend(part, begin_extension(part, small), learner, data)


def subsample(rows: int, generator: np.random.RandomState) -> Array:
    """Return the rows, of so many, that decisions about a large table are made on, in order.

    Example:
        >>> chosen = subsample(10**12, np.random.RandomState(0))
        >>> len(chosen), len(np.unique(chosen))
        (2500, 2500)
    """
    # Unlike a permutation, this takes no memory for the rows that are not chosen.
    drawn = np.random.default_rng(generator.randint(2**31 - 1)).choice(rows, SUBSAMPLE, replace=False)
    return np.sort(drawn)


def find_linear_weights(learner: LeastSquares, data: Data, generator: np.random.RandomState) -> Result:
    """Least squares: from Huber's fit, and from others that may be better."""
    first = _first(learner, data)
    best = _refine(first, learner, data, EM_STEPS)
    if best.evidence.trusted and best.evidence.share > NOT_FOOLED:
        return best
    found = best
    for weights in starts(learner, data.frequency, generator):
        begin = replace(first, fit=learner.fit(weights * data.sample_weight))
        other = _refine(begin, learner, data, TRIAL_STEPS)
        likelier = other.evidence.log_likelihood > found.evidence.log_likelihood + MARGIN
        if likelier and (other.evidence.trusted or data.share is not None):
            found = other
    return best if found is best else _refine(first, learner, data, EM_STEPS, found)


def _first(learner: LeastSquares | InSample, data: Data, robust: bool = False) -> First:
    """Fit with Huber's weights, until they settle; once if the learner is robust itself."""
    weights = np.ones(len(data.y))
    steps = 1 if robust else HUBER_STEPS if isinstance(learner, LeastSquares) else FEW_STEPS + 1
    n_iter, settled, unweighted = 0, False, weights
    while not settled and n_iter < steps:
        fit = learner.fit(weights * data.sample_weight)
        unweighted = unweighted if n_iter else _left_out(fit, weights, data)
        old, weights = weights, _huber(data.y - fit.predictions, data.frequency)
        n_iter, settled = n_iter + 1, bool(np.abs(weights - old).mean() <= HUBER_TOLERANCE)
    first = First(fit, weights, n_iter)
    # Whether its weights suit a fit of the squared error is not known of a learner with another loss.
    if robust:
        return first
    return replace(first, price=_price(unweighted, _left_out(fit, weights, data), data.frequency))


def _price(unweighted: Array, bounded: Array, frequency: Array) -> float:
    """Return what a bounded influence costs if everything is clean; see :class:`First`."""
    distance, square = float(frequency @ (unweighted - bounded) ** 2), float(frequency @ unweighted**2)
    return distance / max(square, 1e-300)


def _left_out(fit: Fit, weights: Array, data: Data) -> Array:
    """Return the error of each row had it been left out."""
    return np.asarray((data.y - fit.predictions) / (1 - np.minimum(fit.leverage * weights, 0.99)))


def _huber(errors: Array, frequency: Array) -> Array:
    """Huber's weights at the scale that belongs to them."""
    return huber_weights(errors, huber_limit(errors**2, frequency))


def _refine(
    first: First, learner: LeastSquares | InSample, data: Data, steps: int, last: Result | None = None
) -> Result:
    """Examine the errors of a fit, and go on with the probability of being an inlier while that is called for."""
    fit, n_iter, weights, evidence = first.fit, first.n_iter, first.weights, None
    if last is not None:
        fit, n_iter, weights, evidence = last.fit, last.n_iter, last.probability, last.evidence
    for step in range(steps + 1):
        errors = _left_out(fit, weights, data)
        evidence = examine(errors, data.y - errors, data.y, data.frequency, data.share, evidence)
        probability = evidence.probability(errors, data.y - errors)
        if step == steps or not (evidence.suspected or data.share is not None):
            break
        if step > 1 and np.abs(probability - weights).mean() <= TOLERANCE:
            break
        weights = probability
        fit = learner.fit(weights * data.sample_weight)
        n_iter += 1
    assert evidence is not None
    return Result(first, first.weights, probability, errors, evidence, n_iter, fit)


def begin_extension(part: Result, data: Data) -> Extension:
    """Return where the rounds with all rows begin: the coefficients and the law of a subsample, which are in one unit.

    Args:
        part: The weights of the subsample.
        data: Its targets and weights.
    """
    assert part.fit.coefficients is not None
    trusted = part.evidence.trusted or data.share is not None
    kind: Kind = "probability" if trusted else "bounded" if part.soft else "equal"
    unit = float(np.mean(part.errors**2)) or 1.0
    return Extension(part.fit.coefficients, Weighting(kind, part.evidence), unit)


def _extend(part: Result, begin: Extension, learner: LeastSquares, data: Data) -> Result:
    """Go on with all rows."""
    rows, state = InMemory(learner, data.sample_weight, data.frequency), begin
    for after in extend(begin, rows):
        state = after
    state = with_limit(state, rows)
    predictions = learner.predict(state.coefficients)
    errors = data.y - predictions
    return Result(
        part.first,
        state.weighting(errors, predictions),
        part.evidence.probability(errors, predictions),
        errors,
        part.evidence,
        part.n_iter + state.done,
        Fit(predictions, 0.0, state.coefficients),
    )
