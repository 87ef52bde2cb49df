"""Many stochastic regressions as one program: all methods, rates and trials take each step at once.

Training with batches of one sample is thousands of tiny operations; a run alone spends its time on calling
them. Here one call serves all runs. Runs of one problem see the same samples in the same order
(shuffled epochs), so a step gathers one sample for each problem and the state is ``w[k, methods,
problems]``:

    r = w . x - y,      w <- w - 2 eta F r x,

where the factor F defines the method: 1 (SGD), 1 / |gradient| (normalized), min(1, limit / |gradient|)
(clipped) or the weight ``sigma'_c(r^2)`` (adaptive). Every ``update_every`` steps the scales of all runs
are solved at once by :func:`inlier.alternation.update`, from histograms of recent losses that forget
exponentially.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

import torch
from torch import Tensor

from inlier import kernels
from inlier.alternation import AlternationState, update
from inlier.experiments.baselines.clipping import clipping_factor, normalizing_factor
from inlier.experiments.regression.data import RegressionData, stack
from inlier.fraction import LossMixture, fit_inliers
from inlier.histogram import LossHistogram
from inlier.kernels import Kernel

__all__ = ["RunResult", "Schedule", "StepRule", "run"]


@dataclass(frozen=True)
class StepRule:
    """How a method turns the gradient of one sample into a step.

    Args:
        kind: "sgd", "normalized", "clipped" or "adaptive".
        kernel: The kernel of an adaptive rule.
        auto: Whether its inlier fraction is estimated; else it is the true one.
        held: AAA_T: weights are frozen between updates, from the last loss of each sample. Else AAA_1.
        graduated: Whether zeta is graduated from 1 to its target over the first half of the steps.
        divided: Whether weights are divided by zeta, their expected mean.
    """

    kind: Literal["sgd", "normalized", "clipped", "adaptive"]
    kernel: str = ""
    auto: bool = False
    held: bool = False
    graduated: bool = False
    divided: bool = False


@dataclass(frozen=True)
class Schedule:
    """Numbers of steps and of updates.

    Args:
        steps: The number of steps, a multiple of ``update_every``.
        step_size: eta.
        update_every: Steps between updates of scales (and T of AAA_T); divides the number of samples.
        window: About how many recent losses a scale is solved from.
        estimates: How often the inlier fraction is estimated, evenly from a tenth of the steps on.
        clip: The largest norm of a clipped gradient.
        bits: Mantissa bits of a histogram's bins. With 4, scales are off by at most 3 %, less than their
            sampling noise.
    """

    steps: int
    step_size: float = 7e-4
    update_every: int = 100
    window: int = 1000
    estimates: int = 10
    clip: float = 1.0
    bits: int = 4


@dataclass(frozen=True)
class RunResult:
    """The result of all runs: tensors by method and problem.

    Args:
        w: The weights of the models, [methods, problems, k].
        inlier_fraction: zeta at the end, [methods, problems]; 1 for rules without one.
        scale: c at the end, likewise; infinite for rules without one.
    """

    w: Tensor
    inlier_fraction: Tensor
    scale: Tensor


def run(
    problems: Sequence[RegressionData],
    seeds: Sequence[int],
    rules: Sequence[StepRule],
    schedule: Schedule,
    start: Tensor | None = None,
    on_update: Callable[[int, Tensor], None] | None = None,
    dtype: torch.dtype = torch.float32,
) -> RunResult:
    """Run every rule on every problem, all at once.

    Args:
        problems: Problems of one size.
        seeds: One per problem: the order of its samples. Equal seeds, equal orders.
        rules: The methods.
        schedule: Numbers of steps and of updates.
        start: First weights, [k, methods, problems], the last two of which may be 1; 0 by default.
        on_update: Called before every update with the number of steps done and the weights
            ([k, methods, problems], to be copied if kept).
        dtype: Of the arithmetic of steps.

    Returns:
        The weights, fractions and scales at the end, in the order of rules and problems.

    Example:
        >>> from inlier.experiments.regression.data import draw, rmse
        >>> problems = [draw(rate, seed=0, samples=200, dimension=2) for rate in (0.0, 0.4)]
        >>> rules = [StepRule("sgd"), StepRule("adaptive", "geman-mcclure")]
        >>> result = run(problems, [0, 0], rules, Schedule(2000, step_size=0.05))
        >>> rmse(problems[1], result.w[1, 1]) < rmse(problems[1], result.w[0, 1])
        True

    Reference: Algorithm 1 of the paper (AAA_1 and AAA_T), with one sample a batch.
    """
    samples, dimension = problems[0].x.shape
    period = schedule.update_every
    if samples % period or schedule.steps % period:
        raise ValueError(
            f"update_every = {period} must divide the number of samples, {samples}, and of steps, "
            f"{schedule.steps}"
        )
    # Rules of one kind are adjacent, so that each kind is one slice.
    order = sorted(range(len(rules)), key=lambda i: _slice_key(rules[i]))
    back = sorted(range(len(rules)), key=order.__getitem__)
    sorted_rules = [rules[i] for i in order]
    shape = (len(rules), len(problems))
    table = stack(problems, dtype).view(-1, dimension + 1)
    w = torch.zeros(dimension, *shape, dtype=dtype)
    if start is not None:
        w += start.expand_as(w)[:, order]
    factor, loss = torch.ones(shape, dtype=dtype), torch.empty(shape, dtype=dtype)
    product, push = torch.empty_like(w), torch.empty_like(loss)
    parts = _parts(sorted_rules, problems, schedule, factor, loss)
    shuffle = _Shuffle(seeds, samples)
    with torch.inference_mode():
        for done in range(0, schedule.steps, period):
            if on_update is not None:
                on_update(done, w[:, back])
            index = shuffle.next(period)
            rows = table[index + samples * torch.arange(len(problems))].transpose(1, 2).contiguous()
            x, y = rows[:, :-1].unsqueeze(2), rows[:, -1]
            length = x.square().sum(1).sqrt().squeeze(1)
            residuals = torch.empty(period, *shape, dtype=dtype)
            for part in parts:
                part.prepare(index, length)
            for j, (x_j, y_j, r) in enumerate(zip(x.unbind(), y.unbind(), residuals.unbind(), strict=True)):
                torch.mul(w, x_j, out=product)
                torch.sum(product, 0, out=r).sub_(y_j)
                torch.mul(r, r, out=loss)
                for part in parts:
                    part.write_factor(j)
                torch.mul(r, factor, out=push)
                w.addcmul_(push, x_j, value=-2 * schedule.step_size)
            for part in parts:
                part.update(index, residuals, done + period)
    fraction = torch.ones(shape, dtype=torch.float64)
    scale = torch.full(shape, math.inf, dtype=torch.float64)
    for part in parts:
        if isinstance(part, _AdaptiveRules):
            fraction[part.methods] = part.state.inlier_fraction.view(-1, len(problems))
            scale[part.methods] = part.state.scale.view(-1, len(problems))
    return RunResult(w.permute(1, 2, 0)[back], fraction[back], scale[back])


class _Shuffle:
    """The order of each problem's samples: shuffled every epoch, equal for equal seeds."""

    def __init__(self, seeds: Sequence[int], samples: int) -> None:
        self.seeds, self.samples, self.used = seeds, samples, samples
        # Drawn apart from the data, whose seed is the same number.
        self.generators = {seed: torch.Generator().manual_seed(seed + 1_000_003) for seed in set(seeds)}

    def next(self, steps: int) -> Tensor:
        """Return the samples of the next steps, [steps, problems]; steps divides the number of samples."""
        if self.used == self.samples:
            drawn = {s: torch.randperm(self.samples, generator=g) for s, g in self.generators.items()}
            self.epoch, self.used = torch.stack([drawn[seed] for seed in self.seeds], dim=1), 0
        self.used += steps
        return self.epoch[self.used - steps : self.used]


