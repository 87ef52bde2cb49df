"""``Robust``: the adaptive alternation (Algorithm 1) for any PyTorch training, as one module at the loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
import torch.distributed as dist
from torch import Tensor

from inlier import kernels
from inlier.alternation import AlternationState, update
from inlier.fraction import FractionEstimator, GivenFraction
from inlier.kernels import Kernel
from inlier.kernels._base import label_of
from inlier.nn._module import RobustModule
from inlier.nn._validation import (
    ABSENT,
    Batch,
    check_fraction,
    check_losses,
    check_settings,
    estimator_of,
    flat_losses,
)
from inlier.nn._window import Calls

__all__ = ["Robust"]

PRIOR_COUNT = 10.0
"""Each group's histogram is pooled with this many losses of all groups, so that the scale of a very small group is much
like that of the whole (benchmarks/constants.py)."""


class Robust(RobustModule):
    """Turn the losses of a batch into one loss in which each sample has the weight of an inlier probability.

    AAA_1 (``hold=1``): the weight of sample i is sigma'_c(f_i), of its current loss, detached. AAA_T
    (``hold=T``): weights are frozen for T calls, taken from each sample's stored loss, which needs ``index``.
    Every ``update_every`` calls c is set to the scale at which the mean weight over a window of recent losses is
    zeta, the inlier fraction; zeta is given, or estimated from that window, and approached from 1. Estimates
    count once several in a row agree, and only in part if they are not trusted.

    The loss is the sum of u_i f_i divided by n, as in the paper, or by zeta n, which the weights are expected to
    add up to: then outliers do not shrink the step, and training is faster and, at a fixed step size, noisier.

    With ``index``, weights come from the running mean of a sample's losses, and :meth:`inlier_probability` points
    to the bad samples. With ``groups``, each group (a sensor, say) has its own scale, so that a hard group is not
    rejected as a whole. For class labels there is :class:`~inlier.RobustCrossEntropy`.

    Args:
        kernel: A kernel, its name, or a function sigma.
        inlier_fraction: zeta in (0, 1]; "auto" to estimate it during training; or a
            :class:`~inlier.fraction.FractionEstimator`.
        hold: T, the number of calls for which weights stay frozen; 1 takes them from the current losses.
        warmup: The number of calls in which zeta goes from 1 to its target.
        window: About how many recent losses the scale is solved on; older ones are forgotten exponentially.
        update_every: The number of calls between two updates of the scale; ``hold`` if that is above 1.
        divide_by: "samples" or "weights", the divisor of the loss.
        running_mean: The share of a sample's old mean loss in the new one; 0 weights by the last loss alone.
        samples: The number of samples, if known; else it is learned from ``index``.
        num_groups: The number of groups, if known; else it is learned from ``groups``.
        process_group: The processes that train together; all of them by default.

    Example:
        >>> import torch, inlier
        >>> model, robust = torch.nn.Linear(4, 1), inlier.Robust()
        >>> x, y, index = torch.randn(8, 4), torch.randn(8), torch.arange(8)
        >>> loss = robust((model(x).squeeze(1) - y) ** 2, index)
        >>> loss.backward()
        >>> robust.inlier_probability().shape
        torch.Size([8])

        The three variants of the paper:

        >>> adaptive_tl = inlier.Robust("truncated", inlier_fraction=0.8)
        >>> adaptive_gm = inlier.Robust("geman-mcclure", inlier_fraction=0.8)
        >>> adaptive_t_gm = inlier.Robust("geman-mcclure", inlier_fraction=0.8, hold=100)

    Reference: Algorithm 1 of the paper (Adaptive Alternation Algorithm, AAA_1 and AAA_T).
    """

    def __init__(
        self,
        kernel: str | Kernel | Callable[[Tensor], Tensor] = "geman-mcclure",
        inlier_fraction: float | Literal["auto"] | FractionEstimator = "auto",
        hold: int = 1,
        *,
        warmup: int = 1000,
        window: int = 8192,
        update_every: int = 20,
        divide_by: Literal["samples", "weights"] = "samples",
        running_mean: float = 0.7,
        samples: int | None = None,
        num_groups: int | None = None,
        process_group: dist.ProcessGroup | None = None,
    ) -> None:
        chosen = kernels.get(kernel)
        estimator = estimator_of(inlier_fraction, chosen)
        check_settings(
            hold=hold,
            warmup=warmup,
            window=window,
            update_every=update_every,
            running_mean=running_mean,
            samples=samples,
            num_groups=num_groups,
        )
        if divide_by not in ("samples", "weights"):
            raise ValueError(f"divide_by = {divide_by!r}: choose 'samples' or 'weights'")
        super().__init__(
            estimator,
            window,
            hold if hold > 1 else update_every,
            running_mean,
            samples,
            num_groups,
            process_group,
        )
        self.kernel, self.hold, self.warmup, self.divide_by = chosen, hold, warmup, divide_by

    def forward(
        self,
        losses: Tensor,
        index: Tensor | None = None,
        groups: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> Tensor:
        """Return the weighted mean of the losses; in ``eval()`` the unweighted mean, which needs no index.

        Args:
            losses: One loss for each element, of any shape: ``reduction="none"``.
            index: The dataset index of each element's sample, of the shape of the losses; integers.
            groups: The group of each element (0, 1, ...), of the shape of the losses; integers.
            mask: True where an element counts; the others are left out of everything.

        Returns:
            A scalar. Over several processes its mean is the loss of one process on the joined batch, as is
            the mean of its gradients, which DistributedDataParallel takes.
        """
        if not self.training:
            check_losses(losses, None, None, mask)
            return _mean(flat_losses(losses), mask)
        flat, weights = self._call(losses, index, groups, mask, divided=True)
        return self._weighted_sum(weights, flat)

    def weigh(
        self,
        losses: Tensor,
        index: Tensor | None = None,
        groups: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> Tensor:
        """Learn from the losses as a call does, and return the weight of each, for a reduction of your own.

        Args:
            losses: As in a call; so are the others.
            index: The dataset indices.
            groups: The groups.
            mask: True where an element counts.

        Returns:
            Weights of the shape of the losses, detached and not divided by anything; 0 where an element is
            masked out or its loss is infinite or NaN. In ``eval()`` the others are 1, and nothing is learned.

        Example:
            >>> robust = Robust()
            >>> losses = torch.rand(2, 3)
            >>> robust.weigh(losses)  # before the first update all have weight 1
            tensor([[1., 1., 1.],
                    [1., 1., 1.]])
        """
        flat, weights = self._call(losses, index, groups, mask, divided=False)
        return weights.to(flat.dtype).view(losses.shape)

    def refresh(self, model_losses: Tensor, groups: Tensor | None = None) -> None:
        """Replace all stored losses by new ones, solve for the scale on them and freeze the weights anew.

        The paper's algorithm begins each round of T steps like this, with the losses of all samples under the
        current model. With several processes, each of them passes all losses.

        Args:
            model_losses: The current loss of every sample, in the order of their dataset indices.
            groups: The group of every sample, if there are groups.
        """
        check_losses(model_losses, None, groups, None)
        flat = model_losses.detach().float().reshape(-1)
        batch = Batch.of(flat, None, None if groups is None else groups.reshape(-1))
        self._prepare(batch)
        self._memory.replace(flat, batch.tags)
        self._pending.clear()
        self._window.forget()
        self._pending.append(Calls(flat, None, batch.tags))
        self._update()

    @property
    def is_warm(self) -> bool:
        """Whether the warm-up is over."""
        return self._counters.calls >= self.warmup

    def change_kernel(self, kernel: str | Kernel | Callable[[Tensor], Tensor]) -> None:
        """Weight by another kernel from now on, with a scale solved on the losses of the window.

        With several processes, all of them must change it at the same call.

        Args:
            kernel: As for a new ``Robust``.

        Example:
            >>> robust = Robust("geman-mcclure")
            >>> robust.change_kernel("truncated")
            >>> robust.kernel
            Truncated()
        """
        new = kernels.get(kernel)
        estimator = self._window.estimators[0]
        if isinstance(estimator, GivenFraction):
            check_fraction(estimator.value, new)
        self.kernel = new
        if self._counters.calls:
            self._update()

    def _call(
        self, losses: Tensor, index: Tensor | None, groups: Tensor | None, mask: Tensor | None, divided: bool
    ) -> tuple[Tensor, Tensor]:
        """Check the arguments, and return flat losses and their weights."""
        try:
            check_losses(losses, index, groups, mask)
            if self.training and self.hold > 1 and index is None:
                raise ValueError(
                    f"hold = {self.hold} takes weights from the stored loss of each sample, and needs its dataset "
                    "index: call robust(losses, index), as with inlier.with_index(dataset), or use hold=1"
                )
        except (TypeError, ValueError):
            if self.training and self._exchange.world > 1 and isinstance(losses, Tensor):
                self._exchange.refuse(losses.device)
            raise
        flat = flat_losses(losses)
        values = flat.detach().float()
        if mask is not None:
            values = torch.where(mask.reshape(-1).bool(), values, ABSENT)
        return flat, self._weights(values, None, index, groups, None, divided)

    def _weigh(self, evidence: Tensor, rows: Tensor | None, places: Tensor | None) -> Tensor:
        window = self._window
        scales = window.shared[0] if rows is None else window.current[0].index_select(0, rows)
        weights = self.kernel.slope((evidence / scales).clamp_(min=0))
        if places is None or self._memory.frozen is None:
            return weights
        frozen = self._memory.frozen[places]
        return torch.where(frozen.isnan(), weights, frozen)

    def _loss_of(self, evidence: Tensor) -> Tensor:
        return evidence

    def _part(
        self, weights: Tensor, rows: Tensor | None, importance: Tensor | None, present: Tensor | float
    ) -> Tensor | float:
        if self.divide_by == "samples":
            return present
        window = self._window
        return window.shared[1] * present if rows is None else window.current[1].index_select(0, rows).sum()

    def _solve(
        self, state: AlternationState, values: Tensor, counts: Tensor, fractions: Tensor
    ) -> AlternationState:
        progress = self._counters.calls / self.warmup if self.warmup else 1.0
        return update(state, counts, self.kernel, fractions, progress, PRIOR_COUNT, values)

    def _update(self) -> None:
        super()._update()
        if self.hold > 1 and self._memory.size:
            self._memory.freeze(self.inlier_probability())

    def _kernel_label(self) -> Tensor:
        return label_of(self.kernel)


def _mean(flat: Tensor, mask: Tensor | None) -> Tensor:
    """Return the mean of flat losses; of none, 0 with a graph."""
    if mask is None:
        return flat.mean() if len(flat) else flat.sum()
    keep = mask.reshape(-1).bool()
    return torch.where(keep, flat, 0.0).sum() / keep.sum().clamp(min=1)
