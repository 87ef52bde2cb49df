"""One distribution or two groups: what the errors of a regression say about how many targets are wrong.

Errors are divided by their local scale, which may change with the prediction. Then two descriptions compete:

- one distribution, a two-piece Student distribution: as skewed and as heavy-tailed as it takes;
- the same, with tails that are not extreme, and beside it a group of outliers, anywhere and of any width.

Outliers are evidence only if the second explains the errors better than the first, by more than the standard error
of that gain (Vuong's test), both with and without targets that are far more frequent than others (a cap, zeros): that
many of them agree on a fit says nothing about the rest. Repeated rows count as one.

Reference: Q. H. Vuong (1989), Likelihood ratio tests for model selection and non-nested hypotheses; C. Fernandez,
M. F. J. Steel (1998), On Bayesian modeling of fat tails and skewness (two-piece Student distributions).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize
from scipy.special import digamma, expit, gammaln

from inlier.sklearn._learners import Array

TRUSTED = 2.5
"""The gain in its standard errors above which outliers are a fact; `python -m benchmarks.regressor_constants`."""
SUSPECTED = 0.75
"""Above this there may be outliers."""
OPEN = -1.5
"""Below this one distribution is better: nothing points to outliers, and that is a trusted claim."""

ATOM_SHARE, ATOM_RATIO, NEIGHBOURS = 0.05, 5.0, 5
"""A target is an atom if more than this share of all rows has it, and so many times as many as is usual of the values
next to it, of so many on each side."""

BINS = 160
"""Errors are counted in so many bins of their inverse hyperbolic sine: a fit takes as long for a million of them."""
PER_KNOT, MOST_KNOTS = 40, 16
"""The local scale is a median of at least so many errors, at no more than so many predictions."""
MOST_UNEVEN = 4.0
"""The local scale differs from the typical one by at most this factor: a few rows far out prove little."""
MAD = 1.4826
FEWEST = 30
"""With fewer rows beside the atoms, these count too."""
SMALLEST_SCALE = 0.05
"""The smallest scale of a distribution: below, a spike of nearly equal errors would have any likelihood."""
DEGREES = (1.0, 100.0)
"""Degrees of freedom of the single distribution; with fewer than 1 it would describe any two groups."""
FEWEST_DEGREES = 3.0
"""Those of the inliers beside outliers: the latter have the tails."""
OUTLIERS_DEGREES = 3.0
MOST_STEPS, FEW_STEPS = 60, 10
"""Steps of a maximum-likelihood fit, and of one from each place where outliers may be, of which the best goes on."""
POINTS = 400
"""Points on each side at which the probability of being an inlier is computed; between them it is interpolated."""
NOMINAL, WIDE = 0.01, 10.0
"""Where no outliers are proven, as many are assumed for ranking, so many times as wide as the others."""


@dataclass(frozen=True)
class LocalScale:
    """The typical size of an error, as a function of the prediction.

    Args:
        predictions: Ascending predictions.
        log_scale: The logarithm of the scale at each.
    """

    predictions: Array
    log_scale: Array

    @classmethod
    def of(cls, errors: Array, predictions: Array, frequency: Array, floor: float) -> LocalScale:
        """Take medians of absolute errors of rows with similar predictions.

        Args:
            errors: The errors.
            predictions: The predictions.
            frequency: How many rows each stands for.
            floor: The smallest scale.
        """
        total = float(frequency.sum())
        knots = int(min(max(total // PER_KNOT, 1), MOST_KNOTS))
        size = np.abs(errors)
        typical = max(weighted_median(size, frequency), floor)
        if knots < 3:
            return cls(np.zeros(1), np.array([math.log(MAD * typical)]))
        order = np.argsort(predictions, kind="stable")
        place = np.minimum((np.cumsum(frequency[order]) / total * knots * (1 - 1e-12)).astype(int), knots - 1)
        centers, scales = [], []
        for knot in np.unique(place):
            rows = order[place == knot]
            centers.append(float(np.average(predictions[rows], weights=frequency[rows] + 1e-300)))
            scales.append(
                min(
                    max(weighted_median(size[rows], frequency[rows]), typical / MOST_UNEVEN),
                    MOST_UNEVEN * typical,
                )
            )
        # Neighbours are averaged: each median is noisy.
        log_scale = np.log(MAD * np.array(scales))
        padded = np.concatenate((log_scale[:1], log_scale, log_scale[-1:]))
        return cls(np.maximum.accumulate(centers), (padded[:-2] + 2 * padded[1:-1] + padded[2:]) / 4)

    def at(self, predictions: Array) -> Array:
        """Return the scale at these predictions."""
        return np.asarray(np.exp(np.interp(predictions, self.predictions, self.log_scale)))


@dataclass(frozen=True)
class Evidence:
    """What the errors of a fit say about outliers.

    Args:
        score: The gain of two groups over one distribution, in its standard errors.
        share: The share of inliers.
        standard_error: Of the share.
        scale: The local scale of errors.
        one: Parameters of the single distribution.
        two: Those of two groups.
        log_likelihood: Of two groups.
        reach: The largest error, in units of the scale: beyond it the probability falls no further.
    """

    score: float
    share: float
    standard_error: float
    scale: LocalScale
    one: Array
    two: Array
    log_likelihood: float
    reach: float

    @property
    def trusted(self) -> bool:
        """Whether there are outliers beyond reasonable doubt."""
        return self.score > TRUSTED

    @property
    def suspected(self) -> bool:
        """Whether there may be outliers."""
        return self.score > SUSPECTED

    @property
    def open(self) -> bool:
        """Whether it is an open question if there are outliers: one distribution is not clearly better."""
        return self.score > OPEN

    def probability(self, errors: Array, predictions: Array) -> Array:
        """Return each row's probability of being an inlier, which never rises with the size of its error."""
        return _monotone(self.two, errors / self.scale.at(predictions), self.reach)

    def nominal_probability(self, errors: Array) -> Array:
        """Rank rows by the size of their errors alone, where no outliers are proven.

        The probability if there were a nominal share of outliers with the same, but a wider distribution.
        """
        unit = math.exp(float(np.median(self.scale.log_scale))) * float(np.exp(self.one[1:3]).mean())
        square, nu = (errors / unit) ** 2, math.exp(self.one[3])
        tails = np.log1p(square / nu) - np.log1p(square / (nu * WIDE**2))
        inside = expit(math.log(WIDE / NOMINAL - WIDE) - (nu + 1) / 2 * tails)
        return np.asarray(inside / (1 + 1e-9 * np.sqrt(square)))


