"""Iteratively trimmed loss minimisation: fit, keep the samples that fit best, fit those, and so on.

Each round keeps the ``floor(alpha n)`` samples of smallest loss and minimises their loss, to the end
(:func:`fit`) or by some steps (use :func:`kept_set` inside any training). By Remark 3 of the paper it is
the adaptive alternation with the truncated kernel at ``zeta = alpha``; a test holds the two equal.

Reference: Y. Shen, S. Sanghavi (2019), Learning with bad training data via iterative trimmed loss
    minimization,
ICML, algorithms 1 and 2.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch
from torch import Tensor

__all__ = ["TrimmedFit", "fit", "kept_set"]

Model = TypeVar("Model")


@dataclass(frozen=True)
class TrimmedFit(Generic[Model]):
    """What iteratively trimmed loss minimisation ends with.

    Args:
        model: The last fit.
        kept: Which samples it was fitted to, one boolean each.
        rounds: Number of fits, the first one (to all samples) included.
        converged: Whether the kept set came to rest.
    """

    model: Model
    kept: Tensor
    rounds: int
    converged: bool


def kept_set(losses: Tensor, kept_fraction: float) -> Tensor:
    """Return which ``floor(alpha n)`` samples have the smallest losses; ties keep the earlier ones.

    Args:
        losses: One loss a sample; NaN counts as the largest.
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
    max_rounds: int = 100,
) -> TrimmedFit[Model]:
    """Alternate between fitting the kept samples and keeping those that fit best, until the set rests.

    Args:
        solve: Returns the model that fits samples of given weights (here 0 or 1) best.
        losses: Returns each sample's loss under a model.
        samples: n, the number of samples.
        kept_fraction: alpha, the fraction of samples to keep: that of inliers or a little less.
        max_rounds: Fits at most.

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
    for rounds in range(1, max_rounds + 1):
        model = solve(kept.double())
        best = kept_set(losses(model), kept_fraction).cpu()
        if bool((best == kept).all()):
            return TrimmedFit(model, kept, rounds, True)
        kept = best
    return TrimmedFit(solve(kept.double()), kept, max_rounds + 1, False)
