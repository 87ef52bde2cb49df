"""How often confident predictions agree with the given labels: counts on the device, and what follows from them."""

from __future__ import annotations

import math
from dataclasses import astuple, replace

import torch
from torch import Tensor

from inlier.fraction._label_noise import (
    BIN_WIDTH,
    BINS,
    CONFIDENT_ERRORS,
    LARGEST_MARGIN,
    LARGEST_OFFSET,
    WORTH,
    RateInterval,
    confident_rates,
)
from inlier.nn._state import State
from inlier.nn._validation import ABSENT

__all__ = ["CODES", "ConfidenceWindow", "encode", "window_size"]

CODES = 256
"""A tag is the preferred class times this, plus 1 + bin + BINS times its outcome; 0 is no prediction at all. The given
class is in the upper half of its 64 bits, which is not remembered."""

DISAGREES, AGREES, IMPLAUSIBLE, OUTCOMES = 0, 1, 2, 3
"""Outcome of a prediction: the given class is another one, the preferred one, or one of the least likely."""

WINDOW, EPOCH_PART = 8192, 3
"""About so many recent predictions count, and in the first epoch no more than this part of it: the network changes."""

FEWEST, REFIT_EVERY = 300, 5
"""Without dataset indices: predictions before the first fit, and updates from one fit to the next."""

USUAL_BIN = 8.0
"""Where the usual confidence of a class is put when confidences are counted relative to it."""

MOST_NOISE = 0.5
"""Label noise can halve the frequency of a class or multiply it, by about this much on a log scale; what is beyond is
taken for a difference between the classes themselves."""

PLACES = 1024
"""Places for what is known of classes; with more classes than this, some share one, and frequencies are left alone."""

WEIGHT_STEPS = 256
"""Weights are added up in such parts of 1: sums of integers are the same in any order, on any device."""


