"""How many labels are right, from samples that are held out of the training.

Wrong labels are taken for labels drawn evenly from the K classes, in place of a part rho of the right ones.
If the logits of a network, at some temperature 1 / a, tell the probability of the right label, then that of
the given label is

    q_i = rho / K + (1 - rho) softmax(a logits_i)[label_i],

which is predicting the right label and then being wrong by chance. Both a and rho are those that make the
given labels of the held-out samples most likely: rho is what no temperature can explain, since it spares not
even the samples whose class is plain to see. (Psychophysics knows it as the lapse rate of a psychometric
function.) The fraction of right labels is zeta = 1 - rho (K - 1) / K.

A sample that was just trained on is partly known by heart, so only samples count that are not trained on in
this pass over the data. Each pass holds out others; some passes later they would be known by heart all the
same, and nothing is held out any more.

People's mistakes are not drawn evenly: they resemble the truth, which no likelihood tells apart from a class
that is hard to see. Of them rho finds only the part that is out of place.

Without logits, all that is known of a sample is ``t = exp(-loss)``. Where the class is plain to see, a
network that has learned nothing by heart gives the label the probability zeta, so zeta is read off the
largest of the calibrated probabilities. Where no class is plain to see, this is too small.

References: F. Wichmann and N. Hill (2001), The psychometric function I, for lapse rates; G. Patrini et al.
(2017), Making deep neural networks robust to label noise: a loss correction approach, section 4, for the
largest probabilities as those of samples without doubt. The calibrations are our own.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from inlier import processes
from inlier.scale import LossHistogram

__all__ = ["HeldOut", "calibrated", "lapse_fraction", "right_label_fraction", "tempered_losses"]

HELD_OUT = 0.1
"""The part of the samples that is held out until the held-out loss no longer falls."""

PLAIN = 0.97
"""The quantile of the probabilities that is taken for that of a plain sample."""

CLEAN = 0.96
"""From this fraction on no wrong labels are believed to have been found."""

PATIENCE = 1
"""Passes without a lower held-out loss after which nothing more is learned from holding samples out."""

MOST = 12
"""Passes after which no sample is held out: by then those of the next tenth would be known by heart."""

FIRST = 2
"""Passes before anything is believed: a network that has seen little takes what is rare for what is wrong."""

CHANCE = 0.05
"""So far above 1/K must a plain sample be: else the network has learned nothing, and nothing is known."""

FEWEST = 50
"""With fewer held-out losses nothing is estimated."""

SHARPNESS = tuple(2 ** (quarter / 4) for quarter in range(-8, 13))
"""The values of a, one over the temperature, that are tried."""

EVIDENCE = 5.0
"""By so much must the log-likelihood of the held-out labels exceed that of chance, or nothing is known."""


def tempered_losses(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the cross-entropies at all temperatures that are tried.

    Args:
        logits: Of shape (n, K).
        labels: Of shape (n,).

    Returns:
        Of shape (n, 21): ``cross_entropy(a * logits, labels)`` for each a of :data:`SHARPNESS`.

    Example:
        >>> import torch
        >>> tempered_losses(torch.zeros(2, 10), torch.tensor([3, 4])).shape
        torch.Size([2, 21])
    """
    logits = logits.float()
    return torch.stack([cross_entropy(a * logits, labels, reduction="none") for a in SHARPNESS], 1)


