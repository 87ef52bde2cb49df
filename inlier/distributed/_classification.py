"""Logistic regression over partitions: Newton's method, a pass for each step.

Whether labels are noisy is decided on a subsample by :class:`inlier.sklearn.AdaptiveClassifier`. Then, with all rows:
an unweighted fit; if labels are noisy, one with less weight on those that it makes doubtful; and from both together the
weights of the last. Each row's weight follows from its own probabilities, and gradients and Hessians add up over
partitions. Probabilities are those of the fit itself: with as many rows they are hardly different from out of fold.

Each fit begins where the same fit to the subsample has ended, plus what all rows differed from it in the fit before: so
two passes are enough where a beginning at 0 takes six.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, Literal

import numpy as np
from scipy.special import expit, log_expit, softmax
from sklearn.base import clone

from inlier._errors import InputError
from inlier.distributed._partitions import Partition
from inlier.distributed._passes import Arrays, Passes
from inlier.distributed._plan import BLOCK, Plan
from inlier.distributed._regression import add
from inlier.distributed._score import Fitted, Scores
from inlier.distributed._survey import Summary, decisive_rows, fetch
from inlier.fit._columns import Array
from inlier.sklearn import AdaptiveClassifier
from inlier.sklearn._labels import (
    LabelModel,
    NoiseChannel,
    class_factors,
    shift_for_mean,
    shifted,
)

TOLERANCE, NEXT_TO_LAST = 1e-9, 1e-6
"""Newton's method ends when a step would lower the mean loss by less than the first. After one that lowers it by less
than the second, the next would lower it by about the square of that: it ends then too."""
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

    @property
    def classes(self) -> int:
        """The number of classes."""
        return max(len(self.coefficients), 2)

    def probability(self, x: Array) -> Array:
        """Return class probabilities, [n, classes]."""
        logits = self.coefficients[:, :-1] @ x.T + self.coefficients[:, -1:]
        if len(logits) > 1:
            return np.asarray(softmax(logits, axis=0)).T
        return np.asarray(expit(np.concatenate((-logits, logits)))).T


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

    def for_shares(self, held: Array, counted: Array) -> LabelWeights:
        """Return the same with the weights of each class raised as much as they have to be.

        Args:
            held: The weights of the rows of each class together, without any factor.
            counted: The number of these rows.
        """
        return replace(self, factors=class_factors(held, counted))

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


def newton_sums(at: Logits, x: Array, label: Array, weights: LabelWeights | None) -> Arrays:
    """Return what a step of Newton's method needs of some rows: sums, of which those of parts of the rows add up.

    Args:
        at: The coefficients.
        x: Inputs.
        label: Labels as places among the classes.
        weights: What weights each row; None for 1.

    Returns:
        Loss, gradient and Hessian; the weights of each class, and the number of its rows.
    """
    shape, n = at.coefficients.shape, len(label)
    weight = np.ones(n) if weights is None else weights(x, label)
    loss, gradient, hessian = 0.0, np.zeros(shape), np.zeros((*shape, *shape))
    for first in range(0, n, BLOCK):
        block = slice(first, first + BLOCK)
        w, y = weight[block], label[block]
        table = np.ones((shape[1], len(y)))  # Inputs and a one, column after column.
        table[:-1] = x[block].T
        logits, rows = at.coefficients @ table, np.arange(len(y))
        if shape[0] == 1:
            loss -= float(w @ log_expit(np.where(y == 1, logits[0], -logits[0])))
            p = expit(logits)
            error = p - y
        else:
            logits -= logits.max(0)
            p = np.exp(logits)
            total = p.sum(0)
            loss += float(w @ (np.log(total) - logits[y, rows]))
            p /= total
            error = p.copy()
            error[y, rows] -= 1
        gradient += (error * w) @ table.T
        for a in range(shape[0]):
            for b in range(a + 1):
                hessian[a, :, b] += (table * (w * p[a] * ((a == b) - p[b]))) @ table.T
    for a in range(shape[0]):
        for b in range(a):
            hessian[b, :, a] = hessian[a, :, b].T
    counted = np.bincount(label, minlength=at.classes).astype(np.float64)
    held = np.bincount(label, weight, at.classes)
    return {
        "loss": np.array(loss),
        "gradient": gradient,
        "hessian": hessian,
        "held": held,
        "counted": counted,
    }


@dataclass(frozen=True)
class Newton:
    """Adds up what a step of Newton's method needs.

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
        batches = self.plan.batches(partition)
        return reduce(add, (newton_sums(self.at, batch.x, batch.y, self.weights) for batch in batches))


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
        probability = self.weights.probability(x)
        return label_scores(self.plan, self.weights, probability, y, self.used, self.certain)


