"""Logistic regression over partitions: Newton's method, a pass for each step.

Whether labels are noisy is decided on a subsample by :class:`inlier.sklearn.AdaptiveClassifier`. Then, with all rows:
an unweighted fit; if labels are noisy, one with less weight on those that it makes doubtful; and from both together the
weights of the last. Each row's weight follows from its own probabilities, and gradients and Hessians add up over
partitions. Probabilities are those of the fit itself: with as many rows they are hardly different from out of fold.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from scipy.special import logsumexp, softmax
from sklearn.base import clone

from inlier._errors import InputError
from inlier.distributed._partitions import Partition
from inlier.distributed._passes import Arrays, Passes
from inlier.distributed._plan import Plan
from inlier.distributed._regression import add
from inlier.distributed._score import Fitted, Scores
from inlier.distributed._survey import Fetch, Summary, draw, join
from inlier.fit._columns import Array
from inlier.sklearn import AdaptiveClassifier
from inlier.sklearn._labels import (
    LabelModel,
    NoiseChannel,
    class_factors,
    shift_for_mean,
    shifted,
)

SUBSAMPLE = 20_000
"""Rows that decisions about labels are made on: as many as their noise is fitted to in memory."""
TOLERANCE = 1e-9
"""Newton's method ends when a step would lower the mean loss by less than this."""
MOST_STEPS = 25
MOST_UNKNOWNS = 2000
"""The Hessian of more coefficients than this takes too long."""


@dataclass(frozen=True)
class Logits:
    """A linear model of the classes.

    Args:
        coefficients: Of each class, the last for the intercept, [classes, inputs + 1]; of two classes only the second.
    """

    coefficients: Array

    def __call__(self, x: Array) -> Array:
        """Return the logit of each class, [n, classes]."""
        logits = x @ self.coefficients[:, :-1].T + self.coefficients[:, -1]
        return logits if len(self.coefficients) > 1 else np.hstack((np.zeros_like(logits), logits))

    def probability(self, x: Array) -> Array:
        """Return class probabilities, [n, classes]."""
        return np.asarray(softmax(self(x), axis=1))


def mean_probability(fits: tuple[Logits, ...], x: Array) -> Array:
    """Return the class probabilities of several fits, averaged."""
    return np.asarray(np.mean([fit.probability(x) for fit in fits], axis=0))


@dataclass(frozen=True)
class LabelWeights:
    """The probability that a label is clean, and its weight, from the probabilities of one or several fits.

    Args:
        fits: The fits, whose probabilities are averaged.
        if_clean: What happens to labels if at most 5 % are noisy.
        if_noisy: What happens to them if more are.
        noise: The probability that more are.
        strength: How much of the weights is used.
        factors: By which the weights of each class are raised.
        shift: Of the log odds, where the share of clean labels is given.
    """

    fits: tuple[Logits, ...]
    if_clean: NoiseChannel
    if_noisy: NoiseChannel
    noise: float
    strength: float
    factors: Array
    shift: float = 0.0

    @classmethod
    def of(
        cls,
        fits: tuple[Logits, ...],
        label: Array,
        probability: Array,
        share: float | None,
        likely: tuple[float, float],
    ) -> LabelWeights:
        """Fit the noise to some rows.

        Args:
            fits: The fits.
            label: The label of each row as a place among the classes.
            probability: Its class probabilities by the fits.
            share: The share of clean labels, if it is given.
            likely: The probability of noise, and how much of the weights is used.
        """
        ones = np.ones(len(label))
        model = LabelModel.fit(label, probability, ones)
        if_noisy = model.channel(noisy=True)
        shift = 0.0
        if share is not None and share < 1:
            shift = shift_for_mean(if_noisy.clean(label, probability), ones, share)
        return cls(fits, model.channel(noisy=False), if_noisy, *likely, np.ones(probability.shape[1]), shift)

    def probability(self, x: Array) -> Array:
        """Return the class probabilities of the fits, averaged."""
        return mean_probability(self.fits, x)

    def clean(self, probability: Array, label: Array) -> Array:
        """Return the probability that each label is clean."""
        found = (1 - self.noise) * self.if_clean.clean(label, probability) if self.noise < 1 else 0.0
        return np.asarray(found + self.noise * self._clean_if_noisy(probability, label))

    def weights(self, probability: Array, label: Array) -> Array:
        """Return the weight of each row: all of it if labels are clean but for 5 %."""
        doubted = self.strength * (1 - self._clean_if_noisy(probability, label))
        return np.asarray((1 - doubted) * self.factors[label])

    def _clean_if_noisy(self, probability: Array, label: Array) -> Array:
        clean = self.if_noisy.clean(label, probability)
        return shifted(clean, self.shift) if self.shift else clean

    def __call__(self, x: Array, label: Array) -> Array:
        """Return the weight of each row."""
        return self.weights(self.probability(x), label)


