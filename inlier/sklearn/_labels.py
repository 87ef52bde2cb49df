"""Label noise around the probabilities of any classifier.

A label is that of the true class k with probability ``1 - rho``, and else another one, drawn from ``S[k]``; the true
class follows the classifier's probabilities p(x), calibrated by a temperature. So

    q(y | x) = (1 - rho) p_y(x) + rho sum_k p_k(x) S[k, y],        P(clean | x, y) = (1 - rho) p_y(x) / q(y | x).

All is fitted to out-of-fold probabilities by maximum likelihood. S is even at first; with more than two classes it is
fitted too, since people and machines confuse similar classes, and kept if it explains more than its parameters do by
chance (Akaike's criterion). Labels are called clean only if they are so with S as fitted, kept or not.

A classifier is unsure of some labels, and wrong about some of which it is sure, without any noise. What tells noise
from that is a level of disagreement that no confidence gets below. The likelihood ratio says which rates that leaves
possible: labels are noisy if all of these are above 5 %, and clean if all are below.

Reference: B. Frénay, M. Verleysen (2014), Classification in the presence of label noise: a survey; A. P. Dempster,
N. M. Laird, D. B. Rubin (1977), Maximum likelihood from incomplete data via the EM algorithm.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import softmax

from inlier.fraction._label_noise import FEWEST, NEGLIGIBLE
from inlier.sklearn._learners import Array

REJECTED = 1.35
"""Rates whose log-likelihood is so much below the largest are ruled out: a one-sided test with an error of 5 %;
`python -m benchmarks.regressor_constants`."""
CAPABLE = 0.65
"""... and nothing is claimed if the classifier predicts less than this part of the labels that would be clean."""
TEMPERATURES = (0.25, 0.35, 0.5, 0.7, 0.85, 1.0, 1.2, 1.5, 2.0, 3.0, 4.0)
SMALL_RATES = (1e-4, 0.0025, 0.005, 0.01, 0.015, 0.02, 0.03, 0.04, NEGLIGIBLE)
RATES = np.array(
    (*SMALL_RATES, 0.06, 0.07, 0.08, 0.1, 0.12, 0.15, 0.18, 0.21, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5)
)
"""Values of rho that are tried."""
PSEUDO_COUNT = 1.0
"""One label, evenly spread, is added to the noisy ones of each class when S is fitted (Laplace)."""
EM_STEPS = 20
SMALLEST_SHARE = 0.2
"""No class keeps less than this share of its weight."""
MOST, MOST_NUMBERS = 20_000, 2_000_000
"""So many rows, and so many probabilities, are enough to fit the noise."""


@dataclass(frozen=True)
class NoiseChannel:
    """What happens to a label on its way into the data.

    Args:
        temperature: The power of the probabilities that calibrates them.
        rate: rho.
        target: S, [classes, classes].
    """

    temperature: float
    rate: float
    target: Array

    def clean(self, label: Array, probability: Array) -> Array:
        """Return the probability that each label is clean.

        Args:
            label: The label of each sample as a place among the classes, [n].
            probability: Class probabilities, [n, classes].

        Example:
            >>> channel = NoiseChannel(1.0, 0.2, np.array([[0.0, 1.0], [1.0, 0.0]]))
            >>> channel.clean(np.array([0, 1]), np.array([[0.9, 0.1], [0.9, 0.1]])).round(2)
            array([0.97, 0.31])
        """
        p = softmax(self.temperature * _log(probability), axis=1)
        given, other = _given(p, self.target, label)
        return np.asarray((1 - self.rate) * given / ((1 - self.rate) * given + self.rate * other))


@dataclass(frozen=True)
class LabelModel:
    """Noise and temperature around class probabilities.

    Args:
        log_likelihood: Of all given labels, at each of ``RATES``, whatever else is fitted at its best.
        unpenalized: The same without a penalty for the parameters of S.
        agreement: The part of the labels that the classifier predicts.
        total: How many labels there are.
        clean: The probability that each label is clean.
        channel: The most likely noise.
    """

    log_likelihood: Array
    unpenalized: Array
    agreement: float
    total: float
    clean: Array
    channel: NoiseChannel

    @classmethod
    def fit(cls, label: Array, probability: Array, frequency: Array) -> LabelModel:
        """Fit noise and temperature to out-of-fold probabilities.

        Args:
            label: The label of each sample as a place among the classes, [n].
            probability: Class probabilities, [n, classes].
            frequency: How many samples each stands for, [n].

        Example:
            >>> label = np.repeat([0, 1], 50)
            >>> sure = np.where(np.arange(100) < 40, 0, 1)  # Ten labels of class 0 look like class 1.
            >>> model = LabelModel.fit(label, np.where(np.eye(2)[sure] > 0, 0.99, 0.01), np.ones(100))
            >>> bool(model.clean[40:50].max() < 0.5 < 0.9 < model.clean[50:].min())
            True
        """
        log_p = _log(probability)
        n, classes = log_p.shape
        step = max(n // MOST, n * classes // MOST_NUMBERS, 1)
        some = label[::step], frequency[::step]
        even = (1 - np.eye(classes)) / max(classes - 1, 1)
        tried = []
        for temperature in TEMPERATURES:
            p = softmax(temperature * log_p[::step], axis=1)
            tried.append((_profile(p, even, *some), 0.0, temperature, even))
            if classes > 2:
                target, parameters = _confusion(p, even, *some)
                tried.append((_profile(p, target, *some), parameters, temperature, target))
        best, _, temperature, target = max(tried, key=lambda one: float(one[0].max()) - one[1])
        channel = NoiseChannel(temperature, float(RATES[best.argmax()]), target)
        agreement = float(frequency @ (log_p.argmax(1) == label)) / max(float(frequency.sum()), 1e-12)
        return cls(
            np.max([profile - parameters for profile, parameters, _, _ in tried], axis=0),
            np.max([profile for profile, *_ in tried], axis=0),
            agreement,
            float(frequency.sum()),
            channel.clean(label, probability),
            channel,
        )

    @property
    def possible(self) -> Array:
        """The rates that the likelihood does not rule out."""
        return _possible(self.log_likelihood)

    @property
    def most(self) -> float:
        """The largest rate that is not ruled out, whatever S is."""
        return float(_possible(self.unpenalized).max())

    @property
    def capable(self) -> bool:
        """Whether the classifier predicts enough of the labels that are clean to be asked, and there are enough."""
        rate = RATES[self.log_likelihood.argmax()]
        return bool(self.agreement >= CAPABLE * (1 - rate)) and self.total >= FEWEST

    def likelier_than(self, other: LabelModel) -> bool:
        """Whether another model of the same labels is ruled out by this one."""
        return bool(self.log_likelihood.max() > other.log_likelihood.max() + REJECTED)

    @property
    def is_noisy(self) -> bool:
        """Whether labels are noisy beyond reasonable doubt."""
        return self.capable and bool(self.possible.min() > NEGLIGIBLE)

    @property
    def is_clean(self) -> bool:
        """Whether there is no noise that matters, beyond reasonable doubt."""
        return self.capable and self.most <= NEGLIGIBLE


def _possible(log_likelihood: Array) -> Array:
    """Return the rates that are not ruled out."""
    return np.asarray(RATES[log_likelihood > log_likelihood.max() - REJECTED])


def _log(probability: Array) -> Array:
    return np.asarray(np.log(np.clip(probability.astype(np.float64), 1e-12, 1.0)))


def _given(p: Array, target: Array, label: Array) -> tuple[Array, Array]:
    """Return the probability of each given label if it is clean, and if it is not."""
    return p[np.arange(len(label)), label], np.einsum("ik,ki->i", p, target[:, label]) + 1e-300


def _profile(p: Array, target: Array, label: Array, frequency: Array) -> Array:
    """Return the log-likelihood of the given labels at each rate of noise."""
    given, other = _given(p, target, label)
    return np.asarray(frequency @ np.log(np.outer(given, 1 - RATES) + np.outer(other, RATES)))


def _confusion(p: Array, even: Array, label: Array, frequency: Array) -> tuple[Array, float]:
    """Fit S, where the noisy labels of each class go; return it, and how many parameters that takes."""
    given = frequency[:, None] * np.eye(len(even))[label]
    target, rate, apart = even, 0.1, even > 0
    for _ in range(EM_STEPS):
        joint = p * ((1 - rate) * np.eye(len(even)) + rate * target)[:, label].T
        counts = ((joint / (joint.sum(1, keepdims=True) + 1e-300)).T @ given) * apart
        rate, noisy = counts.sum() / max(float(frequency.sum()), 1e-12), counts.sum(1, keepdims=True)
        target = (counts + PSEUDO_COUNT * even) / (noisy + PSEUDO_COUNT)
    # A row of S has as many free parameters as classes but two, as far as the pseudo-counts leave them free.
    return target, (len(even) - 2) * float((noisy / (noisy + PSEUDO_COUNT)).sum())


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


def fraction_of(model: LabelModel, frequency: Array) -> tuple[float, float]:
    """Return the fraction of clean labels, and its standard error.

    Example:
        >>> profile = np.where(np.abs(RATES - 0.2) < 0.04, 0.0, -9.0)
        >>> channel = NoiseChannel(1.0, 0.2, np.array([[0.0, 1.0], [1.0, 0.0]]))
        >>> model = LabelModel(profile, profile, 0.7, 100, np.full(100, 0.8), channel)
        >>> value, error = fraction_of(model, np.ones(100))
        >>> round(value, 2), round(error, 2)
        (0.8, 0.04)
    """
    total = float(frequency.sum())
    counted = math.sqrt(float(frequency @ (model.clean * (1 - model.clean)))) / total
    width = float(np.ptp(model.possible)) / (2 * math.sqrt(2 * REJECTED))
    return float(frequency @ model.clean) / total, max(counted, width)


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
