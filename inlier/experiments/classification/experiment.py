"""The paper's classification (section 6.2, figure 3b): ``inlier reproduce classification``.

CIFAR-10 with symmetric label noise at several rates, and with the human labels of CIFAR-10N. Each row is one
training. With the true class included, as in the paper, a replaced label may be the true one: the effective
rate of noisy labels is then 0.9 of the nominal rate. Methods with prior knowledge are given the effective
rate.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from inlier._vision.images import Images
from inlier._vision.training import TrainingConfig, TrainingResult, train
from inlier.experiments.classification.features import features
from inlier.experiments.classification.figures import figures
from inlier.experiments.classification.methods import METHODS
from inlier.experiments.datasets import cifar
from inlier.experiments.datasets.label_noise import pair_flip, symmetric
from inlier.experiments.sweep import Experiment, Folders, PresetSettings, Row

__all__ = ["EXPERIMENT", "average_precision", "given_labels"]

PRESETS: dict[str, dict[str, Any]] = {
    # Section 6.2 to the letter.
    "paper": {
        "rates": [tenth / 10 for tenth in range(10)],
        "seeds": 5,
        "version": 5,
        "images": None,
        "true_class_included": True,
        "human_labels": list(cifar.HUMAN_LABELS),
        "training": {
            "network": "dla-34",
            "epochs": 500,
            "batch_size": 128,
            "step_size": 1e-3,
            "momentum": 0.9,
            "weight_decay": 5e-4,
            "augment": True,
        },
    },
    # Small enough for two cores. Without augmentation unweighted training memorises every noisy label.
    "cpu": {
        "rates": [0.0, 0.2, 0.4, 0.6, 0.8],
        "seeds": 3,
        "version": 5,
        "images": 10_000,
        "true_class_included": True,
        "human_labels": ["worse"],
        "all_seeds_at": [0.4, 0.8],
        "training": {
            "network": "compact",
            "epochs": 16,
            "batch_size": 128,
            "step_size": 0.1,
            "momentum": 0.9,
            "weight_decay": 5e-4,
            "augment": False,
            "schedule": "cosine",
            "evaluate_every": 4,
        },
    },
    "smoke": {
        "rates": [0.4],
        "seeds": 1,
        "version": 5,
        "images": 256,
        "test_images": 200,
        "true_class_included": True,
        "human_labels": ["worse"],
        "training": {
            "network": "compact",
            "epochs": 2,
            "batch_size": 64,
            "step_size": 0.02,
            "augment": True,
        },
    },
}
# Crops and flips: unweighted training no longer memorises.
PRESETS["cpu-augmented"] = PRESETS["cpu"] | {"training": PRESETS["cpu"]["training"] | {"augment": True}}
# What most people do: few epochs of a head on a pretrained encoder, here AlexNet, whose weights are in the data folder.
PRESETS["features"] = PRESETS["cpu"] | {
    "rates": [0.0, 0.2, 0.4, 0.6],
    "seeds": 1,
    "images": 20_000,
    "human_labels": list(cifar.HUMAN_LABELS),
    "encoder": "alexnet",
    "training": PRESETS["cpu"]["training"]
    | {"network": "feature-head", "epochs": 3, "batch_size": 64, "step_size": 0.02, "evaluate_every": 1},
}
# Close methods differ by less than seeds do: all seeds at every rate, and on human labels.
PRESETS["cpu-seeds"] = {name: value for name, value in PRESETS["cpu"].items() if name != "all_seeds_at"}


def make_rows(
    methods: Sequence[str], rates: Sequence[float], seeds: int, settings: PresetSettings
) -> list[Row]:
    """Return the rows; those of human labels have the published rate of noisy labels as their rate.

    ``all_seeds_at`` lists the rates that run with every seed; the others, and human labels, run with one.
    """
    common = {name: value for name, value in settings.items() if name not in ("human_labels", "all_seeds_at")}
    everywhere = settings.get("all_seeds_at", rates)
    found = []
    for seed in range(seeds):
        for method in methods:
            synthetic = common | {"noise": settings.get("noise", "symmetric")}
            found += [Row(method, rate, seed, synthetic) for rate in rates if seed == 0 or rate in everywhere]
            if seed == 0 or "all_seeds_at" not in settings:
                found += [
                    Row(method, cifar.HUMAN_RATES[name], seed, common | {"noise": name})
                    for name in settings["human_labels"]
                ]
    return found


def compute(rows: Sequence[Row], folders: Folders) -> Iterator[tuple[Row, Mapping[str, float] | Exception]]:
    """Train each row, from its checkpoint if there is one; a finished row removes its checkpoint."""
    for row in rows:
        checkpoint = folders.checkpoints / f"{row.key}.pt"
        settings = row.settings
        clean, test = _data(folders.data) if "encoder" not in settings else features(folders.data)
        clean, test = clean.first(settings["images"]), test.first(settings.get("test_images"))
        given = given_labels(clean, row, folders.data)
        clean_fraction = float((given == clean.labels).float().mean())
        result = train(
            METHODS[row.method],
            replace(clean, labels=given),
            test,
            clean_fraction,
            TrainingConfig(**settings["training"]),
            row.seed,
            checkpoint,
        )
        yield row, _metrics(result, given, clean.labels)
        checkpoint.unlink(missing_ok=True)


def given_labels(images: Images, row: Row, data: Path | None = None) -> Tensor:
    """Return the labels that a row is trained with: synthetic noise, or human labels.

    Args:
        images: With clean labels.
        row: Its ``noise`` is "symmetric", "pair-flip" or a label set of CIFAR-10N.
        data: The folder with CIFAR-10N.
    """
    noise = row.settings["noise"]
    if noise == "symmetric":
        included = row.settings["true_class_included"]
        return symmetric(images.labels, row.rate, images.classes, row.seed, true_class_included=included)
    if noise == "pair-flip":
        return pair_flip(images.labels, row.rate, images.classes, row.seed)
    return cifar.human_labels(noise, data)[: len(images)]


def average_precision(outlier_score: Tensor, noisy: Tensor) -> float:
    """Return the average precision of an outlier score at finding noisy labels.

    Args:
        outlier_score: Higher for labels that look noisy; NaN ranks last.
        noisy: Which labels are noisy.

    Example:
        >>> import torch
        >>> average_precision(torch.tensor([0.9, 0.1, 0.8, 0.4]), torch.tensor([True, False, False, False]))
        1.0
        >>> average_precision(torch.tensor([0.1, 0.9]), torch.tensor([True, False]))
        0.5
    """
    from sklearn.metrics import average_precision_score

    scores = outlier_score.nan_to_num(-1e30)
    return float(average_precision_score(noisy.cpu().numpy(), scores.cpu().numpy()))


@functools.cache
def _data(folder: Path | None) -> tuple[Images, Images]:
    return cifar.cifar10(folder)


def _metrics(result: TrainingResult, given: Tensor, true: Tensor) -> dict[str, float]:
    noisy = given != true
    metrics = {
        "accuracy": result.test_accuracy[max(result.test_accuracy)],
        "best_accuracy": max(result.test_accuracy.values()),
        "train_accuracy": result.train_accuracy[max(result.train_accuracy)],
        "noise_rate": float(noisy.float().mean()),
        "estimated_fraction": result.method.estimated_fraction,
    }
    score = result.method.outlier_score(given.to(result.device))
    if score is not None and bool(noisy.any()):
        metrics["average_precision"] = average_precision(score, noisy)
    metrics |= {f"test_{epoch}": value for epoch, value in result.test_accuracy.items()}
    return metrics | {f"train_{epoch}": value for epoch, value in result.train_accuracy.items()}


EXPERIMENT = Experiment(
    name="classification",
    description="CIFAR-10 with noisy labels, synthetic or human",
    methods=tuple(METHODS),
    presets=PRESETS,
    metric="accuracy",
    compute=compute,
    figures=figures,
    rows=make_rows,
    needs_folders=True,
)
