"""Early-learning regularisation: hold each prediction near what it was before wrong labels were memorised.

Reference: S. Liu, J. Niles-Weed, N. Razavian, C. Fernandez-Granda (2020), Early-learning regularization
prevents memorization of noisy labels, NeurIPS.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from inlier import processes
from inlier.rivals.probabilities import log_probabilities, of_labels

__all__ = ["EarlyLearning"]

MARGIN = 1e-4
"""How near to 0 and 1 a probability may come, as in the code of Liu et al."""


class EarlyLearning(nn.Module):
    """Cross-entropy plus lambda log(1 - <p, t>), averaged; t is a running mean of a sample's predictions.

    Each call first moves the targets of its samples, t <- beta t + (1 - beta) p / |p|_1, p detached and kept
    within [1e-4, 1 - 1e-4]; they start at 0. Then the loss is taken with the new targets. The second term
    pulls p towards t, and so undoes the pull of a label that t does not believe.

    In evaluation mode (``eval()``) targets stay as they are. Under ``torch.distributed`` the processes tell
    each other their predictions, so that all hold the same targets: each must make the same number of calls.

    Args:
        samples: The number of training samples.
        classes: The number of classes.
        strength: lambda, at least 0.
        momentum: beta, the share of the old target in the new one, at least 0 and below 1.

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
        self._capacity = 0

    def forward(self, logits: Tensor, labels: Tensor, index: Tensor) -> Tensor:
        """Return the mean loss of a batch; in training mode, move the targets of its samples first.

        Args:
            logits: One row a sample, one column a class.
            labels: The class of each sample.
            index: The number of each sample, from 0, each at most once a batch.
        """
        logarithms = log_probabilities(logits)
        label = of_labels(logarithms, labels)
        self._check(index, logits)
        probabilities = logarithms.exp().clamp(MARGIN, 1 - MARGIN)
        if self.training:
            self._move_targets(index, probabilities.detach())
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
                f"index has shape {tuple(index.shape)} beside {len(logits)} logits: pass a number a sample"
            )
        if index.numel():
            smallest, largest = (int(x) for x in index.aminmax())
            if smallest < 0 or largest >= samples:
                raise IndexError(
                    f"index spans {smallest} to {largest}: number the samples from 0 to {samples - 1}, or "
                    "pass a larger `samples`"
                )

    def _move_targets(self, index: Tensor, probabilities: Tensor) -> None:
        predictions = probabilities / probabilities.sum(dim=1, keepdim=True)
        if processes.world_size() > 1:
            rows = torch.cat([index.double().unsqueeze(1), predictions.double()], dim=1)
            _, rows, self._capacity = processes.exchange(rows.new_empty(0), rows, self._capacity)
            index, predictions = rows[:, 0].long(), rows[:, 1:]
        old = self.targets[index]
        self.targets[index] = torch.lerp(predictions.to(old.dtype), old, self.momentum)
