"""The paper's classification (section 6.2, figure 3b): ``inlier reproduce classification``.

CIFAR-10 with symmetric label noise at several rates, and with the human labels of CIFAR-10N. Each row is one
training. With the true class included, as in the paper, a drawn label may be right: the rate of wrong labels
is then 0.9 of the noise rate, and it is this effective rate that a method which must be told is told.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from inlier.experiments import Experiment, Places, Row, Settings
from inlier.experiments.classification_figures import figures
from inlier.experiments.classification_methods import METHODS
from inlier.vision import cifar
from inlier.vision.images import Images
from inlier.vision.noise import pair_flip, symmetric
from inlier.vision.training import Course, Outcome, train

__all__ = ["EXPERIMENT", "average_precision", "given_labels"]

PRESETS: dict[str, dict[str, Any]] = {
    # Section 6.2 to the letter.
    "paper": {
        "rates": [tenth / 10 for tenth in range(10)],
        "seeds": 5,
        "images": None,
        "true_class_included": True,
        "human_labels": list(cifar.HUMAN_LABELS),
        "course": {
            "network": "dla-34",
            "epochs": 500,
            "batch": 128,
            "step_size": 1e-3,
            "momentum": 0.9,
            "weight_decay": 5e-4,
            "augment": True,
        },
    },
    # Small enough for two cores. Without crops and mirrors plain training learns every wrong label by heart.
    "cpu": {
        "rates": [0.0, 0.2, 0.4, 0.6, 0.8],
        "seeds": 3,
        "images": 10_000,
        "true_class_included": True,
        "human_labels": ["worse"],
        "all_seeds_at": [0.4, 0.8],
        "course": {
            "network": "compact",
            "epochs": 16,
            "batch": 128,
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
        "images": 256,
        "test_images": 200,
        "true_class_included": True,
        "human_labels": ["worse"],
        "course": {
            "network": "compact",
            "epochs": 2,
            "batch": 64,
            "step_size": 0.02,
            "augment": True,
        },
    },
}
# Close methods differ by less than seeds do: all seeds at every rate, and on human labels.
PRESETS["cpu-seeds"] = {name: value for name, value in PRESETS["cpu"].items() if name != "all_seeds_at"}


def rows(methods: Sequence[str], rates: Sequence[float], seeds: int, settings: Settings) -> list[Row]:
    """Return the rows; those of human labels stand at the rate of wrong labels that people have made.

    ``all_seeds_at`` names the rates that are tried with every seed; the others, and human labels, with one.
    """
    common = {name: value for name, value in settings.items() if name not in ("human_labels", "all_seeds_at")}
    everywhere = settings.get("all_seeds_at", rates)
    found = []
    for seed in range(seeds):
        for method in methods:
            drawn = common | {"noise": settings.get("noise", "symmetric")}
            found += [Row(method, rate, seed, drawn) for rate in rates if seed == 0 or rate in everywhere]
            if seed == 0 or "all_seeds_at" not in settings:
                found += [
                    Row(method, cifar.HUMAN_RATES[name], seed, common | {"noise": name})
                    for name in settings["human_labels"]
                ]
    return found


def compute(rows: Sequence[Row], places: Places) -> Iterator[tuple[Row, Mapping[str, float] | Exception]]:
    """Train each row, from its checkpoint if there is one, which goes when the row is done."""
    for row in rows:
        checkpoint = places.checkpoints / f"{row.key}.pt"
        settings = row.settings
        clean, test = _data(places.data)
        clean, test = clean.first(settings["images"]), test.first(settings.get("test_images"))
        given = given_labels(clean, row, places.data)
        right = float((given == clean.labels).float().mean())
        outcome = train(
            METHODS[row.method],
            replace(clean, labels=given),
            test,
            right,
            Course(**settings["course"]),
            row.seed,
            checkpoint,
        )
        yield row, _metrics(outcome, given, clean.labels)
        checkpoint.unlink(missing_ok=True)


def given_labels(images: Images, row: Row, data: Path | None = None) -> Tensor:
    """Return the labels that a row is trained with: drawn, or given by people.

    Args:
        images: With right labels.
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


def average_precision(suspicion: Tensor, wrong: Tensor) -> float:
    """Return the average precision of finding what is wrong by looking at the most suspicious first.

    Args:
        suspicion: Higher for worse; NaN counts as not suspicious at all.
        wrong: What is to be found.

    Example:
        >>> import torch
        >>> average_precision(torch.tensor([0.9, 0.1, 0.8, 0.4]), torch.tensor([True, False, False, False]))
        1.0
        >>> average_precision(torch.tensor([0.1, 0.9]), torch.tensor([True, False]))
        0.5
    """
    from sklearn.metrics import average_precision_score

    return float(average_precision_score(wrong.cpu().numpy(), suspicion.nan_to_num(-1e30).cpu().numpy()))


@functools.cache
def _data(folder: Path | None) -> tuple[Images, Images]:
    return cifar.cifar10(folder)


def _metrics(outcome: Outcome, given: Tensor, true: Tensor) -> dict[str, float]:
    wrong = given != true
    last = max(outcome.test)
    metrics = {
        "accuracy": outcome.test[last],
        "best_accuracy": max(outcome.test.values()),
        "fitted": outcome.fitted[max(outcome.fitted)],
        "wrong_labels": float(wrong.float().mean()),
        "estimated_fraction": outcome.method.estimated_fraction,
    }
    suspicion = outcome.method.suspicion(given.to(outcome.device))
    if suspicion is not None and bool(wrong.any()):
        metrics["average_precision"] = average_precision(suspicion, wrong)
    metrics |= {f"test_{epoch}": value for epoch, value in outcome.test.items()}
    return metrics | {f"fitted_{epoch}": value for epoch, value in outcome.fitted.items()}


EXPERIMENT = Experiment(
    name="classification",
    description="CIFAR-10 with wrong labels, drawn or human",
    methods=tuple(METHODS),
    presets=PRESETS,
    metric="accuracy",
    compute=compute,
    figures=figures,
    rows=rows,
    has_places=True,
)
