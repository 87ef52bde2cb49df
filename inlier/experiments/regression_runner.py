"""Many stochastic regressions as one program: all methods, rates and trials take each step together.

Training with batches of one sample is thousands of tiny operations; run alone, a run spends its time on
calling them. Here one call serves all runs. Runs of one problem see the same samples in the same order
(shuffled epochs), so a step gathers one sample for each problem and the state is ``w[k, methods,
problems]``:

    r = w . x - y,      w <- w - 2 eta F r x,

where the factor F is what a method is: 1 (SGD), 1 / |gradient| (normalised), min(1, limit / |gradient|)
(clipped) or the weight ``sigma'_c(r^2)`` (adaptive). Every ``update_every`` steps the scales of all runs
are solved together by :func:`inlier.alternation.update`, from histograms of recent losses that forget
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
from inlier.alternation import Belief, update
from inlier.experiments.regression_data import RegressionData, stack
from inlier.fraction import InlierFit, fit_inliers
from inlier.kernels import Kernel
from inlier.rivals.clipping import clipping_factor, normalising_factor
from inlier.scale import LossHistogram

__all__ = ["Outcome", "Rule", "Schedule", "run"]


@dataclass(frozen=True)
class Rule:
    """How a method turns the gradient of one sample into a step.

    Args:
        kind: "sgd", "normalised", "clipped" or "adaptive".
        kernel: The kernel of an adaptive rule.
        auto: Whether its inlier fraction is estimated; else it is the true one.
        held: AAA_T: weights are frozen between updates, from the last loss of each sample. Else AAA_1.
        lowered: Whether zeta comes down from 1 to its target over the first half of the steps.
        divided: Whether weights are divided by zeta, their expected mean.
    """

    kind: Literal["sgd", "normalised", "clipped", "adaptive"]
    kernel: str = ""
    auto: bool = False
    held: bool = False
    lowered: bool = False
    divided: bool = False


@dataclass(frozen=True)
class Schedule:
    """How long and how often.

    Args:
        steps: The number of steps, a multiple of ``update_every``.
        step_size: eta.
        update_every: Steps between updates of scales (and T of AAA_T); divides the number of samples.
        window: About how many recent losses a scale is solved on.
        estimates: How often the inlier fraction is estimated, evenly from a tenth of the steps on.
        clip: The longest gradient that clipping lets pass.
        bits: Mantissa bits of a histogram's bins. With 4, scales are off by 3 % at most, which is less than
            they vary from noise.
    """

    steps: int
    step_size: float = 7e-4
    update_every: int = 100
    window: int = 1000
    estimates: int = 10
    clip: float = 1.0
    bits: int = 4


@dataclass(frozen=True)
class Outcome:
    """Where all runs end: tensors by method and problem.

    Args:
        w: The weights of the models, [methods, problems, k].
        inlier_fraction: zeta at the end, [methods, problems]; 1 for rules that have none.
        scale: c at the end, likewise; infinite for rules that have none.
    """

    w: Tensor
    inlier_fraction: Tensor
    scale: Tensor


def run(
    problems: Sequence[RegressionData],
    seeds: Sequence[int],
    rules: Sequence[Rule],
    schedule: Schedule,
    start: Tensor | None = None,
    watch: Callable[[int, Tensor], None] | None = None,
    dtype: torch.dtype = torch.float32,
) -> Outcome:
    """Run every rule on every problem, all at once.

    Args:
        problems: Problems of one size.
        seeds: One for each problem: the order in which it shows its samples. Equal seeds, equal orders.
        rules: The methods.
        schedule: How long and how often.
        start: First weights, [k, methods, problems], the last two of which may be 1; 0 unless given.
        watch: Called before every update with the number of steps done and the weights
            ([k, methods, problems], to be copied if kept).
        dtype: Of the arithmetic of steps.

    Returns:
        The weights, fractions and scales at the end, in the order of rules and problems.

    Example:
        >>> from inlier.experiments.regression_data import draw, rmse
        >>> problems = [draw(rate, seed=0) for rate in (0.0, 0.4)]
        >>> rules = [Rule("sgd"), Rule("adaptive", "geman-mcclure")]
        >>> end = run(problems, [0, 0], rules, Schedule(20_000, step_size=0.01))
        >>> rmse(problems[1], end.w[1, 1]) < rmse(problems[1], end.w[0, 1])
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
    # Rules of one kind stand side by side, so that each kind is one slice.
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
            if watch is not None:
                watch(done, w[:, back])
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
                part.learn(index, residuals, done + period)
    fraction = torch.ones(shape, dtype=torch.float64)
    scale = torch.full(shape, math.inf, dtype=torch.float64)
    for part in parts:
        if isinstance(part, _Adaptive):
            fraction[part.place] = part.belief.inlier_fraction.view(-1, len(problems))
            scale[part.place] = part.belief.scale.view(-1, len(problems))
    return Outcome(w.permute(1, 2, 0)[back], fraction[back], scale[back])


