"""Weights for a regression: a robust first fit, then as much more as the errors are evidence for.

1. A fit whose influence is bounded: Huber's weights ``min(1, K s / |e|)``, or, of learners that take long, the absolute
   error where there is that loss. Its errors are examined (:mod:`inlier.sklearn._residuals`).
2. While outliers are suspected: fit with the probability of being an inlier, and examine again. That is the EM
   algorithm for the mixture of both groups, and the mean weight is the share of inliers: the paper's Rule 1.
3. For least squares the best of several other beginnings is tried too (:mod:`inlier.sklearn._starts`): outliers that
   agree with each other may have attracted the first fit. It is taken if its outliers are trusted and the errors more
   likely.
4. Where outliers are not proven, Huber's weights are kept if they are suspected, or if there is little to lose and
   something to gain. The errors of both fits, each without the row itself, tell what is lost if everything is clean (on
   all rows) and what is gained if the large errors are wrong (on the others): :func:`cost_and_gain`. What is gained
   though everything is clean, since the errors are heavy-tailed or uneven, is :func:`relative_risk`.

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
from inlier.sklearn._learners import Array, Fit, InSample, LeastSquares, solve_moments
from inlier.sklearn._power import would_notice
from inlier.sklearn._residuals import TRUSTED, Evidence, examine, that_tell_a_scale
from inlier.sklearn._starts import FEWEST_PER_UNKNOWN, MARGIN, better_start

TOLERANCE = 1e-3
"""Iterations end when the mean change of a weight is below this."""
HUBER_TOLERANCE = 2e-4
HUBER_STEPS, EM_STEPS = 60, 10
"""The most iterations of least squares."""
AFFORDABLE, ODDS = 0.02, 10.0
"""A bounded influence may cost so much of the squared error if everything is clean, and more by a tenth of what it
gains (in its logarithm) if the large errors are wrong: where nothing else speaks against them, they are taken to be
wrong in one table of so many; `python -m benchmarks.regressor_constants`."""
LEAST_GAIN = 0.15
"""With less to gain it may cost nothing."""
EFFICIENT = 0.9
"""Unless its expected squared error is below this part of the unweighted fit's: of heavy-tailed or uneven errors
least squares is inefficient."""
CONFIDENCE = 3.0
"""The cost is taken so many standard errors above its estimate."""
FEW_STEPS = 1
"""EM steps where a fit is expensive."""
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
        left_out: Its errors, each without the row itself.
        unweighted: Those of the unweighted fit.
        unknowns: The number of coefficients of a linear fit by normal equations, else 0.
        risk: The expected squared error of its predictions per that of the unweighted fit, as :func:`relative_risk`.
    """

    fit: Fit
    weights: Array
    limit: float
    n_iter: int
    left_out: Array
    unweighted: Array
    unknowns: int = 0
    risk: float = math.inf


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
        noticed: Whether slips in a few of the targets would have been noticed.
    """

    weighting: Weighting
    weights: Array
    probability: Array
    errors: Array
    evidence: Evidence
    n_iter: int
    fit: Fit
    noticed: bool = False


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
        rows = usable if len(usable) <= SUBSAMPLE else usable[subsample(len(usable), generator)]
        return _find_expensive_weights(learner, data, variant, rows)
    if len(usable) <= SUBSAMPLE:
        return find_linear_weights(learner, data, generator)
    chosen = usable[subsample(len(usable), generator)]
    part = find_linear_weights(learner.rows(chosen), data.rows(chosen), generator)
    return _extend(part, begin_extension(part), learner, data)


def _find_expensive_weights(learner: InSample, data: Data, variant: Any, rows: Array) -> Result:
    """Learners that take long: a robust fit, and one more, unweighted or of the rows that are more likely inliers.

    Args:
        learner: What is fitted.
        data: Targets and weights.
        variant: The estimator with the absolute error as its loss, or None if it has none.
        rows: The rows that are examined.
    """
    robust = learner if variant is None else learner.with_estimator(variant)
    first = _first(robust, data, variant is not None)
    # Soft weights on gross errors would still attract a squared error; the last fit alone has it.
    found = _refine(first, robust, data, FEW_STEPS, rows=rows, hard=variant is not None)
    if found.evidence.suspected or data.share is not None:
        return _conclude(first, found, data, rows)
    if found.n_iter > first.n_iter:
        # The second fit does not confirm what the first one suspects: nothing is proven, nothing is ruled out.
        before = _refine(first, robust, data, 0, rows=rows).evidence
        found = replace(found, evidence=replace(before, score=min(before.score, TRUSTED)))
    elif variant is not None:
        # The other side of the comparison: so far there is the absolute error only.
        unweighted = data.y - learner.fit(data.sample_weight).predictions
        first, found = replace(first, unweighted=unweighted), replace(found, n_iter=found.n_iter + 1)
    return _conclude(first, found, data, rows)


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
        begin = replace(first, fit=learner.fit(weights * data.sample_weight), weights=weights)
        other = _refine(begin, learner, data, EM_STEPS, weights)
        likelier = other.evidence.log_likelihood > best.evidence.log_likelihood + MARGIN
        if likelier and (other.evidence.trusted or data.share is not None):
            best = other
    return _conclude(first, best, data, np.flatnonzero(data.frequency))


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
    errors = data.y - fit.predictions
    if not isinstance(learner, LeastSquares):
        return First(fit, weights, limit, n_iter, errors, unweighted)
    errors = _bounded_left_out(errors, limit, learner, data)
    found = First(fit, weights, limit, n_iter, errors, unweighted, learner.unknowns)
    return replace(found, risk=relative_risk(found, learner, data))


def _bounded_left_out(errors: Array, limit: float, learner: LeastSquares, data: Data) -> Array:
    """Return the error of each row under Huber's fit to the others.

    One Newton step of Huber's objective without the row: e + h psi(e) / (1 - h psi'(e)), where psi bounds errors at the
    limit, and h is the leverage among the rows within it. With the weights of the fit to all rows, which depend on the
    row's own target, tables with few rows for each unknown would look better than they are
    (`python -m benchmarks.small_tables`).

    Reference: K. Rahnama Rad, A. Maleki (2020), A scalable estimate of the out-of-sample prediction error via
    approximate leave-one-out cross-validation.
    """
    inside = np.abs(errors) <= limit
    leverage = learner.fit(inside * data.sample_weight).leverage
    pull = np.clip(errors, -limit, limit) * leverage / (1 - np.minimum(leverage * inside, 0.99))
    return np.asarray(errors + pull)


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
    hard: bool = False,
) -> Examined:
    """Examine the errors of a fit, and go on with the probability of being an inlier while that is called for.

    Args:
        first: The fit.
        learner: What is fitted.
        data: Targets and weights.
        steps: The most further fits.
        inside: The inlier probability of each row.
        rows: The rows that are examined; all by default.
        hard: Whether rows that are more likely outliers are left out of further fits, and all others count alike:
            boosting of the absolute error takes several times as long with weights.
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
        fit = learner.fit((weights > 0.5 if hard else weights) * data.sample_weight)
        inside = None if inside is None else weights
        n_iter += 1
    assert evidence is not None
    return Examined(fit, weights, errors, evidence, n_iter)


