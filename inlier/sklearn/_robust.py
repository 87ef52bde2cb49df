"""Weights for a regression: a robust first fit, then as much more as the errors are evidence for.

1. A fit whose influence is bounded: Huber's weights ``min(1, K s / |e|)``, or the absolute error where the learner has
   that loss. Its errors are examined (:mod:`inlier.sklearn._residuals`).
2. While outliers are suspected: fit with the probability of being an inlier, and examine again. That is the EM
   algorithm for the mixture of both groups, and the mean weight is the share of inliers: the paper's Rule 1.
3. For least squares the best of several other beginnings is tried too (:mod:`inlier.sklearn._starts`): outliers that
   agree with each other may have attracted the first fit. It is taken if its outliers are trusted and the errors more
   likely.
4. Where outliers remain an open question, Huber's weights are kept if they are cheap even when everything is clean: the
   predictions of both fits, each without the row itself, tell that before anything is decided about the errors.

Many equal targets (zeros, a cap) say nothing about the scale of errors: without them Huber's bound is not drawn to
them, and costs little on counts.

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
)
from inlier.sklearn._learners import Array, Fit, InSample, LeastSquares
from inlier.sklearn._residuals import Evidence, examine, that_tell_a_scale
from inlier.sklearn._starts import MARGIN, better_start

TOLERANCE = 1e-3
"""Iterations end when the mean change of a weight is below this."""
HUBER_TOLERANCE = 2e-4
HUBER_STEPS, EM_STEPS = 60, 10
"""The most iterations of least squares."""
AFFORDABLE = 0.04
"""A bounded influence may cost so much of the squared error if everything is clean: 2 % of the error;
`python -m benchmarks.regressor_constants`."""
FEW_STEPS, ROBUST_ENOUGH = 1, 0.8
"""EM steps where a fit is expensive; none with more inliers, proven, than this if the absolute error was fitted."""
SUBSAMPLE = 2500
"""Decisions are made on no more rows than this: no model represents its data exactly, and of enough rows any misfit is
significant (`python -m benchmarks.misfits`)."""


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
        limit: The size of an error from which on they are below 1.
        n_iter: The number of fits.
        unweighted: The errors of the unweighted fit, each without the row itself.
    """

    fit: Fit
    weights: Array
    limit: float
    n_iter: int
    unweighted: Array


@dataclass(frozen=True)
class Examined:
    """A fit, the weights that it has, its errors, what they say, and the number of fits so far."""

    fit: Fit
    weights: Array
    errors: Array
    evidence: Evidence
    n_iter: int


@dataclass(frozen=True)
class Result:
    """Weights, and what they rest on.

    Args:
        weighting: How weights follow from errors.
        weights: The weights of the last fit.
        probability: The probability of being an inlier.
        errors: The errors behind it.
        evidence: What they say.
        n_iter: The number of fits.
        fit: The last of them.
    """

    weighting: Weighting
    weights: Array
    probability: Array
    errors: Array
    evidence: Evidence
    n_iter: int
    fit: Fit


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
    usable = np.flatnonzero(data.frequency)
    if not isinstance(learner, LeastSquares):
        if variant is not None:
            # Soft weights on gross errors would still attract a squared error; the last fit alone has it.
            learner = learner.with_estimator(variant)
        rows = usable if len(usable) <= SUBSAMPLE else usable[subsample(len(usable), generator)]
        first = _first(learner, data, variant is not None)
        found = _refine(first, learner, data, 0, rows=rows)
        if variant is None or not (found.evidence.trusted and found.evidence.share > ROBUST_ENOUGH):
            found = _refine(first, learner, data, FEW_STEPS, rows=rows)
        return _conclude(first, found, data)
    if len(usable) <= SUBSAMPLE:
        return find_linear_weights(learner, data, generator)
    chosen = usable[subsample(len(usable), generator)]
    part = find_linear_weights(learner.rows(chosen), data.rows(chosen), generator)
    return _extend(part, begin_extension(part), learner, data)


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
    """Least squares: from Huber's fit, and from another that may be better."""
    first = _first(learner, data)
    best = _refine(first, learner, data, EM_STEPS)
    # That many equal targets agree on a fit says nothing about the rest.
    counted = that_tell_a_scale(data.y, data.frequency)
    weights = better_start(learner, counted, first.weights, generator)
    if weights is not None:
        begin = replace(first, fit=learner.fit(weights * data.sample_weight))
        other = _refine(begin, learner, data, EM_STEPS, weights)
        likelier = other.evidence.log_likelihood > best.evidence.log_likelihood + MARGIN
        if likelier and (other.evidence.trusted or data.share is not None):
            best = other
    return _conclude(first, best, data)


