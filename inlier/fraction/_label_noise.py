"""The fraction of clean class labels, from what a network says of labels that it was not trained on yet.

The evidence for the label y of a sample is its margin ``S = z[y] - max over other classes of z``, with z the logits
of the network less the log frequencies of classes. Its weight is the probability that the label is clean,

    w(S) = sigmoid(a S + b),

and b is such that the weights add up to the clean labels (the paper's Rule 1). Two bounds say how many there are.

*What the margins imply.* If a part rho of the labels is noisy and margins are log odds, then rho is what the weights
say themselves: ``rho = mean(1 - w)``, the maximum of a concave likelihood (:func:`noise_rate`). A network that knows
little disagrees with clean labels too, so this is too high early on.

*What confident predictions allow.* Let c be the gap of the two largest logits, which does not depend on the label. The
more confident a prediction, the more likely it is right; but it agrees with the given label no more often than
labels are clean:

    P(agrees | c) = (1 - rho) s + rho (1 - s) / (K - 1),    s = sigmoid(alpha c + beta), K classes.

The level that agreement reaches at large c is 1 - rho, less the errors that are as confident as right predictions:
about a quarter of all errors of the network. Its likelihood gives an interval of rho (:func:`confident_rates`), a wide
one if no such level is seen. Noise is claimed only if it is proven: if the interval is narrow, all of it lies above
what clean labels were seen to give, and the network knows something of the labels. Until then labels count as clean.

*What is implausible.* A network from scratch knows too little in its first epoch, and later it was trained on the
labels. If it learns slowly, it is confident of mistakes, which looks like noise. But its mistakes are plausible, and
noise goes to the least likely classes as well (``RateInterval.implausible``).

In terms of the loss ``r = log(1 + exp(-S))``, the cross-entropy between the two classes alone, the weight at a = 1 is
``w = 1 / (1 + kappa (e^r - 1))`` with ``kappa = e^-b``: 1 at r = 0, falling to 0, never rising. So it is the slope of a
robust loss kernel by the paper's Definition 1, and the alternation of weights and training steps that of its
Algorithm 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from inlier.fraction._estimate import FractionEstimate, pack, unpack
from inlier.histogram import LossHistogram

__all__ = [
    "LabelNoise",
    "RateInterval",
    "clean_probability",
    "confident_rates",
    "margin_loss",
    "noise_rate",
    "prior_log_odds",
]

LARGEST_MARGIN = 8.0
"""Margins are clamped to this: an overconfident network must not overrule every prior."""

SMALLEST_RATE = 1e-3
"""rho never falls below this, so that noise that shows up later still can be found."""

NEGLIGIBLE = 0.05
"""A rate that may be lower counts as 0."""

CONFIDENT_ERRORS = 0.25
"""The part of the errors of a network that are as confident as its right predictions, on labels not trained on yet."""

PRECISION = 1e-9
"""Rates and log odds are solved for to about this; sums over labels are no more exact."""

FEWEST = 50
"""With fewer labels nothing is estimated."""

BINS, BIN_WIDTH = 64, 0.125
"""Confidences are counted in so many bins, the last of which takes all larger ones."""

LARGEST_OFFSET = 8.0
"""beta is not larger than this, nor smaller than its negative."""

MOST = 0.8
"""The largest rate that is looked for."""

NARROW = 0.1
"""... and if the standard deviation of the rate is below this."""

CAPABLE = 0.5
"""In the first epoch noise is claimed only if the network knows this part of what there is to know of the labels."""

PROOF, CAPABLE_LATER = 0.25, 0.1
"""After the first epoch noise is claimed if the given class is this often one of the least likely, as a noise rate, to
a network that knows this part of what there is to know. To one that learns slowly clean labels are implausible too, but
at most 0.15 (`python -m benchmarks.label_bench.from_scratch`), and more only if it hardly learns at all."""

WORTH = 0.65
"""An estimate is trusted if the network agrees with this part of the labels that it leaves clean."""

UNEVEN = 1.5
"""... and if agreement by chance is below this multiple of that with classes of one frequency."""


def margin_loss(margins: Tensor) -> Tensor:
    """Return r = log(1 + exp(-S)): the cross-entropy of the given class against the best other one.

    Example:
        >>> margin_loss(torch.tensor([0.0]))
        tensor([0.6931])
    """
    return torch.nn.functional.softplus(-margins)


def clean_probability(margins: Tensor, log_odds: float | Tensor, slope: float = 1.0) -> Tensor:
    """Return the probability that each label is clean, w = sigmoid(a S + b).

    Args:
        margins: S, of any shape.
        log_odds: b, the log odds of clean labels where the network is undecided.
        slope: a, what a margin counts for.

    Example:
        >>> clean_probability(torch.tensor([-8.0, 0.0, 8.0]), 1.3863).round(decimals=2)
        tensor([0.0000, 0.8000, 1.0000])
    """
    return (slope * margins).add_(log_odds).sigmoid_()


def prior_log_odds(losses: Tensor, counts: Tensor, inlier_fraction: float, slope: float = 1.0) -> float:
    """Solve mean sigmoid(a S + b) = zeta for b: the weights add up to the clean labels.

    With a = 1 and the zeta of :func:`noise_rate` it is ``log(zeta / (1 - zeta))``.

    Args:
        losses: The values of the losses r = log(1 + exp(-S)).
        counts: How many labels have each of them.
        inlier_fraction: zeta, the fraction of clean labels.
        slope: a.

    Example:
        >>> losses = margin_loss(torch.tensor([-2.0, 0.0, 2.0]))
        >>> abs(round(prior_log_odds(losses, torch.ones(3), 0.5), 4))
        0.0

    Reference: the paper's Rule 1, with b in the place of the scale.
    """
    counts, ratio = counts.double(), torch.expm1(losses.double()) ** slope
    zeta = min(max(inlier_fraction, SMALLEST_RATE), 1 - SMALLEST_RATE)
    target = zeta * float(counts.sum())

    def excess(log_odds: float) -> tuple[float, float]:
        weights = 1 / (1 + math.exp(-log_odds) * ratio)
        weighted = counts * weights
        total = float(weighted.sum())
        return total - target, total - float(weighted @ weights)

    return _root(excess, -40.0, 40.0, math.log(zeta / (1 - zeta)))


def noise_rate(histogram: LossHistogram) -> float:
    """Solve rho = mean(1 - w) on a histogram of :func:`margin_loss`, with w = sigmoid(S + log((1 - rho) / rho)).

    Args:
        histogram: Of the losses r.

    Example:
        >>> margins = torch.cat([torch.full((700,), 5.0), torch.full((300,), -5.0)])
        >>> round(noise_rate(LossHistogram.of(margin_loss(margins))), 2)
        0.3
    """
    counts, ratio = _odds_against(histogram)
    rest = 1 - ratio

    def falling(rho: float) -> tuple[float, float]:
        slopes = rest / (1 - rho * rest)  # of minus the log-likelihood, which is convex
        weighted = counts * slopes
        return float(weighted.sum()), float(weighted @ slopes)

    # Where labels are clean, the first look ends the search.
    if falling(SMALLEST_RATE)[0] >= 0:
        return SMALLEST_RATE
    return _root(falling, SMALLEST_RATE, 1 - SMALLEST_RATE, 0.5)


def _root(function: Callable[[float], tuple[float, float]], low: float, high: float, point: float) -> float:
    """Return where a rising function is 0: Newton's method, halving the interval where that leaves it.

    Args:
        function: Returns its value and its slope.
        low: Where it is negative, or the root is taken to be if it is not.
        high: Where it is positive, likewise.
        point: Where to begin.
    """
    step = high - low
    while abs(step) > PRECISION:
        value, slope = function(point)
        low, high = (low, point) if value > 0 else (point, high)
        newton = point - value / slope if slope > 0 else high
        # A last step, of the size of rounding errors, may leave the interval.
        is_last = abs(newton - point) <= PRECISION
        new = newton if is_last or low < newton < high else (low + high) / 2
        point, step = new, new - point
    return point


def _odds_against(histogram: LossHistogram) -> tuple[Tensor, Tensor]:
    """Return how many labels there are in each bin, and the odds exp(-S) against them."""
    counts = histogram.counts[:-1].double().cpu()
    used = counts > 0
    return counts[used], torch.expm1(histogram.values[:-1][used])


@dataclass(frozen=True)
class RateInterval:
    """The noise rates that confident predictions allow.

    Args:
        low: The rate that is exceeded with probability 0.95.
        high: The rate that is exceeded with probability 0.05.
        rate: Its mean.
        standard_error: Its standard deviation.
        agreement: The part of the labels that the network agrees with.
        chance: The part that it would agree with by chance, if predictions knew nothing of the labels.
        classes: The number of classes.
        is_out_of_sample: Whether the network was not trained on these labels yet: memorised ones agree.
        implausible: How often the given class is one of the least likely, as a noise rate; used after the first epoch.
        proof: The same, less what it has fallen by since the epoch before.

    Example:
        >>> round(RateInterval(0.28, 0.32, 0.3, 0.01, 0.6, 0.1, 10).worth, 2)
        0.83
    """

    low: float = 0.0
    high: float = 1.0
    rate: float = 0.0
    standard_error: float = 1.0
    agreement: float = 0.0
    chance: float = 0.5
    classes: int = 2
    is_out_of_sample: bool = True
    implausible: float = 0.0
    proof: float = 0.0

    @classmethod
    def of(cls, numbers: list[float]) -> RateInterval:
        """Return an interval from its fields in order, all of them as numbers."""
        low, high, rate, error, agreement, chance, classes, is_out_of_sample, *rest = numbers
        return cls(low, high, rate, error, agreement, chance, int(classes), bool(is_out_of_sample), *rest)

    def after(self, previous: RateInterval) -> RateInterval:
        """Return what is left of this interval as evidence, after that of the epoch before.

        Labels are less and less implausible to a network that still learns. What the rate of those that are has fallen
        by since the epoch before may fall once more, so it is subtracted.
        """
        if self.is_out_of_sample or previous.is_out_of_sample:
            return self
        fallen = max(previous.implausible - self.implausible, 0.0)
        return replace(self, proof=max(self.implausible - fallen, 0.0))

    @property
    def worth(self) -> float:
        """What the network knows of the labels that are clean: its agreement beyond chance (Cohen's kappa), 0 to 1."""
        return min(max((self.agreement - self.chance) / max(1 - self.rate - self.chance, 0.1), 0.0), 1.0)

    @property
    def proves_noise(self) -> bool:
        """Whether labels are noisy beyond reasonable doubt."""
        if self.is_out_of_sample:
            is_narrow = self.low >= NEGLIGIBLE and self.standard_error < NARROW
            return is_narrow and self.worth >= CAPABLE
        return self.proof >= PROOF and self.worth >= CAPABLE_LATER

    @property
    def proves_clean(self) -> bool:
        """Whether there is no noise that matters, beyond reasonable doubt."""
        return self.high <= 2 * NEGLIGIBLE and self.worth >= WORTH

    @property
    def is_even(self) -> bool:
        """Whether classes are about equally frequent: confident predictions that miss a rare one look like noise."""
        return self.chance <= UNEVEN / self.classes

    @property
    def is_trusted(self) -> bool:
        """Whether what is proven is to be trusted as a number, too."""
        return self.is_out_of_sample and self.worth >= WORTH and self.is_even


def confident_rates(
    counts: Tensor,
    classes: int,
    chance: float | None = None,
    confident_errors: float = 0.0,
    largest_offset: float = LARGEST_OFFSET,
) -> RateInterval:
    """Return which noise rates fit P(agrees | c) = (1 - rho) s + rho (1 - s) / (K - 1), s = sigmoid(alpha c + beta).

    For each rho on a grid, alpha and beta maximise the likelihood (Fisher scoring); the profile likelihood is taken for
    the density of rho.

    If a part h of the errors is as confident as right predictions, the level that agreement reaches is not 1 - rho but
    nearer to the agreement of all predictions, (1 - h) (1 - rho) + h agreement. It is solved for rho.

    Args:
        counts: How many predictions disagree (first row) and agree (second) with the given label, by bins of the
            confidence c: float, shape (2, ``BINS``).
        classes: K, the number of classes.
        chance: The part of the labels that predictions would agree with by chance; 1 / K by default.
        confident_errors: h.
        largest_offset: beta is at most this: 0 if the two largest logits are exchangeable, so that a prediction without
            a lead is right half of the time.

    Example:
        >>> confidence = torch.linspace(0, 8, 64)
        >>> agree = 500 * 0.7 * torch.sigmoid(2 * confidence - 1)
        >>> found = confident_rates(torch.stack([500 - agree, agree]), classes=100)
        >>> found.low <= 0.3 <= found.high, found.proves_noise
        (True, True)
    """
    total = counts.sum(0).double()
    used = total > 0
    n, k = total[used], counts[1, used].double()
    c = (torch.arange(BINS, dtype=torch.float64)[used] + 0.5) * BIN_WIDTH
    c = c / ((n @ c) / n.sum())
    # With more noise than this the given class is not the most likely one.
    rho = torch.linspace(0, min(MOST, 1 - 1 / classes), 81, dtype=torch.float64)[:, None]
    other = rho / (classes - 1)
    alpha, beta = torch.ones_like(rho), torch.zeros_like(rho)

    def agreement(alpha: Tensor, beta: Tensor) -> tuple[Tensor, Tensor]:
        right = torch.sigmoid(alpha * c + beta)
        return right, torch.lerp(other.expand_as(right), (1 - rho).expand_as(right), right).clamp(
            1e-6, 1 - 1e-6
        )

    for _ in range(15):
        right, p = agreement(alpha, beta)
        slope = (1 - rho - other) * right * (1 - right)
        score, information = (k / p - (n - k) / (1 - p)) * slope, n * slope.square() / (p * (1 - p))
        # A weak prior keeps the step defined where c tells nothing.
        g1 = (score * c).sum(1, keepdim=True) - 0.1 * (alpha - 1)
        g2 = score.sum(1, keepdim=True) - 0.1 * beta
        h11 = (information * c * c).sum(1, keepdim=True) + 0.1
        h12 = (information * c).sum(1, keepdim=True)
        h22 = information.sum(1, keepdim=True) + 0.1
        determinant = h11 * h22 - h12 * h12
        alpha = (alpha + ((h22 * g1 - h12 * g2) / determinant).clamp(-2, 2)).clamp(0, 30)
        beta = (beta + ((h11 * g2 - h12 * g1) / determinant).clamp(-2, 2)).clamp(
            -LARGEST_OFFSET, largest_offset
        )
    _, p = agreement(alpha, beta)
    density = (k * p.log() + (n - k) * (1 - p).log()).sum(1).softmax(0)
    agreed = float(k.sum() / n.sum())
    rates, mass = rho[:, 0], density.cumsum(0)
    hidden = confident_errors / (1 - confident_errors)
    rates = (rates - hidden * (1 - rates - agreed)).clamp(min=0)
    mean = float(density @ rates)
    low, high = (float(rates[min(int((mass < part).sum()), 80)]) for part in (0.05, 0.95))
    error = float((density @ (rates - mean).square()).sqrt())
    by_chance = 1 / classes if chance is None else chance
    return RateInterval(low, high, mean, max(error, 0.005), agreed, by_chance, classes)


class LabelNoise:
    """The fraction estimator for class labels: what the margins imply, within what confident predictions allow.

    Args:
        interval: The rates that are allowed; :class:`inlier.RobustCrossEntropy` sets it at each update.

    Example:
        >>> estimator = LabelNoise(RateInterval(0.28, 0.32, 0.3, 0.01, 0.6, 0.1, 10))
        >>> margins = torch.cat([torch.full((600,), 5.0), torch.full((400,), -5.0)])
        >>> estimator.observe(LossHistogram.of(margin_loss(margins)))
        >>> round(estimator.estimate().value, 2), estimator.estimate().trusted
        (0.68, True)
    """

    def __init__(self, interval: RateInterval | None = None) -> None:
        self.interval = interval or RateInterval()
        self._histogram: LossHistogram | None = None
        self._last = FractionEstimate(1.0, 0.0, False, "No labels were seen yet.")

    def observe(self, histogram: LossHistogram) -> None:
        """Take in the histogram of recent margin losses, in place of the last one."""
        self._histogram = histogram

    def estimate(self) -> FractionEstimate:
        """Return the fraction of clean labels."""
        histogram, self._histogram = self._histogram, None
        if histogram is not None:
            self._last = self._estimate(histogram)
        return self._last

    def _estimate(self, histogram: LossHistogram) -> FractionEstimate:
        known, total = self.interval, histogram.total
        if total < FEWEST:
            return FractionEstimate(1.0, 0.0, False, f"Only {total:.0f} labels were seen.")
        if known.proves_noise:
            rho = min(max(noise_rate(histogram), known.low), known.high)
            if not known.is_out_of_sample:
                reason = "Labels are implausible to the network, but it was trained on them before."
            elif known.worth < WORTH:
                reason = "The network disagrees with many labels that confident predictions do not explain."
            else:
                reason = "Confident predictions on labels not yet trained on disagree this often."
            if not known.is_even:
                reason = "Classes differ much in frequency: predictions that miss a rare one look like noise."
            return FractionEstimate(1 - rho, known.standard_error, known.is_trusted, reason)
        error = min(max(known.standard_error, known.high / 2), 0.5)
        if known.proves_clean:
            reason = (
                "Confident predictions disagree with labels no more often than they are wrong themselves."
            )
            return FractionEstimate(1.0, error, known.is_trusted, reason)
        reason = "The network has learned too little to tell noisy labels from hard samples."
        return FractionEstimate(1.0, error, False, reason)

    def state_dict(self) -> dict[str, Tensor]:
        """Return the last estimate."""
        return pack(self._last)

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Restore it."""
        self._last = unpack(state)