def examine(
    errors: Array,
    predictions: Array,
    targets: Array,
    frequency: Array,
    share: float | None = None,
    last: Evidence | None = None,
    inside: Array | None = None,
) -> Evidence:
    """Fit one distribution and two groups to the errors of a fit, and compare them.

    Args:
        errors: The error of each row, out of sample or corrected for leverage.
        predictions: The predictions.
        targets: The targets.
        frequency: How many rows each stands for.
        share: The share of inliers, if it is given.
        last: The evidence of a similar fit, where this one starts.
        inside: The inlier probability of each row: the local scale is that of inliers. Where outliers are the
            majority, that of all rows would be the scale of the outliers.

    Returns:
        The evidence.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> x, noise = rng.normal(size=1000), rng.standard_t(3, size=1000)
        >>> examine(noise, x, x + noise, np.ones(1000)).suspected
        False
        >>> noise[:100] += 20
        >>> found = examine(noise, x, x + noise, np.ones(1000))
        >>> found.trusted, round(found.share, 2)
        (True, 0.9)
    """
    atoms = bool((without_atoms(targets, frequency) < frequency).any())
    # Repeated rows are one piece of evidence, and with atoms about, so are rows with equal targets.
    group = np.unique(targets + (0 if atoms else 1j * predictions), return_inverse=True)[1]
    counted = that_tell_a_scale(targets, frequency)
    floor = 1e-13 * weighted_median(np.abs(targets), frequency) + 1e-300
    spread = errors + _rounding(targets, frequency)
    scale = LocalScale.of(spread, predictions, counted if inside is None else counted * inside, floor)
    at = scale.at(predictions)
    u, reach = spread / at, float(np.abs(errors / at).max())
    begin: tuple[Array | None, Array | None] = (None, None) if last is None else (last.one, last.two)
    if last is None and inside is not None:
        begin = None, _groups(u, frequency, inside)
    one, two, score = _compare(u, frequency, group, share, begin)
    if atoms:
        # What is claimed must hold with the atoms and without them.
        score = min(score, _compare(u, counted, group, share, (None, None if inside is None else two))[2])
    density, _, probability = _mixture(two, u)
    found = float(frequency @ probability / frequency.sum())
    slope = probability / found - (1 - probability) / max(1 - found, 1e-9)
    error = 1 / math.sqrt(max(float(frequency @ slope**2), 4.0))
    likelihood = float(frequency @ (density - np.log(at)))
    return Evidence(score, found, error, scale, one, two, likelihood, reach)


