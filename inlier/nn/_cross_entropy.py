"""``RobustCrossEntropy``: in place of ``nn.CrossEntropyLoss`` where some class labels are noisy."""

from __future__ import annotations

import math
from typing import Literal

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.functional import cross_entropy

from inlier.alternation import AlternationState
from inlier.fraction import FractionEstimator, LabelNoise
from inlier.fraction._label_noise import (
    CAPABLE,
    SMALLEST_RATE,
    clean_probability,
    margin_loss,
    prior_log_odds,
)
from inlier.nn._confidence import CODES, ConfidenceWindow, window_size
from inlier.nn._module import RobustModule
from inlier.nn._state import State
from inlier.nn._validation import (
    ABSENT,
    check_classes,
    check_settings,
    estimator_of,
    flat_losses,
    is_cheap_to_read,
)
from inlier.nn._window import UNSEEN

__all__ = ["RobustCrossEntropy"]

EPOCHS_BEFORE = 2
"""Epochs before weights count that add up to a given fraction, where the network has not shown the noise rate."""


class RobustCrossEntropy(RobustModule):
    """Cross-entropy in which each sample has the weight of a probability that its label is clean.

    The evidence for a label is its margin S, the logit of the given class minus that of the best other one, each less
    the log of how frequent its class is among the labels, counted by weight: a rare class is no evidence against its
    labels. The weight is sigmoid(a S + b), and the loss is divided by the sum of the weights.

    *The noise rate*: labels that were not trained on yet agree with confident predictions nearly as often as labels are
    clean, so the first epoch gives an interval of it (:class:`~inlier.fraction.LabelNoise`), unless it is given. If
    that proves nothing, since the network knows too little, each later epoch is examined likewise. Until noise is
    proven all weights are 1; from then on they count, in the first epoch too.

    *b* is such that the weights add up to the clean labels, as many as the margins imply within that interval.

    *S* is the current margin in the first two epochs, then the mean of the visits since the second one, then a running
    mean of them (``running_mean`` is the share m of the old mean). The slope
    a = 1 / (1 - m A) counts the visits in the mean as far as they can be relied on: A is what the network knows of the
    labels, its agreement with them beyond chance. Where noise shows up only after the first epoch, a = 1: such a
    network repeats what it was trained on, and its visits count as one.

    A given fraction is used once A is 1/2, at the latest from the third epoch on.

    Without ``index`` nothing is remembered, epochs are not known, and weights come from the current prediction, after
    a warm-up.

    ``scale`` is the loss log(1 + exp(-S)) at which a label has weight 1/2.

    Of each sample 8 bytes are kept, whatever the number of classes.

    Args:
        inlier_fraction: The fraction of clean labels; "auto" to estimate it as training goes on; or a
            :class:`~inlier.fraction.FractionEstimator`.
        weight: A weight for each class, as in ``nn.CrossEntropyLoss``.
        ignore_index: The target of elements that are left out of everything.
        label_smoothing: As in ``nn.CrossEntropyLoss``; the evidence is not smoothed.
        running_mean: The largest share of a sample's old mean margin in the new one.
        warmup: Without ``index``, the number of calls before weights count.
        window: About how many recent margins the fraction is estimated on.
        update_every: The number of calls between two updates.
        samples: The number of samples, if it is known; else it is learned from ``index``.
        process_group: The processes that train together; all of them by default.

    Example:
        >>> import torch, inlier
        >>> model, criterion = torch.nn.Linear(4, 3), inlier.RobustCrossEntropy()
        >>> x, target, index = torch.randn(8, 4), torch.randint(3, (8,)), torch.arange(8)
        >>> criterion(model(x), target, index).backward()
        >>> criterion.inlier_probability().shape
        torch.Size([8])
    """

    def __init__(
        self,
        inlier_fraction: float | Literal["auto"] | FractionEstimator = "auto",
        *,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        label_smoothing: float = 0.0,
        running_mean: float = 0.7,
        warmup: int = 1000,
        window: int = 8192,
        update_every: int = 20,
        samples: int | None = None,
        process_group: dist.ProcessGroup | None = None,
    ) -> None:
        estimator = estimator_of(inlier_fraction)
        check_settings(
            running_mean=running_mean,
            warmup=warmup,
            window=window,
            update_every=update_every,
            samples=samples,
            label_smoothing=label_smoothing,
        )
        super().__init__(
            LabelNoise() if estimator == "auto" else estimator,
            window,
            update_every,
            running_mean,
            samples,
            None,
            process_group,
        )
        self.weight, self.ignore_index, self.label_smoothing = weight, ignore_index, label_smoothing
        self.warmup, self.window = warmup, window
        self._confidence = ConfidenceWindow()

    def _scale_of(self, solved: Tensor) -> Tensor:
        # The margin loss log(1 + exp(-S)) at which a label has weight 1/2, that is at S = -b / a.
        return margin_loss(-solved / self._slope)

    @property
    def _old_share(self) -> float:
        # The mean of all visits since the second epoch, as long as that forgets faster than the running mean.
        return min(self._memory.running_mean, 1 - 1 / max(self._confidence.epoch, 1))

    @property
    def _slope(self) -> float:
        rates = self._confidence.rates
        return 1 / (1 - self._old_share * rates.worth) if rates.is_out_of_sample else 1.0

    def suggested_label(self) -> Tensor:
        """Return the class that the network preferred at the last visit of each sample, by dataset index.

        Returns:
            Classes, int64; -1 for a sample that was never seen.
        """
        self._require_memory()
        tags = self.sample_tags()
        return torch.full((self._memory.size,), -1) if tags is None else tags

    def inlier_probability(self) -> Tensor:
        """Return the probability that the label of each sample is clean, by dataset index: its weight.

        Where labels count as clean all weights are 1. Then the probability is that with a noise rate of 0.001, so that
        labels are still ranked.

        Returns:
            Probabilities, NaN for a sample that was never seen.
        """
        probability = super().inlier_probability()
        if self._window.shared[0] < UNSEEN:
            return probability
        return clean_probability(self._memory.means, math.log(1 / SMALLEST_RATE - 1), self._slope)

    tag_name = "suggested_label"

    def sample_tags(self) -> Tensor | None:
        """Return the class that is suggested for each sample, by dataset index; None if there is none."""
        tags = super().sample_tags()
        return None if tags is None else tags.div(CODES, rounding_mode="floor")

    def forward(self, logits: Tensor, target: Tensor, index: Tensor | None = None) -> Tensor:
        """Return the weighted mean cross-entropy; in ``eval()`` the unweighted one, which needs no index.

        Args:
            logits: Of shape (N, C) or (N, C, d1, ...), as for ``nn.CrossEntropyLoss``.
            target: Classes, of shape (N) or (N, d1, ...).
            index: The dataset index of each element, of the shape of the target; integers.

        Returns:
            A scalar. Over several processes its mean is the loss of one process on the joined batch.
        """
        losses, importance = self._losses(logits, target, index)
        if not self.training:
            counted = target.reshape(-1) != self.ignore_index
            total = importance[counted].sum() if importance is not None else counted.sum()
            return losses.sum() / total.clamp(min=torch.finfo(torch.float32).tiny)
        weights = self._call(logits, target, index, losses, importance, divided=True)
        return self._weighted_sum(weights, losses)

    def weigh(self, logits: Tensor, target: Tensor, index: Tensor | None = None) -> Tensor:
        """Learn from the logits as a call does, and return the weight of each element.

        Args:
            logits: As in a call; so are the others.
            target: Classes.
            index: Dataset indices.

        Returns:
            Weights of the shape of the target, without a graph and not divided by anything; 0 where the target is
            ``ignore_index`` or the logits are not finite. In ``eval()`` the others are 1, and nothing is learned.

        Example:
            >>> RobustCrossEntropy().weigh(torch.randn(2, 3), torch.tensor([1, -100]))
            tensor([1., 0.])
        """
        losses, importance = self._losses(logits, target, index)
        return self._call(logits, target, index, losses, importance, divided=False).view(target.shape)

    def _losses(self, logits: Tensor, target: Tensor, index: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Check the arguments, and return flat losses with what each of them counts for."""
        try:
            check_classes(logits, target, index)
        except (TypeError, ValueError):
            if self.training and self._exchange.world > 1 and isinstance(logits, Tensor):
                self._exchange.refuse(logits.device)
            raise
        wide = logits if logits.dtype in (torch.float32, torch.float64) else logits.float()
        weight = self.weight
        if weight is not None:
            weight = weight.detach().to(wide.device, wide.dtype)
        classes = target.long()
        losses = flat_losses(
            cross_entropy(
                wide,
                classes,
                weight,
                ignore_index=self.ignore_index,
                reduction="none",
                label_smoothing=self.label_smoothing,
            )
        )
        if weight is None:
            return losses, None
        return losses, weight.float()[torch.where(classes == self.ignore_index, 0, classes).reshape(-1)]

    def _call(
        self,
        logits: Tensor,
        target: Tensor,
        index: Tensor | None,
        losses: Tensor,
        importance: Tensor | None,
        divided: bool,
    ) -> Tensor:
        rows = logits.detach()
        rows = rows if rows.dim() == 2 else rows.movedim(1, -1).reshape(-1, rows.shape[1])
        given = target.reshape(-1).long()
        absent = given == self.ignore_index
        if torch.compiler.is_compiling() or not is_cheap_to_read(absent) or bool(absent.any()):
            given = torch.where(absent, 0, given)
            margins, predictions = self._confidence.look(rows, given)
            margins = torch.where(absent, ABSENT, margins)
        else:
            margins, predictions = self._confidence.look(rows, given)
        return self._weights(margins, losses.detach(), index, given, importance, divided, predictions)

    def _tags_of(self, evidence: Tensor, tags: Tensor | None, predictions: Tensor | None) -> Tensor | None:
        # Without predictions it is a code already, from a message.
        return (
            tags
            if tags is None or predictions is None
            else self._confidence.tags(evidence, tags, predictions)
        )

    def _weigh(self, evidence: Tensor, rows: Tensor | None, places: Tensor | None) -> Tensor:
        is_call = places is not None or self._memory.size == 0
        if self.training and is_call and not self._is_weighing:
            return torch.ones_like(evidence)
        return clean_probability(evidence, self._window.shared[0], self._slope)

    @property
    def _is_weighing(self) -> bool:
        if self._memory.size == 0:
            return self._counters.calls >= self.warmup
        epoch, rates = self._confidence.epoch, self._confidence.rates
        # In its first epoch a network has yet to learn the rare classes, if there are any.
        return epoch >= EPOCHS_BEFORE or (rates.worth >= CAPABLE and (epoch > 0 or rates.is_even))

    def _count_tags(self, tags: Tensor | None, weights: Tensor) -> None:
        if tags is not None:
            self._confidence.count(tags, weights)

    def _update(self) -> None:
        self._count()
        samples = self._memory.size
        self._confidence.update(samples)
        if samples:
            self._window.size = window_size(samples, self.window)
        for estimator in self._window.estimators:
            if isinstance(estimator, LabelNoise):
                estimator.interval = self._confidence.rates
        super()._update()

    def _loss_of(self, evidence: Tensor) -> Tensor:
        return torch.where(evidence == ABSENT, 0.0, margin_loss(evidence))

    def _part(
        self, weights: Tensor, rows: Tensor | None, importance: Tensor | None, present: Tensor | float
    ) -> Tensor | float:
        return weights.sum() if importance is None else torch.dot(weights, importance)

    def _solve(
        self, state: AlternationState, values: Tensor, counts: Tensor, fractions: Tensor
    ) -> AlternationState:
        if len(values) == 0:
            return state
        # Probabilities are soft by themselves, so the estimate counts, trusted or not.
        fraction = self._window.estimate.value
        is_clean = fraction >= 1 - SMALLEST_RATE
        log_odds = UNSEEN if is_clean else prior_log_odds(values, counts[0], fraction, self._slope)
        return AlternationState(*torch.tensor([[fraction], [fraction], [log_odds]], dtype=torch.float64))

    def _own_state(self) -> dict[str, Tensor]:
        state = super()._own_state()
        return state | {f"confidence.{k}": v for k, v in self._confidence.state_dict().items()}

    def _restore(self, state: State) -> None:
        self._check_kernel(state)
        confidence = self._confidence.restored(state.part("confidence"))
        super()._restore(state)
        self._confidence = confidence

    def _kernel_label(self) -> Tensor:
        return torch.tensor(list(b"margins"), dtype=torch.uint8)

    _takes_losses = False
