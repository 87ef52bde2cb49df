"""What a regression would have noticed: the evidence after slips are planted in its targets.

That nothing points to outliers says little if outliers could hide in heavy tails. So targets are spoiled in the usual
ways, a small part of them, and the errors that they then have are examined in the same way. Only if all of these slips
give strong evidence, none found is a finding.
"""

from __future__ import annotations

import numpy as np

from inlier.sklearn._extension import Weighting
from inlier.sklearn._learners import Array
from inlier.sklearn._residuals import TRUSTED, examine

PLANTED = 0.05
"""The part of the targets that is spoiled."""
NOTICED = TRUSTED + 1.5
"""The evidence has a standard error of 1: slips of this mean are noticed in 14 of 15 draws;
`python -m benchmarks.regressor_claims`."""


def is_undecided(weighting: Weighting) -> bool:
    """Return whether outliers are neither proven, nor plainly worse than one distribution."""
    evidence = weighting.evidence
    return not evidence.trusted and (evidence.open or weighting.kind == "bounded")


def would_notice(weighting: Weighting, errors: Array, targets: Array, frequency: Array) -> bool:
    """Return whether slips would have been noticed, where that matters: nothing is proven, and nothing ruled out."""
    return is_undecided(weighting) and slip_evidence(errors, targets, frequency) > NOTICED


def slip_evidence(errors: Array, targets: Array, frequency: Array) -> float:
    """Return the least evidence of outliers, in standard errors, after one of three kinds of slips.

    A part of the targets is ten times too large, has the other sign, or is shifted by three standard deviations.

    Args:
        errors: The error of each row, out of sample or corrected for leverage.
        targets: The targets.
        frequency: How many rows each stands for.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> noise, ones = rng.normal(size=1000), np.ones(1000)
        >>> slip_evidence(noise, 100 + 20 * rng.normal(size=1000) + noise, ones) > NOTICED
        True
        >>> slip_evidence(noise, noise, ones) > NOTICED  # Nothing is predicted: hardly any target is out of place.
        False
    """
    usable = np.flatnonzero(frequency)
    chosen = np.random.default_rng(0).permutation(usable)[: max(round(PLANTED * len(usable)), 1)]
    predictions = targets - errors
    found = []
    for wrong in (10 * targets, -targets, targets + 3 * float(targets[usable].std())):
        spoiled = targets.copy()
        spoiled[chosen] = wrong[chosen]
        found.append(examine(spoiled - predictions, predictions, spoiled, frequency).score)
    return min(found)
