"""How many labels are right, from the losses of samples that are held out of the training.

A network that is trained by cross-entropy and has learned nothing by heart predicts the labels as they are
given, wrong ones included: where the class is plain to see, the given label has probability zeta, the
fraction of right labels. So zeta is read off the largest of the held-out probabilities ``t = exp(-loss)``.

Two things spoil this, and are mended. A network grows too confident while it trains; its probabilities are
therefore calibrated first, by a temperature that is found from the losses alone: of K classes, calibrated
probabilities of given labels have ``mean of 1 / t = K``, whatever the noise. And a sample that was trained on
is partly known by heart: so only samples count that have not been trained on.

Reference: G. Patrini et al. (2017), Making deep neural networks robust to label noise: a loss correction
approach, section 4 (the largest probabilities as those of samples without doubt). The calibration is our
own.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from inlier import processes
from inlier.scale import LossHistogram

__all__ = ["HeldOut", "calibrated", "right_label_fraction"]

HELD_OUT = 0.1
"""The part of the samples that is held out until the held-out loss no longer falls."""

PLAIN = 0.97
"""The quantile of the probabilities that is taken for that of a plain sample."""

CLEAN = 0.96
"""From this fraction on no wrong labels are believed to have been found."""

PATIENCE = 2
"""Passes without a lower held-out loss after which the network is learning by heart."""

CHANCE = 0.05
"""So far above 1/K must a plain sample be: else the network has learned nothing, and nothing is known."""

FEWEST = 50
"""With fewer held-out losses nothing is estimated."""


def calibrated(losses: Tensor, classes: int, counts: Tensor | None = None) -> Tensor:
    """Return the probability of each given label, with a temperature that calibrates them.

    All that is known of a prediction is the probability t of the given label. The prediction is taken for one
    that favours one class over K - 1 others that are equal: the given one if t > 1/K, another one if not.
    Then the favour, the logarithm r of the ratio of the two probabilities, follows from t, the temperature
    multiplies it by a, and

        1 / t = 1 + (K - 1) exp(-a r)    if the label is the favoured class,
        1 / t = K - 1 + exp(a r)         if it is not.

    The mean of the right sides over the labels is K at the a that calibrates.

    Args:
        losses: Cross-entropies of samples that were not trained on, finite.
        classes: K, at least 2.
        counts: How many samples have each loss; 1 each unless given.

    Returns:
        Probabilities, float64. Predictions that are no better than chance become 1/K.

    Example:
        >>> import torch
        >>> _ = torch.manual_seed(0)
        >>> logits = torch.eye(5)[torch.randint(5, (20_000,))] * 3  # one class favoured, the others equal
        >>> labels = torch.distributions.Categorical(logits=logits).sample()
        >>> too_sure = torch.nn.functional.cross_entropy(1.5 * logits, labels, reduction="none")
        >>> round(float((-too_sure).exp().max()), 2), round(float(calibrated(too_sure, classes=5).max()), 2)
        (0.96, 0.83)
    """
    inverse = losses.double().clamp(min=1e-12).exp()
    favoured = inverse < classes
    others = classes - 1
    favour = torch.where(favoured, math.log(others) - (inverse - 1).log(), (inverse - others).log())
    share = torch.ones_like(inverse) if counts is None else counts.double()
    share = share / share.sum()

    def scaled(a: float) -> Tensor:
        """1 / t at a temperature."""
        power = torch.where(favoured, -favour, favour).mul(a).exp()
        return torch.where(favoured, 1 + others * power, others + power)

    low, high = 0.0, 4.0
    for _ in range(50):
        a = (low + high) / 2
        # At a = 0 the mean is K too; it falls first, if predictions are better than chance.
        low, high = (low, a) if float(share @ scaled(a)) > classes else (a, high)
    return 1 / scaled(low)


def right_label_fraction(losses: Tensor | LossHistogram, classes: int) -> float:
    """Return the fraction of right labels, from cross-entropies of samples that were not trained on.

    Args:
        losses: Cross-entropies, or a histogram of them. Those that are not finite are left out.
        classes: K, the number of classes; with fewer than 2, all labels are right.

    Returns:
        zeta, the 0.97-quantile of the calibrated probabilities; 1 if that is above 0.96 or no better than
        chance, or if there are few losses. Where no class is plain to see it is too small.

    Example:
        >>> import torch
        >>> _ = torch.manual_seed(0)
        >>> right = torch.rand(5000) < 0.7
        >>> sure = torch.where(right, 0.7, 0.3 / 9)  # the class is plain to see, 30 % of the labels are wrong
        >>> round(right_label_fraction(-sure.log(), classes=10), 1)
        0.7
    """
    if isinstance(losses, LossHistogram):
        counts, values = losses.counts[:-1].double().cpu(), losses.values[:-1]
        values, counts = values[counts > 0], counts[counts > 0]
    else:
        values = losses[losses.isfinite()].double().reshape(-1).cpu()
        counts = torch.ones_like(values)
    if classes < 2 or float(counts.sum()) < FEWEST:
        return 1.0
    probability = calibrated(values, classes, counts)
    order = probability.argsort()
    reached = counts[order].cumsum(0) >= PLAIN * counts.sum()
    fraction = float(probability[order][reached][0])
    return fraction if 1 / classes + CHANCE < fraction < CLEAN else 1.0


class HeldOut(nn.Module):
    """Samples that are held out while a network learns what is common, and what their losses tell.

    While the held-out loss falls, the network learns; once it has not fallen for two passes over the data,
    the network has begun to learn labels by heart. Then the fraction of right labels is estimated and the
    samples are held out no longer.

    Args:
        bits: Of the histogram of losses.
    """

    counts: Tensor
    state: Tensor

    def __init__(self, bits: int) -> None:
        super().__init__()
        self.bits = bits
        self.register_buffer("counts", torch.zeros((255 << bits) + 1))
        # Losses of this process since the last update; no buffer, as in LossWindow.
        self.pending: list[Tensor] = []
        # The lowest mean loss of a pass, passes done, passes since the lowest, whether all is settled, and
        # the fraction.
        self.register_buffer("state", torch.tensor([math.inf, 0.0, 0.0, 0.0, 1.0], dtype=torch.float64))

    @property
    def is_settled(self) -> bool:
        """Whether no sample is held out any more."""
        return bool(self.state[3])

    @property
    def fraction(self) -> float:
        """The fraction of right labels, 1 until it is estimated."""
        return float(self.state[4])

    @staticmethod
    def chosen(index: Tensor) -> Tensor:
        """Return which samples are held out: by their number alone, so that all processes agree.

        Example:
            >>> import torch
            >>> round(float(HeldOut.chosen(torch.arange(100_000)).float().mean()), 2)
            0.1
        """
        # Multiplicative hashing (Knuth, volume 3, section 6.4): neighbours are scattered.
        return (index.long() * 2654435761 % 2**32) < HELD_OUT * 2**32

    def leave_out(self, weights: Tensor, losses: Tensor, index: Tensor) -> Tensor:
        """Return the weights with 0 for samples that are held out, whose losses are taken note of."""
        chosen = self.chosen(index)
        self.pending.append(losses[chosen].float())
        return torch.where(chosen, 0.0, weights)

    def update(self, means: Tensor, classes: int, group: dist.ProcessGroup | None = None) -> None:
        """Take in what was noted; at the end of a pass, see whether the network learns by heart.

        Args:
            means: A number for each sample, NaN for those never seen.
            classes: The number of classes.
            group: The processes that train together: one collective.
        """
        noted = torch.cat(self.pending) if self.pending else means.new_empty(0)
        self.pending.clear()
        new = LossHistogram.of(noted.clamp(min=0.0), self.bits).counts.to(self.counts)
        if processes.world_size(group) > 1:
            processes.add_up(new, group)
        self.counts += new
        known = int((self.chosen(torch.arange(len(means), device=means.device)) & ~means.isnan()).sum())
        visits = float(self.counts.sum())
        # In the first pass every sample is new: it ends when many come for the second time.
        if self.is_settled or visits < known * (1.5 if self.state[1] == 0 else 1.0) or visits < FEWEST:
            return
        histogram = LossHistogram(self.counts.cpu())
        finite = histogram.counts[:-1].double()
        mean = float(finite @ histogram.values[:-1] / finite.sum())
        lowest, passes, stale, _, _ = self.state.tolist()
        stale = 0 if mean < lowest else stale + 1
        settled = stale >= PATIENCE
        fraction = right_label_fraction(histogram, classes)
        self.counts.zero_()
        self.state.copy_(
            torch.tensor(
                [min(mean, lowest), passes + 1, stale, float(settled), fraction if settled else 1.0],
                dtype=torch.float64,
            )
        )

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        noted = torch.cat(self.pending) if self.pending else self.counts.new_empty(0)
        destination[prefix + "pending"] = noted

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any, **kwargs: Any) -> None:
        if prefix + "pending" in state_dict:
            self.pending = [state_dict.pop(prefix + "pending").clone()]
        else:
            # Early checkpoints know of no labels.
            for name in ("counts", "state"):
                state_dict.setdefault(prefix + name, getattr(self, name))
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)
