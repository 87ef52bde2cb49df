"""What the adaptive alternation is compared with, one file each: small, pure functions."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from inlier.rivals import (
    active_passive,
    clipping,
    co_teaching,
    early_learning,
    generalised_cross_entropy,
    gnc,
    huberised,
    robust_nerf,
    symmetric_cross_entropy,
    trimmed,
)

__all__ = [
    "LOSSES",
    "active_passive",
    "clipping",
    "co_teaching",
    "early_learning",
    "generalised_cross_entropy",
    "gnc",
    "huberised",
    "robust_nerf",
    "symmetric_cross_entropy",
    "trimmed",
]

LOSSES: dict[str, Callable[..., Tensor]] = {
    "generalised-cross-entropy": generalised_cross_entropy.generalised_cross_entropy,
    "symmetric-cross-entropy": symmetric_cross_entropy.symmetric_cross_entropy,
    "nce-rce": active_passive.nce_rce,
    "huberised-cross-entropy": huberised.huberised_cross_entropy,
}
"""Losses for noisy labels by name: each takes logits and labels, and returns one loss a sample."""
