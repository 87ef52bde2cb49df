"""From a learner to one outcome: the graduated alternation, and other starts where they may help."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain

import numpy as np

from inlier.sklearn.learners import Array, InSample, LeastSquares, OutOfFold
from inlier.sklearn.rounds import Outcome, Settings, alternate, finite
from inlier.sklearn.slab import FEW, Slab
from inlier.sklearn.starts import concentrate, ladder, sides, subsets

MANY = 15_000
"""Above so many samples, the way to the first outcome is made on a part of them."""
PART = 5_000
MOST_DRAWN = 12
"""With more unknowns, random subsets are not worth drawing unless they are asked for."""
SURE_FRACTION = 0.5
"""An outcome with more inliers than this, and trusted, needs no other starts where these are dear."""


def search(
    learner: LeastSquares | InSample | OutOfFold,
    settings: Settings,
    squared_outputs: int,
    unknowns: int,
    n_starts: int | None,
    generator: np.random.RandomState,
) -> Outcome:
    """Return the best outcome of the alternation over its starts.

    Args:
        learner: What is fitted.
        settings: Kernel, fraction and limits.
        squared_outputs: The number of outputs if the loss is squared error, else 0: only then are there other
            starts, and another rule for few samples.
        unknowns: The number of coefficients of a linear model.
        n_starts: How many random starts; None for what is sensible.
        generator: Draws samples.

    Returns:
        The outcome.
    """
    if not squared_outputs:
        return alternate(learner, settings)
    if isinstance(learner, LeastSquares) and learner.size > MANY:
        return _from_part(learner, settings, squared_outputs, unknowns, n_starts, generator)
    plain = finite(learner.losses(settings.sample_weight))
    slab = Slab.around(plain, unknowns, squared_outputs, settings.repeats)
    if settings.target is None and settings.repeats.sum() < FEW:
        settings = replace(settings, rule=slab.fraction, posterior=slab.posterior)
    first = alternate(learner, settings)
    if isinstance(learner, OutOfFold):
        return _second_look(learner, settings, slab, first)
    if n_starts == 0:
        return first
    unsure = not first.trusted or first.inlier_fraction < SURE_FRACTION
    cheap = isinstance(learner, LeastSquares)
    if n_starts is None and not cheap and not unsure:
        return first
    if n_starts is None:
        # Of 300 subsets of more than 12 samples, hardly one is clean at 40 % outliers: 300 * 0.6^12 < 1.
        n_starts = 10 if not cheap else 300 if unknowns <= MOST_DRAWN else 0
    # Nine outliers in ten look like one group, too, as long as the fit is theirs.
    alone = first.fit is not None and first.fit.outliers is None
    starts = chain(
        ladder(learner, settings) if (unsure or alone) and settings.target is None else (),
        sides(learner, settings),
        subsets(learner, settings, slab, n_starts, generator),
    )
    return _best(learner, settings, slab, first, starts)


def _second_look(learner: OutOfFold, settings: Settings, slab: Slab, first: Outcome) -> Outcome:
    """Go on with the slab's judgement where the losses look like one group, but hold a slab."""
    one_group = first.fit is not None and first.fit.outliers is None
    gain = float(slab.gain(first.losses))
    if not one_group or gain <= 0:
        return first
    settings = replace(settings, rule=slab.fraction, posterior=slab.posterior)
    second = alternate(learner, settings, slab.posterior(first.losses))
    return second if float(slab.gain(second.losses)) > gain + slab.margin else first


def _best(
    learner: LeastSquares | InSample, settings: Settings, slab: Slab, first: Outcome, starts: Iterator[Array]
) -> Outcome:
    """Return the first outcome, or that of the best start if it is clearly better."""
    most, found = float(slab.gain(first.losses)) + slab.margin, None
    for start in starts:
        gain, weights = concentrate(learner, settings, slab, start)
        if gain > most:
            most, found = gain, weights
    if found is None:
        return first
    if settings.target is None:
        settings = replace(settings, rule=slab.fraction, posterior=slab.posterior)
    outcome = alternate(learner, settings, found)
    if float(slab.gain(outcome.losses)) < most - slab.margin:
        # Soft weights can slide back to outliers at far inputs: then one round from the start is enough.
        outcome = replace(alternate(learner, replace(settings, max_iter=1), found), converged=True)
    return outcome


def _from_part(
    learner: LeastSquares,
    settings: Settings,
    outputs: int,
    unknowns: int,
    n_starts: int | None,
    generator: np.random.RandomState,
) -> Outcome:
    """Search on a part of the samples, then go on with all of them from there."""
    rows = np.sort(generator.permutation(learner.size)[:PART])
    some = replace(settings, sample_weight=settings.sample_weight[rows], repeats=settings.repeats[rows])
    part = search(learner.rows(rows), some, outputs, unknowns, n_starts, generator)
    start = np.zeros(learner.size)
    start[rows] = part.weights
    if settings.target is None and part.fit is None:
        plain = finite(learner.losses(settings.sample_weight))
        slab = Slab.around(plain, unknowns, outputs, settings.repeats)
        settings = replace(settings, rule=slab.fraction, posterior=slab.posterior)
    if part.converged and part.trusted and part.inlier_fraction > SURE_FRACTION:
        # Nothing is left to find: one round judges all samples, and the last fits are theirs anyhow.
        whole = replace(alternate(learner, replace(settings, max_iter=1), start, part.fit), converged=True)
    else:
        whole = alternate(learner, settings, start, part.fit)
    return replace(whole, history=part.history + whole.history)
