"""A worker of boosting: its rows as bins, fits to the rows of all workers, and predictions out of fold."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from inlier._files import write_whole
from inlier.distributed._engines import Stream
from inlier.distributed._partitions import Partition, PartitionError
from inlier.distributed._passes import Arrays
from inlier.distributed._plan import Plan
from inlier.distributed._teams import Member
from inlier.distributed._xgboost import Bins, Booster, allreduce, quantized, train, xgboost
from inlier.fit._columns import Array

FOLDS = 2
"""With as many rows, half of them are enough; `python -m benchmarks.boosting_passes`."""
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
        """Return targets as the fits have them."""
        return y if self.classes else (y - self.center) / self.unit

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
