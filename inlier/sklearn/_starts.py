"""Other beginnings for least squares than Huber's fit.

Outliers with a pattern (leverage points, a second line, one side) attract Huber's fit too. As weights are tried:

- the rows above the unweighted fit, those below it, and those with central inputs;
- exact fits of random elemental subsets, the most promising of them, where unknowns are few.

Each is concentrated, and Huber's fit too: fit, keep the rows that agree best with the fit, fit again. How well rows
agree needs no fraction:
if h of n errors lie within radius rho, and the others anywhere within R, then

    gain = max over h of  h log(h / n) + (n - h) log(1 - h / n) - (h - p) log(rho_h / R)

is the gain in log-likelihood over a uniform distribution alone; the p errors that p unknowns make 0 do not count.

Reference: P. J. Rousseeuw, K. Van Driessen (2006), Computing LTS regression for large data sets (subsets and
concentration steps); L. Moisan, B. Stival (2004), A probabilistic criterion to detect rigid point matches (one score
over all thresholds).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy.special import xlogy

from inlier.sklearn._learners import Array, LeastSquares

SUBSETS, MOST_UNKNOWNS = 300, 12
"""So many random subsets are drawn, for at most so many unknowns: of more, none would be without outliers."""
ROWS, KEPT, STEPS = 1000, 4, 3
"""So many rows score a subset; so many of the best are concentrated, in so many steps."""
FEWEST_PER_UNKNOWN = 4
"""Rows for each unknown; with fewer, errors say little about the fit."""
LEAST_PER_UNKNOWN = 3
"""With fewer rows for each unknown in the whole table nothing is tried; with more, half of them may be enough to agree,
though they are fewer than the constant above asks for."""
MARGIN = 5.0
"""The gain in log-likelihood that another beginning needs."""


def better_start(
    learner: LeastSquares, frequency: Array, weights: Array, generator: np.random.RandomState
) -> Array | None:
    """Return the rows that agree best, if they are others than those that agree with a given fit.

    Args:
        learner: The least-squares problem.
        frequency: How many rows each stands for.
        weights: The weights of the given fit.
        generator: Draws the subsets.

    Returns:
        Which rows agree, as weights; None if no other beginning gains as much more as MARGIN.
    """
    if np.count_nonzero(frequency) < LEAST_PER_UNKNOWN * learner.unknowns:
        return None
    errors = learner.y - learner.fit(frequency, False).predictions
    radius = 1.5 * float(np.quantile(np.abs(errors)[frequency > 0], 0.95)) or 1.0
    given = frequency * weights
    others = [*_halves(learner, frequency, errors), *_subsets(learner, frequency, radius, generator)]
    concentrated = (_concentrate(learner, frequency, radius, each) for each in (given, *others))
    gain, best = max(concentrated, key=lambda found: found[0])
    return best if gain > _concentrate(learner, frequency, radius, given, 1)[0] + MARGIN else None


def _halves(learner: LeastSquares, frequency: Array, errors: Array) -> Iterator[Array]:
    """Yield the rows above the unweighted fit, those below it, and those with central inputs."""
    usable = frequency > 0
    middle = np.median(errors[usable])
    yield frequency * (errors > middle)
    yield frequency * (errors < middle)
    x = learner.x[:, : learner.inputs]
    center = np.median(x[usable], axis=0)
    away = np.abs(x[usable] - center)
    spread = np.median(away, axis=0)
    # More than half of a column of 0 and 1 is equal.
    spread = np.where(spread > 0, spread, away.mean(0))
    if (spread > 0).any():
        distance = (np.abs(x - center)[:, spread > 0] / spread[spread > 0]).max(1)
        yield frequency * (distance <= np.median(distance[usable]))


def _subsets(
    learner: LeastSquares, frequency: Array, radius: float, generator: np.random.RandomState
) -> list[Array]:
    """Return the most promising of random subsets with as many rows as unknowns."""
    unknowns, usable = learner.unknowns, np.flatnonzero(frequency > 0)
    if unknowns > MOST_UNKNOWNS:
        return []
    seen = usable if len(usable) <= ROWS else generator.choice(usable, ROWS, replace=False)
    drawn = generator.rand(SUBSETS, len(seen)).argpartition(unknowns, axis=1)[:, :unknowns]
    x, y = learner.x[seen], learner.y[seen]
    # A trace of a ridge lets singular subsets through: their fits are bad, and lose.
    gram = np.swapaxes(x[drawn], 1, 2) @ x[drawn]
    gram += 1e-12 * (np.trace(gram, axis1=1, axis2=2)[:, None, None] + 1e-300) * np.eye(unknowns)
    coefficients = np.linalg.solve(gram, np.swapaxes(x[drawn], 1, 2) @ y[drawn][..., None])[..., 0]
    gains = _gains(np.abs(y - coefficients @ x.T), frequency[seen], unknowns, radius)[2].max(1)
    found = []
    for subset in seen[drawn[np.argsort(-gains)[:KEPT]]]:
        weights = np.zeros(len(frequency))
        weights[subset] = 1.0
        found.append(weights)
    return found


def _concentrate(
    learner: LeastSquares, frequency: Array, radius: float, weights: Array, steps: int = STEPS
) -> tuple[float, Array]:
    """Alternate between fitting and keeping the rows that agree best; return the gain, and them as weights."""
    best = -np.inf
    for _ in range(steps):
        size = np.abs(learner.y - learner.fit(weights, False).predictions)
        ranked, _, gains = _gains(size, frequency, learner.unknowns, radius)
        place = int(gains.argmax())
        if gains[place] <= best:
            break
        best, weights = float(gains[place]), frequency * (size <= ranked[place])
    return best, weights


def _gains(size: Array, frequency: Array, unknowns: int, radius: float) -> tuple[Array, Array, Array]:
    """Return sorted errors, how many rows each and all before stand for, and the gain at each."""
    order = np.argsort(size, axis=-1)
    inside = np.cumsum(frequency[order], axis=-1)
    n = inside[..., -1:]
    ranked = np.take_along_axis(size, order, -1)
    entropy = xlogy(inside, inside / n) + xlogy(n - inside, np.maximum(1 - inside / n, 1e-300))
    gains = entropy - np.maximum(inside - unknowns, 0) * np.log(np.maximum(ranked / radius, 1e-10))
    fewest = np.maximum(np.minimum(FEWEST_PER_UNKNOWN * unknowns, n / 2), 0.1 * n)
    return ranked, inside, np.where(inside >= fewest, gains, -np.inf)