def _compare(
    u: Array, counted: Array, group: Array, share: float | None, begin: tuple[Array | None, Array | None]
) -> tuple[Array, Array, float]:
    """Return the single distribution, the two groups, and the gain of these in its standard errors."""
    centers, counts = _bins(u[counted > 0], counted[counted > 0])
    two = _fit_two(centers, counts, share, begin[1])
    # What one distribution can do alone is at least what it does beside outliers.
    one = _fit_one(centers, counts, (begin[0], two[:4]))
    gains = counted * (_mixture(two, u)[0] - _two_piece(one, u)[0])
    # Two groups have three parameters more: Schwarz's penalty.
    gain = float(gains.sum()) - 1.5 * math.log(max(float(counted.sum()), 2.0))
    return one, two, gain / math.sqrt(float((np.bincount(group, gains) ** 2).sum()) + 1e-12)


def weighted_median(values: Array, weights: Array) -> float:
    """Return the value that half of the weight lies below.

    Example:
        >>> weighted_median(np.array([3.0, 1.0, 2.0]), np.array([1.0, 1.0, 5.0]))
        2.0
    """
    order = np.argsort(values)
    below = np.cumsum(weights[order])
    return float(values[order[min(int(np.searchsorted(below, below[-1] / 2)), len(values) - 1)]])


def without_atoms(targets: Array, frequency: Array) -> Array:
    """Return how many rows each counts for, if zeros, caps and the like count for nothing.

    That a fit meets many equal targets says nothing about the others. An atom is a target that is far more frequent
    than the values next to it: the middle of a rounded target is none, however far its tails reach.

    Example:
        >>> without_atoms(np.array([0, 0, 0, 0, 0, 0, 1, 2, 3]), np.ones(9))
        array([0., 0., 0., 0., 0., 0., 1., 1., 1.])
    """
    group = np.unique(targets, return_inverse=True)[1]
    shared = np.bincount(group, frequency)
    atom = shared > ATOM_SHARE * float(frequency.sum())
    for place in np.flatnonzero(atom):
        near = shared[max(place - NEIGHBOURS, 0) : place + NEIGHBOURS + 1]
        atom[place] = shared[place] > ATOM_RATIO * float(np.median(near))
    return np.where(atom[group], 0.0, frequency)


def that_tell_a_scale(targets: Array, frequency: Array) -> Array:
    """Return how many rows each counts for in the scale of errors: atoms do not, if the others are enough."""
    counted = without_atoms(targets, frequency)
    return counted if np.count_nonzero(counted) >= FEWEST else frequency


def _rounding(targets: Array, frequency: Array) -> Array:
    """Return what rounding may have taken from each target, spread evenly: a lattice of errors says nothing.

    Where targets are usually shared by several rows, their grid is the usual distance between neighbours.
    """
    values, group = np.unique(targets, return_inverse=True)
    if len(values) < 2 or np.median(np.bincount(group, frequency)[group]) < 3:
        return np.zeros(len(targets))
    # Multiples of the golden ratio fill an interval evenly, whatever the order of the rows.
    return np.asarray(np.median(np.diff(values)) * (np.arange(len(targets)) * 0.618034 % 1 - 0.5))


