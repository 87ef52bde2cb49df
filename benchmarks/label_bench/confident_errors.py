"""What `CONFIDENT_ERRORS` is: `python -m benchmarks.label_bench.confident_errors --data DIR`, on development data.

In the first epoch of unweighted trainings, with labels whose clean part is known: the level 1 - rho that confident
predictions reach, too low by the errors among them. As a part of all errors of the network, that is

    h = (1 - rho - level) / (1 - rho - agreement)

at a third, two thirds and nearly all of the epoch, with the interval of rho that follows from h = 0 and from the
constant. Noise that depends on the sample (human labels) or on the class (pairs) hides, so h comes out too low there.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from benchmarks.label_bench.data import given_labels, load
from benchmarks.label_bench.train import fit_head
from inlier.fraction._label_noise import CONFIDENT_ERRORS, NEGLIGIBLE, RateInterval, confident_rates
from inlier.nn._confidence import ConfidenceWindow

CELLS = {
    "banking77": ["none", "symmetric-20", "symmetric-40", "symmetric-60", "similar-30", "pairs-40"],
    "banking77-few": ["none", "similar-30"],
    "cifar": ["none", "symmetric-40", "similar-30", "aggre", "random1", "worse"],
    "cifar-long": ["none", "symmetric-40"],
}
PARTS = (0.35, 0.65, 0.95)
"""Of the first epoch."""


class Recorder:
    """Takes the place of ``ConfidenceWindow._fit``: keeps counts at some times, and proves nothing."""

    def __init__(self) -> None:
        self.found: list[tuple[float, RateInterval, RateInterval]] = []

    def fit(self, window: ConfidenceWindow, samples: int) -> None:
        part = window.seen / samples
        if len(self.found) < len(PARTS) and part >= PARTS[len(self.found)] and window.epoch == 0:
            fits = (confident_rates(window.counts, window.classes, None, h) for h in (0.0, CONFIDENT_ERRORS))
            self.found.append((part, *fits))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", default=",".join(CELLS))
    options = parser.parse_args()
    torch.set_num_threads(1)
    print("| set | noise | true rate | part of the epoch | h | interval, h = 0 | interval | proven |")
    print("|---" * 8 + "|")
    for name in options.sets.split(","):
        split = load(name, options.data)
        for kind in CELLS[name]:
            given = given_labels(split, kind, 0)
            recorder = Recorder()
            ConfidenceWindow._fit = lambda window, n, recorder=recorder: recorder.fit(window, n)  # type: ignore[method-assign]
            fit_head(split, given, "inlier", 1, 64 if name.startswith("cifar") else 32, 0)
            clean = float((given == split.y).float().mean())
            for part, raw, corrected in recorder.found:
                h = (clean - 1 + raw.rate) / max(clean - raw.agreement, 0.01)
                proven = "yes" if corrected.proves_noise else "no"
                shown = " | ".join(f"{x.low:.2f} to {x.high:.2f}" for x in (raw, corrected))
                print(
                    f"| {name} | {kind} | {1 - clean:.2f} | {part:.2f} | {h:.2f} | {shown} | {proven} |",
                    flush=True,
                )
    print(f"\nProven: all of the interval above {NEGLIGIBLE}, and a network that knows enough.")


if __name__ == "__main__":
    main()
