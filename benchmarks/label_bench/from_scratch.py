"""What `PROOF` is: `python -m benchmarks.label_bench.from_scratch --data DIR`.

The compact network from scratch on images 10,000 to 20,000 of CIFAR-10 (development), unweighted, with clean labels
and step sizes down to one so small that it hardly learns, and with noise. Of each epoch but the first: where the
interval of the noise rate begins by confident predictions, what the network knows of the labels, how often the given
class is one of the least likely (as a noise rate), that less what it has fallen by, and whether noise would be proven.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import torch

from inlier import RobustCrossEntropy
from inlier._vision.training import RobustMethod, TrainingConfig, train
from inlier.experiments.datasets.cifar import cifar10, human_labels
from inlier.experiments.datasets.label_noise import symmetric
from inlier.fraction._label_noise import RateInterval
from inlier.nn._confidence import ConfidenceWindow

IMAGES = slice(10_000, 20_000)
EPOCHS, SCHEDULED = 5, 16
"""Epochs that are run, of a schedule of so many."""

CELLS = [
    *(("none", rate) for rate in (0.1, 1e-3, 3e-4, 1e-4, 5e-5)),
    *((noise, 0.1) for noise in ("symmetric-20", "symmetric-40", "symmetric-80", "worse")),
]


class Recorder:
    """Keeps the rates of each epoch, and takes away what they prove: all weights stay 1."""

    def __init__(self) -> None:
        self.found: list[tuple[RateInterval, bool]] = []

    def fit(self, window: ConfidenceWindow, samples: int, original: object) -> None:
        original(window, samples)  # type: ignore[operator]
        if window.epoch:
            self.found.append((window.rates, window.rates.proves_noise))
        window.rates = replace(window.rates, low=0.0, proof=0.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(1)
    images, _ = cifar10(options.data / "cifar10")
    images = replace(images, pixels=images.pixels[IMAGES], labels=images.labels[IMAGES])
    original = ConfidenceWindow._fit
    print("| noise | step size | epoch | interval from | worth | implausible | less its fall | proven |")
    print("|---" * 8 + "|")
    for noise, step_size in CELLS:
        name, _, percent = noise.partition("-")
        if name == "worse":
            given = human_labels("worse", options.data / "cifar10")[IMAGES]
        else:
            given = symmetric(images.labels, int(percent or 0) / 100, images.classes, options.seed)
        recorder = Recorder()
        ConfidenceWindow._fit = lambda window, n, r=recorder: r.fit(window, n, original)  # type: ignore[method-assign]
        config = TrainingConfig(
            "compact", SCHEDULED, 128, step_size, "cosine", weight_decay=5e-4, augment=False
        )
        train(
            lambda task: RobustMethod(task, RobustCrossEntropy(samples=task.samples)),
            replace(images, labels=given),
            None,
            1.0,
            config,
            options.seed,
            stop_after=EPOCHS,
        )
        for epoch, (rates, proven) in enumerate(recorder.found, 2):
            numbers = f"{rates.low:.2f} | {rates.worth:.2f} | {rates.implausible:.2f} | {rates.proof:.2f}"
            print(
                f"| {noise} | {step_size:g} | {epoch} | {numbers} | {'yes' if proven else 'no'} |", flush=True
            )


if __name__ == "__main__":
    main()
