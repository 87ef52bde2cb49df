"""What robust losses have in common: the path of a call, from values to weights.

The loss (:mod:`inlier.nn._robust`, :mod:`inlier.nn._cross_entropy`) turns each element into one value.
:meth:`RobustModule._step` looks up what is remembered of the samples (:mod:`inlier.nn._memory`), asks the loss for
weights, and keeps the values. What the weights of the next call do not depend on waits for the next update: there
:meth:`RobustModule._count` counts the values of all calls at once (:mod:`inlier.nn._window`), and
:meth:`RobustModule._update` runs a round of :mod:`inlier.alternation`. With several processes, each step gathers the
values of all of them (:mod:`inlier.nn._distributed`).
"""

from __future__ import annotations

import math
import warnings
from abc import abstractmethod
from dataclasses import replace
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor

from inlier.alternation import AlternationState
from inlier.fraction import FractionEstimate, FractionEstimator
from inlier.kernels._base import text_of
from inlier.nn import _compile
from inlier.nn._distributed import Exchange, all_reduce_sum
from inlier.nn._history import History
from inlier.nn._memory import SampleMemory
from inlier.nn._metrics import LastCall, call_metrics, scale_metrics
from inlier.nn._state import Checkpointed, Counters, State
from inlier.nn._validation import ABSENT, Batch, is_cheap_to_read, places
from inlier.nn._window import UNSEEN, Calls, LossWindow, Pending

__all__ = ["RobustModule"]

NEGATIVE = -1e-6
"""Losses below 0 by no more than this are rounding errors, as of -log(p + eps) at p = 1."""

LARGEST = 2**31 - 1
"""Extremes of indices are kept as int32 on a device."""

MOST_PENDING = 2**19
"""At most so many elements wait to be counted, however many calls there are between updates: 2 to 18 MB."""


