"""What each constant of the core does: error rates with it, with half and twice of it, and without it.

Acceptance of two groups (`inlier/fraction/_from_losses.py`): generated losses, each fitted once; then the decision is
taken anew with one constant changed. A false alarm is an estimate below 0.95 on clean losses, a miss one that is off by
more than 0.1 on squared normal errors with 15 to 85 % outliers of 5 or 10 times the noise.

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
from collections.abc import Iterator
from unittest import mock

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.thresholds import CLEAN
from inlier import LossHistogram, fit_inliers, kernels
from inlier.alternation import _pooled
from inlier.fraction import NullModel, _null_model
from inlier.fraction import _from_losses as rule
from inlier.histogram import occupied
from inlier.scale import solve_occupied

CHANGES: dict[str, tuple[object, ...]] = {
    "SMALLEST_GAP": (1.3, 2.2, 3.1),
    "UNCLEAR": ((2.65, 2.65001), (3.2, 3.6), (4.4, 4.8)),
    "NEEDED_SHARE": ((0.0, 0.0), (0.11, 0.05), (0.44, 0.2)),
    "NEEDED_GAIN": ((0.0, 0.0), (2.5, -2.0), (10.0, -8.0), (10.0, 0.0)),
    "NEEDED_GAIN_STRAIGHT": (-100.0, 5.0),
    "AMPLE": (1, 750, 3000),
    "SAFETY": (0.0, 5.0, 20.0),
}
"""Constants of the rule, and what else they could be."""


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


def acceptance(trials: int) -> list[str]:
    """Lines of a table: error rates of the rule, with one constant changed at a time."""
    truths, choose = [], rule._choose
    with mock.patch.object(rule, "_choose", wraps=choose) as watched:
        for fraction, losses in draws(trials):
            truths.append(fraction)
            fit_inliers(losses)
    seen = list(zip(truths, (call.args for call in watched.call_args_list), strict=True))
    lines = ["| constant | value | false alarms | misses |", "|---|---|---|---|"]
    for name, values in CHANGES.items():
        for value in (getattr(rule, name), *values):
            with mock.patch.object(rule, name, value):
                found = [(truth, choose(*fits).value) for truth, fits in seen]
            alarms = [estimate < 0.95 for truth, estimate in found if truth == 1]
            misses = [abs(estimate - truth) > 0.1 for truth, estimate in found if truth < 1]
            shown = f"**{value}**" if value == getattr(rule, name) else str(value)
            lines.append(
                f"| {name} | {shown} | {sum(alarms) / len(alarms):.3f} | {sum(misses) / len(misses):.3f} |"
            )
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
    studies = {study.__name__: study for study in (small_groups, repeated, null_model, acceptance)}
    parser.add_argument("--only", nargs="+", choices=studies, default=list(studies))
    arguments = parser.parse_args()
    trials = arguments.trials
    for name in arguments.only:
        torch.manual_seed(0)
        study = studies[name]
        print(study.__doc__, *study(trials), sep="\n", end="\n\n", flush=True)


if __name__ == "__main__":
    main()
