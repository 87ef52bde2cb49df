"""The adaptive alternation (Algorithm 1) for any PyTorch training, as one module at the loss.

What users call comes first. A call goes to ``_judge``: ``_meet`` puts the losses of all processes into the
memory of samples (:mod:`inlier.memory`), the kernel or, with labels, a cut (:mod:`inlier.labels`) gives the
weights, and ``_remember`` counts what they were judged by. When it is time, ``_update`` solves the scale and
estimates the fraction on the window (:mod:`inlier.window`).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn

from inlier import kernels, processes, traced
from inlier.arguments import (
    check,
    check_fraction,
    check_settings,
    flat_losses,
    groups_or_labels,
    kept,
    plain_mean,
)
from inlier.history import History
from inlier.kernels import Kernel
from inlier.kernels.base import label_of, text_of
from inlier.labels import HeldOut
from inlier.memory import SampleMemory
from inlier.metrics import LastCall, call_metrics, scale_metrics
from inlier.window import BITS, DISTINCT, UNSEEN, LossWindow

__all__ = ["Robust"]


ROUNDING = -1e-6
"""Losses below 0 by no more than this are nobody's mistake: -log(p + eps) is, where p is 1."""


class Robust(nn.Module):
    """Turn the losses of a batch into one loss in which each sample weighs as much as it is believed.

    AAA_1 (``hold=1``): the weight of sample i is sigma'_c(f_i), of its current loss, detached. AAA_T
    (``hold=T``): weights are frozen for T calls, taken from each sample's stored loss, which needs ``index``.
    Every ``update_every`` calls the scale c is solved so that the mean weight over a window of recent losses
    is zeta, the inlier fraction; zeta is given, or estimated from that window, and approached from 1.

    The loss is the sum of u_i f_i divided by n, as in the paper, or by zeta n, what the weights are expected
    to add up to: then outliers do not shrink the step, which is quicker and, at a fixed step size, noisier.

    With ``index``, the losses of each sample are remembered, weights come from the running mean of a sample's
    losses, and :meth:`inlier_probability` names the bad samples. With ``groups``, each group (the class of a
    sample, say) has its own scale and fraction, so that a hard group is not thrown out as a whole.

    Args:
        kernel: A kernel, its name, or a function sigma.
        inlier_fraction: zeta in (0, 1], or "auto" to estimate it as training goes on.
        hold: T, the number of calls for which weights stay frozen; 1 takes them from the current losses.
        warmup: The number of calls in which zeta goes from 1 to its target.
        window: About how many recent losses the scale is solved on: older ones are forgotten exponentially.
        update_every: The number of calls between two updates of the scale; ``hold`` if that is above 1.
        divide_by: "samples" or "weights", the divisor of the loss.
        running_mean: The share of a sample's old mean loss in the new one; 0 judges by the last loss alone.
        samples: The number of samples, if it is known (saves a look at each ``index``).
        process_group: The processes that train together; all of them by default.

    Example:
        >>> import torch, inlier
        >>> from torch.nn.functional import cross_entropy
        >>> model, robust = torch.nn.Linear(4, 3), inlier.Robust()
        >>> x, y, index = torch.randn(8, 4), torch.randint(3, (8,)), torch.arange(8)
        >>> loss = robust(cross_entropy(model(x), y, reduction="none"), index)
        >>> loss.backward()
        >>> robust.inlier_probability().shape
        torch.Size([8])

        The three variants of the paper:

        >>> adaptive_tl = inlier.Robust("truncated", inlier_fraction=0.8)
        >>> adaptive_gm = inlier.Robust("geman-mcclure", inlier_fraction=0.8)
        >>> adaptive_t_gm = inlier.Robust("geman-mcclure", inlier_fraction=0.8, hold=100)

    Reference: Algorithm 1 of the paper (Adaptive Alternation Algorithm, AAA_1 and AAA_T).
    """

    kernel_label: Tensor

    def __init__(
        self,
        kernel: str | Kernel | Callable[[Tensor], Tensor] = "geman-mcclure",
        inlier_fraction: float | Literal["auto"] = "auto",
        hold: int = 1,
        *,
        warmup: int = 1000,
        window: int = 8192,
        update_every: int = 20,
        divide_by: Literal["samples", "weights"] = "samples",
        running_mean: float = 0.7,
        samples: int | None = None,
        process_group: dist.ProcessGroup | None = None,
    ) -> None:
        super().__init__()
        self.kernel = kernels.get(kernel)
        check_fraction(inlier_fraction, self.kernel)
        check_settings(hold, warmup, window, update_every, divide_by, running_mean)
        self.hold, self.warmup, self.divide_by = hold, warmup, divide_by
        self.update_every = hold if hold > 1 else update_every
        self.process_group = process_group
        self.window = LossWindow(
            self.kernel, None if inlier_fraction == "auto" else float(inlier_fraction), window
        )
        self.memory = SampleMemory(running_mean, samples)
        self.held_out = HeldOut(BITS)
        self.register_buffer("kernel_label", label_of(self.kernel))
        self.bad_losses = 0
        """How many losses were infinite or NaN up to the last update; each got weight 0."""
        self.history = History()
        """(Call number, scale, inlier fraction) at some of the updates, in order; means over groups."""
        self._step, self._capacity, self._warned = 0, 0, set[str]()
        self._grouped: bool | None = None
        self._labelled = False
        self._last = LastCall()
        self._name = traced.register(self)

    @property
    def scale(self) -> Tensor:
        """The scale c: a number, or one for each group."""
        return self.window.scales if self._grouped else self.window.scales[0]

    @property
    def inlier_fraction(self) -> Tensor:
        """The inlier fraction zeta in force: a number, or one for each group."""
        return self.window.fractions if self._grouped else self.window.fractions[0]

    def inlier_probability(self) -> Tensor:
        """Return the belief that each sample is an inlier, by sample number: sigma'_c of its mean loss.

        Returns:
            Probabilities, NaN for a sample that was never seen.
        """
        if len(self.memory) == 0:
            raise RuntimeError("no sample is known by number: train with `robust(losses, index)` first")
        means = self.memory.means
        groups = self.memory.groups[: len(means)].long()
        scales = self.window.scales[groups] if self._grouped else self.window.scales
        return torch.where(means.isnan(), math.nan, self.kernel.slope((means / scales).clamp(min=0)))

    def forward(
        self,
        losses: Tensor,
        index: Tensor | None = None,
        groups: Tensor | None = None,
        mask: Tensor | None = None,
        labels: Tensor | None = None,
        logits: Tensor | None = None,
    ) -> Tensor:
        """Return the weighted mean of the losses; in ``eval()`` the plain mean.

        Args:
            losses: One loss for each element, of any shape: ``reduction="none"``.
            index: The number of each element's sample, of the shape of the losses.
            groups: The group of each element (0, 1, ...), of the shape of the losses.
            mask: True where an element counts; the others are left out of everything.
            labels: The class of each element, in place of ``groups``, where losses are cross-entropies of
                labels some of which may be wrong; needs ``index``. See :mod:`inlier.labels`.
            logits: What the cross-entropies are of, with ``labels``: the fraction of right labels is much
                better known with them than without. The classes are in the last dimension.

        Returns:
            A scalar. Over several processes its mean is the loss of one process on the joined batch, as is
            the mean of its gradients, which DistributedDataParallel takes.
        """
        groups = groups_or_labels(groups, labels, self._labelled and self.training)
        self._labelled |= labels is not None
        check(losses, index, groups, mask, logits, self.hold, self._labelled)
        flat = flat_losses(losses)
        if not self.training:
            return plain_mean(flat, mask)
        if torch.compiler.is_compiling():
            weights = traced.weigh(
                self._name, flat.detach(), index, groups, mask, logits, labels is not None, True
            )
            # A loss that is masked out or not finite has weight 0, but 0 * NaN would be NaN.
            return torch.dot(weights, torch.where(weights == 0, 0.0, flat))
        flat, index, groups, logits = kept(flat, index, groups, logits, mask)
        weights, factor, finite = self._judge(flat.detach(), index, groups, logits)
        if finite is not None:
            flat = torch.where(finite, flat, 0.0)
        return torch.dot((weights * factor).to(flat.dtype), flat)

    def weigh(
        self,
        losses: Tensor,
        index: Tensor | None = None,
        groups: Tensor | None = None,
        mask: Tensor | None = None,
        labels: Tensor | None = None,
        logits: Tensor | None = None,
    ) -> Tensor:
        """Learn from the losses as a call does, and return the weight of each, for a reduction of your own.

        Args:
            losses: As in a call; so are the others.
            index: The numbers of the samples.
            groups: Their groups.
            mask: True where an element counts.
            labels: Their classes.
            logits: What the cross-entropies are of.

        Returns:
            Weights of the shape of the losses, without a graph and not divided by anything; 0 where an
            element is masked out or its loss is infinite or NaN. In ``eval()`` the others are 1, and nothing
            is learned.

        Example:
            >>> robust = Robust()
            >>> losses = torch.rand(2, 3)
            >>> robust.weigh(losses)  # before the first update all are believed
            tensor([[1., 1., 1.],
                    [1., 1., 1.]])
        """
        groups = groups_or_labels(groups, labels, self._labelled and self.training)
        self._labelled |= labels is not None
        check(losses, index, groups, mask, logits, self.hold, self._labelled)
        flat = flat_losses(losses).detach()
        if torch.compiler.is_compiling():
            weights = traced.weigh(self._name, flat, index, groups, mask, logits, labels is not None, False)
        else:
            weights = self.flat_weights(flat, index, groups, mask, logits, labels is not None, divided=False)
        return weights.view(losses.shape)

    def metrics(self, prefix: str = "", together: bool = False) -> dict[str, float]:
        """Return what a logger may want to know of the training, as floats.

        ``inlier_fraction`` and ``scale`` (infinite where every loss has weight 1) are those in force and the
        same on every process; with groups the fraction is the mean over recent losses, and ``scale/0``,
        ``inlier_fraction/0``, ... are those of the groups. ``bad_losses`` counts infinite and NaN losses.
        ``fraction_kept`` (the mean weight), ``weighted_loss`` (what the call returned) and ``plain_loss``
        (the mean of the finite losses) are of the last call in training, and absent before it.

        A training step pays nothing for them; this call waits for the device once or twice.

        Args:
            prefix: Put before each name, as in "robust/".
            together: Whether the last call is that of all processes, not of this one. Then all processes
                must ask at the same time, for one collective.

        Example:
            >>> robust = Robust()
            >>> loss = robust(torch.tensor([1.0, 3.0]))
            >>> robust.metrics()["plain_loss"], robust.metrics("robust/")["robust/fraction_kept"]
            (2.0, 1.0)
        """
        window = self.window
        sizes = window.counts.sum(1)
        numbers = scale_metrics(window.scales, window.fractions, sizes, bool(self._grouped), UNSEEN)
        sums = self._last.sums().to(window.scales.device)
        if together and processes.world_size(self.process_group) > 1:
            processes.add_up(sums, self.process_group)
        numbers |= {"bad_losses": float(self.bad_losses)} | call_metrics(sums)
        return {prefix + name: number for name, number in numbers.items()}

    @property
    def last_weights(self) -> Tensor | None:
        """The weights of the last call in training, flat and without what the mask left out; None before."""
        return self._last.weights

    def refresh(self, model_losses: Tensor, groups: Tensor | None = None) -> None:
        """Replace all stored losses by new ones, solve the scale on them and freeze the weights anew.

        This is how the paper's algorithm begins each round of T steps: with the losses of all samples under
        the current model. With several processes, each of them gives all losses.

        Args:
            model_losses: The current loss of every sample, in the order of their numbers.
            groups: The group of every sample, if there are groups.
        """
        flat = model_losses.detach().float().reshape(-1)
        groups = None if groups is None else groups.reshape(-1)
        self._settle(groups, flat.device)
        self.memory.replace(flat, groups)
        self.window.forget()
        if groups is not None:
            self.window.reserve(int(groups.max()) + 1)
        self.window.count(flat, groups)
        self._update(together=False)

    @property
    def is_warm(self) -> bool:
        """Whether the warm-up is over."""
        return self._step >= self.warmup

    def change_kernel(self, kernel: str | Kernel | Callable[[Tensor], Tensor]) -> None:
        """Judge by another kernel from now on; its scale is solved on the losses of the window.

        With several processes, all of them must change it at the same call.

        Args:
            kernel: As for a new ``Robust``.

        Example:
            >>> robust = Robust("geman-mcclure")
            >>> robust.change_kernel("truncated")
            >>> robust.kernel
            Truncated()
        """
        new, given = kernels.get(kernel), self.window.given_fraction
        check_fraction("auto" if given is None else given, new)
        self.kernel = self.window.kernel = new
        self.kernel_label = label_of(new).to(self.kernel_label.device)
        if self._step:
            self._update(together=True)

    def flat_weights(
        self,
        flat: Tensor,
        index: Tensor | None,
        groups: Tensor | None,
        mask: Tensor | None,
        logits: Tensor | None,
        labelled: bool,
        divided: bool,
    ) -> Tensor:
        """Do :meth:`weigh` on flat losses, with weights divided as in a call, or not at all."""
        # A compiled step calls this before its own changes of attributes are made.
        self._labelled |= labelled
        keep = None if mask is None else mask.reshape(-1).bool()
        if self.training:
            weights, factor, _ = self._judge(*kept(flat, index, groups, logits, mask))
            weights = (weights * factor if divided else weights.clone()).to(flat.dtype)
        else:
            weights = (flat if keep is None else flat[keep]).isfinite().to(flat.dtype)
        return weights if keep is None else torch.zeros_like(flat).masked_scatter(keep, weights)

    def _judge(
        self, losses: Tensor, index: Tensor | None, groups: Tensor | None, logits: Tensor | None
    ) -> tuple[Tensor, Tensor | float, Tensor | None]:
        """Learn from flat losses of this process, without a graph.

        Returns:
            Their weights, 0 where a loss is not finite; what to multiply them by for a loss; and which losses
            are finite, None if all of them are known to be.
        """
        self._settle(groups, losses.device)
        before = self.memory.last_of(index) if self._labelled and index is not None else losses
        world, divisor, evidence = self._meet(losses.float(), index, groups)
        scales = self.window.scales if groups is None else self.window.scales[groups]
        weights = self.kernel.slope((evidence / scales).clamp_(min=0))
        if self.hold > 1 and index is not None and len(self.memory.frozen):
            frozen = self.memory.frozen[index]
            weights = torch.where(frozen.isnan(), weights, frozen)
        if self._labelled and index is not None and groups is not None:
            # Labels count in full or not at all, by the loss of the last visit: the mean keeps out for long
            # what was slow to be learned, and by its current loss a sample would choose itself.
            evidence = torch.where(before.isfinite() & losses.isfinite(), before, losses.float())
            weights = (evidence <= self.window.cuts[groups]).to(weights)
            if not self.held_out.is_settled:
                chosen = self.held_out.note(losses, index, groups, logits)
                # Who is told the fraction need not hold out anything; the passes are counted all the same.
                if self.window.given_fraction is None:
                    weights = torch.where(chosen, 0.0, weights)
        finite: Tensor | None = evidence.isfinite()
        # Looking whether all are finite saves work where looking is cheap; on other devices it would wait.
        if losses.device.type == "cpu" and bool(finite.all()):  # type: ignore[union-attr]
            finite = None
        else:
            weights = torch.where(finite, weights, 0.0)  # type: ignore[arg-type]
        self._last.weights, self._last.losses = weights, losses
        self._remember(evidence, groups)
        return weights, world / divisor, finite

    def _settle(self, groups: Tensor | None, device: torch.device) -> None:
        """Settle whether there are groups, and be on the device of the losses."""
        if self._grouped is None:
            self._grouped = groups is not None
        elif self._grouped != (groups is not None):
            raise ValueError("groups were given in some calls and not in others: give them in all or in none")
        if self.window.scales.device != device:
            self.to(device)

    def _meet(
        self, losses: Tensor, index: Tensor | None, groups: Tensor | None
    ) -> tuple[int, Tensor | float, Tensor]:
        """Put the losses of all processes into the memory: one message.

        Returns:
            The number of processes; the divisor of the joined batch; and what each loss of this process is
            judged by, its sample's mean loss if there is a number, else itself.
        """
        most = int(groups.max()) + 1 if groups is not None and groups.numel() else 0
        self.window.reserve(most)
        part = self._last.expected = self._expected_weight(len(losses), groups)
        world = processes.world_size(self.process_group)
        if world == 1:
            if index is not None:
                losses = self.memory.record(index, losses, groups)
            return 1, part if len(losses) else 1.0, losses
        columns = [losses] if index is not None else []
        columns += [extra for extra in (index, groups) if columns and extra is not None]
        rows = (
            torch.stack([x.double() for x in columns], 1) if columns else losses.double().view(-1, 1)[:, :0]
        )
        header = torch.stack([torch.as_tensor(x, device=losses.device).double() for x in (part, most)])
        headers, rows, self._capacity = processes.exchange(header, rows, self._capacity, self.process_group)
        divisor = headers[:, 0].sum()
        if groups is not None:
            self.window.reserve(int(headers[:, 1].max()))
        if index is not None:
            everyone = rows[:, 1].long()
            self.memory.record(everyone, rows[:, 0].float(), None if groups is None else rows[:, 2].long())
            losses = torch.where(losses.isfinite(), self.memory.means[index], losses)
        return world, torch.where(divisor > 0, divisor, 1.0).to(losses.dtype), losses

    def _expected_weight(self, count: int, groups: Tensor | None) -> Tensor | float:
        """What the weights of so many losses are expected to add up to; with "samples", their number."""
        if self.divide_by == "samples" or count == 0:
            return float(count)
        return self.window.fractions[0] * count if groups is None else self.window.fractions[groups].sum()

    def _remember(self, evidence: Tensor, groups: Tensor | None) -> None:
        """Count what this call's losses are judged by, and update the belief when it is time."""
        self.window.count(evidence, groups)
        self._step += 1
        if self._step % self.update_every == 0:
            if len(evidence) and float(evidence.min()) < ROUNDING:
                self._warn(
                    "negative", "losses below 0 are judged as 0, weight 1: subtract a lower bound of the loss"
                )
            self._update(together=True)

    def _update(self, together: bool) -> None:
        progress = self._step / self.warmup if self.warmup else 1.0
        samples = len(self.memory) or DISTINCT
        fraction = self._label_fraction() if self._labelled else None
        bad = self.window.update(progress, self.process_group, together, samples, fraction)
        self.history.offer(self._step, self.window.scales, self.window.fractions, UNSEEN)
        if bad:
            self.bad_losses += bad
            self._warn("bad", "infinite or NaN losses get weight 0; robust.bad_losses counts them")
        if self.hold > 1 and len(self.memory):
            self.memory.freeze(self.inlier_probability())

    def _label_fraction(self) -> float:
        """Return the fraction of right labels in force: 1 until something is known of them."""
        held_out, given = self.held_out, self.window.given_fraction
        if not held_out.is_settled:
            held_out.update(self.memory.means, len(self.window.scales), self.process_group)
        return held_out.fraction if given is None or not held_out.has_begun else given

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._name = traced.register(self)  # A copy is another one.

    def _warn(self, kind: str, message: str) -> None:
        if kind not in self._warned:
            self._warned.add(kind)
            warnings.warn(message, RuntimeWarning, stacklevel=8)

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        grouped = -1 if self._grouped is None else int(self._grouped)
        counters = [self._step, self.bad_losses, grouped, int(self._labelled)]
        destination[prefix + "counters"] = torch.tensor(counters)
        destination[prefix + "history"] = self.history.state()

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any, **kwargs: Any) -> None:
        label = state_dict.get(prefix + "kernel_label")
        if label is not None and not torch.equal(label.cpu(), self.kernel_label.cpu()):
            raise ValueError(
                f"the checkpoint was made with the kernel {text_of(label)}, but this Robust has "
                f"{text_of(self.kernel_label)}: build Robust with the checkpoint's kernel"
            )
        if prefix + "counters" in state_dict:
            # Early checkpoints know of no labels.
            counters = [*state_dict.pop(prefix + "counters").tolist(), 0]
            self._step, self.bad_losses, grouped, labelled = counters[:4]
            self._grouped, self._labelled = None if grouped < 0 else bool(grouped), bool(labelled)
        if prefix + "history" in state_dict:  # Early checkpoints have none.
            self.history.restore(state_dict.pop(prefix + "history"))
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)
