"""What robust losses have in common: a call goes through here, from values to weights.

The path of a call, in one direction: the loss (:mod:`inlier.nn._robust`, :mod:`inlier.nn._cross_entropy`) checks its
arguments (:mod:`inlier.nn._validation`) and makes one value of each element; :meth:`RobustModule._step` looks up
what is remembered of the samples (:mod:`inlier.nn._memory`), asks the loss for weights, and counts the values
(:mod:`inlier.nn._window`); every so often :meth:`RobustModule._update` runs a round of :mod:`inlier.alternation`.
On several processes the values of all are gathered before they are counted (:mod:`inlier.nn._distributed`).
"""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn

from inlier.alternation import AlternationState
from inlier.fraction import FractionEstimate, FractionEstimator
from inlier.histogram import is_finite
from inlier.kernels._base import text_of
from inlier.nn import _compile
from inlier.nn._distributed import Exchange, all_reduce_sum
from inlier.nn._history import History
from inlier.nn._memory import SampleMemory
from inlier.nn._metrics import LastCall, call_metrics, scale_metrics
from inlier.nn._state import State
from inlier.nn._validation import ABSENT, Batch, is_cheap_to_read
from inlier.nn._window import UNSEEN, LossWindow

__all__ = ["RobustModule"]

NEGATIVE = -1e-6
"""Losses below 0 by no more than this are rounding: -log(p + eps) is, where p is 1."""

LARGEST = 2**31 - 1
"""Extremes of indices are kept as int32 on a device."""