def _bins(u: Array, frequency: Array) -> tuple[Array, Array]:
    """Return the centers of occupied bins, and their counts."""
    v = np.arcsinh(u)
    low, width = float(v.min()), max(float(np.ptp(v)), 1e-9) / BINS
    place = np.minimum(((v - low) / width).astype(int), BINS - 1)
    counts = np.bincount(place, frequency, BINS)
    used = counts > 0
    return np.sinh(low + (np.flatnonzero(used) + 0.5) * width), counts[used]


def _two_piece(theta: Array, u: Array) -> tuple[Array, Array]:
    """The log density of a two-piece Student distribution, and its gradient.

    Parameters: location, log of the scales left and right of it, log of the degrees of freedom.
    """
    location, (left, right, nu) = theta[0], np.exp(theta[1:4])
    below = u < location
    z = (u - location) / np.where(below, left, right)
    square = z * z
    tail = np.log1p(square / nu)
    const = (
        math.log(2 / (left + right)) + gammaln((nu + 1) / 2) - gammaln(nu / 2) - 0.5 * math.log(nu * math.pi)
    )
    pull = (nu + 1) * square / (nu + square)
    degrees = digamma((nu + 1) / 2) - digamma(nu / 2) - 1 / nu - tail + pull / nu
    gradient = np.stack(
        (
            (nu + 1) * z / (nu + square) / np.where(below, left, right),
            below * pull - left / (left + right),
            ~below * pull - right / (left + right),
            0.5 * nu * degrees,
        )
    )
    return const - (nu + 1) / 2 * tail, gradient


def _outliers(theta: Array, u: Array) -> tuple[Array, Array]:
    """The log density of the outliers, a Student distribution, and its gradient: location, log scale."""
    nu, scale = OUTLIERS_DEGREES, math.exp(theta[1])
    z = (u - theta[0]) / scale
    square = z * z
    const = gammaln((nu + 1) / 2) - gammaln(nu / 2) - 0.5 * math.log(nu * math.pi) - theta[1]
    gradient = np.stack(((nu + 1) * z / (nu + square) / scale, (nu + 1) * square / (nu + square) - 1))
    return const - (nu + 1) / 2 * np.log1p(square / nu), gradient


def _mixture(theta: Array, u: Array) -> tuple[Array, Array, Array]:
    """The log density of both groups together, its gradient, and the probability of being an inlier."""
    (inside, inside_slope), (outside, outside_slope) = _two_piece(theta[:4], u), _outliers(theta[4:6], u)
    inside, outside = inside - np.logaddexp(0, -theta[6]), outside - np.logaddexp(0, theta[6])
    total = np.logaddexp(inside, outside)
    probability = np.exp(inside - total)
    gradient = np.vstack(
        (probability * inside_slope, (1 - probability) * outside_slope, probability - expit(theta[6]))
    )
    return total, gradient, probability


def _maximize(
    density: object,
    start: Array,
    bounds: list[tuple[float, float]],
    u: Array,
    counts: Array,
    steps: int = MOST_STEPS,
) -> tuple[float, Array]:
    """Return the largest mean log density, and where it is."""
    n = counts.sum()

    def objective(theta: Array) -> tuple[float, Array]:
        value, gradient = density(theta, u)[:2]  # type: ignore[operator]
        return -float(counts @ value) / n, -(gradient @ counts) / n

    low, high = np.array(bounds).T
    found = minimize(
        objective,
        np.clip(start, low, high),
        jac=True,
        bounds=bounds,
        method="L-BFGS-B",
        options={"maxiter": steps, "ftol": 1e-6},
    )
    return -float(found.fun), np.asarray(found.x)


_LOCATION_AND_SCALES = [(-20.0, 20.0), (math.log(SMALLEST_SCALE), 5.0), (math.log(SMALLEST_SCALE), 5.0)]


