"""The result and the protocol that all estimators of the inlier fraction share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from inlier.histogram import LossHistogram

__all__ = ["FractionEstimate", "FractionEstimator", "GivenFraction"]


@dataclass(frozen=True)
class FractionEstimate:
    """An inlier fraction, and how reliable it is.

    Args:
        value: The estimated fraction of inliers, in [0, 1].
        standard_error: Its standard error, as far as the model behind it is right; 0 if no outliers were found
            or the fraction was given.
        trusted: Whether the estimate should be acted on, and shown without a warning beside it.
        reason: Why, or why not, in a sentence.

    Example:
        >>> FractionEstimate(0.8, 0.01, True, "Two groups fit, and lie far apart.").value
        0.8
    """

    value: float
    standard_error: float = 0.0
    trusted: bool = False
    reason: str = ""


@runtime_checkable
class FractionEstimator(Protocol):
    """Estimates the inlier fraction from the losses of a training.

    :class:`inlier.Robust` takes any object with these methods as ``inlier_fraction``, shows it the histogram
    of recent losses at each update, asks for an estimate, and keeps its state in checkpoints. In distributed
    training every process has its own estimator, and all of them see the losses of all processes.
    """

    def observe(self, histogram: LossHistogram) -> None:
        """Take in the histogram of recent losses, in place of the last one."""

    def estimate(self) -> FractionEstimate:
        """Return the estimate from what was observed."""

    def state_dict(self) -> dict[str, Tensor]:
        """Return all that a resumed training needs."""

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Become what :meth:`state_dict` was taken from, or raise ``ValueError`` and stay as it is."""


class GivenFraction:
    """The estimator for a known fraction: prior knowledge, or an oracle.

    Args:
        value: The inlier fraction, above 0 and at most 1.

    Example:
        >>> GivenFraction(0.8).estimate()
        FractionEstimate(value=0.8, standard_error=0.0, trusted=True, reason='Given.')
    """

    def __init__(self, value: float) -> None:
        if not 0 < float(value) <= 1:
            raise ValueError(f"inlier_fraction = {value!r}: pass a number above 0 and at most 1")
        self.value = float(value)

    def observe(self, histogram: LossHistogram) -> None:
        """Ignore the losses."""

    def estimate(self) -> FractionEstimate:
        """Return what was given."""
        return FractionEstimate(self.value, 0.0, True, "Given.")

    def state_dict(self) -> dict[str, Tensor]:
        """Return nothing: a fraction that is given is not taken from a checkpoint."""
        return {}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Keep what was given."""


def pack(estimate: FractionEstimate) -> dict[str, Tensor]:
    """Return an estimate as tensors, for a checkpoint."""
    numbers = [estimate.value, estimate.standard_error, float(estimate.trusted)]
    return {
        "estimate": torch.tensor(numbers, dtype=torch.float64),
        "reason": torch.tensor(list(estimate.reason.encode()), dtype=torch.uint8),
    }


def unpack(state: dict[str, Tensor]) -> FractionEstimate:
    """Return the estimate from the tensors of :func:`pack`; raise ``ValueError`` naming what is wrong."""
    for name in ("estimate", "reason"):
        if name not in state:
            raise ValueError(f"{name} is missing")
    numbers, reason = state["estimate"], state["reason"]
    if numbers.shape != (3,) or not bool(numbers.isfinite().all()):
        raise ValueError(f"estimate holds {numbers.tolist()}: three finite numbers are expected")
    value, error, trusted = numbers.tolist()
    return FractionEstimate(value, error, bool(trusted), bytes(reason.tolist()).decode(errors="replace"))
