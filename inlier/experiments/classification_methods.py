"""The methods of the classification experiment: a batch's loss, and what is believed of its samples."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from inlier import processes
from inlier.memory import SampleMemory
from inlier.rivals import LOSSES, co_teaching, trimmed
from inlier.rivals.clipping import clipping_factor, global_norm, normalising_factor
from inlier.rivals.early_learning import EarlyLearning
from inlier.robust import Robust
from inlier.vision.training import Method, Task

__all__ = ["METHODS", "RIVALS", "Adaptive"]


class GradientScaled(Method):
    """Plain training with gradients multiplied by a function of their norm.

    Args:
        task: What is trained.
        factor: From the norm of all gradients to what they are multiplied by.
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


class SampleLoss(Method):
    """The mean of another loss.

    Args:
        task: What is trained.
        loss: From logits and labels to one loss a sample.
    """

    def __init__(self, task: Task, loss: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__(task)
        self.loss = loss

    def forward(self, logits: Sequence[Tensor], labels: Tensor, index: Tensor) -> Tensor:
        """Return the mean loss."""
        return self.loss(logits[0], labels).mean()


class Adaptive(Method):
    """The adaptive alternation on the cross-entropy.

    Args:
        task: What is trained.
        robust: The module at the loss.
        known: Whether it is given sample numbers, labels and logits.
    """

    def __init__(self, task: Task, robust: Robust, known: bool = True) -> None:
        super().__init__(task)
        self.robust, self.known = robust, known

    def forward(self, logits: Sequence[Tensor], labels: Tensor, index: Tensor) -> Tensor:
        """Return the weighted loss."""
        losses = cross_entropy(logits[0], labels, reduction="none")
        if not self.known:
            return self.robust(losses)  # type: ignore[no-any-return]
        return self.robust(losses, index, labels=labels, logits=logits[0])  # type: ignore[no-any-return]

    def suspicion(self, labels: Tensor) -> Tensor | None:
        """Return one minus the probability of being an inlier."""
        return 1 - self.robust.inlier_probability() if self.known else None

    @property
    def estimated_fraction(self) -> float:
        """The fraction in force; with groups, their mean."""
        return float(self.robust.inlier_fraction.mean())


class Held(Adaptive):
    """The adaptive alternation as the paper's AAA_T: weights frozen, one scale for all samples."""

    def forward(self, logits: Sequence[Tensor], labels: Tensor, index: Tensor) -> Tensor:
        """Return the loss, weighted by what is held."""
        loss: Tensor = self.robust(cross_entropy(logits[0], labels, reduction="none"), index)
        return loss


class Trimmed(Method):
    """Iteratively trimmed loss minimisation: each epoch trains on the samples that fitted best in the last.

    Args:
        task: What is trained; its inlier fraction, less ``margin``, is kept.
        warmup: The part of the epochs in which all samples are kept.
        margin: How much less is kept.

    Reference: Shen and Sanghavi (2019), algorithm 2; they keep 5 points less than the fraction of inliers.
    """

    def __init__(self, task: Task, warmup: float = 1 / 6, margin: float = 0.05) -> None:
        super().__init__(task)
        self.warmup, self.margin = warmup, margin
        self.memory = SampleMemory(0.0, task.samples)
        self.kept: Tensor
        self.register_buffer("kept", torch.ones(task.samples, dtype=torch.bool))
        self._capacity = 0

    def start_epoch(self, epoch: int) -> None:
        """Choose the samples of the epoch."""
        if epoch >= max(1, self.warmup * self.task.epochs):
            fraction = max(self.task.inlier_fraction - self.margin, 0.01)
            self.kept = trimmed.kept_set(self.memory.last, fraction)

    def forward(self, logits: Sequence[Tensor], labels: Tensor, index: Tensor) -> Tensor:
        """Return the mean loss of the kept samples."""
        losses = cross_entropy(logits[0], labels, reduction="none")
        self._record(index, losses.detach())
        kept = self.kept[index].to(losses.dtype)
        return (kept * losses).sum() / kept.sum().clamp(min=1)

    def suspicion(self, labels: Tensor) -> Tensor | None:
        """Return the last loss of each sample."""
        return self.memory.last

    def _record(self, index: Tensor, losses: Tensor) -> None:
        """Remember the losses of a batch, those of all processes, so that all choose the same samples."""
        if processes.world_size() > 1:
            rows = torch.stack([index.double(), losses.double()], dim=1)
            _, rows, self._capacity = processes.exchange(rows.new_empty(0), rows, self._capacity)
            index, losses = rows[:, 0].long(), rows[:, 1].to(losses.dtype)
        self.memory.record(index, losses)


class CoTeaching(Method):
    """Two networks that choose each other's samples; see :mod:`inlier.rivals.co_teaching`."""

    networks = 2

    def start_epoch(self, epoch: int) -> None:
        """Settle how many samples are kept: less and less over the first epochs."""
        # T_k is 10 of 200 epochs in the paper; a short training needs more than a twentieth of its epochs.
        ramp = min(10, self.task.epochs / 3)
        self.fraction = co_teaching.keep_fraction(epoch, 1 - self.task.inlier_fraction, ramp)

    def forward(self, logits: Sequence[Tensor], labels: Tensor, index: Tensor) -> Tensor:
        """Return the sum of both networks' losses, each on the samples that the other chose."""
        first, second = (cross_entropy(own, labels, reduction="none") for own in logits)
        for_first, for_second = co_teaching.select(first.detach(), second.detach(), self.fraction)
        return first[for_first].mean() + second[for_second].mean()


class EarlyLearned(Method):
    """Early-learning regularisation; see :mod:`inlier.rivals.early_learning`."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.regularised = EarlyLearning(task.samples, task.classes)

    def forward(self, logits: Sequence[Tensor], labels: Tensor, index: Tensor) -> Tensor:
        """Return the regularised loss."""
        loss: Tensor = self.regularised(logits[0], labels, index)
        return loss

    def suspicion(self, labels: Tensor) -> Tensor | None:
        """Return how little of each sample's target is on its given label."""
        return -self.regularised.targets.gather(1, labels.unsqueeze(1)).squeeze(1)


def _paper(kernel: str, hold: bool = False, told: bool = True) -> Callable[[Task], Method]:
    def make(task: Task) -> Method:
        fraction: float | Literal["auto"] = task.inlier_fraction if told else "auto"
        if hold:
            return Held(task, Robust(kernel, fraction, hold=task.steps, warmup=0))
        return Adaptive(task, Robust(kernel, fraction, warmup=0), known=False)

    return make


METHODS: dict[str, Callable[[Task], Method]] = {
    "sgd": Method,
    "normalised-gradient": lambda task: GradientScaled(task, normalising_factor),
    "gradient-clipping": lambda task: GradientScaled(task, clipping_factor),
    "huberised": lambda task: SampleLoss(task, LOSSES["huberised-cross-entropy"]),
    # As in the paper: the true fraction from the start, current losses, one scale.
    "adaptive-tl": _paper("truncated"),
    "adaptive-gm": _paper("geman-mcclure"),
    "adaptive-t-gm": _paper("geman-mcclure", hold=True),
    # The same, with the fraction estimated from the losses.
    "adaptive-tl-auto": _paper("truncated", told=False),
    "adaptive-gm-auto": _paper("geman-mcclure", told=False),
    "adaptive-t-gm-auto": _paper("geman-mcclure", hold=True, told=False),
    # Out of the box: nothing given.
    "robust": lambda task: Adaptive(task, Robust()),
    # What trimmed losses and co-teaching know, it may know too.
    "robust-told": lambda task: Adaptive(task, Robust(inlier_fraction=task.inlier_fraction)),
    "trimmed": Trimmed,
    "gce": lambda task: SampleLoss(task, LOSSES["generalised-cross-entropy"]),
    "sce": lambda task: SampleLoss(task, LOSSES["symmetric-cross-entropy"]),
    "nce-rce": lambda task: SampleLoss(task, LOSSES["nce-rce"]),
    "co-teaching": CoTeaching,
    "elr": EarlyLearned,
}
"""The methods by name."""

RIVALS = ("gce", "sce", "nce-rce", "trimmed", "gradient-clipping", "huberised", "elr")
"""The rivals that train a single network."""
