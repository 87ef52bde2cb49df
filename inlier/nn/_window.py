"""The recent losses of each group, as histograms, and the fractions and scales that follow from them."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from itertools import groupby
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from inlier.alternation import AlternationState
from inlier.fraction import FractionEstimate, FractionEstimator, FromLosses
from inlier.fraction._from_losses import LARGEST_ERROR
from inlier.histogram import LossHistogram, bin_numbers, bits_for, coarsen
from inlier.nn._state import State
from inlier.nn._validation import check_range

__all__ = ["UNSEEN", "Calls", "LossWindow", "Pending"]

ESTIMATE_EVERY, SMOOTHING, PATIENCE = 10, 0.7, 2.0
"""Updates from one estimate of the inlier fraction to the next, the share of the old estimate in the new, and how
many of them in a row must agree, divided by the fraction."""

DISTINCT = 1000
"""An estimate counts a window as no more losses than this: it may hold the same samples many times over, and a million
copies of a thousand losses would make a chance pattern look significant. If the window holds as many losses of each
group, each has its own fraction; else all share one, estimated on losses relative to the median of their group."""

CAUTION, ERRORS = 0.5, 2.0
"""An estimate that is not trusted is acted on up to the second of these standard errors above it, if it is uncertain;
else the first of these parts of the outliers that it claims is acted on."""

SHIFTED, FEWEST = 0.9, 20
"""Older losses are forgotten where their distribution is this far from that of the new ones (Kolmogorov-Smirnov
distance, with at least FEWEST of each): the loss has changed its unit, not its outliers."""

Solve = Callable[[AlternationState, Tensor, Tensor, Tensor], AlternationState]
"""The next state, from the last one, the values of occupied bins, their counts in each group, and the fractions to act
on."""

UNSEEN = 3e38
"""The scale before any loss was seen: every loss has weight 1. (With infinity, an infinite loss would be NaN.)"""


def cautious(estimate: FractionEstimate) -> float:
    """Return the fraction to act on: the estimate if it is trusted, else one nearer to 1.

    Example:
        >>> cautious(FractionEstimate(0.75, trusted=True)), cautious(FractionEstimate(0.75, trusted=False))
        (0.75, 0.875)
        >>> cautious(FractionEstimate(0.75, standard_error=0.1, trusted=False))
        0.95
    """
    if estimate.trusted:
        return estimate.value
    if estimate.standard_error > LARGEST_ERROR:
        return min(estimate.value + ERRORS * estimate.standard_error, 1.0)
    return 1 - CAUTION * (1 - estimate.value)


class Calls(NamedTuple):
    """The elements of one call, or of several calls, one after the other."""

    evidence: Tensor
    indices: Tensor | None
    tags: Tensor | None
    weights: Tensor | None = None
    predictions: Tensor | None = None


class Pending:
    """Calls that are not counted yet: a few large operations later replace many small ones now."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Drop all."""
        self.calls: list[Calls] = []
        self.size = 0
        """How many elements are kept."""

    def append(self, call: Calls) -> None:
        """Keep the elements of a call, in tensors that nobody else changes."""
        if call.evidence.numel():
            self.calls.append(call)
            self.size += call.evidence.numel()

    def take(self) -> Iterator[tuple[Calls, list[int]]]:
        """Hand out all calls in order, those with the same arguments in a row joined.

        Returns:
            The joined elements, and how many of them each call has.
        """
        calls = self.calls
        self.clear()
        for _, alike in groupby(calls, lambda call: [None if p is None else p.shape[1:] for p in call]):
            parts = list(zip(*alike, strict=True))
            joined = (None if part[0] is None else torch.cat(part) for part in parts)
            yield Calls(*joined), [len(part) for part in parts[0]]  # type: ignore[arg-type]