def window_size(samples: int, largest: int) -> int:
    """Return how many recent values count where there are so many samples, at most so many."""
    return min(largest, max(samples // EPOCH_PART, 1))


def margins_and_predictions(rows: Tensor, given: Tensor) -> tuple[Tensor, Tensor]:
    """Return the margin of each label, and what the network predicts, in few passes over the logits.

    Args:
        rows: Logits of shape (N, C), less the log frequencies of the classes. They are overwritten.
        given: The given classes.

    Returns:
        The logit of the given class minus that of the best other one, clamped, NaN if both are infinite. And, of shape
        (N, 3), the preferred class, the lead of its logit over the second one, and how many classes are likelier than
        the given one.

    Example:
        >>> margins_and_predictions(torch.tensor([[0.0, 3.0, 1.0]]), torch.tensor([2]))
        (tensor([-2.]), tensor([[1., 2., 1.]]))
    """
    given = given[:, None]
    own = rows.gather(1, given)
    likelier = (rows > own).sum(1, keepdim=True)
    best, preferred = rows.max(1, keepdim=True)
    second = rows.scatter_(1, preferred, -math.inf).amax(1, keepdim=True)
    margins = own - torch.where(preferred == given, second, best)
    predictions = torch.cat([preferred, best - second, likelier], 1)
    return margins.squeeze(1).clamp_(-LARGEST_MARGIN, LARGEST_MARGIN), predictions


def encode(given: Tensor, preferred: Tensor, confidence: Tensor, outcome: Tensor) -> Tensor:
    """Return tags: the given class, the preferred one, how confident the network is of it, and the outcome.

    Example:
        >>> encode(torch.tensor([3]), torch.tensor([3]), torch.tensor([0.2]), torch.tensor([AGREES])) % CODES
        tensor([66])
    """
    bins = (confidence / BIN_WIDTH).nan_to_num(0.0).clamp(0, BINS - 1).long()
    return (given << 32) + preferred * CODES + 1 + bins + BINS * outcome


def least_likely(classes: int) -> int:
    """Return how many of the least likely classes are implausible ones: a tenth; of fewer than five classes none."""
    return max(classes // 10, 1) if classes >= 5 else 0


class ConfidenceWindow:
    """Counts of recent predictions by confidence and agreement, the noise rates that they allow, and class frequencies.

    In the first epoch, of which the last third counts, confidence is relative to the mean of the class that is
    preferred: if only some classes are noisy, a network is less confident of these, and the most confident predictions
    of all would be of clean classes alone. If that proves neither noise nor clean labels, the network still learns its
    classes, and those that it does not know yet would look noisy by that measure: from then on confidences count as
    they are, of each epoch by itself, and it counts how often the given class is one of the least likely, too: the
    mistakes of a network that learns slowly are confident, but plausible.

    Of two answers the chosen one may come first or second: an undecided prediction is right half of the time then, and
    noise is claimed only if the network is worth as much as for an estimate that is trusted.

    A label that was never trained on agrees with a confident prediction as often as labels are clean; a memorised
    one always agrees. So what is proven stays. Without dataset indices epochs are not known, and rates are fitted
    again and again.

    The frequency of a class is the sum of the weights of its labels in about the last epoch.
    """

    def __init__(self) -> None:
        self.pending = torch.zeros(1 + OUTCOMES * BINS, dtype=torch.int32)
        self.counts = torch.zeros(OUTCOMES, BINS)
        # Of each class that is preferred: twice the sum of its confidences, in bins, and their number. Of each class
        # that is given: the sum of weights, in steps.
        self.pending_by_class = torch.zeros(3, PLACES, dtype=torch.int32)
        self.by_class, self.frequencies = torch.zeros(2, PLACES), torch.zeros(PLACES)
        self.is_uneven = False
        """Whether classes differ in frequency by more than noise makes them differ."""
        self._set_current(self._current())
        self.seen, self.rounds, self.epoch, self.classes = 0, 0, 0, 2
        self.rates = RateInterval()

    @property
    def is_settled(self) -> bool:
        """Whether the rates are known for good: noise was proven, or the first epoch has shown that there is none.

        Labels that were trained on later tell less and less, since memorised ones agree.
        """
        rates = self.rates
        return self.epoch > 0 and (rates.proves_noise or (rates.is_out_of_sample and rates.proves_clean))

    def log_frequencies(self, logits: Tensor) -> Tensor:
        """Return the log frequency of each class relative to the mean, for logits of shape (N, C)."""
        if self.current.device != logits.device:
            self._move(logits.device)
        self.classes = classes = logits.shape[1]
        return self._log_frequency.narrow(0, 0, classes) if classes <= PLACES else logits.new_zeros(classes)

    def look(self, logits: Tensor, given: Tensor) -> tuple[Tensor, Tensor]:
        """Return margins and predictions, as from :func:`margins_and_predictions`, for logits of shape (N, C)."""
        frequencies = self.log_frequencies(logits)
        margins, predictions = margins_and_predictions(logits.float() - frequencies, given)
        if self.is_uneven:
            # Of predictions, frequencies count only as far as noise could have changed them.
            rows = logits.float() - frequencies.clamp(-MOST_NOISE, MOST_NOISE)
            predictions = margins_and_predictions(rows, given)[1]
        return margins, predictions

    def tags(self, evidence: Tensor, given: Tensor, predictions: Tensor) -> Tensor:
        """Return the tags of predictions, as from :func:`encode`; 0 for elements that are left out or not numbers.

        Args:
            evidence: The evidence for each label.
            given: The given classes.
            predictions: As from :func:`margins_and_predictions`.
        """
        preferred, confidence, likelier = predictions.unbind(1)
        preferred = preferred.long()
        outcome = (preferred == given).long()
        if least := least_likely(self.classes):
            outcome += IMPLAUSIBLE * (likelier >= self.classes - least)
        tags = encode(given, preferred, confidence, outcome)
        return torch.where((evidence == ABSENT) | evidence.isnan(), 0, tags)

    def count(self, tags: Tensor, weights: Tensor) -> None:
        """Count tags, as from :func:`encode`, and the weights of their labels."""
        if self.pending.device != tags.device:
            self._move(tags.device)
        code, given = tags % CODES, (tags >> 32) % PLACES
        is_prediction = code > 0
        steps = torch.where(is_prediction, weights * WEIGHT_STEPS, 0.0).round().to(torch.int32)
        self.pending_by_class[2].index_add_(0, given, steps)
        if self.is_settled:  # Of predictions, only how many there are still matters.
            self.pending.index_add_(0, code, self.pending.new_ones(1).expand(len(code)))
            return
        place, bins = (tags >> 8) % PLACES, (code - 1) % BINS
        new = torch.stack([2 * bins + 1, torch.ones_like(bins)]) * is_prediction
        self.pending_by_class[:2].index_add_(1, place, new.to(torch.int32))
        if self.epoch == 0:
            bins = ((bins + 0.5) * (USUAL_BIN / self.current[0, place])).clamp(max=BINS - 1).long()
        counted = torch.where(is_prediction, 1 + bins + BINS * ((code - 1) // BINS), 0)
        self.pending.index_add_(0, counted, self.pending.new_ones(1).expand(len(tags)))

    def _move(self, device: torch.device) -> None:
        self.pending = self.pending.to(device)
        self._set_current(self.current.to(device))
        self.pending_by_class = self.pending_by_class.to(device)

    def update(self, samples: int) -> None:
        """Take in what was counted: one copy.

        Args:
            samples: The number of samples; 0 if they have no dataset index.
        """
        copied = torch.cat([self.pending, self.pending_by_class.view(-1)]).cpu().float()
        new, by_class = (
            copied[1 : 1 + OUTCOMES * BINS].view(-1, BINS),
            copied[1 + OUTCOMES * BINS :].view(3, -1),
        )
        self.pending.zero_()
        self.pending_by_class.zero_()
        total = float(new.sum())
        size = min(samples // (1 if self.epoch else EPOCH_PART) or 1, WINDOW) if samples else WINDOW
        kept = math.exp(-total / size)
        self.counts = new + kept * self.counts
        self.by_class = by_class[:2] + kept * self.by_class
        kept = math.exp(-total / samples) if samples else 1.0
        self.frequencies = by_class[2] / WEIGHT_STEPS + kept * self.frequencies
        # In place: a compiled step reads the same tensor.
        self.current.copy_(self._current())
        self.seen += int(total)
        self.rounds += 1
        before, self.epoch = self.epoch, max(self.seen - 1, 0) // samples if samples else 0
        has_ended = before < self.epoch
        if not self.is_settled:
            if not samples:
                is_due = float(self.counts.sum()) >= FEWEST and self.rounds % REFIT_EVERY == 0
            elif self.epoch == 0:
                # If one update reaches back further than two windows, it has those of a network that knew little.
                is_recent = total <= 2 * size or not self._is_one_sided
                is_due = is_recent and float(self.counts.sum()) >= size / 2
            else:
                is_due = has_ended and before > 0
            if is_due:
                self._fit(samples)
        if has_ended:
            self.counts.zero_()

    def _fit(self, samples: int) -> None:
        chance = 1 / self.classes
        if not self._is_one_sided:
            given, preferred = self.frequencies, self.by_class[1]
            chance = float(given @ preferred / (given.sum() * preferred.sum()))
        is_out_of_sample = self.epoch == 0 and samples > 0
        # Later, memorised labels agree, which hides as much.
        errors = CONFIDENT_ERRORS if is_out_of_sample else 0.0
        agrees = self.counts[AGREES]
        # Of two answers, of which the chosen one may come first or second, an undecided prediction is a coin toss.
        offset = 0.0 if self._is_one_sided else LARGEST_OFFSET
        counts = torch.stack([self.counts.sum(0) - agrees, agrees])
        rates = confident_rates(counts, self.classes, chance, errors, offset)
        rates = replace(rates, is_out_of_sample=is_out_of_sample, implausible=self._implausible())
        rates = rates.after(self.rates)
        if self._is_one_sided and rates.worth < WORTH:
            # With two classes a network of little worth is wrong as often as labels may be.
            rates = replace(rates, low=0.0)
        elif rates.proves_noise and rates.worth < WORTH:
            # Some classes may be noisier than those of the most confident predictions, or their labels memorised.
            rates = replace(rates, high=max(rates.high, 1 - rates.agreement))
        self.rates = rates

    def _implausible(self) -> float:
        """Return how often the given class is one of the least likely, in a quarter of the most confident predictions.

        Per the part of noisy labels that symmetric noise gives to these classes, so that it is about the noise rate.
        """
        least = least_likely(self.classes)
        if not least:
            return 0.0
        total = self.counts.sum(0)
        confident = total.flip(0).cumsum(0).flip(0) <= max(float(total.sum()) / 4, float(total[-1]))
        part = float(self.counts[IMPLAUSIBLE, confident].sum() / total[confident].sum().clamp(min=1))
        return part * (self.classes - 1) / least

    @property
    def _is_one_sided(self) -> bool:
        """Whether all labels are of one class: of two answers the chosen one, say. Then classes are exchangeable."""
        return int((self.frequencies > 0).sum()) == 1

    def _set_current(self, current: Tensor) -> None:
        """Keep what is known of each class, on the device: its usual confidence, then its log frequency."""
        self.current, self._log_frequency = current, current[1]  # A step needs this view alone.

    def _current(self) -> Tensor:
        """Return usual confidences, in bins, and log frequencies; the mean counts as one more prediction or label."""
        sums, numbers = self.by_class[0] / 2, self.by_class[1]
        if self._is_one_sided:
            sums, numbers = sums.sum().expand(PLACES), numbers.sum().expand(PLACES)
        mean = sums.sum() / numbers.sum() if float(numbers.sum()) else USUAL_BIN
        given = self.frequencies > 0
        usual = self.frequencies[given].mean() if bool(given.any()) else self.frequencies.new_ones(())
        # A class that was never given is left alone.
        relative = torch.where(given, (self.frequencies + 1) / (usual + 1), 1.0)
        log_frequencies = relative.log()
        self.is_uneven = float(log_frequencies.abs().max()) > MOST_NOISE
        return torch.stack([(sums + mean) / (numbers + 1), log_frequencies])

    def state_dict(self) -> dict[str, Tensor]:
        """Return all that a resumed training needs."""
        return {
            "pending": self.pending.clone(),
            "counts": self.counts.clone(),
            "pending_by_class": self.pending_by_class.clone(),
            "by_class": self.by_class.clone(),
            "frequencies": self.frequencies.clone(),
            "seen": torch.tensor([self.seen, self.rounds, self.epoch, self.classes]),
            "rates": torch.tensor(astuple(self.rates), dtype=torch.float64),
        }

    def restored(self, state: State) -> ConfidenceWindow:
        """Return a window with the state of a checkpoint, or raise ``ValueError`` naming what does not fit."""
        new = ConfidenceWindow()
        new.pending = state.read("pending", torch.int32, (1 + OUTCOMES * BINS,), low=0)
        new.counts = state.read("counts", torch.float32, (OUTCOMES, BINS), low=0)
        new.pending_by_class = state.read("pending_by_class", torch.int32, (3, PLACES), low=0)
        new.by_class = state.read("by_class", torch.float32, (2, PLACES), low=0)
        new.frequencies = state.read("frequencies", torch.float32, (PLACES,), low=0)
        new._set_current(new._current())
        counters = state.read("seen", torch.int64, (4,), low=0).tolist()
        new.seen, new.rounds, new.epoch, new.classes = counters
        new.rates = RateInterval.of(
            state.read("rates", torch.float64, (len(astuple(new.rates)),), low=0).tolist()
        )
        new._move(self.pending.device)
        return new