class _Shuffle:
    """Orders in which problems show their samples: a new shuffle every epoch, drawn once for equal seeds."""

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


class _Bounded:
    """Rules whose factor depends on the length of the gradient, ``2 |r| |x|``."""

    def __init__(
        self, place: slice, factor: Tensor, loss: Tensor, of_norm: Callable[[Tensor], Tensor]
    ) -> None:
        self.factor, self.loss, self.of_norm = factor[place], loss[place], of_norm

    def prepare(self, index: Tensor, length: Tensor) -> None:
        self.lengths = (2 * length).unbind()

    def write_factor(self, j: int) -> None:
        self.factor.copy_(self.of_norm(self.loss.sqrt().mul_(self.lengths[j])))

    def learn(self, index: Tensor, residuals: Tensor, done: int) -> None:
        """Nothing is learnt from losses."""


class _Adaptive:
    """Adaptive rules of one kernel: a slice of methods, whose runs are the rows of a belief."""

    def __init__(
        self,
        place: slice,
        rules: Sequence[Rule],
        problems: Sequence[RegressionData],
        schedule: Schedule,
        factor: Tensor,
        loss: Tensor,
        first_fits: dict[int, InlierFit],
    ) -> None:
        self.place, self.schedule, self.factor, self.loss = place, schedule, factor[place], loss[place]
        self.first_fits, self.samples = first_fits, len(problems[0].y)
        self.kernel: Kernel = kernels.get(rules[0].kernel)
        self.held = rules[0].held
        groups = self.factor.numel()
        self.belief = Belief.first(groups)
        true = torch.tensor([data.inlier_fraction for data in problems], dtype=torch.float64)
        auto = torch.tensor([rule.auto for rule in rules])[:, None].expand(len(rules), len(problems))
        self.belief.target = torch.where(auto, 1.0, true).reshape(-1)
        self.auto = auto.reshape(-1)
        self.lowered = torch.tensor([rule.lowered for rule in rules]).repeat_interleave(len(problems))
        self.divided = torch.tensor([rule.divided for rule in rules])[:, None]
        self.counts = torch.zeros(groups, (255 << schedule.bits) + 1, dtype=torch.float64)
        size = (*self.factor.shape, self.samples)
        self.last_losses = torch.full(size, math.nan, dtype=factor.dtype) if self.held else None
        self.unseen = self.samples if self.held else 0
        self._apply_belief()

    def prepare(self, index: Tensor, length: Tensor) -> None:
        if self.last_losses is not None:
            # Weights stay frozen until the next update: look up those of all samples to come at once.
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
            # A sample without a stored loss is weighed by its current one.
            self.factor.copy_(torch.where(self.frozen[j].isnan(), self.factor, self.frozen[j]))

    def learn(self, index: Tensor, residuals: Tensor, done: int) -> None:
        """Update fractions and scales from the losses of the last steps."""
        losses = residuals[:, self.place].square().permute(1, 2, 0)
        if self.last_losses is not None:
            self.last_losses.scatter_(2, index.T.expand_as(losses), losses)
            self.unseen = max(self.unseen - len(index), 0)
        new = [LossHistogram.of(row, self.schedule.bits).counts for row in losses.flatten(0, 1)]
        self.counts *= math.exp(-len(index) / self.schedule.window)
        self.counts += torch.stack(new)
        for progress, rows in ((1.0, ~self.lowered), (2 * done / self.schedule.steps, self.lowered)):
            if bool(rows.any()):
                self._update_rows(rows.nonzero().squeeze(1), progress, _estimate_is_due(done, self.schedule))
        self._apply_belief()

    def _update_rows(self, rows: Tensor, progress: float, due: bool) -> None:
        """Update the belief of some runs, which have come equally far on their way to zeta."""
        old = self.belief
        part = Belief(
            old.target[rows], old.inlier_fraction[rows], old.scale[rows], [old.fits[i] for i in rows.tolist()]
        )
        estimate = self.auto[rows].nonzero().squeeze(1).tolist() if due else []
        for i in estimate:
            if part.fits[i] is None:
                part.fits[i] = self._first_fit(int(rows[i]))
        part = update(part, self.counts[rows], self.kernel, progress, estimate, distinct=self.samples)
        old.target[rows], old.inlier_fraction[rows] = part.target, part.inlier_fraction
        old.scale[rows] = part.scale
        for i, fit in zip(rows.tolist(), part.fits, strict=True):
            old.fits[i] = fit

    def _first_fit(self, row: int) -> InlierFit:
        """Search for the inliers of a problem once: until then, all runs that estimate are the same run."""
        problem = row % self.factor.shape[1]
        if problem not in self.first_fits:
            repeats = max(1.0, float(self.counts[row].sum()) / self.samples)
            self.first_fits[problem] = fit_inliers(LossHistogram(self.counts[row] / repeats))
        return self.first_fits[problem]

    def _apply_belief(self) -> None:
        """Spread scales and divisors over methods and problems, in the dtype of steps."""
        shape = self.factor.shape
        self.scale = self.belief.scale.view(shape).to(self.factor.dtype)
        zeta = self.belief.inlier_fraction.view(shape)
        self.gain = torch.where(self.divided, 1 / zeta, 1.0).to(self.factor.dtype)