class LossWindow:
    """Histograms of recent losses, one a group, with the inlier fraction and scale that follow from them.

    Losses are counted on their device; :meth:`update` copies the counts to the CPU, forgets old ones exponentially,
    solves for the new state there, and copies fractions and scales back: two copies, whatever the number of groups.
    Tensors on the device have one place more than there are groups, for what a mask leaves out.

    Args:
        estimator: An estimator of the inlier fraction, or "auto" for one from the losses.
        size: About how many recent losses count.
        num_groups: The number of groups, if it is known.
    """

    def __init__(
        self, estimator: FractionEstimator | Literal["auto"], size: int, num_groups: int | None = None
    ) -> None:
        self.size, self.num_groups = size, num_groups
        estimator = FromLosses(SMOOTHING, PATIENCE) if estimator == "auto" else estimator
        # The first group has the estimator that was passed; further groups get copies of what it was at first.
        self._fresh = copy.deepcopy(estimator)
        groups = num_groups or 1
        self.counts = torch.zeros(groups, (255 << bits_for(groups)) + 1)
        self.rounds = 0
        """The number of updates."""
        self.state = AlternationState.initial(groups, cautious(estimator.estimate()))
        self.estimators = self._estimators_for(groups, [estimator])
        self.pending = torch.zeros(self.counts.numel() + 1, dtype=torch.int32)
        """Counts since the last update, on the device; the last one, of what is left out, is never read."""
        self.current: Tensor
        """The scale (first row) and fraction (second) of each group, on the device; then those of no group."""
        self.shared: tuple[float, float]
        """The scale and fraction of losses without groups, as numbers: they need no copy."""
        self._set_current()

    @property
    def groups(self) -> int:
        """The number of groups."""
        return self.counts.shape[0]

    @property
    def scales(self) -> Tensor:
        """The scale of each group, on the device."""
        return self.current[0, :-1]

    @property
    def fractions(self) -> Tensor:
        """The inlier fraction of each group, on the device."""
        return self.current[1, :-1]

    @property
    def shares(self) -> Tensor:
        """The share of each group in the losses, float64 on the CPU; equal shares before any was counted."""
        sizes = self.counts[:, :-1].sum(1).double()
        total = float(sizes.sum())
        return sizes / total if total else torch.full_like(sizes, 1 / len(sizes))

    @property
    def estimate(self) -> FractionEstimate:
        """The last estimate; of several groups, their mean by number of losses, trusted if all of them are."""
        estimates = [estimator.estimate() for estimator in self.estimators]
        if len(estimates) == 1:
            return estimates[0]
        shares = self.shares.tolist()
        value = sum(share * e.value for share, e in zip(shares, estimates, strict=True))
        error = math.sqrt(
            sum((share * e.standard_error) ** 2 for share, e in zip(shares, estimates, strict=True))
        )
        doubts = [(g, e.reason) for g, e in enumerate(estimates) if not e.trusted]
        reason = f"Group {doubts[0][0]}: {doubts[0][1]}" if doubts else "Every group has a trusted estimate."
        return FractionEstimate(value, error, not doubts, reason)

    def to(self, device: torch.device) -> None:
        """Move to a device."""
        self.pending, self.current = self.pending.to(device), self.current.to(device)

    def reserve(self, groups: int) -> None:
        """Make room for this many groups; new ones have seen no loss yet."""
        extra = groups - self.groups
        if extra <= 0:
            return
        bits, pending = bits_for(groups), self.pending[:-1].view_as(self.counts)
        counts, pending = coarsen(self.counts, bits), coarsen(pending, bits)
        new_rows = extra, counts.shape[1]
        self.counts = torch.cat([counts, counts.new_zeros(new_rows)])
        self.pending = torch.cat([pending.reshape(-1), pending.new_zeros(math.prod(new_rows) + 1)])
        new = AlternationState.initial(extra, cautious(self._fresh.estimate()))
        self.state = AlternationState(
            *(torch.cat([getattr(self.state, k), getattr(new, k)]) for k in vars(new))
        )
        self.estimators = self._estimators_for(groups, self.estimators)
        self._set_current()

    def _estimators_for(self, groups: int, old: list[FractionEstimator]) -> list[FractionEstimator]:
        """One estimator for each of a few groups, a single one for many; those that exist stay."""
        number = groups if groups * DISTINCT <= self.size else 1
        return old[:number] + [copy.deepcopy(self._fresh) for _ in range(number - len(old))]

    def check(self, smallest: int, largest: int) -> None:
        """Raise for groups out of range."""
        check_range("groups", smallest, largest, self.num_groups, "num_groups")

    def count(self, losses: Tensor, rows: Tensor | None, absent: Tensor) -> None:
        """Count float32 losses; infinite and NaN ones are counted as bad, and left out of every estimate.

        Args:
            losses: The losses.
            rows: The row of each, as from :func:`~inlier.nn._validation.places`; None without groups.
            absent: Which elements are left out.
        """
        place = bin_numbers(losses, bits_for(self.groups))
        if rows is None:
            place = torch.where(absent, self.counts.numel(), place)
        else:
            place = (place + rows * self.counts.shape[1]).clamp(max=self.counts.numel())
        self.pending.index_add_(0, place, self.pending.new_ones(1).expand(len(place)))

    def forget(self) -> None:
        """Drop all losses; keep fractions and scales."""
        self.counts.zero_()
        self.pending.zero_()

    def update(self, solve: Solve, samples: int, extra: Tensor) -> tuple[int, int, Tensor]:
        """Take in the losses counted since the last update, and run one round.

        Args:
            solve: Makes the next state.
            samples: How many samples there are; 0 if it is not known.
            extra: Integers on the device, to be copied along.

        Returns:
            How many new losses there were; how many were infinite or NaN; and the extra integers, on the CPU.
        """
        copied, size = torch.cat([self.pending, extra]).cpu(), self.counts.numel()
        new, extra = copied[:size].view_as(self.counts).to(torch.float32), copied[size + 1 :]
        self.pending.zero_()
        self.rounds += 1
        columns, old = new.sum(0), self.counts.sum(0)
        bad, total = int(columns[-1]), float(columns[:-1].sum())
        columns[-1] = new[:, -1] = 0.0
        if total:
            kept = 0.0 if _has_shifted(columns, old) else math.exp(-total / self.size)
            torch.add(new, self.counts, alpha=kept, out=self.counts)
        used = (columns + old).nonzero().squeeze(1)
        values, counts = LossHistogram(self.counts[0]).values[used], self.counts[:, used]
        if total:
            self._observe(used, counts, min(samples or DISTINCT, DISTINCT))
        self.state = solve(self.state, values, counts, self._acted_on())
        self._set_current()
        return int(total) + bad, bad, extra

    def _acted_on(self) -> Tensor:
        """Return the fraction of each group to act on; one that was trusted is, until another takes its place."""
        old = self.state.target.tolist()
        estimates = [estimator.estimate() for estimator in self.estimators]
        chosen = [
            e.value if e.value == last else cautious(e) for e, last in zip(estimates, old, strict=False)
        ]
        return torch.tensor(chosen, dtype=torch.float64).expand(self.groups).contiguous()

    def _set_current(self) -> None:
        """Make scales and fractions current, on the device: one copy."""
        current = torch.stack([self.state.scale.clamp(max=UNSEEN), self.state.inlier_fraction]).float()
        self.shared = float(current[0, 0]), float(current[1, 0])
        self.current = torch.cat([current, torch.tensor([[UNSEEN], [0.0]])], 1).to(self.pending.device)

    def _observe(self, used: Tensor, counts: Tensor, distinct: int) -> None:
        """Show each estimator the losses of its group, or a shared one those of all groups."""
        is_shared = len(self.estimators) < self.groups
        for turn, estimator in enumerate(self.estimators):
            # Mixtures are fitted in turn, so that no update takes long; several groups share the time of two.
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
        state["rounds"] = torch.tensor(self.rounds)
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
        new.counts, new.rounds = counts, int(state.read("rounds", torch.int64, ()))
        new.pending = state.read("pending", torch.int32, (groups * bins + 1,)).to(self.pending.device)
        new.state = AlternationState(
            state.read("target", torch.float64, (groups,), low=0.0, high=1.0),
            state.read("inlier_fraction", torch.float64, (groups,), low=0.0, high=1.0),
            state.read("scale", torch.float64, (groups,)),
        )
        new._set_current()
        new.estimators = self._estimators_for(groups, self.estimators)
        _restore(copy.deepcopy(new.estimators), state)
        return new

    def restore_estimators(self, state: State) -> None:
        """Restore the estimators themselves, where :meth:`restored` has found that they can be."""
        _restore(self.estimators, state)


def _restore(estimators: list[FractionEstimator], state: State) -> None:
    """Restore each estimator whose state was saved; a given fraction has none, and stays given."""
    for number, estimator in enumerate(estimators):
        part = state.part(f"estimator.{number}")
        saved = {name: part.tensor(name) for name in part.names()}
        if saved and estimator.state_dict():
            try:
                estimator.load_state_dict(saved)
            except (ValueError, KeyError, TypeError, RuntimeError) as error:
                raise ValueError(f"window.estimator.{number}.{error}") from error


def _has_shifted(new: Tensor, old: Tensor) -> bool:
    """Whether new losses are in another unit than older ones, by the counts of both."""
    new, old = new.cumsum(0), old.cumsum(0)
    if min(float(new[-1]), float(old[-1])) < FEWEST:
        return False
    return float((new / new[-1] - old / old[-1]).abs().max()) > SHIFTED
