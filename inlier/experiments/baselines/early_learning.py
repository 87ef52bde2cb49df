"""Early-learning regularization: keep each prediction near what it was before noisy labels were memorised.

Reference: S. Liu, J. Niles-Weed, N. Razavian, C. Fernandez-Granda (2020), Early-learning regularization
prevents memorization of noisy labels, NeurIPS.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from inlier._vision.distributed import all_gather_rows
from inlier._vision.training import Method, Task
from inlier.experiments.baselines._probabilities import log_probabilities, of_labels

__all__ = ["EarlyLearning", "EarlyLearningMethod"]

MARGIN = 1e-4
"""Probabilities are clamped to [margin, 1 - margin], as in the code of Liu et al."""


class EarlyLearning(nn.Module):
    """Cross-entropy plus lambda log(1 - <p, t>), averaged; t is a running mean of a sample's predictions.

    Each call first updates the targets of its samples, t <- beta t + (1 - beta) p / |p|_1, with p detached
    and clamped to [1e-4, 1 - 1e-4]; they start at 0. Then the loss is computed with the new targets. The
    second term moves p towards t, and so counteracts a label that contradicts t.

    In evaluation mode (``eval()``) targets do not change. Under ``torch.distributed`` the processes gather
    each other's predictions, so that all hold the same targets: each must make the same number of calls.

    Args:
        samples: The number of training samples.
        classes: The number of classes.
        strength: lambda, at least 0.
        momentum: beta, the weight of the old target in the new one, at least 0 and below 1.

    Example:
        >>> import torch
        >>> elr = EarlyLearning(samples=6, classes=3)
        >>> logits = torch.zeros(2, 3, requires_grad=True)
        >>> loss = elr(logits, torch.tensor([0, 2]), index=torch.tensor([4, 1]))
        >>> loss.backward()
        >>> elr.targets[4]
        tensor([0.1000, 0.1000, 0.1000])

    Reference: Liu et al. (2020); lambda = 3 and beta = 0.7 are theirs for CIFAR-10 with symmetric noise.
    """

    targets: Tensor

    def __init__(self, samples: int, classes: int, strength: float = 3.0, momentum: float = 0.7) -> None:
        super().__init__()
        if samples < 1:
            raise ValueError(f"samples = {samples}: pass the number of training samples, at least 1")
        if classes < 2:
            raise ValueError(f"classes = {classes}: pass the number of classes, at least 2")
        if not strength >= 0:
            raise ValueError(f"strength = {strength}: pass a number of at least 0")
        if not 0 <= momentum < 1:
            raise ValueError(f"momentum = {momentum}: pass a number of at least 0 and below 1")
        self.strength, self.momentum = strength, momentum
        self.register_buffer("targets", torch.zeros(samples, classes))

    def forward(self, logits: Tensor, labels: Tensor, index: Tensor) -> Tensor:
        """Return the mean loss of a batch; in training mode, update the targets of its samples first.

        Args:
            logits: One row per sample, one column per class.
            labels: The class of each sample.
            index: The dataset index of each sample, from 0, each at most once per batch.
        """
        logarithms = log_probabilities(logits)
        label = of_labels(logarithms, labels)
        self._check(index, logits)
        probabilities = logarithms.exp().clamp(MARGIN, 1 - MARGIN)
        if self.training:
            self._update_targets(index, probabilities.detach())
        agreement = (probabilities * self.targets[index]).sum(dim=1)
        # The agreement is at most the largest probability, so the logarithm is at least that of the margin.
        penalty = torch.log1p(-agreement)
        return (self.strength * penalty - label).sum() / max(len(label), 1)

    def extra_repr(self) -> str:
        """Return the settings, as ``print`` shows them."""
        samples, classes = self.targets.shape
        return f"samples={samples}, classes={classes}, strength={self.strength:g}, momentum={self.momentum:g}"

    def _check(self, index: Tensor, logits: Tensor) -> None:
        samples, classes = self.targets.shape
        if logits.shape[1] != classes:
            raise ValueError(f"logits have {logits.shape[1]} columns, but EarlyLearning {classes} classes")
        if index.shape != logits.shape[:1]:
            raise ValueError(
                f"index has shape {tuple(index.shape)} beside {len(logits)} logits: pass one per sample"
            )
        if index.numel():
            smallest, largest = (int(x) for x in index.aminmax())
            if smallest < 0 or largest >= samples:
                raise IndexError(
                    f"index spans {smallest} to {largest}: index the samples from 0 to {samples - 1}, or "
                    "pass a larger `samples`"
                )

    def _update_targets(self, index: Tensor, probabilities: Tensor) -> None:
        predictions = probabilities / probabilities.sum(dim=1, keepdim=True)
        index, predictions = all_gather_rows(index), all_gather_rows(predictions)
        old = self.targets[index]
        self.targets[index] = torch.lerp(predictions.to(old.dtype), old, self.momentum)


class EarlyLearningMethod(Method):
    """Training with :class:`EarlyLearning`."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.criterion = EarlyLearning(task.samples, task.classes)

    def forward(self, logits: Sequence[Tensor], labels: Tensor, index: Tensor) -> Tensor:
        """Return the regularized loss."""
        loss: Tensor = self.criterion(logits[0], labels, index)
        return loss

    def outlier_score(self, labels: Tensor) -> Tensor | None:
        """Return minus the target probability of each sample's given label."""
        return -self.criterion.targets.gather(1, labels.unsqueeze(1)).squeeze(1)
