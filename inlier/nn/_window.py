"""The recent losses of each group, as histograms, and the fractions and scales that follow from them."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from inlier.alternation import AlternationState
from inlier.fraction import FractionEstimate, FractionEstimator, FromLosses
from inlier.histogram import LossHistogram, bin_numbers, bits_for, coarsen
from inlier.nn._state import State
from inlier.nn._validation import check_range, is_cheap_to_read

__all__ = ["UNSEEN", "LossWindow"]

FITTED_GROUPS = 8
"""Up to so many groups have a fraction each; more share one, estimated on losses relative to their group's median:
an update fits one mixture, whatever the number of groups."""

ESTIMATE_EVERY, SMOOTHING, PATIENCE = 10, 0.7, 2.0
"""Updates from one estimate of the inlier fraction to the next, the share of the old estimate in the new, and how
many of them in a row must agree, divided by the fraction."""

DISTINCT = 1000
"""An estimate takes a window for no more losses than this. It may hold the same sample many times over, and a
million copies of a thousand losses would prove groups that accident has made."""

SHIFTED, FEWEST = 0.9, 20
"""Where the distributions of new and older losses are this far apart (Kolmogorov and Smirnov's distance, of at
least so many new losses), the older ones are forgotten: the loss has changed its unit, not its outliers."""

Solve = Callable[[AlternationState, Tensor, Tensor, Tensor], AlternationState]
"""From the last state, the values of occupied bins, their counts in each group, and estimated fractions."""

UNSEEN = 3e38
"""The scale before any loss was seen: every loss has weight 1. (Infinity would make 0 of 0 / inf.)"""


class LossWindow:
    """Histograms of recent losses, one a group, with the inlier fraction and scale that follow from them.

    Losses are counted where they are; :meth:`update` copies the counts to the CPU, forgets old ones exponentially,
    runs one round of :func:`inlier.alternation.update` there, and copies fractions and scales back: two copies,
    whatever the number of groups. Tensors on the device have one group more than there are: what a mask leaves
    out is counted there.

    Args:
        estimator: An estimator of the inlier fraction, or "auto" for one from the losses.
        size: About how many recent losses count.
        num_groups: The number of groups, if it is known.
    """

    def __init__(
        self, estimator: FractionEstimator | Literal["auto"], size: int, num_groups: int | None = None
    ) -> None:
        self.size, self.num_groups = size, num_groups
        self._prototype = FromLosses(SMOOTHING, PATIENCE) if estimator == "auto" else estimator
        self._is_auto = estimator == "auto"
        groups = num_groups or 1
        self.bits = bits_for(groups)
        self.counts = torch.zeros(groups, (255 << self.bits) + 1)
        self._columns = self.counts.sum(0)
        self.rounds = 0
        """The number of updates."""
        self.state = AlternationState.initial(groups, self._prototype.estimate().value)
        self.estimators = self._estimators_for(groups, [])
        self.pending = torch.zeros((groups + 1) * self.counts.shape[1], dtype=torch.int32)
        """Counts since the last update, on the device."""
        self._one = torch.ones(1, dtype=torch.int32)
        self.current = self._current()
        """Scale (first row) and inlier fraction (second) of each group, on the device."""

    @property
    def groups(self) -> int:
        """The number of groups."""
        return len(self.counts)

    @property
    def scales(self) -> Tensor:
        """The scale of each group, on the device."""
        return self.current[0, :-1]

    @property
    def fractions(self) -> Tensor:
        """The inlier fraction of each group, on the device."""
        return self.current[1, :-1]

    @property
    def estimate(self) -> FractionEstimate:
        """The last estimate; of several groups, their mean by number of losses, trusted if all are."""
        estimates = [estimator.estimate() for estimator in self.estimators]
        if len(estimates) == 1:
            return estimates[0]
        sizes = self.counts[:, :-1].sum(1).double()
        share = sizes / sizes.sum() if float(sizes.sum()) else torch.full_like(sizes, 1 / len(sizes))
        value = sum(float(s) * e.value for s, e in zip(share, estimates, strict=True))
        error = math.sqrt(
            sum((float(s) * e.standard_error) ** 2 for s, e in zip(share, estimates, strict=True))
        )
        doubts = [(g, e.reason) for g, e in enumerate(estimates) if not e.trusted]
        reason = f"Group {doubts[0][0]}: {doubts[0][1]}" if doubts else "Every group has a trusted estimate."
        return FractionEstimate(value, error, not doubts, reason)

    def to(self, device: torch.device) -> None:
        """Move to a device."""
        self.pending, self.current, self._one = (
            x.to(device) for x in (self.pending, self.current, self._one)
        )

    def reserve(self, groups: int) -> None:
        """Make room for so many groups; new ones have seen no loss yet."""
        before = self.groups
        if groups <= before:
            return
        bits = bits_for(groups)
        pending = self.pending.view(before + 1, -1)
        if bits < self.bits:
            self.counts, pending, self.bits = coarsen(self.counts, bits), coarsen(pending, bits), bits
            self._columns = self.counts.sum(0)
        extra = groups - before
        bins = self.counts.shape[1]
        self.counts = torch.cat([self.counts, self.counts.new_zeros(extra, bins)])
        self.pending = torch.cat([pending, pending.new_zeros(extra, bins)]).reshape(-1)
        new = AlternationState.initial(extra, self._prototype.estimate().value)
        self.state = AlternationState(
            *(torch.cat([getattr(self.state, k), getattr(new, k)]) for k in vars(new))
        )
        self.estimators = self._estimators_for(groups, self.estimators)
        self.current = self._current().to(self.current.device)

    def _estimators_for(self, groups: int, old: list[FractionEstimator]) -> list[FractionEstimator]:
        """One estimator for each of a few groups, one for all of many; those there are already stay."""
        number = groups if groups <= FITTED_GROUPS else 1
        made = old[:number]
        for turn in range(len(made), number):
            made.append(FromLosses(SMOOTHING, PATIENCE) if self._is_auto else self._copy(turn))
        return made

    def _copy(self, turn: int) -> FractionEstimator:
        # A user's own estimator is the one that is asked; only further groups get copies.
        return copy.deepcopy(self._prototype) if turn else self._prototype

    def check(self, smallest: int, largest: int) -> None:
        """Raise for groups that cannot be."""
        check_range("groups", smallest, largest, self.num_groups, "num_groups")

    def rows(self, groups: Tensor | None, absent: Tensor | None) -> Tensor | None:
        """Return the row of each element; the row that is never read for what is absent or not known yet."""
        if groups is None:
            return None if absent is None else absent * self.groups
        outside = (groups < 0) | (groups >= self.groups)
        return torch.where(outside if absent is None else outside | absent, self.groups, groups)

    def count(self, losses: Tensor, rows: Tensor | None, finite: bool = False) -> None:
        """Count float32 losses; infinite and NaN ones are counted as bad, and left out of every estimate."""
        place = bin_numbers(losses, self.bits, finite)
        if rows is not None:
            place = place + rows * self.counts.shape[1]
        self.pending.index_add_(0, place, self._one.expand(len(place)))

    def forget(self) -> None:
        """Drop all losses, and keep fractions and scales."""
        self.counts.zero_()
        self._columns.zero_()
        self.pending.zero_()

    def update(self, solve: Solve, samples: int, extra: Tensor) -> tuple[int, int, Tensor]:
        """Take in the losses counted since the last update, and run one round.

        Args:
            solve: Makes the next state from the last one, the values and counts of the bins that are occupied, and
                the estimated fractions.
            samples: How many samples there are, as far as is known; 0 if it is not.
            extra: Integers on the device that come along in the same copy.

        Returns:
            How many new losses there were; how many were infinite or NaN; and the extra integers, on the CPU.
        """
        pending, extra = self._copied(extra)
        new = pending.view(self.groups + 1, -1)[:-1].to(torch.float32)
        self.pending.zero_()
        self.rounds += 1
        columns = new.sum(0)
        bad, total = int(columns[-1]), float(columns[:-1].sum())
        columns[-1] = new[:, -1] = 0.0
        if total:
            kept = 0.0 if _has_shifted(columns, self._columns) else math.exp(-total / self.size)
            torch.add(new, self.counts, alpha=kept, out=self.counts)
            self._columns.mul_(kept).add_(columns)
        used = self._columns.nonzero().squeeze(1)
        values, counts = LossHistogram(self.counts[0]).values[used], self.counts[:, used]
        if total:
            self._observe(used, counts, min(samples or DISTINCT, DISTINCT))
        fractions = torch.tensor([estimator.estimate().value for estimator in self.estimators])
        self.state = solve(self.state, values, counts, fractions.double().expand(self.groups).contiguous())
        self.current = self._current().to(self.current.device)
        return int(total) + bad, bad, extra

    def _copied(self, extra: Tensor) -> tuple[Tensor, Tensor]:
        """Counts and extra integers on the CPU: one copy from a device, none from the CPU itself."""
        if is_cheap_to_read(self.pending):
            return self.pending, extra
        both = torch.cat([self.pending, extra.to(self.pending)]).cpu()
        return both[: self.pending.numel()], both[self.pending.numel() :]

    def _current(self) -> Tensor:
        """Scale and fraction of each group and of the one that is never read, which has weight 1."""
        current = torch.stack([self.state.scale.clamp(max=UNSEEN), self.state.inlier_fraction]).float()
        return torch.cat([current, torch.tensor([[UNSEEN], [0.0]])], 1)

    def _observe(self, used: Tensor, counts: Tensor, distinct: int) -> None:
        """Show each estimator the losses of its group, or of all groups if there is one for all."""
        is_shared = len(self.estimators) < self.groups
        for turn, estimator in enumerate(self.estimators):
            # Fits of mixtures take turns, so that no update takes long, and several groups share the time of two.
            period = ESTIMATE_EVERY * max(len(self.estimators) // 2, 1)
            if isinstance(estimator, FromLosses) and (self.rounds + turn * ESTIMATE_EVERY // 2) % period:
                continue
            row = self._relative(used, counts) if is_shared else self.counts[turn]
            total = float(row.sum())
            if total:
                estimator.observe(LossHistogram(row * min(1.0, distinct / total)))

    def _relative(self, used: Tensor, counts: Tensor) -> Tensor:
        """The histogram of all losses relative to the median of their group: each row moved, then added up."""
        mass = counts.cumsum(1)
        medians = used[torch.searchsorted(mass, mass[:, -1:] / 2).clamp(max=len(used) - 1)]
        bins = self.counts.shape[1]
        # Zero losses stay zero.
        moved = torch.where(used == 0, 0, (used - medians + bins // 2).clamp(1, bins - 2))
        return torch.zeros(bins).index_add_(0, moved.reshape(-1), counts.reshape(-1))

    def state_dict(self) -> dict[str, Tensor]:
        """Return all that a resumed training needs."""
        state = {"counts": self.counts.clone(), "pending": self.pending.clone()}
        state |= {"columns": self._columns.clone(), "rounds": torch.tensor(self.rounds)}
        state |= {name: tensor.clone() for name, tensor in vars(self.state).items()}
        for number, estimator in enumerate(self.estimators):
            state |= {f"estimator.{number}.{k}": v.clone() for k, v in estimator.state_dict().items()}
        return state

    def restored(self, state: State) -> LossWindow:
        """Return a window with the state of a checkpoint, or raise ``ValueError`` naming the key that does not fit.

        Its estimators are those of this window, not yet restored (:meth:`restore_estimators`): they may be a user's
        own, and must stay as they are if something else does not fit.
        """
        counts = state.read("counts", torch.float32, (None, None), low=0.0, high=UNSEEN)
        groups, bins = len(counts), (255 << bits_for(max(len(counts), 1))) + 1
        if counts.shape != (max(groups, 1), bins):
            raise ValueError(
                f"window.counts has shape {tuple(counts.shape)}: one histogram a group is expected"
            )
        if self.num_groups not in (None, groups):
            raise ValueError(f"window.counts has {groups} groups, but num_groups = {self.num_groups}")
        new = copy.copy(self)
        new.bits, new.counts = bits_for(groups), counts
        new._columns = state.read("columns", torch.float32, (bins,), low=0.0, high=UNSEEN)
        new.rounds = int(state.read("rounds", torch.int64, ()))
        new.pending = state.read("pending", torch.int32, ((groups + 1) * bins,)).to(self.pending.device)
        new.state = AlternationState(
            state.read("target", torch.float64, (groups,), low=0.0, high=1.0),
            state.read("inlier_fraction", torch.float64, (groups,), low=0.0, high=1.0),
            state.read("scale", torch.float64, (groups,)),
        )
        new.current = new._current().to(self.current.device)
        new.estimators = self._estimators_for(groups, self.estimators)
        _restore(copy.deepcopy(new.estimators), state)
        return new

    def restore_estimators(self, state: State) -> None:
        """Restore the estimators themselves, where :meth:`restored` has found that they can be."""
        _restore(self.estimators, state)


def _restore(estimators: list[FractionEstimator], state: State) -> None:
    """Restore each estimator that has a state and finds one; a given fraction has none, and stays given."""
    for number, estimator in enumerate(estimators):
        part = state.part(f"estimator.{number}")
        saved = {name: part.tensor(name) for name in part.names()}
        if saved and estimator.state_dict():
            try:
                estimator.load_state_dict(saved)
            except (ValueError, KeyError, TypeError, RuntimeError) as error:
                raise ValueError(f"window.estimator.{number}.{error}") from error


def _has_shifted(new: Tensor, old: Tensor) -> bool:
    """Whether new losses are of another unit than older ones, by the counts of both."""
    if float(new.sum()) < FEWEST or float(old.sum()) < FEWEST:
        return False
    distance = new.cumsum(0) / new.sum() - old.cumsum(0) / old.sum()
    return float(distance.abs().max()) > SHIFTED
