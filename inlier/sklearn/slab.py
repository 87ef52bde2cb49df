"""A judge of fits that needs no inlier fraction: errors in a slab, on a flat background.

Reference: L. Moisan, B. Stival (2004), A probabilistic criterion to detect rigid point matches (a fit judged
over all thresholds); P. J. Rousseeuw, A. M. Leroy (1987), Robust Regression and Outlier Detection (spread
and count of inliers from the median one).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import gammaln, xlogy
from scipy.stats import chi2

from inlier.sklearn.learners import Array

INSIDE = 0.997
"""The part of Gaussian inliers that is counted: for one output, those within three standard deviations."""
FEW = 100
"""Of fewer samples than this, at least half are taken to be inliers: chance finds small groups among them."""


@dataclass(frozen=True)
class Slab:
    """Judges losses by their most likely slab on a flat background.

    If h of n errors (in d dimensions) lie within radius rho, and the others are spread over radius R, then

        gain = max over h of  h log(h/n) + (n - h) log(1 - h/n) - (h - p) d log(rho_h / R)

    is how much more likely they are than with no slab at all. The p errors that an exact fit of p unknowns
    makes zero are no evidence, and do not count.

    Args:
        reach: R^2, a loss.
        unknowns: p.
        outputs: d.
        repeats: How many samples each loss stands for.

    Example:
        >>> import numpy as np
        >>> errors = np.concatenate((np.random.default_rng(0).normal(size=700), np.full(300, 30.0)))
        >>> slab = Slab.around(errors**2, unknowns=1, outputs=1, repeats=np.ones(1000))
        >>> round(slab.fraction(errors**2), 1), bool(slab.posterior(errors**2)[-300:].max() < 1e-6)
        (0.7, True)
    """

    reach: float
    unknowns: int
    outputs: int
    repeats: Array

    @classmethod
    def around(cls, losses: Array, unknowns: int, outputs: int, repeats: Array) -> Slab:
        """Take the reach from the losses of a plain fit, the largest of them cut off."""
        most = np.quantile(losses[repeats > 0], 0.95)
        return cls(1.5 * float(np.minimum(losses, most).mean()) or 1.0, unknowns, outputs, repeats)

    def _ranked(self, losses: Array) -> tuple[Array, Array, Array]:
        """Return sorted losses, how many samples each and all before stand for, and the gain at each."""
        order = np.argsort(losses, axis=-1)
        inside = np.cumsum(self.repeats[order], axis=-1)
        n = inside[..., -1:]
        ranked = np.take_along_axis(losses, order, -1)
        radius = np.maximum(ranked / self.reach, 1e-20)
        entropy = xlogy(inside, inside / n) + xlogy(n - inside, np.maximum(1 - inside / n, 1e-300))
        gains = entropy - 0.5 * self.outputs * np.maximum(inside - self.unknowns, 0) * np.log(radius)
        return ranked, inside, np.where(inside >= self._fewest(float(n.max())), gains, -np.inf)

    def _fewest(self, n: float) -> float:
        """The smallest number of samples in a slab that says something."""
        if n < FEW:
            return min((n + self.unknowns + 1) // 2, n)
        return min(max(8 * self.unknowns, 40.0, 0.05 * n), n)

    def gain(self, losses: Array) -> Array:
        """Return the gain of each row of losses."""
        return np.asarray(self._ranked(losses)[2].max(-1))

    def best(self, losses: Array) -> tuple[float, Array]:
        """Return the gain, and which samples lie in the best slab."""
        ranked, _, gains = self._ranked(losses)
        place = int(gains.argmax())
        return float(gains[place]), losses <= ranked[place]

    def inliers(self, losses: Array) -> tuple[float, float]:
        """Return the fraction of inliers, taken as Gaussian, and their variance.

        The median of h inliers gives their variance, their variance the reach of nearly all of them, and
        that the next h: from the best slab on, until nothing moves.
        """
        ranked, tally, gains = self._ranked(losses)
        n = float(tally[-1])
        h = float(tally[int(gains.argmax())])
        correction = (1 + 5 / max(n - self.unknowns, 1.0)) ** 2 / chi2.ppf(0.5, self.outputs)
        cut = chi2.ppf(INSIDE, self.outputs)
        for _ in range(50):
            # An exact fit leaves `unknowns` errors near 0: the median is that of the others.
            middle = min(int(np.searchsorted(tally, (h + self.unknowns) / 2)), len(ranked) - 1)
            variance = correction * float(ranked[middle])
            within = max(self._count(ranked, tally, cut * variance), self._fewest(n))
            if within == h:
                break
            h = within
        # As many outliers as in the shell of twice the radius, by volume, are among those within.
        strays = (self._count(ranked, tally, 4 * cut * variance) - h) / (2.0**self.outputs - 1)
        h = max(h - max(strays, 0.0), 0.5 * h)
        return h / n, max(variance, 1e-20 * self.reach)

    @staticmethod
    def _count(ranked: Array, tally: Array, limit: float) -> float:
        """How many samples have at most this loss."""
        place = int(np.searchsorted(ranked, limit, side="right"))
        return float(tally[place - 1]) if place else 0.0

    def fraction(self, losses: Array) -> float:
        """Return the fraction of inliers."""
        return self.inliers(losses)[0]

    def posterior(self, losses: Array) -> Array:
        """Return each sample's probability of being an inlier: Gaussian errors against the flat background.

        The background holds at least one sample: so far out, even a set without outliers has no inliers.
        """
        fraction, variance = self.inliers(losses)
        outliers = max(1 - fraction, 1 / float(self.repeats.sum()))
        d = self.outputs
        ball = 0.5 * d * math.log(math.pi * self.reach) - float(gammaln(d / 2 + 1))
        odds = math.log(fraction / outliers) + ball - 0.5 * d * math.log(2 * math.pi * variance)
        return np.asarray(1 / (1 + np.exp(np.minimum(0.5 * losses / variance - odds, 700.0))))

    def rows(self, chosen: Array) -> Slab:
        """Return the judge of some of the samples."""
        return replace(self, repeats=self.repeats[chosen])

    @property
    def margin(self) -> float:
        """By how much a start must gain more than the first outcome.

        Trying many finds gains by chance alone: this is twice what Schwarz's criterion asks of p unknowns,
        and of four at least where a slab may be a small part of the samples.
        """
        n = max(float(self.repeats.sum()), 2.0)
        return (self.unknowns if n < FEW else max(self.unknowns, 4)) * math.log(n)