def lapse_fraction(losses: Tensor, classes: int, counts: Tensor | None = None) -> tuple[float, float]:
    """Return the most likely fraction of right labels and the mean loss that goes with it.

    The log-likelihood, the sum of ``log(rho / K + (1 - rho) exp(-loss))``, is concave in rho, whose best
    value is found for each temperature by bisection of the slope; then the best temperature is taken.

    Args:
        losses: Of shape (n, G): cross-entropies of held-out samples at G temperatures, as from
            :func:`tempered_losses`.
        classes: K, at least 2.
        counts: Of the same shape, how often each loss occurs; once unless given.

    Returns:
        zeta, which is 1 where there is too little evidence; and the mean of ``-log q``, what is lost by
        predicting the given labels as well as can be.

    Example:
        >>> import torch
        >>> _ = torch.manual_seed(0)
        >>> logits = 2 * torch.randn(5000, 10)  # a network that is often in doubt
        >>> truth = torch.distributions.Categorical(logits=logits).sample()
        >>> labels = torch.where(torch.rand(5000) < 0.4, torch.randint(10, (5000,)), truth)
        >>> fraction, _ = lapse_fraction(tempered_losses(3 * logits, labels), classes=10)  # and too sure
        >>> abs(fraction - float((labels == truth).float().mean())) < 0.03
        True
    """
    probability = (-losses.double().cpu()).exp()
    number = torch.ones_like(probability) if counts is None else counts.double().cpu()
    chance = 1 / classes
    low, high = torch.zeros(probability.shape[1]).double(), torch.ones(probability.shape[1]).double()
    for _ in range(30):
        rho = (low + high) / 2
        slope = (number * (chance - probability) / (probability + rho * (chance - probability))).sum(0)
        low, high = torch.where(slope > 0, rho, low), torch.where(slope > 0, high, rho)
    total = number.sum(0)
    mean = -(number * (probability + low * (chance - probability)).log()).sum(0) / total
    best = int(mean.argmin())
    known = float((math.log(classes) - mean[best]) * total[best]) > EVIDENCE
    fraction = 1 - float(low[best]) * (1 - chance)
    return fraction if known and fraction < CLEAN else 1.0, float(mean[best])


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
    the network has begun to learn labels by heart. Then the fraction of right labels is that of the pass with
    the lowest loss, and the samples are held out no longer. With logits, the loss is that at the temperature
    and the fraction that predict the given labels best, so that a network which is only too sure is not taken
    for one that learns by heart.

    Args:
        bits: Of the histograms of losses.
    """

    counts: Tensor
    state: Tensor

    def __init__(self, bits: int) -> None:
        super().__init__()
        self.bits = bits
        # A histogram for each temperature; one for all if there are no logits.
        self.register_buffer("counts", torch.zeros(1, (255 << bits) + 1))
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
    def has_begun(self) -> bool:
        """Whether enough passes are over for something to be known."""
        return bool(self.state[1] >= FIRST)

    @property
    def fraction(self) -> float:
        """The fraction of right labels, as far as is known; 1 in the first passes."""
        return float(self.state[4]) if self.has_begun else 1.0

    @staticmethod
    def chosen(index: Tensor, passes: int) -> Tensor:
        """Return which samples are held out in a pass: by their number alone, so that all processes agree.

        Args:
            index: The numbers of samples.
            passes: How many passes are over: each one holds out others.

        Example:
            >>> import torch
            >>> round(float(HeldOut.chosen(torch.arange(100_000), passes=0).float().mean()), 2)
            0.1
        """
        # Multiplicative hashing (Knuth, volume 3, section 6.4): neighbours are scattered.
        place = (index.long() * 2654435761 + int(passes * HELD_OUT * 2**32)) % 2**32
        return place < HELD_OUT * 2**32

    def leave_out(
        self, weights: Tensor, losses: Tensor, index: Tensor, labels: Tensor, logits: Tensor | None
    ) -> Tensor:
        """Return the weights with 0 for samples that are held out, whose losses are taken note of."""
        chosen = self.chosen(index, int(self.state[1]))
        if logits is None:
            noted = losses[chosen].float().unsqueeze(1)
        else:
            noted = tempered_losses(logits[chosen], labels[chosen])
        if self.pending and self.pending[-1].shape[1] != noted.shape[1]:
            raise ValueError("logits were given in some calls and not in others: give them in all or in none")
        self.pending.append(noted)
        return torch.where(chosen, 0.0, weights)

    def update(self, means: Tensor, classes: int, group: dist.ProcessGroup | None = None) -> None:
        """Take in what was noted; at the end of a pass, see whether the network learns by heart.

        Args:
            means: A number for each sample, NaN for those never seen.
            classes: The number of classes.
            group: The processes that train together: one collective.
        """
        self._count(group)
        chosen = self.chosen(torch.arange(len(means), device=means.device), int(self.state[1]))
        known = int((chosen & ~means.isnan()).sum())
        visits = float(self.counts[0].sum())
        # In the first pass every sample is new: it ends when many come for the second time.
        if self.is_settled or visits < known * (1.5 if self.state[1] == 0 else 1.0) or visits < FEWEST:
            return
        lowest, passes, stale, _, fraction = self.state.tolist()
        found, mean = self._estimate(classes)
        if mean < lowest:
            lowest, stale, fraction = mean, 0, found
        else:
            stale += 1
        self.counts.zero_()
        settled = stale >= PATIENCE or passes + 1 >= MOST
        state = [lowest, passes + 1, stale, float(settled), fraction]
        self.state.copy_(torch.tensor(state, dtype=torch.float64))

    def _count(self, group: dist.ProcessGroup | None) -> None:
        """Add what was noted, by all processes, to the histograms."""
        noted = torch.cat(self.pending) if self.pending else self.counts.new_empty(0, len(self.counts))
        self.pending.clear()
        if noted.shape[1] != len(self.counts):
            self.counts = self.counts.new_zeros(noted.shape[1], self.counts.shape[1])
        columns = noted.clamp(min=0.0).T
        new = torch.stack([LossHistogram.of(column, self.bits).counts for column in columns]).to(self.counts)
        if processes.world_size(group) > 1:
            processes.add_up(new, group)
        self.counts += new

    def _estimate(self, classes: int) -> tuple[float, float]:
        """Return the fraction of right labels and the mean loss of a pass."""
        histograms = [LossHistogram(counts) for counts in self.counts.cpu()]
        counts = torch.stack([histogram.counts[:-1] for histogram in histograms], 1).double()
        values = histograms[0].values[:-1].unsqueeze(1)
        if len(histograms) == 1:
            mean = float((counts * values).sum() / counts.sum())
            return right_label_fraction(histograms[0], classes), mean
        seen = counts.sum(1) > 0
        return lapse_fraction(values[seen].expand(-1, len(histograms)), classes, counts[seen])

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        noted = torch.cat(self.pending) if self.pending else self.counts.new_empty(0, len(self.counts))
        destination[prefix + "pending"] = noted

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any, **kwargs: Any) -> None:
        if prefix + "pending" in state_dict:
            pending = state_dict.pop(prefix + "pending").clone()
            # Early checkpoints know of one histogram only.
            self.pending = [pending if pending.dim() == 2 else pending.unsqueeze(1)]
            counts = state_dict[prefix + "counts"]
            counts = state_dict[prefix + "counts"] = counts if counts.dim() == 2 else counts.unsqueeze(0)
            self.counts = torch.empty_like(counts, device=self.counts.device)
        else:
            # Earlier ones know of no labels.
            for name in ("counts", "state"):
                state_dict.setdefault(prefix + name, getattr(self, name))
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)