def _conclude(first: First, found: Examined, data: Data, rows: Array) -> Result:
    """Decide about the weights: the probability of being an inlier if outliers are proven, else a bounded influence.

    Args:
        first: The robust first fit.
        found: The fit that was examined last.
        data: Targets and weights.
        rows: The rows that are examined.
    """
    evidence, fit, errors, n_iter = found.evidence, found.fit, found.errors, found.n_iter
    if evidence.trusted or data.share is not None:
        weights = probability = evidence.probability(errors, data.y - errors)
        return Result(Weighting("probability", evidence), weights, probability, errors, evidence, n_iter, fit)
    bounded = bound_influence(first, evidence, data)
    kind: Kind = "equal" if math.isinf(bounded.limit) else "bounded"
    weighting = Weighting(kind, evidence, bounded.limit)
    errors = _left_out(first.fit, first.weights, data)
    probability = evidence.nominal_probability(errors)
    noticed = would_notice(weighting, errors[rows], data.y[rows], data.frequency[rows])
    return Result(weighting, bounded.weights, probability, errors, evidence, n_iter, bounded.fit, noticed)


def bound_influence(first: First, evidence: Evidence, data: Data) -> First:
    """Return the fit whose influences are as bounded as the evidence calls for; see the top of this file."""
    if evidence.suspected:
        return first
    if np.count_nonzero(data.frequency) >= FEWEST_PER_UNKNOWN * first.unknowns:
        cost, gain = cost_and_gain(first, data)
        worthwhile = gain > LEAST_GAIN or first.risk < EFFICIENT
        if cost < (AFFORDABLE + gain / ODDS if worthwhile else 0.0):
            return first
    return replace(first, weights=np.ones(len(data.y)), limit=math.inf)