class _NormRules:
    """Rules whose factor depends on the length of the gradient, ``2 |r| |x|``."""

    def __init__(
        self, methods: slice, factor: Tensor, loss: Tensor, of_norm: Callable[[Tensor], Tensor]
    ) -> None:
        self.factor, self.loss, self.of_norm = factor[methods], loss[methods], of_norm

    def prepare(self, index: Tensor, length: Tensor) -> None:
        self.lengths = (2 * length).unbind()

    def write_factor(self, j: int) -> None:
        self.factor.copy_(self.of_norm(self.loss.sqrt().mul_(self.lengths[j])))

    def update(self, index: Tensor, residuals: Tensor, done: int) -> None:
        """There is nothing to update."""


class _AdaptiveRules:
    """Adaptive rules of one kernel: a slice of methods, whose runs are the groups of a state."""

    def __init__(
        self,
        methods: slice,
        rules: Sequence[StepRule],
        problems: Sequence[RegressionData],
        schedule: Schedule,
        factor: Tensor,
        loss: Tensor,
        first_fits: dict[int, LossMixture],
    ) -> None:
        self.methods, self.schedule = methods, schedule
        self.factor, self.loss = factor[methods], loss[methods]
        self.first_fits, self.samples = first_fits, len(problems[0].y)
        self.fits: dict[int, LossMixture] = {}
        self.kernel: Kernel = kernels.get(rules[0].kernel)
        self.held = rules[0].held
        groups = self.factor.numel()
        self.state = AlternationState.initial(groups)
        true = torch.tensor([data.inlier_fraction for data in problems], dtype=torch.float64)
        auto = torch.tensor([rule.auto for rule in rules])[:, None].expand(len(rules), len(problems))
        self.state.target = torch.where(auto, 1.0, true).reshape(-1)
        self.auto = auto.reshape(-1)
        self.graduated = torch.tensor([rule.graduated for rule in rules]).repeat_interleave(len(problems))
        self.divided = torch.tensor([rule.divided for rule in rules])[:, None]
        self.counts = torch.zeros(groups, (255 << schedule.bits) + 1, dtype=torch.float64)
        size = (*self.factor.shape, self.samples)
        self.last_losses = torch.full(size, math.nan, dtype=factor.dtype) if self.held else None
        self.unseen = self.samples if self.held else 0
        self._spread_state()

    def prepare(self, index: Tensor, length: Tensor) -> None:
        if self.last_losses is not None:
            # Weights are frozen until the next update: look up those of all samples to come.
            known = self.kernel.slope(self.last_losses / self.scale[..., None]) * self.gain[..., None]
            known = torch.where(self.last_losses.isnan(), math.nan, known)
            coming = index.T.expand(*self.factor.shape, -1)
            self.frozen = known.gather(2, coming).permute(2, 0, 1).contiguous()

    def write_factor(self, j: int) -> None:
        if self.held and not self.unseen:
            self.factor.copy_(self.frozen[j])
            return
        torch.mul(self.kernel.slope(self.loss / self.scale), self.gain, out=self.factor)
        if self.held:
            # A sample without a stored loss is weighted by its current one.
            self.factor.copy_(torch.where(self.frozen[j].isnan(), self.factor, self.frozen[j]))

    def update(self, index: Tensor, residuals: Tensor, done: int) -> None:
        """Update fractions and scales from the losses of the last steps."""
        losses = residuals[:, self.methods].square().permute(1, 2, 0)
        if self.last_losses is not None:
            self.last_losses.scatter_(2, index.T.expand_as(losses), losses)
            self.unseen = max(self.unseen - len(index), 0)
        new = [LossHistogram.of(row, self.schedule.bits).counts for row in losses.flatten(0, 1)]
        self.counts *= math.exp(-len(index) / self.schedule.window)
        self.counts += torch.stack(new)
        due = _estimate_is_due(done, self.schedule)
        for progress, chosen in ((1.0, ~self.graduated), (2 * done / self.schedule.steps, self.graduated)):
            if bool(chosen.any()):
                self._update_groups(chosen.nonzero().squeeze(1), progress, due)
        self._spread_state()

    def _update_groups(self, groups: Tensor, progress: float, due: bool) -> None:
        """Update the state of some runs, whose warm-up has come equally far."""
        old = self.state
        part = AlternationState(old.target[groups], old.inlier_fraction[groups], old.scale[groups])
        estimates = self._estimate(groups) if due else None
        part = update(part, self.counts[groups], self.kernel, estimates, progress)
        old.target[groups], old.inlier_fraction[groups] = part.target, part.inlier_fraction
        old.scale[groups] = part.scale

    def _estimate(self, groups: Tensor) -> Tensor:
        """Return the inlier fraction of each run, from its recent losses; NaN where the last one stays."""
        estimates = torch.full((len(groups),), math.nan, dtype=torch.float64)
        for i, group in enumerate(groups.tolist()):
            # A run that has diverged has no finite loss to estimate from.
            if not self.auto[group] or not bool(self.counts[group, :-1].any()):
                continue
            # A sample that was counted many times is no more evidence than one that was counted once.
            repeats = max(1.0, float(self.counts[group].sum()) / self.samples)
            histogram = LossHistogram(self.counts[group] / repeats)
            # Until the first estimate all runs of a problem are the same: one search serves them all.
            problem = group % self.factor.shape[1]
            if problem not in self.first_fits:
                self.first_fits[problem] = fit_inliers(histogram)
            self.fits[group] = fit_inliers(histogram, self.fits.get(group, self.first_fits[problem]))
            estimates[i] = self.fits[group].value
        return estimates

    def _spread_state(self) -> None:
        """Spread scales and divisors over methods and problems, in the dtype of steps."""
        shape = self.factor.shape
        self.scale = self.state.scale.view(shape).to(self.factor.dtype)
        zeta = self.state.inlier_fraction.view(shape)
        self.gain = torch.where(self.divided, 1 / zeta, 1.0).to(self.factor.dtype)


