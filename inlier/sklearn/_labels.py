"""Label noise around the probabilities of any classifier.

A label is that of the true class with probability ``1 - eps``, and else any of K classes; the true class follows the
classifier's probabilities p(x), calibrated by a temperature. So

    q(y | x) = (1 - eps) p_y(x) + eps / K,        P(clean | x, y) = (1 - eps + eps / K) p_y(x) / q(y | x).

Both parameters are fitted to out-of-fold probabilities by maximum likelihood. Whether a classifier that was spared the
doubtful labels is better than one that learned all of them is then read from q at the *given* labels, all of them, with
both parameters fitted for each: nothing that was cut is left out of the comparison, and calibration does not decide it.

Reference: B. Frénay, M. Verleysen (2014), Classification in the presence of label noise: a survey.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from inlier.sklearn._learners import Array

TRUSTED = 2.0
"""The gain in held-out log-likelihood, in its standard errors, above which noisy labels are a fact;
`python -m benchmarks.regressor_constants`."""
SUSPECTED = 1.5
"""Above this the weights are better than none, if not beyond doubt."""
TEMPERATURES = (0.25, 0.35, 0.5, 0.7, 0.85, 1.0, 1.2, 1.5, 2.0)
RATES = (1e-4, 0.01, 0.02, 0.04, 0.07, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.75)
"""Values of eps that are tried."""
SMALLEST_SHARE = 0.2
"""No class keeps less than this share of its weight."""
MOST = 20_000
"""So many rows are enough to fit the noise."""


@dataclass(frozen=True)
class LabelModel:
    """Noise and temperature around class probabilities.

    Args:
        log_likelihood: ``log q(y | x)`` of each given label.
        clean: The probability that each label is clean.
        temperature: The power of the probabilities that calibrates them.
        rate: eps.
    """

    log_likelihood: Array
    clean: Array
    temperature: float
    rate: float

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
        log_p, classes = np.log(np.clip(probability, 1e-12, 1.0)), probability.shape[1]
        step, rates = max(len(label) // MOST, 1), np.array(RATES)
        best = (-math.inf, 1.0, 0.0)
        for temperature in TEMPERATURES:
            p = _given(log_p[::step], label[::step], temperature)
            likelihoods = frequency[::step] @ np.log(np.outer(p, 1 - rates) + rates / classes)
            place = int(likelihoods.argmax())
            best = max(best, (float(likelihoods[place]), temperature, float(rates[place])))
        return cls.at(label, probability, best[1], best[2])

    @classmethod
    def at(cls, label: Array, probability: Array, temperature: float, rate: float) -> LabelModel:
        """Return the same for other rows, with noise and temperature as they were fitted.

        Args:
            label: The label of each sample as a place among the classes, [n].
            probability: Class probabilities, [n, classes].
            temperature: The power of the probabilities.
            rate: eps.
        """
        log_p, chance = np.log(np.clip(probability, 1e-12, 1.0)), rate / probability.shape[1]
        p = _given(log_p, label, temperature)
        total = (1 - rate) * p + chance
        return cls(np.log(total), (1 - rate + chance) * p / total, temperature, rate)


def _given(log_p: Array, label: Array, temperature: float) -> Array:
    """Return the calibrated probability of the given label."""
    scaled = temperature * log_p
    top = scaled.max(1)
    chosen = scaled[np.arange(len(label)), label]
    return np.asarray(np.exp(chosen - top) / np.exp(scaled - top[:, None]).sum(1))


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


def gain_score(better: LabelModel, baseline: LabelModel, frequency: Array) -> float:
    """Return the gain in log-likelihood of the given labels, in its standard errors."""
    gains = frequency * (better.log_likelihood - baseline.log_likelihood)
    return float(gains.sum() / math.sqrt(float((gains**2).sum()) + 1e-12))


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
