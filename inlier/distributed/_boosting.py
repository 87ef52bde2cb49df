"""Boosting over partitions: XGBoost on all workers together, with other weights in each round.

Each worker reads its partitions once and keeps a byte a cell. The rounds are those of :mod:`inlier.sklearn` for
learners that may memorise their rows:

1. Out of fold, with bounded influence (regression) or unweighted (classes): what do the errors of some of the rows say?
2. If noise is suspected: out of fold once more, with the weights that follow from each row's own error.
3. The last fit, to all rows, with the weights of the last round.

A fold is left out by weights of 0, so nothing is read or binned again. Finished fits are files in the work folder.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
from scipy.special import expit, softmax

from inlier._files import write_whole
from inlier.distributed._classification import SUBSAMPLE, LabelWeights, label_scores
from inlier.distributed._engines import Stream
from inlier.distributed._partitions import Partition, PartitionError
from inlier.distributed._passes import Arrays, Passes
from inlier.distributed._plan import Plan
from inlier.distributed._regression import probability_and_weights
from inlier.distributed._score import Fitted, Scorer, Scores
from inlier.distributed._survey import Fetch, Summary, draw, join
from inlier.distributed._teams import Member
from inlier.distributed._xgboost import Bins, Booster, allreduce, merged_limit, quantized, train, xgboost
from inlier.fit._columns import Array
from inlier.fit._trees import BoostedClassifier, BoostedRegressor
from inlier.fraction import FractionEstimate, GivenFraction
from inlier.sklearn import AdaptiveClassifier
from inlier.sklearn._extension import Kind, Weighting
from inlier.sklearn._labels import LabelModel, class_factors, shift_for_mean
from inlier.sklearn._learners import Fit
from inlier.sklearn._regressor import estimate_of
from inlier.sklearn._residuals import Evidence, examine
from inlier.sklearn._robust import First, Result

FOLDS = 2
"""With as many rows, half of them are enough; `python -m benchmarks.boosting_passes`."""
ROUNDS = ("first", "second")
T = TypeVar("T")


def fold_of(places: Array, seed: int) -> Array:
    """Return the fold of rows, from their places among all rows alone: the same whoever reads them.

    Example:
        >>> float(np.mean(fold_of(np.arange(10_000), 0) == 0).round(1))
        0.5
    """
    with np.errstate(over="ignore"):
        # The finalizer of SplitMix64: neighbours, and rows of any period, are in folds at random.
        z = places.astype(np.uint64) + np.uint64(seed + 1) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return np.asarray((z ^ (z >> np.uint64(31))) % np.uint64(FOLDS)).astype(np.uint8)


@dataclass(frozen=True)
class Setting:
    """What all workers know.

    Args:
        plan: What is read.
        bins: The bins of the inputs.
        partitions: All of them.
        starts: How many rows with a target are before each.
        chosen: The rows that decisions are made on: places among those that have a target.
        work: The folder of finished fits.
        seed: Draws folds.
        share: The share of inliers, if it is given.
        center: What is subtracted from a target that is a number.
        unit: What it is then divided by.
    """

    plan: Plan
    bins: Bins
    partitions: tuple[Partition, ...]
    starts: Mapping[int, int]
    chosen: Array
    work: Path
    seed: int
    share: float | None
    center: float = 0.0
    unit: float = 1.0

    @property
    def classes(self) -> int:
        """The number of classes; 0 for regression."""
        return len(self.plan.target.classes)

    def target(self, y: Array) -> Array:
        """Return targets as numbers."""
        return self.plan.target.codes(y) if self.classes else (y - self.center) / self.unit

    def read(self, partition: Partition) -> tuple[Array, Array, Array]:
        """Return codes, targets and folds of the rows of a partition."""
        parts = [
            (
                self.bins.codes(batch.x),
                self.target(batch.y),
                fold_of(partition.offset + batch.rows, self.seed),
            )
            for batch in self.plan.batches(partition)
        ]
        codes, y, fold = (np.concatenate(each) for each in zip(*parts, strict=True))
        return codes, y, fold

    def booster(self, name: str) -> Booster:
        """Return a finished fit."""
        return Booster(self.path(name).read_bytes())

    def folds(self, name: str) -> tuple[Booster, ...]:
        """Return the finished fits of a round."""
        return tuple(self.booster(f"{name}-{fold}") for fold in range(FOLDS))

    def arrays(self, name: str) -> Arrays | None:
        """Return what was found in a round; None if there was none."""
        path = self.work / f"boosting-{name}.npz"
        if not path.exists():
            return None
        with np.load(path, allow_pickle=False) as kept:
            return {key: kept[key] for key in kept.files}

    def path(self, name: str) -> Path:
        return self.work / f"boosting-{name}.ubj"


class Worker:
    """One of the workers, with its share of the rows in memory.

    Args:
        setting: What all workers know.
        member: Which one it is.
    """

    def __init__(self, setting: Setting, member: Member) -> None:
        self.setting, self.member = setting, member
        self.collective = xgboost().collective
        total = len(setting.partitions)
        first, last = (total * place // member.size for place in (member.rank, member.rank + 1))
        mine = setting.partitions[first:last]
        parts: list[tuple[Array, Array, Array]] = []
        for place, part in Stream(member.threads).run(setting.read, mine):
            if isinstance(part, PartitionError):
                raise part
            parts.append(part)
            member.advance("reading the rows", mine[place].rows / sum(each.rows for each in mine))
        self.y, self.fold = (np.concatenate([part[place] for part in parts]) for place in (1, 2))
        self.matrix = quantized([(codes, y) for codes, y, _ in parts], member.threads)
        start = setting.starts[mine[0].number]
        low, high = np.searchsorted(setting.chosen, (start, start + len(self.y)))
        self.asked, self.own = slice(low, high), setting.chosen[low:high] - start

    def fit(self, name: str, weights: Array, robust: bool) -> Booster:
        """Fit to the rows of all workers, unless that has been done."""
        path = self.setting.path(name)
        booster = self.agree(lambda: Booster(path.read_bytes()) if path.exists() else None)
        if booster is None:
            words = f"boosting, {name.replace('-', ' ')}"
            booster = train(
                self.matrix,
                self.y,
                weights,
                self.setting.classes,
                robust,
                self.member.threads,
                lambda share: self.member.advance(words, share),
            )
            if self.member.rank == 0:
                write_whole(path, booster.content)
        return booster

    def out_of_fold(self, name: str, weights: Array, robust: bool) -> Array:
        """Return the sums of the trees of each row under a fit that has not seen it."""
        found: Array | None = None
        for fold in range(FOLDS):
            booster = self.fit(f"{name}-{fold}", weights * (self.fold != fold), robust)
            margins = booster.fitted_margins(self.matrix, self.member.threads)
            found = np.empty_like(margins) if found is None else found
            found[self.fold == fold] = margins[self.fold == fold]
        assert found is not None
        return found

    def gather(self, **values: Array) -> Arrays:
        """Return values of the chosen rows, from all workers."""
        found = {}
        for key, each in values.items():
            all_ = np.zeros((len(self.setting.chosen), *each.shape[1:]))
            all_[self.asked] = each[self.own]
            found[key] = allreduce(all_)
        return found

    def keep(self, name: str, found: Arrays) -> None:
        """Write what was found in a round to a file."""
        if self.member.rank == 0:
            content = io.BytesIO()
            np.savez(content, allow_pickle=False, **found)
            write_whole(self.setting.work / f"boosting-{name}.npz", content.getvalue())

    def agree(self, decide: Callable[[], T]) -> T:
        """Return what the first worker decides: all have to go the same way."""
        decision: tuple[T] = self.collective.broadcast((decide(),) if self.member.rank == 0 else None, 0)
        return decision[0]


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
                if name == ROUNDS[0] and (weighting.evidence.suspected or share is not None):
                    weights = weighting.evidence.probability(errors, predictions)
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
class OutOfFold:
    """Predictions of rows by the fits of a round that have not seen them.

    Args:
        setting: What all workers know.
        rounds: The fits of each round.
    """

    setting: Setting
    rounds: tuple[tuple[Booster, ...], ...]

    def __call__(self, codes: Array, places: Array) -> list[Array]:
        """Return the sums of the trees for each round."""
        fold, found = fold_of(places, self.setting.seed), []
        for boosters in self.rounds:
            total: Array | None = None
            for number, booster in enumerate(boosters):
                rows = np.flatnonzero(fold == number)
                margins = booster.margins(codes[rows])
                total = np.empty((len(codes), *margins.shape[1:])) if total is None else total
                total[rows] = margins
            assert total is not None
            found.append(total)
        return found


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


def label_weights(rounds: list[Arrays], share: float | None) -> LabelWeights:
    """Fit the noise to the probabilities of the chosen rows, averaged over the rounds so far."""
    label = rounds[0]["label"].astype(np.int64)
    probability = np.mean([each["probability"] for each in rounds], axis=0)
    ones = np.ones(len(label))
    model = LabelModel.fit(label, probability, ones)
    shift = 0.0 if share is None or share == 1 else shift_for_mean(model.clean, ones, share)
    return LabelWeights((), model.channel, shift)


@dataclass(frozen=True)
class BoostClassification:
    """The rounds of a classification on one worker.

    Args:
        setting: What all workers know.
        used: Whether labels are noisy, so that the final fit is weighted.
    """

    setting: Setting
    used: bool

    def __call__(self, member: Member) -> None:
        """Run them; finished fits are files then."""
        worker, share = Worker(self.setting, member), self.setting.share
        label, classes = worker.y.astype(np.int64), self.setting.classes
        weights, found, rounds = np.ones(len(label)), [], []
        for name in ROUNDS[: 1 + self.used]:
            found.append(class_probabilities(worker.out_of_fold(name, weights, False)))
            rounds.append(worker.gather(label=worker.y, probability=found[-1]))
            noise = worker.agree(lambda: label_weights(rounds, share))
            clean = noise.clean(np.mean(found, axis=0), label)
            held = allreduce(np.bincount(label, clean, classes))
            counted = allreduce(np.bincount(label, minlength=classes).astype(np.float64))
            factors = class_factors(held, counted)
            weights = clean * factors[label]
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
        draw(summary.n, SUBSAMPLE, seed),
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
    errors = rounds[-1]["y"] - rounds[-1]["predictions"]
    weighting = weighting_of(rounds, setting.share)
    out_of_fold = OutOfFold(setting, (setting.folds(ROUNDS[len(rounds) - 1]),))
    if setting.share is not None:
        estimate = GivenFraction(setting.share).estimate()
    else:
        estimate = _estimate(weighting.evidence, errors, summary.n)
    scorer = BoostedErrorScorer(setting, out_of_fold, weighting, final)
    return Fitted(model, estimate, scorer, FOLDS * len(rounds))


def _estimate(evidence: Evidence, errors: Array, n: int) -> FractionEstimate:
    """Say what the evidence means, in the words of the estimator in memory."""
    ones, fit = np.ones(len(errors)), Fit(errors)
    return estimate_of(Result(First(fit, ones, 1), ones, ones, errors, evidence, 1, fit), n)


def _classification(passes: Passes, setting: Setting, summary: Summary, base: Any) -> Fitted:
    fetch = Fetch(setting.plan, setting.chosen, setting.starts)
    part = passes.arrays("subsample", fetch, join, "drawing rows")
    fraction: float | Literal["auto"] = "auto" if setting.share is None else setting.share
    small = AdaptiveClassifier(base, inlier_fraction=fraction, random_state=setting.seed).fit(
        part["x"], part["y"].astype(object)
    )
    used = bool((small.weights_ != 1).any())
    passes.together(BoostClassification(setting, used))
    final = setting.booster("final")
    model = final.trees(BoostedClassifier(), setting.bins)
    model.classes_ = np.array(setting.plan.target.classes, dtype=object)
    names = ROUNDS[: 1 + used]
    rounds = [found for name in names if (found := setting.arrays(name)) is not None]
    weights = replace(label_weights(rounds, setting.share), factors=rounds[-1]["factors"])
    out_of_fold = OutOfFold(setting, tuple(setting.folds(name) for name in names))
    scorer = BoostedLabelScorer(setting, out_of_fold, weights, used)
    return Fitted(model, small.fraction_estimate_, scorer, FOLDS * len(names))
