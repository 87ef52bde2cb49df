"""The data of a cell: features or images, clean labels, and given ones with noise of a named kind."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import normalize

from benchmarks.label_bench.features import (
    cached,
    cifar_features,
    of_texts,
    read_banking,
    read_yoruba,
    tokens_of,
)
from inlier.experiments.datasets.cifar import HUMAN_LABELS, cifar10, human_labels
from inlier.experiments.datasets.label_noise import symmetric

DEVELOPMENT, REPORT = slice(0, 20_000), slice(20_000, 40_000)
"""Images of CIFAR-10 on which things are chosen, and on which they are reported."""

RAREST = 0.02
"""The part of the images of the rarest class that is left in a long-tailed set; the most frequent class keeps all."""

FEW = 1_500
"""Samples of a set that is too small for a network to know its classes after an epoch."""

FINE_TUNED = 2_000
"""Texts of banking77 that a whole encoder is fine-tuned on."""


@dataclass(frozen=True)
class Split:
    """Features or token ids and clean labels, to train and to test on; and other labels that there are, by name."""

    x: Tensor
    y: Tensor
    x_test: Tensor
    y_test: Tensor
    human: dict[str, Tensor]
    features: Tensor | None = None
    """What classes are similar by, if not by x."""

    @property
    def classes(self) -> int:
        return int(self.y.max()) + 1


@functools.cache
def load(name: str, data: Path) -> Split:
    """Return a set by name.

    Args:
        name: "banking77", "cifar" or "cifar-report" as standardised features, with "-long" classes of very different
            frequency, with "-few" a small part; "banking77-texts" or "yoruba" as token ids.
        data: The folder of the data sets.
    """
    if name.endswith("-long"):
        return _long_tailed(load(name.removesuffix("-long"), data))
    if name.endswith("-few"):
        split = load(name.removesuffix("-few"), data)
        return part_of(split, torch.randperm(len(split.y), generator=torch.Generator().manual_seed(0))[:FEW])
    if name == "banking77-texts":
        return _banking_texts(data)
    if name == "yoruba":
        return _yoruba(data)
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


def _long_tailed(split: Split) -> Split:
    """Thin out the training set: frequencies of classes fall geometrically, in an order that mixes them."""
    place = (split.y * 7) % split.classes / (split.classes - 1)
    kept = torch.rand(len(split.y), generator=torch.Generator().manual_seed(0)) < RAREST**place
    return part_of(split, kept)


def part_of(split: Split, chosen: Tensor) -> Split:
    """Return the chosen training samples, and all test samples."""
    human = {name: labels[chosen] for name, labels in split.human.items()}
    return replace(split, x=split.x[chosen], y=split.y[chosen], human=human)


def _banking_texts(data: Path) -> Split:
    """Some texts of banking77, and every third one of the test texts."""
    (texts, y), (test, y_test) = read_banking(data, "train"), read_banking(data, "test")
    chosen = torch.randperm(len(y), generator=torch.Generator().manual_seed(0))[:FINE_TUNED]
    x = tokens_of([texts[i] for i in chosen])
    features = cached("banking-train", lambda: of_texts(texts))[chosen]
    return Split(x, y[chosen], tokens_of(test[::3]), y_test[::3], {}, features)


def _yoruba(data: Path) -> Split:
    """Headlines whose topics are given by people, and by rules ("rules")."""
    (texts, clean), (_, by_rules) = (read_yoruba(data, f"train_clean{end}") for end in ("", "_noisy_labels"))
    test, tested = read_yoruba(data, "test")
    topics = sorted(set(clean))
    y, ruled, y_test = (torch.tensor([topics.index(t) for t in part]) for part in (clean, by_rules, tested))
    return Split(tokens_of(texts), y, tokens_of(test), y_test, {"rules": ruled})


def given_labels(split: Split, kind: str, seed: int) -> Tensor:
    """Return labels with noise.

    Args:
        split: The data.
        kind: "none"; "symmetric-40" (40 % of the labels replaced by uniform ones); "similar-30" (30 % become the
            class whose centroid is nearest); "pairs-40" (40 % of the labels of every other class become the next
            class); or labels that the set has by that name.
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
    features = split.x if split.features is None else split.features
    centroids = torch.stack([features[split.y == k].mean(0) for k in range(split.classes)])
    centred = normalize(centroids - centroids.mean(0))
    similar = (centred @ centred.T).fill_diagonal_(-2).argmax(1)
    return torch.where(chosen, similar[split.y], split.y)