@dataclass(frozen=True)
class Newton:
    """Adds up loss, gradient and Hessian.

    Args:
        plan: What is read.
        at: The coefficients.
        weights: What weights each row; None for 1.
    """

    plan: Plan
    at: Logits
    weights: LabelWeights | None

    def __call__(self, partition: Partition) -> Arrays:
        """Return the sums of a partition."""
        shape = self.at.coefficients.shape
        loss, gradient, hessian = 0.0, np.zeros(shape), np.zeros((*shape, *shape))
        for batch in self.plan.batches(partition):
            label = self.plan.target.codes(batch.y)
            weights = np.ones(len(label)) if self.weights is None else self.weights(batch.x, label)
            logits = self.at(batch.x)
            total = logsumexp(logits, axis=1)
            loss += float(weights @ (total - logits[np.arange(len(label)), label]))
            p = np.exp(logits - total[:, None])
            error = p.copy()
            error[np.arange(len(label)), label] -= 1
            first = p.shape[1] - shape[0]  # Of two classes only the second has coefficients.
            x = np.hstack((batch.x, np.ones((len(label), 1))))
            gradient += (error[:, first:] * weights[:, None]).T @ x
            for a in range(shape[0]):
                for b in range(a + 1):
                    curve = weights * p[:, first + a] * ((a == b) - p[:, first + b])
                    hessian[a, :, b] += x.T @ (x * curve[:, None])
        for a in range(shape[0]):
            for b in range(a):
                hessian[b, :, a] = hessian[a, :, b].T
        return {"loss": np.array(loss), "gradient": gradient, "hessian": hessian}


@dataclass(frozen=True)
class ClassShares:
    """Adds up the weights of each class.

    Args:
        plan: What is read.
        weights: What weights each row.
    """

    plan: Plan
    weights: LabelWeights

    def __call__(self, partition: Partition) -> Arrays:
        """Return the sums of a partition, and the number of rows of each class."""
        classes = len(self.plan.target.classes)
        held, counted = np.zeros(classes), np.zeros(classes)
        for batch in self.plan.batches(partition):
            label = self.plan.target.codes(batch.y)
            held += np.bincount(label, self.weights(batch.x, label), classes)
            counted += np.bincount(label, minlength=classes)
        return {"held": held, "counted": counted}


@dataclass(frozen=True)
class LabelScorer:
    """Scores rows by the probability of their labels.

    Args:
        plan: What is read.
        weights: The probability that a label is clean, and the weight of a row.
        used: Whether the last fit has these weights.
        certain: Whether all labels are given to be clean.
    """

    plan: Plan
    weights: LabelWeights
    used: bool
    certain: bool

    def __call__(self, x: Array, y: Array, start: int, places: Array) -> Scores:
        """Return the scores of some rows."""
        return label_scores(self.plan, self.weights, self.weights.probability(x), y, self.used, self.certain)


def label_scores(
    plan: Plan, weights: LabelWeights, probability: Array, y: Array, used: bool, certain: bool
) -> Scores:
    """Return the scores of rows from their class probabilities.

    Args:
        plan: What is read.
        weights: The probability that a label is clean, and the weight of a row.
        probability: Class probabilities.
        y: Labels.
        used: Whether the last fit has these weights.
        certain: Whether all labels are given to be clean.
    """
    label = plan.target.codes(y)
    given = np.clip(probability[np.arange(len(label)), label], 1e-15, 1.0)
    clean = np.ones(len(label)) if certain else weights.clean(probability, label)
    counted = weights.weights(probability, label) if used else np.ones(len(label))
    suggested = np.array(plan.target.classes, dtype=object)[probability.argmax(1)]
    return Scores(clean, -np.log(given), counted, suggested)


