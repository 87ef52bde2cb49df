"""The error rates behind every threshold of the core: false alarms on clean losses, misses on contaminated ones.

Fraction from losses: clean losses of many distributions, none of which has outliers, and the same with 20 and 40 %
outliers 10 times as large. A false alarm is an estimate below 0.95; a miss is one that is off by more than 0.1. Both
are counted for all estimates, and for those that call themselves trusted.

Shifted losses: how often ordinary training losses, whose mean falls by half within a few updates, are mistaken for a
change of their unit, and how often a change by a factor of 1,000 is overlooked.

Confident predictions: how far the noise rate is off, how often its interval of 90 % misses it, and what is proven;
networks of many accuracies, 2 to 100 classes, symmetric noise of 0 to 60 % (none in a quarter of the cases), 300 to
4,096 predictions.

From scratch: networks that begin from nothing, 6 epochs, 2 to 20 classes that overlap more or less, in every other
problem one of them rare; how many trainings were weighted at all, trusted estimates that are wrong, and the accuracy
beside unweighted training, in points. Class constants: the same networks at 40 % noise, by the epochs before weights
that add up to a given fraction count, and by how far frequencies of classes correct predictions.

Patience: trainings from the first step on, by how many fits in a row must agree before Robust acts on one (patience
divided by the fraction). Clean: classifiers of 5 to 80 classes with more or less overlap and learning rate, where what
is not learned yet looks like outliers; an alarm is a fraction below 0.95 that was acted on at any time. Contaminated:
linear regressions with 10 to 80 % outliers of 5 to 20 times the noise; a miss is a last fraction that is off by more
than 0.1. Schedule: the same trainings, by how many updates lie between fits, and by how much of the old estimate stays
in the new; the error is that of the fractions that were found.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from unittest import mock

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from inlier import LossHistogram, Robust, RobustCrossEntropy, fit_inliers
from inlier.fraction import FromLosses
from inlier.fraction._label_noise import BIN_WIDTH, BINS, confident_rates
from inlier.nn import _confidence, _cross_entropy, _window
from inlier.nn._window import PATIENCE, SMOOTHING, _has_shifted

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
    """Lines of a table: what confident predictions of random networks prove, by the true noise rate."""
    found: dict[str, list[tuple[float, bool, bool, bool]]] = {"0": [], "below 0.1": [], "0.1 and more": []}
    for _ in range(trials):
        n, rho = int(300 * 2 ** (3.77 * torch.rand(1))), 0.8 * max(float(torch.rand(1)) - 0.25, 0)
        classes = (2, 10, 100)[int(torch.randint(3, ()))]
        rho = min(rho, 0.8 * (1 - 1 / classes))
        slope, offset = 4 * float(torch.rand(1)), -2 * float(torch.rand(1))
        confidence = torch.distributions.Exponential(1.0).sample((n,))
        right = torch.rand(n) < torch.sigmoid(slope * confidence + offset)
        lucky = torch.rand(n) < 1 / (classes - 1)
        agrees = torch.where(torch.rand(n) >= rho, right, ~right & lucky)
        bins = (confidence / BIN_WIDTH).long().clamp(max=BINS - 1)
        counts = torch.stack([torch.bincount(bins[x], minlength=BINS) for x in (~agrees, agrees)]).float()
        fit = confident_rates(counts, classes)
        name = "0" if rho == 0 else "below 0.1" if rho < 0.1 else "0.1 and more"
        missed = not fit.low - 0.01 <= rho <= fit.high + 0.01
        found[name].append((abs(fit.rate - rho), missed, fit.proves_noise, fit.proves_clean))
    lines = [
        "| noise rate | cases | mean error | outside the interval | called noisy | called clean |",
        "|---" * 6 + "|",
    ]
    for name, cases in found.items():
        error, missed, noisy, clean = torch.tensor(cases).float().mean(0).tolist()
        lines.append(f"| {name} | {len(cases)} | {error:.3f} | {missed:.2f} | {noisy:.2f} | {clean:.2f} |")
    return lines


def labelled(seed: int, rate: float) -> tuple[Callable[[nn.Module], float], Tensor]:
    """A classification from scratch with noisy labels: its training, which returns the accuracy, and what is noisy."""
    torch.manual_seed(seed)
    classes, samples = (2, 5, 20)[seed % 3], (1000, 3000, 8000)[seed // 3 % 3]
    spread, step = 1 + 3 * float(torch.rand(1)), 10 ** (-3.5 + 1.5 * float(torch.rand(1)))
    # Every other problem has a class that is a tenth as frequent as the others.
    frequency = torch.ones(classes)
    frequency[0] = 0.1 if seed % 2 else 1.0
    truth = frequency.multinomial(samples, replacement=True)
    centres = torch.randn(classes, 30)
    x = centres[truth] + spread * torch.randn(samples, 30)
    test = torch.randint(classes, (2000,))
    x_test = centres[test] + spread * torch.randn(2000, 30)
    noisy = torch.rand(samples) < rate
    given = torch.where(noisy, (truth + torch.randint(1, classes, (samples,))) % classes, truth)

    def train(criterion: nn.Module) -> float:
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(30, 256), nn.ReLU(), nn.Linear(256, classes))
        optimizer = torch.optim.Adam(model.parameters(), step)
        for _ in range(6):
            for index in torch.randperm(samples).split(50):
                loss = criterion(model(x[index]), given[index], index)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        return float((model(x_test).argmax(1) == test).float().mean())

    return train, noisy


class Unweighted(nn.Module):
    """The cross-entropy that a robust one takes the place of."""

    def forward(self, logits: Tensor, target: Tensor, index: Tensor) -> Tensor:
        return F.cross_entropy(logits, target)


def from_scratch(trials: int) -> list[str]:
    """Lines of a table: what is said of labels by networks that begin from nothing, and what weights cost or gain."""
    lines = [
        "| label noise | trainings | weighted | trusted and off by more than 0.1 | mean gain | worst |",
        "|---" * 6 + "|",
    ]
    for rate in (0.0, 0.2, 0.4):
        weighted = wrong = 0
        gains = []
        for seed in range(trials):
            train, noisy = labelled(seed, rate)
            criterion = RobustCrossEntropy(samples=len(noisy))
            gains.append(100 * (train(criterion) - train(Unweighted())))
            estimate = criterion.fraction_estimate
            weighted += min(fraction for _, _, fraction in criterion.history) < 1
            wrong += estimate.trusted and abs(estimate.value - 1 + float(noisy.float().mean())) > 0.1
        lines.append(
            f"| {rate:.0%} | {trials} | {weighted} | {wrong} | {sum(gains) / trials:+.1f} | {min(gains):+.1f} |"
        )
    return lines


def class_constants(trials: int) -> list[str]:
    """Lines of a table: gains over unweighted training at 40 % noise, given the fraction or not, by two constants."""
    studies = {
        "EPOCHS_BEFORE": (_cross_entropy, (0, 1, 2, 4), True),
        "MOST_NOISE": (_confidence, (0.0, 0.5, 2.0), False),
    }
    lines = ["| constant | value | fraction | mean gain | worst |", "|---" * 5 + "|"]
    for name, (module, values, is_given) in studies.items():
        for value in values:
            gains = []
            with mock.patch.object(module, name, value):
                for seed in range(trials):
                    train, noisy = labelled(seed, 0.4)
                    fraction = 1 - float(noisy.float().mean()) if is_given else "auto"
                    criterion = RobustCrossEntropy(fraction, samples=len(noisy))
                    gains.append(100 * (train(criterion) - train(Unweighted())))
            known = "given" if is_given else "estimated"
            lines.append(f"| {name} | {value} | {known} | {sum(gains) / trials:+.2f} | {min(gains):+.1f} |")
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


def found(smoothing: float, number: float, trials: int) -> tuple[float, list[float]]:
    """The share of clean trainings with an alarm, and how far the last fractions of contaminated ones are off."""
    alarms, errors = 0, []
    for seed in range(trials):
        robust = Robust("geman-mcclure", FromLosses(smoothing, number))
        classifier(seed)(robust)
        alarms += min(fraction for _, _, fraction in robust.history) < 0.95
        truth, train = regression(seed)
        robust = Robust("geman-mcclure", FromLosses(smoothing, number))
        train(robust)
        errors.append(abs(float(robust.inlier_fraction) - truth))
    return alarms / trials, errors


def patience(trials: int) -> list[str]:
    """Lines of a table: alarms in clean trainings and misses in contaminated ones, by patience."""
    lines = ["| patience | alarms, clean trainings | misses, contaminated trainings |", "|---|---|---|"]
    for number in (0, 1, 2, 4):
        alarms, errors = found(SMOOTHING, number, trials)
        lines.append(f"| {number} | {alarms:.2f} | {sum(error > 0.1 for error in errors) / trials:.2f} |")
    return lines


def schedule(trials: int) -> list[str]:
    """Lines of a table: how often fits are made, and how much of the old estimate stays in the new."""
    lines = [
        "| updates between fits | share of the old | alarms | misses | error where found |",
        "|---" * 5 + "|",
    ]
    for every, smoothing in ((5, SMOOTHING), (10, SMOOTHING), (20, SMOOTHING), (10, 0.0), (10, 0.9)):
        with mock.patch.object(_window, "ESTIMATE_EVERY", every):
            alarms, errors = found(smoothing, PATIENCE, trials)
        small = [error for error in errors if error <= 0.1] or [float("nan")]
        missed = 1 - len(small) / trials
        lines.append(
            f"| {every} | {smoothing} | {alarms:.2f} | {missed:.2f} | {sum(small) / len(small):.3f} |"
        )
    return lines


def _trainings(trials: int) -> int:
    """How many trainings there are where others take so many draws."""
    return max(trials // 2, 3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=50)
    studies: dict[str, Callable[[int], list[str]]] = {
        "patience": lambda trials: patience(_trainings(trials)),
        "schedule": lambda trials: schedule(_trainings(trials)),
        "shifted": shifted,
        "confident": lambda trials: confident(10 * trials),
        "from_scratch": lambda trials: from_scratch(_trainings(trials)),
        "class_constants": lambda trials: class_constants(_trainings(trials)),
        "from_losses": lambda trials: from_losses((200, 1000, 10_000), trials),
    }
    parser.add_argument("--only", nargs="+", choices=studies, default=list(studies))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for name in arguments.only:
        torch.manual_seed(0)
        print("\n".join(studies[name](arguments.trials)), end="\n\n", flush=True)


if __name__ == "__main__":
    main()
