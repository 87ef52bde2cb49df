"""How many labels are right, from samples that are held out of the training.

Wrong labels are taken for labels drawn evenly from the K classes, in place of a part rho of the right ones.
If the logits of a network, at some temperature 1 / a, tell the probability of the right label, then that of
the given label is

    q_i = rho / K + (1 - rho) softmax(a logits_i)[label_i],

which is predicting the right label and then being wrong by chance. For each rho, a is what makes the given
labels of the held-out samples most likely, and rho is the mean by these likelihoods: what no temperature can
explain, since it spares not even the samples whose class is plain to see. (Psychophysics knows it as the
lapse rate of a psychometric function.) The fraction of right labels is zeta = 1 - rho (K - 1) / K.

A sample that was trained on is partly known by heart, so only samples count that were never trained on. They
are held out in the first passes over the data, and take part in the others. (Who gives the fraction needs
none.)

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
from torch.nn.functional import log_softmax

from inlier import processes
from inlier.scale import LossHistogram

__all__ = [
    "HeldOut",
    "calibrated",
    "lapse_fraction",
    "lapse_likelihood",
    "right_label_fraction",
    "tempered_losses",
]

HELD_OUT = 0.1
"""The part of the samples that is held out in the first passes."""

PLAIN = 0.97
"""The quantile of the probabilities that is taken for that of a plain sample."""

CLEAN = 0.96
"""From this fraction on no wrong labels are believed to have been found."""

PASSES = 5
"""Passes over the data in which samples are held out."""

FIRST = 2
"""Passes before anything is believed: a network that has seen little takes what is rare for what is wrong."""

CHANCE = 0.05
"""So far above 1/K must a plain sample be: else the network has learned nothing, and nothing is known."""

FEWEST = 50
"""With fewer held-out losses nothing is estimated."""

SHARPNESS = tuple(2 ** (quarter / 4) for quarter in range(-8, 13))
"""The values of a, one over the temperature, that are tried."""

LAPSES = tuple(step / 200 for step in range(201))
"""The values of rho that are tried."""

EVIDENCE = 2.0
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
    sharpness = torch.tensor(SHARPNESS, device=logits.device).view(-1, 1, 1)
    logarithms = log_softmax(sharpness * logits.float(), 2)
    return -logarithms.gather(2, labels.expand(len(SHARPNESS), -1).unsqueeze(2)).squeeze(2).T


def lapse_likelihood(losses: Tensor, classes: int, counts: Tensor | None = None) -> Tensor:
    """Return how likely the given labels are at each rho, at the temperature that is best for it.

    The log-likelihood is the sum of ``log(rho / K + (1 - rho) exp(-loss))``. Those of several passes add up.

    Args:
        losses: Of shape (n, G): cross-entropies of held-out samples at G temperatures, as from
            :func:`tempered_losses`.
        classes: K, at least 2.
        counts: Of the same shape, how often each loss occurs; once unless given.

    Returns:
        Log-likelihoods at each of :data:`LAPSES`, float64.

    Example:
        >>> import torch
        >>> losses = torch.tensor([[0.1], [0.1], [5.0]])  # two labels are as predicted, one is not
        >>> LAPSES[int(lapse_likelihood(losses, classes=10).argmax())]
        0.325
    """
    losses = losses.cpu()
    number = torch.ones_like(losses) if counts is None else counts.cpu()
    # Most losses of a histogram occur at few of the temperatures.
    row, temperature = number.nonzero(as_tuple=True)
    probability = (-losses[row, temperature].double()).exp()
    number = number[row, temperature].double()
    sums = number.new_zeros(len(LAPSES), losses.shape[1])
    for rho, total in zip(LAPSES, sums, strict=True):
        total.index_add_(0, temperature, number * (rho / classes + (1 - rho) * probability).log())
    return sums.amax(1)


def lapse_fraction(likelihood: Tensor, classes: int, passes: int = 1) -> float:
    """Return the fraction of right labels that is to be expected.

    It is the mean of zeta = 1 - rho (K - 1) / K if all values of rho were as likely before. Where labels tell
    little, the most likely rho is often one that leaves next to no right label; their mean is not.

    Args:
        likelihood: The log-likelihood at each rho, as from :func:`lapse_likelihood`, summed over passes.
        classes: K, at least 2.
        passes: How many of them are in the sum.

    Returns:
        zeta; 1 where there is too little evidence of wrong labels.

    Example:
        >>> import torch
        >>> _ = torch.manual_seed(0)
        >>> logits = 2 * torch.randn(5000, 10)  # a network that is often in doubt
        >>> truth = torch.distributions.Categorical(logits=logits).sample()
        >>> labels = torch.where(torch.rand(5000) < 0.4, torch.randint(10, (5000,)), truth)
        >>> losses = tempered_losses(3 * logits, labels)  # and too sure
        >>> fraction = lapse_fraction(lapse_likelihood(losses, classes=10), classes=10)
        >>> abs(fraction - float((labels == truth).float().mean())) < 0.03
        True
    """
    # At rho = 1 all is chance. Passes look at the same samples: what they say together is not more evidence.
    known = float(likelihood.max() - likelihood[-1]) > EVIDENCE * passes
    weight = (likelihood - likelihood.max()).exp().double().cpu()
    rho = float(weight @ torch.tensor(LAPSES, dtype=torch.float64) / weight.sum())
    fraction = 1 - rho * (1 - 1 / classes)
    return fraction if known and fraction < CLEAN else 1.0


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

    They are the same samples in each of the first :data:`PASSES` passes over the data, so that none of them
    is known by heart. A network that improves from pass to pass tells more and more of them: with logits, the
    log-likelihoods of the passes add up, so that those in which the network knew little count for little.
    Without logits, the fraction is that of the pass with the lowest loss. After these passes no sample is
    held out any more.

    Args:
        bits: Of the histograms of losses.
    """

    counts: Tensor
    likelihood: Tensor
    state: Tensor

    def __init__(self, bits: int) -> None:
        super().__init__()
        self.bits = bits
        # A histogram for each temperature; one for all if there are no logits.
        self.register_buffer("counts", torch.zeros(1, (255 << bits) + 1))
        # Losses of this process since the last update; no buffer, as in LossWindow.
        self.pending: list[Tensor] = []
        # Of each rho, by all passes but the first.
        self.register_buffer("likelihood", torch.zeros(len(LAPSES), dtype=torch.float64))
        # Passes done, the fraction, and without logits the lowest mean loss of a pass.
        self.register_buffer("state", torch.tensor([0.0, 1.0, math.inf], dtype=torch.float64))

    @property
    def is_settled(self) -> bool:
        """Whether no sample is held out any more."""
        return bool(self.state[0] >= PASSES)

    @property
    def has_begun(self) -> bool:
        """Whether enough passes are over for something to be known."""
        return bool(self.state[0] >= FIRST)

    @property
    def fraction(self) -> float:
        """The fraction of right labels, as far as is known; 1 in the first passes."""
        return float(self.state[1]) if self.has_begun else 1.0

    @staticmethod
    def chosen(index: Tensor) -> Tensor:
        """Return which samples are held out: by their number alone, so that all processes agree.

        Args:
            index: The numbers of samples.

        Example:
            >>> import torch
            >>> round(float(HeldOut.chosen(torch.arange(100_000)).float().mean()), 2)
            0.1
        """
        # Multiplicative hashing (Knuth, volume 3, section 6.4): neighbours are scattered.
        return (index.long() * 2654435761) % 2**32 < HELD_OUT * 2**32

    def note(self, losses: Tensor, index: Tensor, labels: Tensor, logits: Tensor | None) -> Tensor:
        """Take note of the losses of samples that are held out, and return which ones are."""
        chosen = self.chosen(index)
        if logits is None:
            noted = losses[chosen].float().unsqueeze(1)
        else:
            noted = tempered_losses(logits[chosen], labels[chosen])
        if self.pending and self.pending[-1].shape[1] != noted.shape[1]:
            raise ValueError("logits were given in some calls and not in others: give them in all or in none")
        self.pending.append(noted)
        return chosen

    def update(self, means: Tensor, classes: int, group: dist.ProcessGroup | None = None) -> None:
        """Take in what was noted; at the end of a pass, estimate the fraction.

        Args:
            means: A number for each sample, NaN for those never seen.
            classes: The number of classes.
            group: The processes that train together: one collective.
        """
        self._count(group)
        chosen = self.chosen(torch.arange(len(means), device=means.device))
        known = int((chosen & ~means.isnan()).sum())
        visits = float(self.counts[0].sum())
        # In the first pass every sample is new: it ends when many come for the second time.
        if self.is_settled or visits < known * (1.5 if self.state[0] == 0 else 1.0) or visits < FEWEST:
            return
        self._estimate(classes)
        self.state[0] += 1
        self.counts.zero_()

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

    def _estimate(self, classes: int) -> None:
        """Estimate the fraction of right labels by the losses of a pass and what was known before."""
        histograms = [LossHistogram(counts) for counts in self.counts.cpu()]
        counts = torch.stack([histogram.counts[:-1] for histogram in histograms], 1).double()
        values = histograms[0].values[:-1].unsqueeze(1)
        if len(histograms) == 1:
            mean = float((counts * values).sum() / counts.sum())
            if mean < self.state[2]:
                self.state[1], self.state[2] = right_label_fraction(histograms[0], classes), mean
        elif passes := int(self.state[0]):
            seen = counts.sum(1) > 0
            losses = values[seen].expand(-1, len(histograms))
            self.likelihood += lapse_likelihood(losses, classes, counts[seen]).to(self.likelihood)
            self.state[1] = lapse_fraction(self.likelihood, classes, passes)

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        noted = torch.cat(self.pending) if self.pending else self.counts.new_empty(0, len(self.counts))
        destination[prefix + "pending"] = noted

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any, **kwargs: Any) -> None:
        state = state_dict.get(prefix + "state")
        if state is None or state.shape != self.state.shape:
            # An early checkpoint: what it knows of labels is learned anew.
            state_dict.pop(prefix + "pending", None)
            state_dict |= {prefix + name: getattr(self, name) for name in ("counts", "likelihood", "state")}
        else:
            self.pending = [state_dict.pop(prefix + "pending").clone()]
            self.counts = torch.empty_like(state_dict[prefix + "counts"], device=self.counts.device)
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)
