"""The methods that the adaptive alternation is compared with, one file each, and their registries.

To add one, write a file and enter it in the registry of its kind: the experiments and the tests pick it up
from there. :data:`LOSSES` replace the cross-entropy, :data:`GRADIENT_FACTORS` rescale gradients, and
:data:`TRAINING_METHODS` change the training of image networks in other ways. :mod:`~.gnc` and
:mod:`~.trimmed` take an exact solver; the regression experiment enters them, beside scikit-learn's
estimators, in its ``DIRECT``.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from inlier._vision.training import Method, Task
from inlier.experiments.baselines.active_passive import nce_rce
from inlier.experiments.baselines.clipping import clipping_factor, normalizing_factor
from inlier.experiments.baselines.co_teaching import CoTeaching
from inlier.experiments.baselines.early_learning import EarlyLearningMethod
from inlier.experiments.baselines.generalized_cross_entropy import generalized_cross_entropy
from inlier.experiments.baselines.huberized import huberized_cross_entropy
from inlier.experiments.baselines.symmetric_cross_entropy import symmetric_cross_entropy
from inlier.experiments.baselines.trimmed import TrimmedMethod

__all__ = ["GRADIENT_FACTORS", "LOSSES", "TRAINING_METHODS"]

LOSSES: dict[str, Callable[..., Tensor]] = {
    "gce": generalized_cross_entropy,
    "sce": symmetric_cross_entropy,
    "nce-rce": nce_rce,
    "huberized": huberized_cross_entropy,
}
"""Losses for noisy labels by name: each takes logits and labels, and returns one loss per sample."""

GRADIENT_FACTORS: dict[str, Callable[..., Tensor]] = {
    "normalized-gradient": normalizing_factor,
    "gradient-clipping": clipping_factor,
}
"""By name: the factor of a gradient as a function of its norm."""

TRAINING_METHODS: dict[str, Callable[[Task], Method]] = {
    "trimmed": TrimmedMethod,
    "co-teaching": CoTeaching,
    "elr": EarlyLearningMethod,
}
"""Methods of training an image network by name."""
