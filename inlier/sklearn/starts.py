"""Other places to begin than the plain fit, for squared errors.

Outliers with a pattern (bad inputs, a second line, all on one side) pull the plain fit to themselves, and a
graduated start ends beside them. Three kinds of starts find the rest of the way:

- a ladder of fixed fractions, each approached gradually: where inliers are few but outliers have no pattern;
- the samples above the plain fit, those below it, and those with central inputs: where there are many
  unknowns;
- exact fits of small random subsets: where there are few.

Each is concentrated on the samples that agree with it. What it is worth is said by
:class:`inlier.sklearn.slab.Slab`, which needs no fraction.

Reference: P. J. Rousseeuw, K. Van Driessen (2006), Computing LTS regression for large data sets (subsets and
concentration); M. Hubert, P. J. Rousseeuw, T. Verdonck (2012), A deterministic algorithm for robust location
and scatter (starts that need no chance).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from inlier.sklearn.learners import Array, InSample, LeastSquares
from inlier.sklearn.rounds import Settings, alternate, finite
from inlier.sklearn.slab import Slab

LADDER = (0.5, 0.25, 0.1)
"""Fractions of inliers that are tried."""
KEPT, CONCENTRATIONS = 8, 5
"""So many of the best random starts are concentrated, in so many steps."""
ROWS = 1000
"""So many samples are enough to judge a random start."""

Linear = LeastSquares | InSample


def ladder(learner: Linear, settings: Settings) -> Iterator[Array]:
    """Yield weights at which graduated alternations with fixed fractions end."""
    for fraction in LADDER:
        if fraction > settings.kernel.weight_floor:
            yield alternate(learner, replace(settings, target=fraction, rule=None, posterior=None)).weights


def sides(learner: Linear, settings: Settings) -> Iterator[Array]:
    """Yield the samples above the plain fit, those below it, and those with central inputs, as weights."""
    usable = settings.repeats > 0
    errors = learner.errors(settings.sample_weight)
    # With several outputs, above and below are taken along the direction in which errors vary most.
    along = errors @ np.linalg.svd(errors[usable], full_matrices=False)[2][0]
    middle = np.median(along[usable])
    yield (usable & (along > middle)).astype(float)
    yield (usable & (along < middle)).astype(float)
    if isinstance(learner, LeastSquares):
        x = learner.x[usable]
        center = np.median(x, axis=0)
        spread = np.median(np.abs(x - center), axis=0)
        columns = spread > 0
        if columns.any():
            distance = (np.abs(learner.x - center)[:, columns] / spread[columns]).max(1)
            yield (usable & (distance <= np.median(distance[usable]))).astype(float)


def subsets(
    learner: Linear, settings: Settings, slab: Slab, n_starts: int, generator: np.random.RandomState
) -> Iterator[Array]:
    """Yield the most promising of random subsets, as weights.

    Args:
        learner: What is fitted.
        settings: Its settings.
        slab: The judge.
        n_starts: How many subsets are drawn.
        generator: Draws them.
    """
    usable = np.flatnonzero(settings.repeats > 0)
    if n_starts == 0 or len(usable) <= slab.unknowns:
        return
    seen = usable if len(usable) <= ROWS else generator.choice(usable, ROWS, replace=False)
    drawn = generator.rand(n_starts, len(seen)).argpartition(slab.unknowns, axis=1)[:, : slab.unknowns]
    best = np.arange(min(n_starts, KEPT))
    if isinstance(learner, LeastSquares):
        best = np.argsort(-slab.rows(seen).gain(learner.rows(seen).elemental_losses(drawn)))[:KEPT]
    for subset in seen[drawn[best]]:
        weights = np.zeros(learner.size)
        weights[subset] = 1.0
        yield weights


def concentrate(learner: Linear, settings: Settings, slab: Slab, weights: Array) -> tuple[float, Array]:
    """Fit, keep the samples of the best slab, and so on; return the gain, and those samples as weights."""
    gain = -math.inf
    for _ in range(CONCENTRATIONS):
        losses = finite(learner.losses(weights * settings.sample_weight))
        before = gain
        gain, inside = slab.best(losses)
        weights = inside.astype(float)
        if gain <= before:
            break
    return gain, weights
