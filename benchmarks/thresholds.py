"""The error rates behind every threshold of the core: false alarms on clean losses, misses on contaminated ones.

Fraction from losses: clean losses of many distributions, none of which has outliers, and the same with 20 and 40 %
outliers 10 times as large. A false alarm is an estimate below 0.95; a miss is one that is off by more than 0.1. Both
are counted for all estimates, and for those that call themselves trusted.

Shifted losses: how often ordinary training losses, whose mean falls by half within a few updates, are mistaken for a
change of their unit, and how often a change by a factor of 1,000 is overlooked.

Confident predictions: how far the noise rate is off, and how often its interval of 90 % misses it, by whether it
counts as known; networks of many accuracies, symmetric noise of 0 to 60 % (none in a quarter of the cases), 300 to
4,096 predictions. Weighted: with clean labels, an interval that does not count as no noise.

Patience: trainings from the first step on, by how many fits in a row must agree before Robust acts on one (patience
divided by the fraction). Clean: classifiers of 5 to 80 classes with more or less overlap and learning rate, where what
is not learned yet looks like outliers; an alarm is a fraction below 0.95 that was acted on at any time. Contaminated:
linear regressions with 10 to 80 % outliers of 5 to 20 times the noise; a miss is a last fraction that is off by more
than 0.1.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from inlier import LossHistogram, Robust, fit_inliers
from inlier.fraction import FromLosses
from inlier.fraction._label_noise import BIN_WIDTH, BINS, NEGLIGIBLE, confident_rates
from inlier.nn._window import SMOOTHING, _has_shifted

CLEAN: dict[str, Callable[[int], Tensor]] = {
    "squared normal": lambda n: torch.randn(n) ** 2,
    "squared normal, 3 dimensions": lambda n: torch.randn(n, 3).square().sum(1),
    "absolute normal": lambda n: torch.randn(n).abs(),
    "exponential": lambda n: torch.distributions.Exponential(1.0).sample((n,)),
    "log-normal": lambda n: torch.randn(n).exp(),
    "squared Student t, 5 degrees": lambda n: torch.distributions.StudentT(5.0).sample((n,)) ** 2,
    "squared Student t, 3 degrees": lambda n: torch.distributions.StudentT(3.0).sample((n,)) ** 2,
    "cross-entropy of a calibrated classifier": lambda n: calibrated(n),
    "rounded squared normal": lambda n: (torch.randn(n) * 3).round() ** 2,
}


def calibrated(n: int) -> Tensor:
    logits = 3 * torch.randn(n, 5)
    labels = torch.distributions.Categorical(logits=logits).sample()
    return torch.nn.functional.cross_entropy(logits, labels, reduction="none")


def from_losses(sizes: tuple[int, ...], trials: int) -> list[str]:
    """Lines of a table: error rates of the estimate from losses."""
    lines = [
        "| losses | n | false alarms | of them trusted | misses at 20 % | at 40 % | of them trusted |",
        "|---" * 7 + "|",
    ]
    for name, draw in CLEAN.items():
        for n in sizes:
            alarms = [fit_inliers(draw(n)) for _ in range(trials)]
            false = [fit for fit in alarms if fit.value < 0.95]
            misses, trusted = [], 0
            for rate in (0.2, 0.4):
                fits = []
                for _ in range(trials):
                    losses = draw(n)
                    outlier = torch.rand(n) < rate
                    fits.append(fit_inliers(torch.where(outlier, 100 * losses, losses)))
                wrong = [fit for fit in fits if abs(fit.value - (1 - rate)) > 0.1]
                misses.append(len(wrong) / trials)
                trusted += sum(fit.trusted for fit in wrong)
            lines.append(
                f"| {name} | {n} | {len(false) / trials:.2f} | {sum(f.trusted for f in false) / trials:.2f} | "
                f"{misses[0]:.2f} | {misses[1]:.2f} | {trusted / (2 * trials):.2f} |"
            )
    return lines


def shifted(trials: int) -> list[str]:
    """Lines of a table: error rates of the test for a change of unit."""
    lines = ["| new losses | false alarms | overlooked |", "|---|---|---|"]
    for n in (20, 60, 640):
        alarms = overlooked = 0
        for _ in range(trials):
            old = LossHistogram.of(torch.randn(4000) ** 2, 5).counts.float()
            slower = LossHistogram.of(0.5 * torch.randn(n) ** 2, 5).counts.float()
            unit = LossHistogram.of(1e-3 * torch.randn(n) ** 2, 5).counts.float()
            alarms += _has_shifted(slower, old)
            overlooked += not _has_shifted(unit, old)
        lines.append(f"| {n} | {alarms / trials:.3f} | {overlooked / trials:.3f} |")
    return lines


def confident(trials: int) -> list[str]:
    """Lines of a table: the error of the noise rate that confident predictions tell, by whether it is known."""
    found: dict[bool, list[tuple[float, bool]]] = {True: [], False: []}
    weighted: dict[bool, list[bool]] = {True: [], False: []}
    for _ in range(trials):
        n, rho = int(300 * 2 ** (3.77 * torch.rand(1))), 0.8 * max(float(torch.rand(1)) - 0.25, 0)
        slope, offset = 4 * float(torch.rand(1)), -2 * float(torch.rand(1))
        confidence = torch.distributions.Exponential(1.0).sample((n,))
        right = torch.rand(n) < torch.sigmoid(slope * confidence + offset)
        agrees = torch.where(torch.rand(n) >= rho, right, ~right & (torch.rand(n) < 0.1))
        bins = (confidence / BIN_WIDTH).long().clamp(max=BINS - 1)
        fit = confident_rates(
            torch.stack([torch.bincount(bins[x], minlength=BINS) for x in (~agrees, agrees)])
        )
        middle = (fit.low + fit.high) / 2
        if rho == 0:
            weighted[fit.is_known].append(fit.low >= NEGLIGIBLE)
        found[fit.is_known].append((abs(middle - rho), not fit.low - 0.005 <= rho <= fit.high + 0.005))
    lines = [
        "| rate | cases | mean error | off by more than 0.1 | outside its interval | clean cases | weighted |",
        "|---" * 7 + "|",
    ]
    for is_known, cases in found.items():
        errors, missed = (torch.tensor(x, dtype=torch.float) for x in zip(*cases, strict=True))
        lines.append(
            f"| {'known' if is_known else 'not known'} | {len(cases)} | {float(errors.mean()):.3f} | "
            f"{float((errors > 0.1).float().mean()):.2f} | {float(missed.mean()):.2f} | "
            f"{len(weighted[is_known])} | {sum(weighted[is_known]) / max(len(weighted[is_known]), 1):.2f} |"
        )
    return lines


def classifier(seed: int) -> Callable[[Robust], None]:
    """A clean classification, and its training with a robust loss."""
    torch.manual_seed(seed)
    classes = (5, 20, 80)[seed % 3]
    overlap, rate = 0.5 + float(torch.rand(1)), 10 ** (-3.5 + float(torch.rand(1)))
    y = torch.randint(classes, (4000,))
    x = torch.randn(classes, 50)[y] + 2 * overlap * torch.randn(4000, 50)

    def train(robust: Robust) -> None:
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(50, 128), nn.ReLU(), nn.Linear(128, classes))
        optimizer = torch.optim.Adam(model.parameters(), rate)
        for _ in range(12):
            for index in torch.randperm(4000).split(40):
                loss = robust(F.cross_entropy(model(x[index]), y[index], reduction="none"), index)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()

    return train


def regression(seed: int) -> tuple[float, Callable[[Robust], None]]:
    """A contaminated regression: its inlier fraction, and its training with a robust loss."""
    torch.manual_seed(seed)
    rate, size = 0.1 + 0.7 * float(torch.rand(1)), 5 + 15 * float(torch.rand(1))
    x, w = torch.randn(2000, 8), torch.randn(8)
    outlier = torch.rand(2000) < rate
    y = x @ w + torch.where(outlier, 0.1 * size, 0.1) * torch.randn(2000)

    def train(robust: Robust) -> None:
        torch.manual_seed(seed)
        model = nn.Linear(8, 1)
        optimizer = torch.optim.SGD(model.parameters(), 0.05)
        for _ in range(60):
            for index in torch.randperm(2000).split(40):
                loss = robust((model(x[index]).squeeze(1) - y[index]) ** 2, index)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()

    return 1 - float(outlier.float().mean()), train


def patience(trials: int) -> list[str]:
    """Lines of a table: alarms in clean trainings and misses in contaminated ones, by patience."""
    lines = ["| patience | alarms, clean trainings | misses, contaminated trainings |", "|---|---|---|"]
    for number in (0, 1, 2, 4):
        alarms = misses = 0
        for seed in range(trials):
            robust = Robust("geman-mcclure", FromLosses(SMOOTHING, number))
            classifier(seed)(robust)
            alarms += min(fraction for _, _, fraction in robust.history) < 0.95
            truth, train = regression(seed)
            robust = Robust("geman-mcclure", FromLosses(SMOOTHING, number))
            train(robust)
            misses += abs(float(robust.inlier_fraction) - truth) > 0.1
        lines.append(f"| {number} | {alarms / trials:.2f} | {misses / trials:.2f} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=50)
    trials = parser.parse_args().trials
    torch.manual_seed(0)
    torch.set_num_threads(1)
    studies = (
        lambda: patience(max(trials // 2, 3)),
        lambda: shifted(trials),
        lambda: confident(10 * trials),
        lambda: from_losses((200, 1000, 10_000), trials),
    )
    for study in studies:
        print("\n".join(study()), end="\n\n", flush=True)


if __name__ == "__main__":
    main()
