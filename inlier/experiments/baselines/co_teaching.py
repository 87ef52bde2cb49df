"""Co-teaching: two networks, each trained on the samples of a batch that fit the other one best.

A step of the two networks a and b on one batch:

    losses_a, losses_b = cross-entropy of each network, one per sample
    for_a, for_b = select(losses_a, losses_b, keep_fraction(epoch, outlier_rate))
    losses_a[for_a].mean().backward(); losses_b[for_b].mean().backward()

Prior knowledge: the rate of noisy labels.

Reference: B. Han, Q. Yao, X. Yu, G. Niu, M. Xu, W. Hu, I. Tsang, M. Sugiyama (2018), Co-teaching: robust
training of deep neural networks with extremely noisy labels, NeurIPS, algorithm 1.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor
from torch.nn.functional import cross_entropy

from inlier._vision.training import Method
from inlier.experiments.baselines.trimmed import kept_set

__all__ = ["CoTeaching", "keep_fraction", "select"]


def keep_fraction(epoch: float, outlier_rate: float, ramp: float = 10) -> float:
    """Return R(T) = 1 - tau min(T / T_k, 1), the fraction of a batch that is kept in epoch T.

    Networks fit clean labels first, so all samples are kept at first and fewer from epoch to epoch.

    Args:
        epoch: T, the number of epochs done, at least 0; may be fractional.
        outlier_rate: tau, the rate of noisy labels, at least 0 and below 1.
        ramp: T_k, the number of epochs until only 1 - tau are kept, above 0.

    Example:
        >>> keep_fraction(0, 0.4), keep_fraction(5, 0.4), keep_fraction(50, 0.4)
        (1.0, 0.8, 0.6)

    Reference: Han et al. (2018), who take T_k = 10, of 200 epochs, and for tau the true rate on CIFAR-10.
    """
    if not epoch >= 0:
        raise ValueError(f"epoch = {epoch}: pass the number of epochs done, at least 0")
    if not 0 <= outlier_rate < 1:
        raise ValueError(f"outlier_rate = {outlier_rate}: pass a fraction of at least 0 and below 1")
    if not ramp > 0:
        raise ValueError(f"ramp = {ramp}: pass a number of epochs above 0")
    return 1 - outlier_rate * min(epoch / ramp, 1)


def select(losses_a: Tensor, losses_b: Tensor, keep_fraction: float) -> tuple[Tensor, Tensor]:
    """Return which samples of a batch train each network: those of smallest loss under the other.

    Args:
        losses_a: The loss of each sample under network a; NaN counts as the largest.
        losses_b: The loss of each sample under network b.
        keep_fraction: R(T), above 0 and at most 1; of n samples floor(R(T) n) are kept, at least one.

    Returns:
        The positions in the batch of the samples that train a (the best of b), and of those that train b (the
        best of a), each from first to last.

    Example:
        >>> import torch
        >>> select(torch.tensor([0.1, 0.2, 5.0, 6.0]), torch.tensor([7.0, 0.3, 0.2, 8.0]), 0.5)
        (tensor([1, 2]), tensor([0, 1]))

    Reference: Han et al. (2018), algorithm 1.
    """
    if losses_a.ndim != 1 or losses_a.shape != losses_b.shape:
        raise ValueError(
            f"losses_a have shape {tuple(losses_a.shape)}, losses_b {tuple(losses_b.shape)}: pass the losses "
            "of both networks for the same samples, one each"
        )
    best_of_a, best_of_b = (
        kept_set(losses.detach(), keep_fraction).nonzero().squeeze(1) for losses in (losses_a, losses_b)
    )
    return best_of_b, best_of_a


class CoTeaching(Method):
    """Two networks that select each other's samples."""

    networks = 2

    def start_epoch(self, epoch: int) -> None:
        """Set the fraction of samples that is kept."""
        # T_k is 10 of 200 epochs in the paper; a short training needs more than a twentieth of its epochs.
        ramp = min(10, self.task.epochs / 3)
        self.keep_fraction = keep_fraction(epoch, 1 - self.task.inlier_fraction, ramp)

    def forward(self, logits: Sequence[Tensor], labels: Tensor, index: Tensor) -> Tensor:
        """Return the sum of both networks' losses, each on the samples that the other selected."""
        first, second = (cross_entropy(own, labels, reduction="none") for own in logits)
        for_first, for_second = select(first.detach(), second.detach(), self.keep_fraction)
        return first[for_first].mean() + second[for_second].mean()