class RobustModule(nn.Module, ABC):
    """A loss that weights samples by the evidence that they are inliers; see the module's description.

    It has neither parameters nor buffers: its state follows the device of the losses, keeps its dtype whatever
    is done to the model around it, and is saved and loaded with it.
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
        self._exchange = Exchange(process_group, self._has_wide_tags)
        self.bad_losses = 0
        """How many losses were infinite or NaN up to the last update; each got weight 0."""
        self.history = History()
        """(Call, scale, inlier fraction) at some of the updates, in order; means over groups."""
        self._calls, self._seen, self._warned = 0, 0, set[str]()
        self._grouped: bool | None = None
        # Sizes are read from the data until a whole period between updates has brought nothing new.
        self._is_learning_sizes, self._has_grown = True, False
        self._extremes: Tensor | None = None
        self._last = LastCall()
        self._handle = _compile.register(self)

    # What a loss must say of itself.

    _has_wide_tags = False
    """Whether tags take 64 bits, not 32, on their way to other processes."""

    @abstractmethod
    def _weigh(self, evidence: Tensor, rows: Tensor | None, places: Tensor | None) -> Tensor:
        """Return the weight of each element by its evidence; ``places`` are those in the memory."""

    @abstractmethod
    def _loss_of(self, evidence: Tensor) -> Tensor:
        """Return what is counted of the evidence: losses of at least 0."""

    @abstractmethod
    def _part(
        self, weights: Tensor, rows: Tensor | None, importance: Tensor | None, present: Tensor | float
    ) -> Tensor | float:
        """Return what this process adds to the divisor of the joined batch."""

    @abstractmethod
    def _solve(
        self, state: AlternationState, values: Tensor, counts: Tensor, estimates: Tensor
    ) -> AlternationState:
        """Return the state after a round, from the counts of losses in the bins that are occupied."""

    @abstractmethod
    def _identity(self) -> dict[str, Tensor]:
        """Return what a checkpoint must have in common with this loss, as bytes by name."""

    # What users call.

    @property
    def scale(self) -> Tensor:
        """The scale c: a number, or one for each group."""
        scales = self._scale_of(self._window.scales)
        return scales if self._grouped else scales[0]

    def _scale_of(self, solved: Tensor) -> Tensor:
        """Return the scale of what :meth:`_solve` has solved for."""
        return solved

    @property
    def inlier_fraction(self) -> Tensor:
        """The current inlier fraction zeta: a number, or one for each group."""
        return self._window.fractions if self._grouped else self._window.fractions[0]

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
    """What the integer is that is remembered of each sample."""

    def sample_tags(self) -> Tensor | None:
        """Return the group of each sample (or its suggested label), by dataset index; None if there is none."""
        tags = self._memory.tags
        return None if tags is None else tags[: self._memory.size].long()

    def inlier_probability(self) -> Tensor:
        """Return the probability that each sample is an inlier, by dataset index: its weight.

        Returns:
            Probabilities, NaN for a sample that was never seen.
        """
        self._require_memory()
        means, tags = self._memory.means, self._memory.tags
        rows = tags[: len(means)].long().clamp(min=0) if self._grouped and tags is not None else None
        return torch.where(means.isnan(), math.nan, self._weigh(means, rows, None))

    @property
    def last_weights(self) -> Tensor | None:
        """The weights of the last call in training, flat, 0 where the mask left out; None before."""
        return self._last.weights

    def metrics(self, prefix: str = "", distributed: bool = False) -> dict[str, float]:
        """Return what a logger may want to know of the training, as floats.

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
        sizes = self._window.counts[:, :-1].sum(1)
        scale = self.scale.reshape(-1).cpu()
        numbers = scale_metrics(scale, self._window.fractions.cpu(), sizes, bool(self._grouped), UNSEEN)
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
    ) -> Tensor:
        """Return the weights of a call, compiled or not.

        Args:
            values: What is remembered and counted of each element, flat float32 without a graph; ABSENT where
                it is left out.
            losses: The flat losses, for the metrics; None if the values are losses.
            index: Dataset indices.
            tags: Groups, or what else is remembered of a sample.
            importance: What each element counts for in the divisor, 1 if None.
            divided: Whether the weights are divided as for a loss.
        """
        extras = [None if x is None else x.reshape(-1) for x in (losses, index, tags, importance)]
        if torch.compiler.is_compiling():
            return _compile.weigh(self._handle, values, extras, divided)
        return self.flat_weights(values, extras, divided)

    def flat_weights(self, values: Tensor, extras: _compile.Extras, divided: bool) -> Tensor:
        """Do :meth:`_weights`: what an eager call and the compiled operation have in common."""
        if not self.training:
            return (is_finite(values) & (values != ABSENT)).float()
        losses, index, tags, importance = extras
        losses = values if losses is None else losses
        weights, factor = self._step(Batch.of(values, index, tags), losses, importance)
        return weights * factor if divided else weights.clone()

    def _weighted_sum(self, weights: Tensor, losses: Tensor) -> Tensor:
        """Return the sum of weighted losses, for the gradient."""
        if torch.compiler.is_compiling() or not self._last.is_ordinary:
            # A loss that is masked out or not finite has weight 0, but 0 * NaN would be NaN.
            losses = torch.where(weights == 0, 0.0, losses)
        return torch.dot(weights.to(losses.dtype), losses)

    @torch.no_grad()
    def _step(self, batch: Batch, losses: Tensor, importance: Tensor | None) -> tuple[Tensor, Tensor | float]:
        """Learn from the elements of this process.

        Returns:
            Their weights, 0 where a value is absent or not finite; and what to multiply them by for a loss.
        """
        try:
            self._prepare(batch)
        except Exception:
            if self._exchange.world > 1:
                self._exchange.refuse(batch.values.device)
            raise
        places, rows, evidence = self._look_up(batch)
        weights = self._weigh(evidence, rows, places)
        if not batch.is_ordinary:
            weights = torch.where(is_finite(evidence), weights, 0.0)
        if batch.absent is not None:
            weights, losses = (torch.where(batch.absent, 0.0, x) for x in (weights, losses))
        size = len(batch.values)
        present = float(size) if batch.absent is None else size - batch.absent.sum()
        part = self._part(weights, rows, importance, present)
        self._last = LastCall(weights, losses, present, part, batch.is_ordinary)
        world = self._exchange.world
        if world > 1:
            part = part if isinstance(part, Tensor) else torch.full((), part, device=losses.device)
            batch, part = self._exchange.gather(batch, part)
            self._learn_sizes(batch)
            places, rows, evidence = self._look_up(batch)
        self._record(batch, places, rows, evidence)
        if isinstance(part, Tensor):
            return weights, world / torch.where(part > 0, part, 1.0)
        return weights, world / (part or 1.0)

    def _prepare(self, batch: Batch) -> None:
        """Check what a call brings, and make room for it."""
        self._require_groups(batch.tags)
        self._learn_sizes(batch)
        if self._window.pending.device != batch.values.device:
            self._window.to(batch.values.device)
            self._memory.to(batch.values.device)
        if self._grouped is None:
            self._grouped = self._has_groups(batch.tags)

    def _has_groups(self, tags: Tensor | None) -> bool:
        return tags is not None

    def _require_groups(self, tags: Tensor | None) -> None:
        if self._grouped is not None and self._grouped != self._has_groups(tags):
            raise ValueError("groups were given in some calls and not in others: give them in all or in none")

    def _learn_sizes(self, batch: Batch) -> None:
        """Find out which indices and groups there are, and make room for them, or raise and change nothing.

        Where reading them would wait for the device, they are read only while sizes are unknown, that is until a
        whole period between updates has brought nothing new. After that, and where sizes were given, their extremes
        are kept on the device until the next update reads them; what there is no room for yet gets a weight and is
        not remembered.
        """
        index, groups = batch.index, self._groups_of(batch)
        numbers = [x for x in (index, groups) if x is not None]
        if not numbers or numbers[0].numel() == 0:
            return
        if batch.absent is not None:
            numbers = [torch.where(batch.absent, 0, x) for x in numbers]
        ends = [end for x in numbers for end in x.aminmax()]
        is_given = (index is None or self._memory.samples is not None) and (
            groups is None or self._window.num_groups is not None
        )
        if is_cheap_to_read(ends[0]) or (self._is_learning_sizes and not is_given):
            self._make_room([int(end) for end in ends], index is not None, groups is not None)
            return
        # The smallest are kept as negatives, so that one maximum is enough.
        new = torch.stack([end if k % 2 else -end for k, end in enumerate(ends)])
        new = new.clamp(-LARGEST, LARGEST).to(torch.int32)
        self._extremes = new if self._extremes is None else torch.maximum(self._extremes, new)

    def _make_room(self, ends: list[int], has_index: bool, has_groups: bool) -> None:
        """Check the smallest and largest index, then group, and make room for them."""
        if has_index:
            self._memory.check(ends[0], ends[1], self._seen)
        if has_groups:
            self._window.check(ends[-2], ends[-1])
        before = self._memory.size, self._window.groups
        if has_index:
            self._memory.reserve(ends[1] + 1)
        if has_groups:
            self._window.reserve(ends[-1] + 1)
        self._has_grown |= before != (self._memory.size, self._window.groups)

    def _groups_of(self, batch: Batch) -> Tensor | None:
        return batch.tags if self._has_groups(batch.tags) else None

    def _look_up(self, batch: Batch) -> tuple[Tensor | None, Tensor | None, Tensor]:
        """Return each element's place in the memory, its row in the window, and the evidence for it."""
        places, rows = batch.index, self._groups_of(batch)
        # Where indices and groups were read, there is room for each of them.
        if places is not None and (batch.absent is not None or not is_cheap_to_read(places)):
            places = self._memory.places(places, batch.absent)
        if batch.absent is not None or (rows is not None and not is_cheap_to_read(rows)):
            rows = self._window.rows(rows, batch.absent)
        evidence = (
            batch.values if places is None else self._memory.evidence(places, batch.values, self._old_share)
        )
        return places, rows, evidence

    @property
    def _old_share(self) -> float:
        """The share of a sample's old mean in the new one."""
        return self._memory.running_mean

    def _record(self, batch: Batch, places: Tensor | None, rows: Tensor | None, evidence: Tensor) -> None:
        """Remember and count what this call brought, and update when it is time."""
        if places is not None:
            self._memory.record(places, evidence, batch.tags, batch.is_ordinary)
        self._window.count(self._loss_of(evidence), rows, batch.is_ordinary)
        self._calls += 1
        if self._calls % self.update_every == 0:
            self._update(evidence)

    def _update(self, evidence: Tensor | None = None) -> None:
        """Estimate the fraction and solve the scale on the losses so far: two copies, however many groups."""
        device = self._window.pending.device
        lowest = torch.zeros((), device=device)
        if evidence is not None and evidence.numel():
            lowest = torch.where(evidence == ABSENT, 0.0, evidence).amin().nan_to_num(0.0)
        lowest = lowest.float().view(torch.int32).reshape(1)
        extra = lowest if self._extremes is None else torch.cat([lowest, self._extremes])
        new, bad, extra = self._window.update(self._solve, self._memory.size, extra)
        # Counted here, on all processes alike: how many elements a call has elsewhere is known on the device only.
        self._seen += new
        if self._extremes is not None:
            self._extremes = None
            ends = [int(end) if k % 2 else -int(end) for k, end in enumerate(extra[1:])]
            has_groups = bool(self._grouped)
            self._make_room(ends, len(ends) > 2 or not has_groups, has_groups)
        self._is_learning_sizes, self._has_grown = self._has_grown, False
        self._exchange.shrink()
        scales = self._scale_of(self._window.state.scale)
        known = scales[scales < UNSEEN]
        scale = float(known.log().mean().exp()) if len(known) else math.inf
        self.history.record(self._calls, scale, float(self._window.state.inlier_fraction.mean()))
        if bad:
            self.bad_losses += bad
            self._warn("bad", "infinite or NaN losses get weight 0; bad_losses counts them")
        if float(extra[:1].view(torch.float32)) < NEGATIVE and self._counts_losses:
            self._warn("negative", "losses below 0 get weight 1: subtract a lower bound of the loss")

    _counts_losses = True

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
        grouped = -1 if self._grouped is None else int(self._grouped)
        counters = [self._calls, self._seen, self.bad_losses, grouped, int(self._is_learning_sizes)]
        state = {"counters": torch.tensor(counters), "history": self.history.state()} | self._identity()
        state |= {f"memory.{name}": tensor for name, tensor in self._memory.state_dict().items()}
        state |= {f"window.{name}": tensor for name, tensor in self._window.state_dict().items()}
        return state

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination |= {prefix + name: tensor for name, tensor in self._own_state().items()}

    def _load_from_state_dict(
        self,
        state_dict: Any,
        prefix: str,
        local_metadata: Any,
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        if not any(name.startswith(prefix) for name in state_dict):
            missing_keys.append(prefix + "counters")
            return
        mine = {k.removeprefix(prefix): v for k, v in state_dict.items() if k.startswith(prefix)}
        try:
            self._restore(State(mine))
        except ValueError as error:
            raise ValueError(f"the checkpoint does not fit: {prefix}{error}") from error

    def _check_identity(self, state: State) -> None:
        """Raise ``ValueError`` if a checkpoint is of another kind of loss."""
        for name, value in self._identity().items():
            saved = state.read(name, torch.uint8, (None,))
            if not torch.equal(saved, value):
                made, own = text_of(saved), text_of(value)
                raise ValueError(f"{name} is {made}, not {own}: build this one as the checkpoint's was")

    def _restore(self, state: State) -> None:
        """Become what a checkpoint was taken from, or raise ``ValueError`` and stay as it is."""
        self._check_identity(state)
        counters = state.read("counters", torch.int64, (5,), low=-1)
        history = History.restored(state)
        memory = self._memory.restored(state.part("memory"))
        window = self._window.restored(state.part("window"))
        window.restore_estimators(state.part("window"))
        self.history, self._memory, self._window = history, memory, window
        self._calls, self._seen, self.bad_losses, grouped, learning = counters.tolist()
        self._grouped = None if grouped < 0 else bool(grouped)
        self._is_learning_sizes = bool(learning)
        self._last = LastCall()
