"""The data of a cell: features or images, clean labels, and given ones with noise of a named kind."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import normalize

from benchmarks.label_bench.features import cached, cifar_features, of_texts, read_banking
from inlier.experiments.datasets.cifar import HUMAN_LABELS, cifar10, human_labels
from inlier.experiments.datasets.label_noise import symmetric

DEVELOPMENT, REPORT = slice(0, 20_000), slice(20_000, 40_000)
"""Images of CIFAR-10 on which things are chosen, and on which they are reported."""


@dataclass(frozen=True)
class Split:
    """Features or images and their clean labels, to train and to test on; and the human labels there are."""

    x: Tensor
    y: Tensor
    x_test: Tensor
    y_test: Tensor
    human: dict[str, Tensor]

    @property
    def classes(self) -> int:
        return int(self.y.max()) + 1


@functools.cache
def load(name: str, data: Path) -> Split:
    """Return a set by name: "banking77", "cifar" or "cifar-report" as standardised features."""
    human = {}
    if name == "banking77":
        (texts, y), (test, y_test) = read_banking(data, "train"), read_banking(data, "test")
        x, x_test = (
            cached("banking-train", lambda: of_texts(texts)),
            cached("banking-test", lambda: of_texts(test)),
        )
    else:
        part = REPORT if name.endswith("report") else DEVELOPMENT
        x, x_test = cifar_features(data)
        train, tested = cifar10(data / "cifar10")
        x, y, y_test = x[part], train.labels[part], tested.labels
        human = {kind: human_labels(kind, data / "cifar10")[part] for kind in HUMAN_LABELS}
    mean, deviation = x.mean(0), x.std(0) + 1e-6
    return Split((x - mean) / deviation, y, (x_test - mean) / deviation, y_test, human)


def given_labels(split: Split, kind: str, seed: int) -> Tensor:
    """Return labels with noise.

    Args:
        split: The data.
        kind: "none"; "symmetric-40" (40 % of the labels replaced by uniform ones); "similar-30" (30 % become the
            class whose centroid is nearest); "pairs-40" (40 % of the labels of every other class become the next
            class); or a label set of CIFAR-10N.
        seed: Seeds the noise.
    """
    if kind in split.human:
        return split.human[kind].clone()
    name, _, percent = kind.partition("-")
    rate = int(percent or 0) / 100
    if name in ("none", "symmetric"):
        return symmetric(split.y, rate, split.classes, seed)
    chosen = torch.rand(len(split.y), generator=torch.Generator().manual_seed(seed)) < rate
    if name == "pairs":
        return torch.where(chosen & (split.y % 2 == 0), (split.y + 1) % split.classes, split.y)
    centroids = torch.stack([split.x[split.y == k].mean(0) for k in range(split.classes)])
    centred = normalize(centroids - centroids.mean(0))
    similar = (centred @ centred.T).fill_diagonal_(-2).argmax(1)
    return torch.where(chosen, similar[split.y], split.y)