def _first(learner: LeastSquares | InSample, data: Data, robust: bool = False) -> First:
    """Fit with Huber's weights, until they settle; once if the learner is robust itself."""
    counted = that_tell_a_scale(data.y, data.frequency)
    steps = 1 if robust else HUBER_STEPS if isinstance(learner, LeastSquares) else FEW_STEPS + 1
    weights, unweighted, n_iter, settled = np.ones(len(data.y)), None, 0, False
    while not settled and n_iter < steps:
        fit = learner.fit(weights * data.sample_weight)
        unweighted = _left_out(fit, weights, data) if unweighted is None else unweighted
        limit = huber_limit((data.y - fit.predictions) ** 2, counted)
        old, weights = weights, huber_weights(data.y - fit.predictions, limit)
        n_iter, settled = n_iter + 1, bool(np.abs(weights - old).mean() <= HUBER_TOLERANCE)
    assert unweighted is not None
    return First(fit, weights, limit, n_iter, unweighted)


def _left_out(fit: Fit, weights: Array, data: Data) -> Array:
    """Return the error of each row had it been left out."""
    return np.asarray((data.y - fit.predictions) / (1 - np.minimum(fit.leverage * weights, 0.99)))


def _refine(
    first: First,
    learner: LeastSquares | InSample,
    data: Data,
    steps: int,
    inside: Array | None = None,
    rows: Array | None = None,
) -> Examined:
    """Examine the errors of a fit, and go on with the probability of being an inlier while that is called for.

    Args:
        first: The fit.
        learner: What is fitted.
        data: Targets and weights.
        steps: The most further fits.
        inside: How far each row is believed to be an inlier.
        rows: The rows that are examined; all by default.
    """
    examined = data if rows is None else data.rows(rows)
    fit, n_iter, weights, evidence = first.fit, first.n_iter, first.weights, None
    for step in range(steps + 1):
        errors = _left_out(fit, weights, data)
        seen = errors if rows is None else errors[rows]
        evidence = examine(
            seen, examined.y - seen, examined.y, examined.frequency, data.share, evidence, inside
        )
        if step == steps or not (evidence.suspected or data.share is not None):
            break
        old, weights = weights, evidence.probability(errors, data.y - errors)
        if step > 1 and np.abs(weights - old).mean() <= TOLERANCE:
            weights = old
            break
        fit = learner.fit(weights * data.sample_weight)
        inside = None if inside is None else weights
        n_iter += 1
    assert evidence is not None
    return Examined(fit, weights, errors, evidence, n_iter)


def _conclude(first: First, found: Examined, data: Data) -> Result:
    """Decide about the weights: the probability of being an inlier if outliers are proven, else a bounded influence."""
    evidence, fit, errors, n_iter = found.evidence, found.fit, found.errors, found.n_iter
    if evidence.trusted or data.share is not None:
        weights = probability = evidence.probability(errors, data.y - errors)
        return Result(Weighting("probability", evidence), weights, probability, errors, evidence, n_iter, fit)
    bounded = bound_influence(first, evidence, data)
    kind: Kind = "equal" if math.isinf(bounded.limit) else "bounded"
    weighting = Weighting(kind, evidence, bounded.limit)
    errors = _left_out(first.fit, first.weights, data)
    probability = evidence.nominal_probability(errors)
    return Result(weighting, bounded.weights, probability, errors, evidence, n_iter, bounded.fit)


def bound_influence(first: First, evidence: Evidence, data: Data) -> First:
    """Return the fit whose influences are as bounded as the evidence calls for; see the top of this file."""
    unbounded = replace(first, weights=np.ones(len(data.y)), limit=math.inf)
    if evidence.suspected:
        return first
    # Whether its weights suit a fit of the squared error is not known of a learner with another loss.
    if not evidence.open or first.n_iter == 1:
        return unbounded
    return first if bounding_price(first, data) <= AFFORDABLE else unbounded


def bounding_price(bounded: First, data: Data) -> float:
    """Return what a bounded influence costs if everything is clean.

    The mean squared distance between the predictions of the bounded fit and of the unweighted one, each without the row
    itself, per mean squared error of the latter.
    """
    errors = _left_out(bounded.fit, bounded.weights, data)
    distance = float(data.frequency @ (bounded.unweighted - errors) ** 2)
    return distance / max(float(data.frequency @ bounded.unweighted**2), 1e-300)


def begin_extension(part: Result) -> Extension:
    """Return where the rounds with all rows begin: the coefficients and the weights of a subsample."""
    assert part.fit.coefficients is not None
    return Extension(part.fit.coefficients, part.weighting)


def _extend(part: Result, begin: Extension, learner: LeastSquares, data: Data) -> Result:
    """Go on with all rows."""
    state = begin
    for after in extend(begin, InMemory(learner, data.sample_weight)):
        state = after
    predictions = learner.predict(state.coefficients)
    errors = data.y - predictions
    return replace(
        part,
        weights=state.weighting(errors, predictions),
        probability=state.weighting.probability(errors, predictions),
        errors=errors,
        n_iter=part.n_iter + state.done,
        fit=Fit(predictions, 0.0, state.coefficients),
    )