def fit_classification(
    passes: Passes, plan: Plan, summary: Summary, base: Any, share: float | None, seed: int, sample: Array
) -> Fitted:
    """Fit a logistic regression to more rows than fit in memory.

    Args:
        passes: Passes over the partitions.
        plan: What is read; its target has all classes.
        summary: What is known of all rows.
        base: The unfitted estimator.
        share: The share of clean labels, if it is given.
        seed: Draws the subsample.
        sample: Inputs of a sample.

    Raises:
        InputError: If there are too many coefficients.
    """
    classes, inputs = len(plan.target.classes), sample.shape[1]
    rows = 1 if classes == 2 else classes
    if rows * (inputs + 1) > MOST_UNKNOWNS:
        raise InputError(
            f"{classes:,} classes and {inputs:,} inputs are {rows * (inputs + 1):,} coefficients; in passes the limit "
            f"is {MOST_UNKNOWNS:,}: leave out columns with --drop"
        )
    fetch = Fetch(plan, draw(summary.n, SUBSAMPLE, seed), summary.starts())
    part = passes.arrays("subsample", fetch, join, "drawing rows")
    x, label = part["x"], plan.target.codes(part["y"])
    fraction: float | Literal["auto"] = "auto" if share is None else share
    small = AdaptiveClassifier(base, inlier_fraction=fraction, random_state=seed).fit(
        x, part["y"].astype(object)
    )
    begin = Logits(np.zeros((rows, inputs + 1)))
    one = _minimize(passes, plan, base, begin, None, "unweighted")
    used = bool((small.weights_ != 1).any())
    likely = small.noise_probability_, small.strength_
    weights = _weights(passes, plan, (one,), x, label, share, (1.0, 1.0) if used else likely)
    final = one
    if used:
        two = _minimize(passes, plan, base, one, weights, "doubtful")
        weights = _weights(passes, plan, (one, two), x, label, share, likely)
        final = _minimize(passes, plan, base, two, weights, "final")
    scorer = LabelScorer(plan, weights, used, fraction == 1)
    return Fitted(_model(base, final, plan.target.classes), small.fraction_estimate_, scorer, 3)


def _weights(
    passes: Passes,
    plan: Plan,
    fits: tuple[Logits, ...],
    x: Array,
    label: Array,
    share: float | None,
    likely: tuple[float, float],
) -> LabelWeights:
    """Fit the noise to a subsample, and see how much of each class is left in all rows."""
    weights = LabelWeights.of(fits, label, mean_probability(fits, x), share, likely)
    sums = passes.arrays(f"classes-{len(fits)}", ClassShares(plan, weights), add, "weighing the classes")
    return replace(weights, factors=class_factors(sums["held"], sums["counted"]))


def _minimize(
    passes: Passes, plan: Plan, base: Any, begin: Logits, weights: LabelWeights | None, name: str
) -> Logits:
    """Minimise the penalised loss by Newton's method; a step that raises it is halved."""
    at, penalty, n = begin.coefficients, 1 / base.C, sum(partition.rows for partition in passes.partitions)
    step, best = np.zeros_like(at), np.inf
    for number in range(MOST_STEPS):
        found = passes.arrays(f"{name}-{number}", Newton(plan, Logits(at), weights), add, f"fitting, {name}")
        value = float(found["loss"]) + penalty / 2 * float((at[:, :-1] ** 2).sum())
        if value > best * (1 + 1e-12):
            step = step / 2
            at = at - step
            continue
        best = value
        gradient, hessian = found["gradient"], found["hessian"].reshape(at.size, at.size).copy()
        gradient[:, :-1] += penalty * at[:, :-1]
        penalized = np.tile(np.arange(at.shape[1]) < at.shape[1] - 1, at.shape[0])
        hessian[penalized, penalized] += penalty
        # A constant added to the intercepts of all classes changes nothing: the smallest step is taken.
        step = -np.linalg.lstsq(hessian, gradient.ravel(), rcond=1e-12)[0].reshape(at.shape)
        if -float(step.ravel() @ gradient.ravel()) < TOLERANCE * n:
            break
        at = at + step
    return Logits(at)


def _model(base: Any, fit: Logits, classes: tuple[str, ...]) -> Any:
    """Return the fitted estimator with these coefficients."""
    model = clone(base)
    model.coef_, model.intercept_ = fit.coefficients[:, :-1].copy(), fit.coefficients[:, -1].copy()
    model.classes_, model.n_features_in_ = np.array(classes, dtype=object), model.coef_.shape[1]
    return model