def cost_and_gain(bounded: First, data: Data, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Return what a bounded influence costs if everything is clean, and what it gains if the large errors are wrong.

    With the errors e of the bounded fit and a of the unweighted one, each without the row itself, and the limit L:

        cost = mean(e^2 - a^2) / mean(a^2), plus so many of its standard errors;
        gain = log(mean a^2 / mean e^2), both over the rows with |e| <= L.

    The rows are the same for both fits: neither gains by giving some up.

    Args:
        bounded: The fit with bounded influences.
        data: Targets and weights.
        confidence: The number of standard errors.
    """
    square = bounded.left_out**2
    alone, n = bounded.unweighted**2, float(data.frequency.sum())
    total = max(float(data.frequency @ alone), 1e-300)
    change = square - alone
    mean = float(data.frequency @ change) / n
    error = math.sqrt(float(data.frequency @ (change - mean) ** 2))
    inside = data.frequency * (square <= bounded.limit**2)
    gain = math.log(max(float(inside @ alone), 1e-300) / max(float(inside @ square), 1e-300))
    return (n * mean + confidence * error) / total, gain


def relative_risk(bounded: First, learner: LeastSquares, data: Data) -> float:
    """Return the expected squared error of bounded predictions per that of unweighted ones, if everything is clean.

    Both are sums of influences, x_i psi(e_i) and x_i a_i before the inverse of a gram matrix, so that their variances
    and that of their difference d follow from the errors themselves, whatever their distribution, equal everywhere or
    not. The unweighted fit has no bias; that of the bounded one (it predicts the median of a skewed distribution) is
    what d is beyond its variance:

        (var(bounded) + max(d^2 - var(d), 0)) / var(unweighted), in the mean over the rows.

    Reference: H. White (1980), A heteroskedasticity-consistent covariance matrix estimator; N. L. Hjort, G. Claeskens
    (2003), Frequentist model average estimators (the risk of two fits, by what they differ in).
    """
    n, frequency = float(data.frequency.sum()), data.frequency
    inside = frequency * (np.abs(data.y - bounded.fit.predictions) <= bounded.limit)
    everything = learner.moments(frequency)
    root = solve_moments(learner.moments(inside), learner.inputs, learner.penalty)[1]
    rows = learner.x @ root
    cross = np.einsum("ij,ij->i", rows, rows)
    reach = np.einsum("ij,ij->i", rows @ (root.T @ everything[:-1, :-1] @ root), rows)
    unweighted = learner.fit(frequency)
    psi = np.clip(bounded.left_out, -bounded.limit, bounded.limit)
    of_bounded = float(frequency @ (psi**2 * reach)) / n
    of_unweighted = float(frequency @ (bounded.unweighted**2 * unweighted.leverage)) / n
    of_both = float(frequency @ (psi * bounded.unweighted * cross)) / n
    difference = float(frequency @ (bounded.fit.predictions - unweighted.predictions) ** 2) / n
    bias = max(difference - (of_bounded + of_unweighted - 2 * of_both), 0.0)
    return (of_bounded + bias) / max(of_unweighted, 1e-300)


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