class RobustModule(Checkpointed):
    """A loss that weights samples by the evidence that they are inliers; see the module's description.

    It has neither parameters nor buffers. Its state follows the device of the losses, keeps its dtype when the model
    around it changes its own, and is saved and loaded with that model.
    """

    def __init__(
        self,
        estimator: FractionEstimator | Literal["auto"],
        window: int,
        update_every: int,
        running_mean: float,
        samples: int | None,
        num_groups: int | None,
        process_group: dist.ProcessGroup | None,
    ) -> None:
        super().__init__()
        self.update_every = update_every
        self._window = LossWindow(estimator, window, num_groups)
        self._memory = SampleMemory(running_mean, samples)
        self._exchange = Exchange(process_group, wide_tags=not self._takes_losses)
        self.history = History()
        """(Call, scale, inlier fraction) at some of the updates, in order; means over groups."""
        self._counters, self._warned = Counters(), set[str]()
        self._pending = Pending()
        self._extremes: Tensor | None = None
        self._last = LastCall()
        self._handle = _compile.register(self)

    # What a loss must define.

    _takes_losses = True
    """Whether values are losses and tags are groups; else they are margins and predictions."""

    @abstractmethod
    def _weigh(self, evidence: Tensor, rows: Tensor | None, places: Tensor | None) -> Tensor:
        """Return the weight of each element, by its evidence, its row in the window and its place in the memory."""

    @abstractmethod
    def _loss_of(self, evidence: Tensor) -> Tensor:
        """Return the losses, of at least 0, that the evidence is counted as."""

    @abstractmethod
    def _part(
        self, weights: Tensor, rows: Tensor | None, importance: Tensor | None, present: Tensor | float
    ) -> Tensor | float:
        """Return what this process adds to the divisor of the joined batch."""

    @abstractmethod
    def _solve(
        self, state: AlternationState, values: Tensor, counts: Tensor, fractions: Tensor
    ) -> AlternationState:
        """Return the state after a round, from the counts of losses in occupied bins and the fractions to act on."""

    @abstractmethod
    def _kernel_label(self) -> Tensor:
        """Return what a checkpoint must share with this loss to be loaded, as bytes."""

    # What users call.

    @property
    def bad_losses(self) -> int:
        """How many losses were infinite or NaN up to the last update; each got weight 0."""
        return self._counters.bad_losses

    @property
    def scale(self) -> Tensor:
        """The scale c: a number, or one for each group."""
        scales = self._scale_of(self._window.scales)
        return scales if self._counters.grouped else scales[0]

    def _scale_of(self, solved: Tensor) -> Tensor:
        """Return the scale c, from what :meth:`_solve` has solved for."""
        return solved

    @property
    def inlier_fraction(self) -> Tensor:
        """The current inlier fraction zeta: a number, or one for each group."""
        return self._window.fractions if self._counters.grouped else self._window.fractions[0]

    @property
    def fraction_estimate(self) -> FractionEstimate:
        """The last estimate of the inlier fraction, with its standard error, and whether to trust it and why."""
        return self._window.estimate

    @property
    def num_samples(self) -> int:
        """The number of samples that are remembered by dataset index."""
        return self._memory.size

    def sample_losses(self) -> Tensor:
        """Return the loss of each sample by its running mean, by dataset index; NaN if it was never seen."""
        self._require_memory()
        means = self._memory.means
        return torch.where(means.isnan(), math.nan, self._loss_of(means))

    tag_name = "group"
    """What :meth:`sample_tags` are: the name of their column in a file of suspects."""

    def sample_tags(self) -> Tensor | None:
        """Return the group of each sample (or its suggested label), by dataset index; None if there is none."""
        self._count()
        tags = self._memory.tags
        return None if tags is None else tags[: self._memory.size].long()

    def inlier_probability(self) -> Tensor:
        """Return the probability that each sample is an inlier, by dataset index: its weight.

        Returns:
            Probabilities, NaN for a sample that was never seen.
        """
        self._require_memory()
        means = self._memory.means
        tags = self.sample_tags() if self._counters.grouped else None
        rows = None if tags is None else tags.clamp(min=0)
        return torch.where(means.isnan(), math.nan, self._weigh(means, rows, None))

    @property
    def last_weights(self) -> Tensor | None:
        """The weights of the last call in training, flat, 0 where the mask left out; None before."""
        return self._last.weights

    def metrics(self, prefix: str = "", distributed: bool = False) -> dict[str, float]:
        """Return numbers for a logger, as floats.

        ``inlier_fraction`` and ``scale`` (infinite where every loss has weight 1) are the current ones, the
        same on every process; with groups the fraction is the mean over recent losses, and ``scale/0``,
        ``inlier_fraction/0``, ... are those of the groups. ``bad_losses`` counts infinite and NaN losses.
        ``fraction_kept`` (the mean weight), ``weighted_loss`` (what the call returned) and ``unweighted_loss``
        (the mean of the finite losses) are of the last call in training, and absent before it.

        A training step pays nothing for them; this call waits for the device once or twice.

        Args:
            prefix: Put before each name, as in "robust/".
            distributed: Whether the last call is that of all processes, not of this one. Then all processes
                must ask at the same time, for one collective.

        Example:
            >>> import inlier
            >>> robust = inlier.Robust()
            >>> loss = robust(torch.tensor([1.0, 3.0]))
            >>> robust.metrics()["unweighted_loss"], robust.metrics("robust/")["robust/fraction_kept"]
            (2.0, 1.0)
        """
        window, is_grouped = self._window, bool(self._counters.grouped)
        scales = self.scale.reshape(-1).cpu()
        numbers = scale_metrics(scales, window.fractions.cpu(), window.shares, is_grouped, UNSEEN)
        sums = self._last.sums()
        if distributed and self._exchange.world > 1:
            all_reduce_sum(sums, self._exchange.process_group)
        numbers |= {"bad_losses": float(self.bad_losses)} | call_metrics(sums)
        return {prefix + name: number for name, number in numbers.items()}

    # A call.

    def _weights(
        self,
        values: Tensor,
        losses: Tensor | None,
        index: Tensor | None,
        tags: Tensor | None,
        importance: Tensor | None,
        divided: bool,
        predictions: Tensor | None = None,
    ) -> Tensor:
        """Return the weights of a call, compiled or not.

        Args:
            values: What is remembered and counted of each element, flat float32 without a graph; ABSENT where
                it is left out.
            losses: The flat losses, for the metrics; None if the values are losses.
            index: Dataset indices.
            tags: Groups, or given classes.
            importance: What each element counts for in the divisor, 1 if None.
            divided: Whether the weights are divided as for a loss.
            predictions: Of shape (N, 3), if tags are given classes; the caller must not change them.
        """
        flat = (x if x is None or x.dim() == 1 else x.reshape(-1) for x in (losses, index, tags, importance))
        extras = [*flat, predictions]
        if torch.compiler.is_compiling():
            return _compile.weigh(self._handle, values, extras, divided)
        return self.flat_weights(values, extras, divided)

    def flat_weights(self, values: Tensor, extras: _compile.Extras, divided: bool) -> Tensor:
        """Do :meth:`_weights`, for an eager call as for the compiled operation."""
        if not self.training:
            return _is_usable(values).float()
        losses, index, tags, importance, predictions = extras
        losses = values if losses is None else losses
        weights, factor = self._step(Batch.of(values, index, tags, predictions), losses, importance)
        return weights * factor if divided else weights.clone()

    def _weighted_sum(self, weights: Tensor, losses: Tensor) -> Tensor:
        """Return the sum of the weighted losses, with a graph."""
        if torch.compiler.is_compiling() or not self._last.is_ordinary:
            # 0 * NaN would be NaN.
            losses = torch.where(weights == 0, 0.0, losses)
        return torch.dot(weights.to(losses.dtype), losses)

    def _step(self, batch: Batch, losses: Tensor, importance: Tensor | None) -> tuple[Tensor, Tensor | float]:
        """Learn from the elements of this process.

        Returns:
            Their weights, 0 where a value is absent or not finite; and what to multiply them by for a loss.
        """
        world = self._exchange.world
        try:
            self._prepare(batch)
        except Exception:
            if world > 1:
                self._exchange.refuse(batch.values.device)
            raise
        evidence, weights, index, rows = self._weighed(batch)
        part = self._part(weights, rows, importance, batch.present)
        self._last.set(weights, losses, batch, part)
        all_weights = weights
        if world > 1:
            part = part if isinstance(part, Tensor) else torch.full((), part, device=losses.device)
            # A message has no place for predictions.
            batch = replace(
                batch, tags=self._tags_of(batch.values, batch.tags, batch.predictions), predictions=None
            )
            batch, part = self._exchange.gather(batch, part)
            self._learn_sizes(batch)
            evidence, all_weights, index, _ = self._weighed(batch)
        if index is not None:
            self._memory.record(index, evidence, batch.is_ordinary)
        if evidence is batch.values:
            evidence = evidence.clone()  # The caller may change its losses.
        kept_weights = None if self._takes_losses else all_weights
        self._pending.append(Calls(evidence, batch.index, batch.tags, kept_weights, batch.predictions))
        self._counters.calls += 1
        if self._counters.calls % self.update_every == 0:
            self._update()
        elif self._pending.size > MOST_PENDING:
            self._count()
        if isinstance(part, Tensor) and not is_cheap_to_read(part):
            return weights, world / torch.where(part > 0, part, 1.0)
        return weights, world / (float(part) or 1.0)

    def _prepare(self, batch: Batch) -> None:
        """Check the arguments against those of earlier calls, and make room for new samples and groups."""
        counters, is_grouped = self._counters, self._takes_losses and batch.tags is not None
        if counters.grouped not in (None, is_grouped):
            raise ValueError("groups were given in some calls and not in others: give them in all or in none")
        self._learn_sizes(batch)
        device = batch.values.device
        if self._window.pending.device != device:
            self._count()
            self._window.to(device)
            self._memory.to(device)
            self._extremes = None if self._extremes is None else self._extremes.to(device)
        counters.grouped = is_grouped

    def _learn_sizes(self, batch: Batch) -> None:
        """Read the largest index and group, and make room for them, or raise and change nothing.

        Where reading waits for the device, that happens only until a whole period between updates has brought nothing
        new. After that, and where sizes were given, it is left to the next update; until then what there is no room
        for gets a weight, but is not remembered.
        """
        index, groups = batch.index, batch.tags if self._takes_losses else None
        if (index is None and groups is None) or batch.values.numel() == 0:
            return
        is_given = (index is None or self._memory.samples is not None) and (
            groups is None or self._window.num_groups is not None
        )
        if is_cheap_to_read(batch.values) or (self._counters.is_learning_sizes and not is_given):
            ends = [(0, -1) if x is None else _ends(x, batch.absent) for x in (index, groups)]
            self._make_room([(int(low), int(high)) for low, high in ends])

    def _make_room(self, ends: list[tuple[int, int]]) -> None:
        """Check the smallest and the largest index, then group, and make room."""
        index, groups = ends
        is_new = index[1] >= self._memory.size or groups[1] >= self._window.groups
        if not is_new and min(index[0], groups[0]) >= 0:  # As in nearly all calls.
            return
        self._memory.check(*index, self._counters.seen)
        self._window.check(*groups)
        self._memory.reserve(index[1] + 1)
        self._window.reserve(groups[1] + 1)
        self._counters.has_grown |= is_new

    def _weighed(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
        """Return the evidence for each element, its weight, its place in the memory and its row in the window."""
        memory, evidence, absent = self._memory, batch.values, batch.absent
        index, rows = batch.index, batch.tags if self._takes_losses else None
        # Indices and groups that could be read are in range.
        in_range = is_cheap_to_read(evidence)
        if index is not None:
            index = places(index, memory.room, absent, in_range)
            evidence = memory.evidence(index, evidence, self._old_share)
        if rows is not None:
            rows = places(rows, self._window.groups, absent, in_range)
        weights = self._weigh(evidence, rows, index)
        if batch.is_ordinary:
            return evidence, weights, index, rows
        if absent is not None:
            evidence = torch.where(absent, ABSENT, evidence)
        return evidence, torch.where(_is_usable(evidence), weights, 0.0), index, rows

    @property
    def _old_share(self) -> float:
        """The share of a sample's old mean in the new one."""
        return self._memory.running_mean

    # What waits until the next update.

    def _count(self) -> None:
        """Count the calls since the last time; sums of integers, so it does not matter when."""
        for (evidence, index, tags, weights, predictions), sizes in self._pending.take():
            absent, in_range = evidence == ABSENT, is_cheap_to_read(evidence)
            tags = self._tags_of(evidence, tags, predictions)
            if index is not None and tags is not None:
                self._memory.record_tags(places(index, self._memory.room, absent, in_range), tags, sizes)
            groups = tags if self._takes_losses else None
            rows = None if groups is None else places(groups, self._window.groups, absent, in_range)
            self._window.count(self._loss_of(evidence), rows, absent)
            if weights is not None:
                self._count_tags(tags, weights)
            # Minima are negated, so that one maximum joins those of several calls.
            new = [((evidence < NEGATIVE) & (evidence > ABSENT)).any().long()]
            if not in_range:
                none = torch.zeros_like(new[0])
                for numbers in (index, groups):
                    low, high = (none, none - 1) if numbers is None else _ends(numbers, absent)
                    new += [-low, high]
            extremes, old = torch.stack(new).clamp(-LARGEST, LARGEST).to(torch.int32), self._extremes
            self._extremes = extremes if old is None else torch.maximum(old, extremes)

    def _tags_of(self, evidence: Tensor, tags: Tensor | None, predictions: Tensor | None) -> Tensor | None:
        """Return what is remembered of each element besides its evidence: its group."""
        return tags

    def _count_tags(self, tags: Tensor | None, weights: Tensor) -> None:
        """Count tags and weights, if values are no losses."""

    def _update(self) -> None:
        """Estimate the fraction and solve for the scale: two copies, however many groups."""
        self._count()
        counters, extremes = self._counters, self._extremes
        if extremes is None:
            extremes = self._window.pending.new_zeros(0)
        self._extremes = None
        new, bad, extremes = self._window.update(self._solve, self._memory.size, extremes)
        has_negative, *ends = extremes.tolist() or [0]
        # Counted here, on all processes alike: only the device knows how many elements the other processes had.
        counters.seen += new
        if ends:
            self._make_room([(-ends[0], ends[1]), (-ends[2], ends[3])])
        counters.is_learning_sizes, counters.has_grown = counters.has_grown, False
        self._exchange.shrink()
        scales = self._scale_of(self._window.state.scale)
        known = scales[scales < UNSEEN]
        scale = float(known.log().mean().exp()) if len(known) else math.inf
        self.history.record(counters.calls, scale, float(self._window.state.inlier_fraction.mean()))
        if bad:
            counters.bad_losses += bad
            self._warn("bad", "infinite or NaN losses get weight 0; bad_losses counts them")
        if has_negative and self._takes_losses:
            self._warn("negative", "losses below 0 get weight 1: subtract a lower bound of the loss")

    def _warn(self, kind: str, message: str) -> None:
        if kind not in self._warned:
            self._warned.add(kind)
            warnings.warn(message, RuntimeWarning, stacklevel=8)

    def _require_memory(self) -> None:
        if self._memory.size == 0:
            raise RuntimeError(
                "no sample is known by its dataset index: train with `index` first, as from inlier.with_index"
            )

    # State.

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k != "_handle"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._handle = _compile.register(self)  # A copy is another one.

    def _own_state(self) -> dict[str, Tensor]:
        self._count()
        state = {"counters": self._counters.state(), "history": self.history.state()}
        state["kernel"] = self._kernel_label()
        state |= {f"memory.{name}": tensor for name, tensor in self._memory.state_dict().items()}
        state |= {f"window.{name}": tensor for name, tensor in self._window.state_dict().items()}
        return state

    def _check_kernel(self, state: State) -> None:
        """Raise ``ValueError`` if a checkpoint is of another kind of loss."""
        saved, own = state.read("kernel", torch.uint8, (None,)), self._kernel_label()
        if not torch.equal(saved, own):
            raise ValueError(
                f"kernel is {text_of(saved)}, not {text_of(own)}: build this one as the checkpoint's was"
            )

    def _restore(self, state: State) -> None:
        """Become what a checkpoint was taken from, or raise ``ValueError`` and stay as it is."""
        self._check_kernel(state)
        counters = Counters.restored(state)
        history = History.restored(state)
        memory = self._memory.restored(state.part("memory"))
        window = self._window.restored(state.part("window"))
        window.restore_estimators(state.part("window"))
        self.history, self._memory, self._window, self._counters = history, memory, window, counters
        self._pending, self._extremes, self._last = Pending(), None, LastCall()


def _ends(numbers: Tensor, absent: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the smallest and the largest number, with 0 for what is absent."""
    low, high = (numbers if absent is None else torch.where(absent, 0, numbers)).aminmax()
    return low, high


def _is_usable(evidence: Tensor) -> Tensor:
    """Return which evidence is present and finite."""
    return (evidence > ABSENT) & (evidence < math.inf)
