"""What each constant of the core does: error rates with it, with half and twice of it, and without it.

Acceptance of two groups (`inlier/fraction/_from_losses.py`): generated losses, each fitted once; then the decision is
taken anew with one constant changed. A false alarm is an estimate below 0.95 on clean losses, a miss one that is off by
more than 0.1 on squared normal errors with 15 to 85 % outliers of 5 or 10 times the noise.

Trust (the same module): the same losses and some that are easily mistaken, again with one constant changed at a time.

Losses that are the same samples many times over (`DISTINCT` of `inlier/nn/_window.py`): 8,192 counted losses of 1,000
samples, by how many an estimate takes them for.

Small groups (`PRIOR_COUNT` of `inlier/nn/_robust.py`): how far the scale of a group is from the one that many losses of
it would give, in units of log c, by the size of the group, by how much groups differ, and by how many losses of all
groups each is pooled with.

The null model (`SETTLED` of `inlier/fraction/_null_model.py`): how far the first estimate that is trusted is from the
truth, and how many batches it takes, by how many times the length of the running mean must have been seen.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator
from unittest import mock

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.thresholds import CLEAN
from inlier import LossHistogram, fit_inliers, kernels
from inlier.alternation import _pooled
from inlier.fraction import LossMixture, NullModel, _null_model
from inlier.fraction import _from_losses as rule
from inlier.histogram import occupied
from inlier.scale import solve_occupied

CHANGES: dict[str, tuple[object, ...]] = {
    "SMALLEST_GAP": (1.3, 2.2, 3.1),
    "UNCLEAR": ((2.65, 2.65001), (3.2, 3.6), (4.4, 4.8)),
    "NEEDED_SHARE": ((0.0, 0.0), (0.11, 0.05), (0.44, 0.2)),
    "NEEDED_GAIN": ((0.0, 0.0), (2.5, -2.0), (10.0, -8.0), (10.0, 0.0)),
    "STRAIGHT_COUNTS": (0.0, 0.15, 0.6),
    "AMPLE": (750, 3000),
    "SCARCE": (0.0, 1.5, 6.0),
    "SAFETY": (0.0, 5.0, 20.0),
}
"""Constants of the rule, and what else they could be."""

TRUSTED: dict[str, tuple[object, ...]] = {
    "FEW": (0, 200, 400),
    "MISFIT": ((0.015, 0.8), (0.03, 0.8), (0.06, 3.2), (1.0, 0.0)),
    "LARGEST_ERROR": (0.02, 0.08, 1.0),
    "SMALLEST_FRACTION": (0.0, 0.2, 0.26),
    "AMBIGUOUS": ((5.0, -20.0), (20.0, -5.0), (1e9, 0.0)),
}
"""Constants that decide what is trusted, likewise."""


def uneven(n: int) -> Tensor:
    """The cross-entropy of a calibrated classifier of 3 to 7 classes whose confidence is very uneven."""
    classes = int(torch.randint(3, 8, ()))
    logits = 1.5 * torch.randn(n, 1).exp() * torch.randn(n, classes)
    labels = torch.distributions.Categorical(logits=logits).sample()
    return F.cross_entropy(logits, labels, reduction="none")


def draws(trials: int) -> Iterator[tuple[float, Tensor]]:
    """Generated losses, with the true fraction of inliers."""
    clean = {name: draw for name, draw in CLEAN.items() if "rounded" not in name and "3 degrees" not in name}
    for _ in range(trials):
        for n in (200, 1500):
            for draw in (*clean.values(), uneven, uneven):
                yield 1.0, draw(n)
            for fraction, ratio in ((0.85, 10), (0.7, 5), (0.5, 5), (0.4, 10), (0.15, 10)):
                size = torch.where(torch.rand(n) < fraction, 1.0, float(ratio))
                yield fraction, (torch.randn(n) * size).square()


def ambiguous(trials: int) -> Iterator[tuple[float, Tensor]]:
    """More losses that are easily mistaken: few, rounded, of three groups, hardly any inliers, groups that overlap."""
    for _ in range(trials):
        for n in (60, 150, 1500):
            yield 1.0, CLEAN["rounded squared normal"](n)
            yield 1.0, CLEAN["squared Student t, 3 degrees"](n)
            yield 1.0, torch.randn(n).square() * 1000.0 ** torch.randint(3, (n,))
            for fraction, ratio in ((0.08, 10), (0.15, 5), (0.5, 3), (0.8, 3)):
                size = torch.where(torch.rand(n) < fraction, 1.0, float(ratio))
                yield fraction, (torch.randn(n) * size).square()


def varied(
    constants: dict[str, tuple[object, ...]], losses: Iterator[tuple[float, Tensor]]
) -> Iterator[tuple[str, list[tuple[float, LossMixture]]]]:
    """For each value of each constant: the beginning of a line, and estimates beside their true fractions."""
    truths, choose = [], rule._choose
    with mock.patch.object(rule, "_choose", wraps=choose) as watched:
        for fraction, drawn in losses:
            fit_inliers(drawn)
            if watched.call_count > len(truths):  # Else there are too few different losses to fit anything.
                truths.append(fraction)
    seen = list(zip(truths, (call.args for call in watched.call_args_list), strict=True))
    for name, values in constants.items():
        for value in (getattr(rule, name), *values):
            shown = f"**{value}**" if value == getattr(rule, name) else str(value)
            with mock.patch.object(rule, name, value):
                yield f"| {name} | {shown} |", [(truth, choose(*fits)) for truth, fits in seen]


def share(events: list[bool]) -> str:
    return f"{sum(events) / len(events):.3f} |"


def acceptance(trials: int) -> list[str]:
    """Lines of a table: error rates of the rule, with one constant changed at a time."""
    lines = ["| constant | value | false alarms | misses |", "|---|---|---|---|"]
    for head, found in varied(CHANGES, draws(trials)):
        alarms = [fit.value < 0.95 for truth, fit in found if truth == 1]
        misses = [abs(fit.value - truth) > 0.1 for truth, fit in found if truth < 1]
        lines.append(" ".join([head, share(alarms), share(misses)]))
    return lines


def trust(trials: int) -> list[str]:
    """Lines of a table: how often wrong estimates (off by more than 0.1) and right ones are trusted."""
    lines = ["| constant | value | wrong, trusted | right, trusted |", "|---|---|---|---|"]
    hard = itertools.chain(draws(trials), ambiguous(trials))
    for head, found in varied(TRUSTED, hard):
        wrong = [fit.trusted for truth, fit in found if abs(fit.value - truth) > 0.1]
        right = [fit.trusted for truth, fit in found if abs(fit.value - truth) <= 0.1]
        lines.append(" ".join([head, share(wrong), share(right)]))
    return lines


def repeated(trials: int) -> list[str]:
    """Lines of a table: error rates on a window that holds each of 1,000 samples about 8 times."""
    lines = ["| taken for | false alarms | misses at 30 % |", "|---|---|---|"]
    for distinct in (250, 1000, 8192):
        errors: tuple[list[bool], list[bool]] = [], []
        torch.manual_seed(0)
        for _ in range(trials):
            for draw in list(CLEAN.values())[:-1]:
                for kind, rate in enumerate((0.0, 0.3)):
                    losses = draw(1000) * torch.where(torch.rand(1000) < rate, 100.0, 1.0)
                    histogram = LossHistogram.of(losses[torch.randint(1000, (8192,))])
                    value = fit_inliers(LossHistogram(histogram.counts * (distinct / 8192))).value
                    errors[kind].append(value < 0.95 if rate == 0 else abs(value - 0.7) > 0.1)
        alarms, misses = (sum(kind) / len(kind) for kind in errors)
        lines.append(f"| {distinct} | {alarms:.3f} | {misses:.3f} |")
    return lines


def small_groups(trials: int) -> list[str]:
    """Lines of a table: the mean error of log c, by pooling."""
    priors = (0.0, 10.0, 50.0, 200.0)
    lines = [
        "| losses in a group | groups differ by | "
        + " | ".join(f"pooled with {p:.0f}" for p in priors)
        + " |"
    ]
    lines.append("|---" * (2 + len(priors)) + "|")
    kernel, zeta = kernels.get("geman-mcclure"), torch.full((20,), 0.8, dtype=torch.float64)
    for n in (5, 20, 100, 1000):
        for spread in (0.0, 0.5, 1.5):
            errors = torch.zeros(len(priors))
            for _ in range(trials):
                unit = (spread * torch.randn(20, 1)).exp()
                few, many = (unit * torch.randn(20, m) ** 2 for m in (n, 4000))
                log_c = []
                for losses, prior in ((many, 0.0), *((few, p) for p in priors)):
                    counts = torch.stack([LossHistogram.of(row, 5).counts for row in losses]).float()
                    values, used = occupied(counts)
                    log_c.append(solve_occupied(values, _pooled(used, prior), kernel, zeta).log())
                errors += torch.stack([(c - log_c[0]).abs().mean() for c in log_c[1:]]).float() / trials
            lines.append(f"| {n} | {spread} | " + " | ".join(f"{e:.2f}" for e in errors) + " |")
    return lines


def null_model(trials: int) -> list[str]:
    """Lines of a table: the first trusted estimate against a null model."""
    lines = ["| lengths of the running mean | batches | mean error | largest error |", "|---|---|---|---|"]
    for settled in (1.0, 2.0, 3.0, 5.0):
        errors, batches = [], []
        with mock.patch.object(_null_model, "SETTLED", settled):
            for truth in (0.2, 0.5, 0.8) * trials:
                estimator, count = NullModel(), 0
                while not estimator.estimate().trusted:
                    outlier = torch.rand(1024) > truth
                    losses = torch.where(outlier, 1.0, 0.1) * torch.rand(1024)
                    estimator.compare(losses, torch.rand(1024))
                    count += 1
                errors.append(abs(estimator.estimate().value - truth))
                batches.append(count)
        mean, number = sum(errors) / len(errors), sum(batches) / len(batches)
        lines.append(f"| {settled:g} | {number:.0f} | {mean:.3f} | {max(errors):.3f} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=20)
    studies = {study.__name__: study for study in (small_groups, repeated, null_model, acceptance, trust)}
    parser.add_argument("--only", nargs="+", choices=studies, default=list(studies))
    arguments = parser.parse_args()
    trials = arguments.trials
    for name in arguments.only:
        torch.manual_seed(0)
        study = studies[name]
        print(study.__doc__, *study(trials), sep="\n", end="\n\n", flush=True)


if __name__ == "__main__":
    main()
