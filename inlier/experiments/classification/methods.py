"""The methods of the classification experiment: the baselines, the paper's, and ``inlier``'s own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Literal

from torch import Tensor
from torch.nn.functional import cross_entropy

from inlier import Robust, RobustCrossEntropy
from inlier._vision.training import Method, RobustMethod, Task
from inlier.experiments.baselines import GRADIENT_FACTORS, LOSSES, TRAINING_METHODS
from inlier.experiments.baselines.clipping import global_norm

__all__ = ["METHODS"]


class GradientScaling(Method):
    """Unweighted training with gradients multiplied by a function of their norm.

    Args:
        task: The training it is part of.
        factor: From the norm of all gradients to their factor.
    """

    def __init__(self, task: Task, factor: Callable[[Tensor], Tensor]) -> None:
        super().__init__(task)
        self.factor = factor

    def change_gradients(self, gradients: Iterable[Tensor]) -> None:
        """Multiply all gradients by the factor of their common norm."""
        gradients = list(gradients)
        factor = self.factor(global_norm(gradients))
        for gradient in gradients:
            gradient.mul_(factor)


class MeanLoss(Method):
    """The mean of another loss than the cross-entropy.

    Args:
        task: The training it is part of.
        loss: From logits and labels to one loss per sample.
    """

    def __init__(self, task: Task, loss: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__(task)
        self.loss = loss

    def forward(self, logits: Sequence[Tensor], labels: Tensor, index: Tensor) -> Tensor:
        """Return the mean loss."""
        return self.loss(logits[0], labels).mean()


class Adaptive(Method):
    """The paper's adaptive alternation on the cross-entropy, with one scale for all samples.

    Args:
        task: The training it is part of.
        kernel: The kernel's name.
        given: Whether it is given the true inlier fraction; else it is estimated from the losses.
        held: Whether weights are held for an epoch (AAA_T); else they are those of the current losses
            (AAA_1).
    """

    def __init__(self, task: Task, kernel: str, given: bool = True, held: bool = False) -> None:
        super().__init__(task)
        self.held = held
        fraction: float | Literal["auto"] = task.inlier_fraction if given else "auto"
        self.robust = Robust(kernel, fraction, hold=task.steps if held else 1, warmup=0)

    def forward(self, logits: Sequence[Tensor], labels: Tensor, index: Tensor) -> Tensor:
        """Return the weighted loss."""
        losses = cross_entropy(logits[0], labels, reduction="none")
        loss: Tensor = self.robust(losses, index if self.held else None)
        return loss

    def outlier_score(self, labels: Tensor) -> Tensor | None:
        """Return one minus the inlier probability of each sample, if it has a memory of samples."""
        return 1 - self.robust.inlier_probability() if self.held else None

    @property
    def estimated_fraction(self) -> float:
        """The current inlier fraction."""
        return float(self.robust.inlier_fraction)


METHODS: dict[str, Callable[[Task], Method]] = {
    "sgd": Method,
    **{name: partial(GradientScaling, factor=factor) for name, factor in GRADIENT_FACTORS.items()},
    **{name: partial(MeanLoss, loss=loss) for name, loss in LOSSES.items()},
    **TRAINING_METHODS,
    # As in the paper: the true fraction from the start, current losses, one scale.
    "adaptive-tl": partial(Adaptive, kernel="truncated"),
    "adaptive-gm": partial(Adaptive, kernel="geman-mcclure"),
    "adaptive-t-gm": partial(Adaptive, kernel="geman-mcclure", held=True),
    # The same, with the fraction estimated from the losses.
    "adaptive-tl-auto": partial(Adaptive, kernel="truncated", given=False),
    "adaptive-gm-auto": partial(Adaptive, kernel="geman-mcclure", given=False),
    "adaptive-t-gm-auto": partial(Adaptive, kernel="geman-mcclure", given=False, held=True),
    # Out of the box: no prior knowledge.
    "inlier": lambda task: RobustMethod(task, RobustCrossEntropy()),
    # With the prior knowledge of trimmed losses and co-teaching.
    "inlier-given": lambda task: RobustMethod(task, RobustCrossEntropy(task.inlier_fraction)),
}
"""The methods by name."""
