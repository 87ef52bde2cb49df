"""Label noise around the probabilities of any classifier.

A label is that of the true class k with probability ``1 - rho``, and else another one, drawn from ``S[k]``; the true
class follows the classifier's probabilities p(x), calibrated by a temperature. So

    q(y | x) = (1 - rho) p_y(x) + rho sum_k p_k(x) S[k, y],        P(clean | x, y) = (1 - rho) p_y(x) / q(y | x).

S is even; with more than two classes it may also be free, or lead from each class to a single other one, since people
and machines confuse similar classes. A free S is fitted by expectation maximisation, and its likelihood lowered by the
number of its parameters (Akaike's criterion); single ones by the logarithm of how many of them there are.

A classifier is unsure of some labels, and wrong about some of which it is sure, without any noise. What tells noise
from that is a level of disagreement that no confidence gets below. Out-of-fold probabilities have a likelihood for each
rate, temperature and S, and these a prior: ``PRIOR`` for rates above 5 %, all orders of magnitude alike. The posterior
says how likely more than 5 % noise is; the most likely channel, how likely each label is clean.

Reference: B. Frénay, M. Verleysen (2014), Classification in the presence of label noise: a survey; A. P. Dempster,
N. M. Laird, D. B. Rubin (1977), Maximum likelihood from incomplete data via the EM algorithm.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.special import expit, log_softmax, logsumexp, softmax

from inlier.fraction._label_noise import FEWEST, NEGLIGIBLE
from inlier.sklearn._learners import Array

PRIOR = 0.1
"""The probability of more than 5 % noise before anything is seen: `python -m benchmarks.classifier_constants`."""
SURE = 0.95
"""Labels are called noisy above this probability of noise, and clean if that of no noise is above it whatever the
prior."""
CAPABLE = 0.6
"""Nothing is claimed or done if the classifier predicts less than this part of the labels that would be clean."""
TEMPERATURES = (0.25, 0.35, 0.5, 0.7, 0.85, 1.0, 1.2, 1.5, 2.0, 3.0, 4.0, 6.0)
SMALL_RATES = (1e-4, 0.0025, 0.005, 0.01, 0.015, 0.02, 0.03, 0.04, NEGLIGIBLE)
RATES = np.array(
    (*SMALL_RATES, 0.06, 0.07, 0.08, 0.1, 0.12, 0.15, 0.18, 0.21, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5)
)
"""Values of rho that are tried."""
SMALL = RATES <= NEGLIGIBLE
PSEUDO_COUNT = 1.0
"""One label, evenly spread, is added to the noisy ones of each class when S is fitted (Laplace)."""
EM_STEPS, CALIBRATION_STEPS = 20, 30
STRAY = 0.01
"""The part of the noise that does not go to the single class, so that none is impossible."""
STRENGTHS = np.linspace(0, 1, 21)
"""Parts of the weights that are tried."""
SMALLEST_SHARE = 0.2
"""No class keeps less than this share of its weight."""
MOST, MOST_NUMBERS = 20_000, 2_000_000
"""So many rows, and so many probabilities, are enough to fit the noise."""


def _log_prior() -> Array:
    """Return the logarithms of the prior probabilities of rates below 5 %, and of those above, each adding up to 1."""
    edges = np.concatenate(([0.0], (RATES[1:] + RATES[:-1]) / 2, [0.5]))
    mass = np.diff(edges) / (RATES + 1e-3)
    return np.asarray(np.log(mass / np.where(SMALL, mass[SMALL].sum(), mass[~SMALL].sum())))


LOG_PRIOR = _log_prior()


@dataclass(frozen=True)
class NoiseChannel:
    """What happens to a label on its way into the data.

    Args:
        temperature: The power of the probabilities that calibrates them.
        target: S, [classes, classes].
        rate: rho.
        shares: The shares of the classes among the labels.
    """

    temperature: float
    target: Array
    rate: float
    shares: Array

    def truth(self, label: Array, probability: Array) -> Array:
        """Return the probability of each true class, [n, classes].

        Args:
            label: The label of each sample as a place among the classes, [n].
            probability: Class probabilities, [n, classes].

        Example:
            >>> channel = NoiseChannel(1.0, np.array([[0.0, 1.0], [1.0, 0.0]]), 0.2, np.full(2, 0.5))
            >>> channel.truth(np.array([0, 1]), np.array([[0.9, 0.1], [0.9, 0.1]])).round(2)
            array([[0.97, 0.03],
                   [0.69, 0.31]])
        """
        p = tempered(_log(probability), self.temperature, self.shares)
        given, _ = _given(p, self.target, label)
        truth = self.rate * p * self.target[:, label].T
        truth[np.arange(len(label)), label] += (1 - self.rate) * given
        return np.asarray(truth / np.maximum(truth.sum(1, keepdims=True), 1e-300))

    def clean(self, label: Array, probability: Array) -> Array:
        """Return the probability that each label is clean: that the true class is the given one."""
        return np.asarray(self.truth(label, probability)[np.arange(len(label)), label])


@dataclass(frozen=True)
class LabelModel:
    """What class probabilities say about noise in the labels.

    Args:
        kinds: The temperature and S of each channel that was tried.
        log_likelihood: Of all given labels under each of these, [kinds, rates], with the penalty of S.
        agreement: The part of the labels that the classifier predicts.
        total: How many labels there are.
        shares: The shares of the classes among them.
        step: One in how many labels the likelihood is of.
    """

    kinds: tuple[tuple[float, Array], ...]
    log_likelihood: Array
    agreement: float
    total: float
    shares: Array
    step: int

    @classmethod
    def fit(cls, label: Array, probability: Array, frequency: Array) -> LabelModel:
        """Compute the likelihood of each rate, temperature and S.

        Args:
            label: The label of each sample as a place among the classes, [n].
            probability: Class probabilities, out of fold, [n, classes].
            frequency: How many samples each stands for, [n].

        Example:
            >>> label = np.repeat([0, 1], 50)
            >>> sure = np.where(np.arange(100) < 40, 0, 1)  # Ten labels of class 0 look like class 1.
            >>> probability = np.where(np.eye(2)[sure] > 0, 0.99, 0.01)
            >>> model = LabelModel.fit(label, probability, np.ones(100))
            >>> clean = model.channel(noisy=True).clean(label, probability)
            >>> bool(clean[40:50].max() < 0.5 < 0.9 < clean[50:].min())
            True
        """
        log_p = _log(probability)
        n, classes = log_p.shape
        step = max(n // MOST, n * classes // MOST_NUMBERS, 1)
        some = label[::step], frequency[::step]
        shares = np.bincount(label, frequency, classes) / max(float(frequency.sum()), 1e-12)
        kinds, profiles = [], []
        for temperature in TEMPERATURES:
            p = tempered(log_p[::step], temperature, shares)
            for target, penalty in _targets(p, *some):
                kinds.append((temperature, target))
                profiles.append(_profile(p, target, *some) - penalty)
        total = float(frequency.sum())
        agreement = float(frequency @ (log_p.argmax(1) == label)) / max(total, 1e-12)
        return cls(tuple(kinds), np.array(profiles), agreement, total, shares, step)

    def evidence(self, noisy: bool) -> float:
        """Return the log-likelihood of rates above 5 %, or of those below, in the mean of all that is not known."""
        rates = ~SMALL if noisy else SMALL
        joint = self.log_likelihood[:, rates] + LOG_PRIOR[rates]
        return float(logsumexp(joint)) - math.log(len(self.kinds))

    def noise_probability(self, *without: LabelModel, prior: float | None = None) -> float:
        """Return the probability of more than 5 % noise.

        Args:
            without: The models of the same labels that may be right without noise; the likeliest counts.
            prior: What it is before anything is seen; ``PRIOR`` by default.

        Example:
            >>> label = np.repeat([0, 1], 50)
            >>> model = LabelModel.fit(label, np.where(np.eye(2)[label] > 0, 0.99, 0.01), np.ones(100))
            >>> model.noise_probability(model) < 0.01
            True
        """
        prior = PRIOR if prior is None else prior
        clean = max(model.evidence(noisy=False) for model in without)
        return float(expit(math.log(prior / (1 - prior)) + self.evidence(noisy=True) - clean))

    @property
    def skilled(self) -> bool:
        """Whether the classifier knows more about the labels than the shares of the classes."""
        shares = self.shares[self.shares > 0]
        without_skill = self.total * float(shares @ np.log(shares))
        gain = float(self.log_likelihood[:, SMALL].max()) * self.step - without_skill
        return gain > math.log(SURE / (1 - SURE))

    @property
    def is_clean(self) -> bool:
        """Whether no more than 5 % noise is likely, whatever the prior, by a skilled classifier."""
        return self.skilled and self.noise_probability(self, prior=0.5) <= 1 - SURE

    @property
    def capable(self) -> bool:
        """Whether the classifier predicts enough of the labels that are clean to be asked, and there are enough."""
        mean, deviation = self.rate(noisy=True)
        least = self.noise_probability(self) * (mean - 2 * deviation)
        return self.agreement >= CAPABLE * (1 - least) and self.total >= FEWEST

    def rate(self, noisy: bool) -> tuple[float, float]:
        """Return mean and standard deviation of the rate, given that it is above 5 %, or below."""
        joint = np.where(noisy != SMALL, self.log_likelihood + LOG_PRIOR, -np.inf)
        mass = np.exp(joint - logsumexp(joint)).sum(0)
        mean = float(mass @ RATES)
        return mean, math.sqrt(float(mass @ (RATES - mean) ** 2))

    def channel(self, noisy: bool) -> NoiseChannel:
        """Return the most likely channel, given that the rate is above 5 %, or below."""
        allowed = np.where(noisy != SMALL, self.log_likelihood, -np.inf)
        kind, rate = np.unravel_index(int(allowed.argmax()), allowed.shape)
        return NoiseChannel(*self.kinds[kind], float(RATES[rate]), self.shares)


def _log(probability: Array) -> Array:
    return np.asarray(np.log(np.clip(probability.astype(np.float64), 1e-12, 1.0)))


def tempered(log_p: Array, temperature: float, shares: Array) -> Array:
    """Return class probabilities to the power of a temperature; below 1 they approach the shares of the classes.

    A classifier that knows nothing is then as good as these shares, and what it does not know is not taken for noise.
    """
    power = temperature * log_p
    if temperature < 1:
        power = power + (1 - temperature) * _log(shares)
    return np.asarray(softmax(power, axis=1))


def _given(p: Array, target: Array, label: Array) -> tuple[Array, Array]:
    """Return the probability of each given label if it is clean, and if it is not."""
    return p[np.arange(len(label)), label], np.einsum("ik,ki->i", p, target[:, label]) + 1e-300


def _profile(p: Array, target: Array, label: Array, frequency: Array) -> Array:
    """Return the log-likelihood of the given labels at each rate of noise."""
    given, other = _given(p, target, label)
    return np.asarray(frequency @ np.log(np.outer(given, 1 - RATES) + np.outer(other, RATES)))


def _targets(p: Array, label: Array, frequency: Array) -> Iterator[tuple[Array, float]]:
    """Yield each S that is tried, where the noisy labels of each class go, and what it costs to choose it."""
    classes = p.shape[1]
    even = (1 - np.eye(classes)) / max(classes - 1, 1)
    yield even, 0.0
    if classes == 2:
        return
    counts = _confusions(p, even, label, frequency)
    noisy = counts.sum(1, keepdims=True)
    # A row of a free S has as many parameters as classes but two, as far as the pseudo-counts leave them free.
    free = (classes - 2) * float((noisy / (noisy + PSEUDO_COUNT)).sum())
    yield (counts + PSEUDO_COUNT * even) / (noisy + PSEUDO_COUNT), free
    single = np.eye(classes)[(counts + 1e-9 * even).argmax(1)]
    yield (1 - STRAY) * single + STRAY * even, classes * math.log(classes - 1)


def _confusions(p: Array, even: Array, label: Array, frequency: Array) -> Array:
    """Return how many labels of each class (rows) became each other one (columns), by expectation maximisation."""
    given = frequency[:, None] * np.eye(len(even))[label]
    target, rate, apart = even, 0.1, even > 0
    for _ in range(EM_STEPS):
        joint = p * ((1 - rate) * np.eye(len(even)) + rate * target)[:, label].T
        counts = ((joint / (joint.sum(1, keepdims=True) + 1e-300)).T @ given) * apart
        rate = counts.sum() / max(float(frequency.sum()), 1e-12)
        target = (counts + PSEUDO_COUNT * even) / (counts.sum(1, keepdims=True) + PSEUDO_COUNT)
    return np.asarray(counts)


def calibrating_factors(label: Array, probability: Array, frequency: Array) -> Array:
    """Return the factors of the classes with which the probabilities have the mean of the labels.

    A classifier with ``class_weight`` predicts some classes more often than they are there, which is no noise.

    Args:
        label: The label of each sample as a place among the classes, [n].
        probability: Class probabilities, [n, classes].
        frequency: How many samples each stands for, [n].

    Example:
        >>> probability = np.array([[0.5, 0.5], [0.5, 0.5], [0.5, 0.5], [0.5, 0.5]])
        >>> factors = calibrating_factors(np.array([0, 0, 0, 1]), probability, np.ones(4))
        >>> scaled(probability, factors)[0].round(2)
        array([0.75, 0.25])
    """
    wanted, factors = np.bincount(label, frequency, probability.shape[1]), np.ones(probability.shape[1])
    for _ in range(CALIBRATION_STEPS):
        factors = factors * wanted / np.maximum(frequency @ scaled(probability, factors), 1e-12)
    return np.asarray(factors)


def scaled(probability: Array, factors: Array) -> Array:
    """Return class probabilities, times a factor for each class, that add up to 1."""
    found = probability * factors
    return np.asarray(found / np.maximum(found.sum(1, keepdims=True), 1e-300))


def best_strength(unweighted: Array, reweighted: Array, truth: Array, frequency: Array) -> float:
    """Return how much of the weights lets a fit predict the true classes best, 0 to 1.

    Fits with a part of the weights are taken to lie between both in the logarithms of their probabilities.

    Args:
        unweighted: Out-of-fold probabilities of an unweighted fit, [n, classes].
        reweighted: The same of a fit with all of the weights.
        truth: The probability of each true class.
        frequency: How many samples each stands for, [n].

    Example:
        >>> truth = np.array([[0.9, 0.1], [0.1, 0.9]])
        >>> best_strength(np.full((2, 2), 0.5), np.array([[0.99, 0.01], [0.01, 0.99]]), truth, np.ones(2))
        0.5
    """
    begin, end = _log(unweighted), _log(reweighted)
    risks = [
        -float(frequency @ (truth * log_softmax((1 - part) * begin + part * end, axis=1)).sum(1))
        for part in STRENGTHS
    ]
    return float(STRENGTHS[int(np.argmin(risks))])


def keep_classes(weights: Array, label: Array, frequency: Array) -> Array:
    """Raise the weights of a class that would keep less than a stated share of its samples.

    Args:
        weights: The weight of each sample, [n].
        label: Its label as a place among the classes, [n].
        frequency: How many samples it stands for, [n].

    Example:
        >>> keep_classes(np.array([1.0, 0.8, 0.01, 0.03]), np.array([0, 0, 1, 1]), np.ones(4)).round(2)
        array([1. , 0.8, 0.1, 0.3])
    """
    held, counted = np.bincount(label, frequency * weights), np.bincount(label, frequency)
    return np.asarray(weights * class_factors(held, counted)[label])


def class_factors(held: Array, counted: Array) -> Array:
    """Return the factor by which the weights of each class are raised.

    Args:
        held: The sum of the weights of each class.
        counted: The number of its samples.
    """
    kept = held / np.maximum(counted, 1e-12)
    return np.maximum(1.0, SMALLEST_SHARE / np.maximum(kept, 1e-12))


def with_mean(clean: Array, frequency: Array, fraction: float) -> Array:
    """Shift the log odds of probabilities so that their mean is a given fraction.

    Example:
        >>> with_mean(np.array([0.9, 0.5, 0.1]), np.ones(3), 0.8).mean().round(3)
        np.float64(0.8)
    """
    return shifted(clean, shift_for_mean(clean, frequency, fraction))


def shift_for_mean(clean: Array, frequency: Array, fraction: float) -> float:
    """Return the shift of the log odds with which the mean of probabilities is a given fraction."""
    low, high = -60.0, 60.0
    for _ in range(60):
        shift = (low + high) / 2
        reached = frequency @ shifted(clean, shift) / frequency.sum() >= fraction
        low, high = (low, shift) if reached else (shift, high)
    return low


def shifted(clean: Array, shift: float) -> Array:
    """Return probabilities whose log odds are shifted."""
    odds = np.log(np.clip(clean, 1e-12, None)) - np.log(np.clip(1 - clean, 1e-12, None))
    return np.asarray(1 / (1 + np.exp(-odds - shift)))
