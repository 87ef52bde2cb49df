"""Iterative trimmed loss minimization: fit, keep the samples that fit best, fit those, and so on.

Each iteration keeps the ``floor(alpha n)`` samples of smallest loss and minimizes their loss, to the end
(:func:`fit`) or for an epoch (:class:`TrimmedMethod`). By Remark 3 of the paper it is the adaptive
alternation with the truncated kernel at ``zeta = alpha``; a test verifies that the two are equal.

Prior knowledge: the inlier fraction.

Reference: Y. Shen, S. Sanghavi (2019), Learning with bad training data via iterative trimmed loss
minimization, ICML, algorithms 1 and 2.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from inlier._vision.distributed import all_gather_rows
from inlier._vision.training import Method, Task

__all__ = ["TrimmedFit", "TrimmedMethod", "fit", "kept_set"]

Model = TypeVar("Model")


@dataclass(frozen=True)
class TrimmedFit(Generic[Model]):
    """The result of iterative trimmed loss minimization.

    Args:
        model: The last fit.
        kept: Which samples it was fitted to, one boolean each.
        iterations: Number of fits, the first one (to all samples) included.
        converged: Whether the kept set stopped changing.
    """

    model: Model
    kept: Tensor
    iterations: int
    converged: bool


def kept_set(losses: Tensor, kept_fraction: float) -> Tensor:
    """Return which ``floor(alpha n)`` samples have the smallest losses; ties keep the earlier ones.

    Args:
        losses: One loss per sample; NaN counts as the largest.
        kept_fraction: alpha, above 0 and at most 1; at least one sample is kept.

    Returns:
        A boolean tensor.

    Example:
        >>> import torch
        >>> kept_set(torch.tensor([0.3, 9.0, 0.1, 0.2]), 0.5)
        tensor([False, False,  True,  True])
    """
    if not 0 < kept_fraction <= 1:
        raise ValueError(f"kept_fraction = {kept_fraction}: pass a number above 0 and at most 1")
    # Rounding in alpha * n must not drop a sample that was meant to stay (0.29 * 100 is below 29).
    number = max(math.floor(kept_fraction * len(losses) * (1 + 1e-12)), 1)
    kept = torch.zeros(len(losses), dtype=torch.bool, device=losses.device)
    kept[losses.argsort(stable=True)[:number]] = True
    return kept


def fit(
    solve: Callable[[Tensor], Model],
    losses: Callable[[Model], Tensor],
    samples: int,
    kept_fraction: float,
    max_iterations: int = 100,
) -> TrimmedFit[Model]:
    """Alternate between fitting the kept samples and keeping those that fit best, until the set is constant.

    Args:
        solve: Returns the best fit for given sample weights (here 0 or 1).
        losses: Returns each sample's loss under a model.
        samples: n, the number of samples.
        kept_fraction: alpha, the fraction of samples to keep: that of inliers or a little less.
        max_iterations: Maximum number of fits.

    Returns:
        The last model, the samples it was fitted to, and how it ended.

    Example:
        >>> import torch
        >>> y = torch.tensor([1.0, 1.2, 0.9, 50.0])
        >>> result = fit(lambda w: (w * y).sum() / w.sum(), lambda m: (y - m) ** 2, 4, kept_fraction=0.75)
        >>> result.kept, result.converged
        (tensor([ True,  True,  True, False]), True)

    Reference: Shen and Sanghavi (2019), algorithm 1.
    """
    kept = torch.ones(samples, dtype=torch.bool)
    for iteration in range(1, max_iterations + 1):
        model = solve(kept.double())
        best = kept_set(losses(model), kept_fraction).cpu()
        if bool((best == kept).all()):
            return TrimmedFit(model, kept, iteration, True)
        kept = best
    return TrimmedFit(solve(kept.double()), kept, max_iterations + 1, False)


class TrimmedMethod(Method):
    """Each epoch trains on the samples of smallest loss in the last one.

    Args:
        task: The training it is part of; its inlier fraction, less ``margin``, is kept.
        warmup: The part of the epochs in which all samples are kept.
        margin: How much less is kept.

    Reference: Shen and Sanghavi (2019), algorithm 2; they keep 5 points less than the fraction of inliers.
    """

    def __init__(self, task: Task, warmup: float = 1 / 6, margin: float = 0.05) -> None:
        super().__init__(task)
        self.warmup, self.margin = warmup, margin
        self.kept: Tensor
        self.last_losses: Tensor
        self.register_buffer("kept", torch.ones(task.samples, dtype=torch.bool))
        self.register_buffer("last_losses", torch.full((task.samples,), math.nan))

    def start_epoch(self, epoch: int) -> None:
        """Select the samples of the epoch."""
        if epoch >= max(1, self.warmup * self.task.epochs):
            fraction = max(self.task.inlier_fraction - self.margin, 0.01)
            self.kept = kept_set(self.last_losses, fraction)

    def forward(self, logits: Sequence[Tensor], labels: Tensor, index: Tensor) -> Tensor:
        """Return the mean loss of the kept samples."""
        losses = cross_entropy(logits[0], labels, reduction="none")
        self._record(index, losses.detach())
        kept = self.kept[index].to(losses.dtype)
        return (kept * losses).sum() / kept.sum().clamp(min=1)

    def outlier_score(self, labels: Tensor) -> Tensor | None:
        """Return the last loss of each sample."""
        return self.last_losses

    def _record(self, index: Tensor, losses: Tensor) -> None:
        """Record the losses of a batch of all processes, so that all of them select the same samples."""
        self.last_losses[all_gather_rows(index)] = all_gather_rows(losses).to(self.last_losses.dtype)