def _fit_one(u: Array, counts: Array, starts: tuple[Array | None, Array]) -> Array:
    """Fit the single distribution, from several places."""
    bounds = [*_LOCATION_AND_SCALES, tuple(np.log(DEGREES))]
    usual = np.array([0.0, 0.0, 0.0, math.log(4.0)])
    tried = (_maximize(_two_piece, usual if each is None else each, bounds, u, counts) for each in starts)
    return max(tried, key=lambda found: found[0])[1]


def _fit_two(u: Array, counts: Array, share: float | None, start: Array | None) -> Array:
    """Fit two groups, from several places where outliers may be."""
    reach = float(np.abs(u).max()) + 1
    odds = (-1.5, 8.0) if share is None else (math.log(share / (1 - share)),) * 2
    bounds = [
        *_LOCATION_AND_SCALES,
        (math.log(FEWEST_DEGREES), math.log(DEGREES[1])),
        (-reach, reach),
        (0.0, math.log(reach) + 1),
        odds,
    ]
    if start is None:
        tried = [_maximize(_mixture, each, bounds, u, counts, FEW_STEPS) for each in _places(u, counts)]
        start = max(tried, key=lambda found: found[0])[1]
    return _maximize(_mixture, start, bounds, u, counts)[1]


def _groups(u: Array, frequency: Array, inside: Array) -> Array:
    """Return parameters of two groups, of which one is known."""
    outside = frequency * (1 - np.clip(inside, 0.0, 1.0)) + 1e-12
    share = float(np.clip(1 - outside.sum() / frequency.sum(), 0.2, 0.99))
    at = weighted_median(u, outside)
    width = MAD * weighted_median(np.abs(u - at), outside)
    scales = [0.0, 0.0, math.log(8)]
    return np.array([0.0, *scales, at, math.log(max(width, 1.0)), math.log(share / (1 - share))])


def _places(u: Array, counts: Array) -> Iterator[Array]:
    """Yield parameters of two groups: outliers on both sides, or on one of them."""
    below = np.cumsum(counts) / counts.sum()

    def quantile(level: float) -> float:
        return float(u[min(int(np.searchsorted(below, level)), len(u) - 1)])

    def group(low: float, high: float) -> tuple[float, float]:
        """The median and the log deviation of what lies between two levels."""
        spread = (quantile(high - (high - low) / 4) - quantile(low + (high - low) / 4)) / 1.349
        return quantile((low + high) / 2), math.log(max(spread, 2 * SMALLEST_SCALE))

    for inside, outside, share in (
        ((0.05, 0.95), None, 0.9),
        ((0.0, 0.75), (0.75, 1.0), 0.75),
        ((0.25, 1.0), (0.0, 0.25), 0.75),
    ):
        location, scale = group(*inside)
        at, width = (
            (location, math.log(max(quantile(0.98) - quantile(0.02), 1.0)))
            if outside is None
            else group(*outside)
        )
        yield np.array([location, scale, scale, math.log(8), at, width, math.log(share / (1 - share))])


def _monotone(theta: Array, u: Array, largest: float) -> Array:
    """Return the probability of being an inlier, made to fall on both sides of the inliers' location."""
    center = math.asinh(theta[0])
    reach = math.asinh(largest + 1) + abs(center)
    half = np.linspace(0.0, reach, POINTS)
    left, right = (
        np.minimum.accumulate(_mixture(theta, np.sinh(center + side * half))[2]) for side in (-1, 1)
    )
    curve = np.concatenate((left[:0:-1], right))
    # The points are equally far from each other: no search for the two around a value.
    place = np.clip((np.arcsinh(u) - (center - reach)) * ((POINTS - 1) / reach), 0, len(curve) - 1)
    below = np.minimum(place.astype(np.int64), len(curve) - 2)
    place -= below
    found = curve[below]
    found += place * np.diff(curve)[below]
    # Equal probabilities still rank by the size of the error.
    return np.asarray(found / (1 + 1e-9 * np.abs(u - theta[0])))