Part = _Bounded | _Adaptive


def _slice_key(rule: Rule) -> tuple[str, str, bool]:
    return rule.kind, rule.kernel, rule.held


def _parts(
    rules: Sequence[Rule],
    problems: Sequence[RegressionData],
    schedule: Schedule,
    factor: Tensor,
    loss: Tensor,
) -> list[Part]:
    """Return what writes each slice of the factor; the slice of SGD stays 1."""
    parts: list[Part] = []
    first_fits: dict[int, InlierFit] = {}
    at = 0
    for (kind, *_), members in groupby(rules, key=_slice_key):
        same = list(members)
        place = slice(at, at + len(same))
        at += len(same)
        if kind == "adaptive":
            parts.append(_Adaptive(place, same, problems, schedule, factor, loss, first_fits))
        elif kind == "normalised":
            parts.append(_Bounded(place, factor, loss, normalising_factor))
        elif kind == "clipped":
            parts.append(_Bounded(place, factor, loss, lambda norm: clipping_factor(norm, schedule.clip)))
    return parts


def _estimate_is_due(done: int, schedule: Schedule) -> bool:
    """Whether one of the evenly spaced moments of estimation has just passed; the first is at a tenth."""
    every = 0.9 * schedule.steps / schedule.estimates

    def passed(step: int) -> int:
        return math.floor((step - 0.1 * schedule.steps) / every + 1 + 1e-9)

    return done < schedule.steps and passed(done) > max(passed(done - schedule.update_every), 0)