Part = _NormRules | _AdaptiveRules


def _slice_key(rule: StepRule) -> tuple[str, str, bool]:
    return rule.kind, rule.kernel, rule.held


def _parts(
    rules: Sequence[StepRule],
    problems: Sequence[RegressionData],
    schedule: Schedule,
    factor: Tensor,
    loss: Tensor,
) -> list[Part]:
    """Return the parts that write the slices of the factor; the slice of SGD stays 1."""
    parts: list[Part] = []
    first_fits: dict[int, LossMixture] = {}
    at = 0
    for (kind, *_), members in groupby(rules, key=_slice_key):
        same = list(members)
        methods = slice(at, at + len(same))
        at += len(same)
        if kind == "adaptive":
            parts.append(_AdaptiveRules(methods, same, problems, schedule, factor, loss, first_fits))
        elif kind == "normalized":
            parts.append(_NormRules(methods, factor, loss, normalizing_factor))
        elif kind == "clipped":
            parts.append(_NormRules(methods, factor, loss, lambda norm: clipping_factor(norm, schedule.clip)))
    return parts


def _estimate_is_due(done: int, schedule: Schedule) -> bool:
    """Whether one of the evenly spaced moments of estimation has just passed; the first is at a tenth."""
    every = 0.9 * schedule.steps / schedule.estimates

    def passed(step: int) -> int:
        return math.floor((step - 0.1 * schedule.steps) / every + 1 + 1e-9)

    return done < schedule.steps and passed(done) > max(passed(done - schedule.update_every), 0)