def label_scores(
    plan: Plan, weights: LabelWeights, probability: Array, label: Array, used: bool, certain: bool
) -> Scores:
    """Return the scores of rows from their class probabilities.

    Args:
        plan: What is read.
        weights: The probability that a label is clean, and the weight of a row.
        probability: Class probabilities.
        label: Labels as places among the classes.
        used: Whether the last fit has these weights.
        certain: Whether all labels are given to be clean.
    """
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
    part = fetch(passes, plan, summary, decisive_rows("classification", summary.n, seed))
    fraction: float | Literal["auto"] = "auto" if share is None else share
    small = AdaptiveClassifier(base, inlier_fraction=fraction, random_state=seed).fit(
        part["x"], part["y"].astype(object)
    )
    used = bool((small.weights_ != 1).any())
    likely = small.noise_probability_, small.strength_
    fits = LogisticFits(passes, plan, base, summary.n, part["x"], plan.target.codes(part["y"]))
    final = one = fits.fit("unweighted")
    weights = fits.weights((one,), share, (1.0, 1.0) if used else likely)
    if used:
        two, _ = fits.fit_weighted("doubtful", weights)
        final, weights = fits.fit_weighted("final", fits.weights((one, two), share, likely))
    scorer = LabelScorer(plan, weights, used, fraction == 1)
    return Fitted(_model(base, final, plan.target.classes), small.fraction_estimate_, scorer, 3)


@dataclass
class LogisticFits:
    """Fits to all rows, one after the other.

    Args:
        passes: Passes over the partitions.
        plan: What is read.
        base: The unfitted estimator.
        n: How many rows have a target.
        x: Inputs of a subsample.
        label: Its labels as places among the classes.
        begin: Coefficients of the last fit to the subsample.
        gap: What those of all rows differed from these by.
    """

    passes: Passes
    plan: Plan
    base: Any
    n: int
    x: Array
    label: Array
    begin: Array = field(init=False)
    gap: Array = field(init=False)

    def __post_init__(self) -> None:
        classes = len(self.plan.target.classes)
        self.begin = np.zeros((1 if classes == 2 else classes, self.x.shape[1] + 1))
        self.gap = np.zeros_like(self.begin)

    def weights(
        self, fits: tuple[Logits, ...], share: float | None, likely: tuple[float, float]
    ) -> LabelWeights:
        """Fit the noise to the subsample, which also says for now how much of each class is left."""
        probability = mean_probability(fits, self.x)
        classes = probability.shape[1]
        weights = LabelWeights.of(fits, self.label, probability, share, likely)
        held = np.bincount(self.label, weights.weights(probability, self.label), classes)
        return weights.for_shares(held, np.bincount(self.label, minlength=classes))

    def fit(self, name: str, weights: LabelWeights | None = None) -> Logits:
        """Return the fit with these weights."""
        small = self._of_subsample(weights)
        final = self._minimize(small + self.gap, lambda at, step: self._pass(f"{name}-{step}", at, weights))
        self.begin, self.gap = small, final - small
        return Logits(final)

    def fit_weighted(self, name: str, weights: LabelWeights) -> tuple[Logits, LabelWeights]:
        """Return the fit with these weights, and the weights with the share of each class that all rows say is left."""
        # The first pass of the fit, which tells that too; usually it is what the subsample has said.
        found = self._pass(f"{name}-0", self._of_subsample(weights) + self.gap, weights)
        settled = weights.for_shares(found["held"] / weights.factors, found["counted"])
        if not np.allclose(settled.factors, weights.factors, rtol=1e-9):
            return self.fit(f"{name}-again", settled), settled
        return self.fit(name, weights), weights

    def _of_subsample(self, weights: LabelWeights | None) -> Array:
        """Return the fit to the subsample, as if there were as many rows as there are."""
        if len(np.unique(self.label)) < len(self.plan.target.classes):
            return self.begin  # The intercept of the class that it lacks would have no end.

        def sums(at: Array, _: int) -> Arrays:
            found = newton_sums(Logits(at), self.x, self.label, weights)
            return {key: values * (self.n / len(self.label)) for key, values in found.items()}

        return self._minimize(self.begin, sums)

    def _pass(self, name: str, at: Array, weights: LabelWeights | None) -> Arrays:
        words = f"fitting, {name.split('-')[0]}"
        return self.passes.arrays(name, Newton(self.plan, Logits(at), weights), add, words)

    def _minimize(self, at: Array, sums: Callable[[Array, int], Arrays]) -> Array:
        """Minimise the penalised loss by Newton's method; a step that raises it is halved."""
        penalty, step, best = 1 / self.base.C, np.zeros_like(at), np.inf
        for number in range(MOST_STEPS):
            found = sums(at, number)
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
            gain = -float(step.ravel() @ gradient.ravel()) / self.n
            if gain < TOLERANCE:
                break
            at = at + step
            if gain < NEXT_TO_LAST:
                break
        return at


def _model(base: Any, fit: Logits, classes: tuple[str, ...]) -> Any:
    """Return the fitted estimator with these coefficients."""
    model = clone(base)
    model.coef_, model.intercept_ = fit.coefficients[:, :-1].copy(), fit.coefficients[:, -1].copy()
    model.classes_, model.n_features_in_ = np.array(classes, dtype=object), model.coef_.shape[1]
    return model
