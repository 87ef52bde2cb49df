"""Boosting over partitions: XGBoost on all workers together, with other weights in each round.

Each worker reads its partitions once and keeps a byte a cell. The rounds are those of :mod:`inlier.sklearn` for
learners that may memorise their rows:

1. Out of fold, with bounded influence (regression) or unweighted (classes): what do the errors of some of the rows say?
2. If noise is suspected: out of fold once more, with the weights that follow from each row's own error.
3. The last fit, to all rows, with the weights of the last round.

Unlike there, influences are bounded only if outliers are suspected: no unweighted fit is made to compare with.

A fold is left out by weights of 0, so nothing is read or binned again. Finished fits are files in the work folder.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np
from scipy.special import expit, softmax

from inlier.distributed._boosting_worker import FOLDS, OutOfFold, Setting, Worker
from inlier.distributed._classification import LabelWeights, label_scores
from inlier.distributed._passes import Arrays, Passes
from inlier.distributed._plan import Plan
from inlier.distributed._regression import probability_and_weights
from inlier.distributed._score import Fitted, Scorer, Scores
from inlier.distributed._survey import Summary, decisive_rows, fetch
from inlier.distributed._teams import Member
from inlier.distributed._xgboost import Bins, Booster, allreduce, merged_limit, xgboost
from inlier.fit._columns import Array
from inlier.fit._trees import BoostedClassifier, BoostedRegressor
from inlier.fraction import GivenFraction
from inlier.sklearn import AdaptiveClassifier
from inlier.sklearn._extension import Kind, Weighting
from inlier.sklearn._labels import class_factors
from inlier.sklearn._regressor import estimate_of
from inlier.sklearn._residuals import Evidence, examine

ROUNDS = ("first", "second")
ROBUST_ENOUGH = 0.8
"""With more inliers, proven by the first round, there is no second one."""


def evidence_of(rounds: list[Arrays], share: float | None) -> Evidence:
    """Return what the errors of the chosen rows say, round after round."""
    evidence: Evidence | None = None
    for each in rounds:
        errors = each["y"] - each["predictions"]
        evidence = examine(errors, each["predictions"], each["y"], np.ones(len(errors)), share, evidence)
    assert evidence is not None
    return evidence


@dataclass(frozen=True)
class BoostRegression:
    """The rounds of a regression on one worker."""

    setting: Setting

    def __call__(self, member: Member) -> None:
        """Run them; finished fits are files then."""
        worker, share = Worker(self.setting, member), self.setting.share
        weights = np.ones(len(worker.y))
        if share != 1:
            rounds: list[Arrays] = []
            for name in ROUNDS:
                predictions = worker.out_of_fold(name, weights, True)
                errors = worker.y - predictions
                found = worker.gather(y=worker.y, predictions=predictions)
                rounds.append(found | {"limit": np.array(merged_limit(errors, weights))})
                worker.keep(name, rounds[-1])
                weighting = worker.agree(lambda: weighting_of(rounds, share))
                evidence = weighting.evidence
                settled = evidence.trusted and evidence.share > ROBUST_ENOUGH
                if name == ROUNDS[0] and not settled and (evidence.suspected or share is not None):
                    weights = evidence.probability(errors, predictions)
                else:
                    weights = weighting(errors, predictions)
                    break
        worker.fit("final", weights, False)


def weighting_of(rounds: list[Arrays], share: float | None) -> Weighting:
    """Return the weights that the rounds so far call for."""
    evidence = evidence_of(rounds, share)
    kind: Kind = "equal"
    if share is not None or evidence.trusted:
        kind = "probability"
    elif evidence.suspected:
        kind = "bounded"
    return Weighting(kind, evidence, float(rounds[-1]["limit"]))


@dataclass(frozen=True)
class BoostedErrorScorer(Scorer):
    """Scores rows by their errors out of fold.

    Args:
        setting: What all workers know.
        out_of_fold: The fits of the last round; those of the final fit if all rows are given to be inliers.
        weighting: The weights of its errors; None if all rows are inliers.
        final: The final fit.
    """

    setting: Setting
    out_of_fold: OutOfFold
    weighting: Weighting | None
    final: Booster

    def __call__(self, x: Array, y: Array, start: int, places: Array) -> Scores:
        """Return the scores of some rows."""
        setting, codes = self.setting, self.setting.bins.codes(x)
        suggested = self.final.margins(codes)
        if self.weighting is None:
            probability = weights = np.ones(len(y))
            errors = setting.target(y) - suggested
        else:
            predictions = self.out_of_fold(codes, places)[-1]
            errors = setting.target(y) - predictions
            probability, weights = probability_and_weights(self.weighting, errors, predictions)
        losses = (errors * setting.unit) ** 2
        return Scores(probability, losses, weights, suggested * setting.unit + setting.center)


def class_probabilities(margins: Array) -> Array:
    """Return class probabilities from sums of trees."""
    if margins.ndim == 2:
        return np.asarray(softmax(margins, axis=1))
    up = expit(margins)
    return np.column_stack((1 - up, up))


def label_weights(rounds: list[Arrays], share: float | None, likely: tuple[float, float]) -> LabelWeights:
    """Fit the noise to the probabilities of the chosen rows, averaged over the rounds so far."""
    label = rounds[0]["label"].astype(np.int64)
    probability = np.mean([each["probability"] for each in rounds], axis=0)
    return LabelWeights.of((), label, probability, share, likely)


@dataclass(frozen=True)
class BoostClassification:
    """The rounds of a classification on one worker.

    Args:
        setting: What all workers know.
        used: Whether labels are noisy, so that the final fit is weighted.
        likely: The probability of noise, and how much of the weights is used.
    """

    setting: Setting
    used: bool
    likely: tuple[float, float]

    def __call__(self, member: Member) -> None:
        """Run them; finished fits are files then."""
        worker, share = Worker(self.setting, member), self.setting.share
        label, classes = worker.y.astype(np.int64), self.setting.classes
        weights, found, rounds = np.ones(len(label)), [], []
        for name in ROUNDS[: 1 + self.used]:
            found.append(class_probabilities(worker.out_of_fold(name, weights, False)))
            rounds.append(worker.gather(label=worker.y, probability=found[-1]))
            # The second round is one without what is doubtful; how much of the weights is used counts at the end.
            likely = (1.0, 1.0) if self.used and name == ROUNDS[0] else self.likely
            noise = worker.agree(partial(label_weights, rounds, share, likely))
            weights = noise.weights(np.mean(found, axis=0), label)
            held = allreduce(np.bincount(label, weights, classes))
            counted = allreduce(np.bincount(label, minlength=classes).astype(np.float64))
            factors = class_factors(held, counted)
            weights = weights * factors[label]
            worker.keep(name, rounds[-1] | {"factors": factors})
        worker.fit("final", weights if self.used else np.ones(len(label)), False)


@dataclass(frozen=True)
class BoostedLabelScorer(Scorer):
    """Scores rows by the probability of their labels out of fold.

    Args:
        setting: What all workers know.
        out_of_fold: The fits of all rounds.
        weights: The probability that a label is clean, and the weight of a row.
        used: Whether the last fit has these weights.
    """

    setting: Setting
    out_of_fold: OutOfFold
    weights: LabelWeights
    used: bool

    def __call__(self, x: Array, y: Array, start: int, places: Array) -> Scores:
        """Return the scores of some rows."""
        margins = self.out_of_fold(self.setting.bins.codes(x), places)
        probability = np.mean([class_probabilities(each) for each in margins], axis=0)
        certain = self.setting.share == 1
        return label_scores(self.setting.plan, self.weights, probability, y, self.used, certain)


def fit_boosting(
    passes: Passes,
    plan: Plan,
    summary: Summary,
    base: Any,
    share: float | None,
    seed: int,
    sample: Array,
    targets: Array,
) -> Fitted:
    """Fit boosted trees to more rows than are fitted in memory.

    Args:
        passes: Passes over the partitions.
        plan: What is read; its target has all classes.
        summary: What is known of all rows.
        base: The same learner for rows in memory, which decides whether labels are noisy.
        share: The share of inliers, if it is given.
        seed: Draws the rows that decisions are made on, and folds.
        sample: Inputs of a sample.
        targets: Its targets.

    Raises:
        ClusterError: If XGBoost is not installed, or workers are lost again and again.
    """
    xgboost()
    regression = plan.target.task == "regression"
    setting = Setting(
        plan,
        Bins.of(sample),
        tuple(passes.partitions),
        summary.starts(),
        decisive_rows(plan.target.task, summary.n, seed),
        passes.work,
        seed,
        share,
    )
    if regression:
        low, middle, high = np.quantile(targets, (0.25, 0.5, 0.75))
        setting = replace(
            setting, center=float(middle), unit=float(high - low) or float(np.std(targets)) or 1.0
        )
        return _regression(passes, setting, summary)
    return _classification(passes, setting, summary, base)


def _regression(passes: Passes, setting: Setting, summary: Summary) -> Fitted:
    passes.together(BoostRegression(setting))
    final = setting.booster("final")
    model = final.trees(BoostedRegressor(), setting.bins, setting.unit, setting.center)
    if setting.share == 1:
        scorer = BoostedErrorScorer(setting, OutOfFold(setting, ()), None, final)
        return Fitted(model, GivenFraction(1.0).estimate(), scorer, 1)
    rounds = [found for name in ROUNDS if (found := setting.arrays(name)) is not None]
    weighting = weighting_of(rounds, setting.share)
    out_of_fold = OutOfFold(setting, (setting.folds(ROUNDS[len(rounds) - 1]),))
    if setting.share is not None:
        estimate = GivenFraction(setting.share).estimate()
    else:
        estimate = estimate_of(weighting, summary.n)
    scorer = BoostedErrorScorer(setting, out_of_fold, weighting, final)
    return Fitted(model, estimate, scorer, FOLDS * len(rounds))


def _classification(passes: Passes, setting: Setting, summary: Summary, base: Any) -> Fitted:
    part = fetch(passes, setting.plan, summary, setting.chosen)
    fraction: float | Literal["auto"] = "auto" if setting.share is None else setting.share
    small = AdaptiveClassifier(base, inlier_fraction=fraction, random_state=setting.seed).fit(
        part["x"], part["y"].astype(object)
    )
    used = bool((small.weights_ != 1).any())
    likely = small.noise_probability_, small.strength_
    passes.together(BoostClassification(setting, used, likely))
    final = setting.booster("final")
    model = final.trees(BoostedClassifier(), setting.bins)
    model.classes_ = np.array(setting.plan.target.classes, dtype=object)
    names = ROUNDS[: 1 + used]
    rounds = [found for name in names if (found := setting.arrays(name)) is not None]
    weights = replace(label_weights(rounds, setting.share, likely), factors=rounds[-1]["factors"])
    out_of_fold = OutOfFold(setting, tuple(setting.folds(name) for name in names))
    scorer = BoostedLabelScorer(setting, out_of_fold, weights, used)
    return Fitted(model, small.fraction_estimate_, scorer, FOLDS * len(names))
