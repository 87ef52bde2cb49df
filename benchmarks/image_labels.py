"""Finding wrong image labels beside cleanlab: `python -m benchmarks.image_labels --data DIR`.

CIFAR-10 and the network, the images and the course of the classification experiment's preset `cpu`. cleanlab
is given out-of-fold probabilities of 5 plain trainings, each on four fifths of the images: by default as long
as the experiment's, and of a quarter of the epochs, before much is learned by heart. What `find_label_issues`
flags comes first, in its own order, then the rest by `get_label_quality_scores`; its scores alone are tried
too, and the better of both counts for it. `Robust()` trains once and is told nothing. Measured is the average
precision of finding the wrong labels, one seed.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from cleanlab.filter import find_label_issues
from cleanlab.rank import get_label_quality_scores
from torch import Tensor

from inlier.experiments import Row
from inlier.experiments.classification import PRESETS, average_precision, given_labels
from inlier.experiments.classification_methods import METHODS
from inlier.vision.cifar import HUMAN_RATES, cifar10
from inlier.vision.images import Images
from inlier.vision.training import Course, Method, predict, train

FOLDS = 5


def some(images: Images, index: Tensor) -> Images:
    """Return the images of these numbers."""
    return replace(images, pixels=images.pixels[index], labels=images.labels[index])


def out_of_fold(images: Images, course: Course, seed: int) -> Tensor:
    """Return the probabilities of each image by the one of five networks that has not seen it."""
    fold = torch.randperm(len(images), generator=torch.Generator().manual_seed(seed)) % FOLDS
    probabilities = torch.empty(len(images), images.classes)
    for part in range(FOLDS):
        seen, unseen = (fold != part).nonzero().squeeze(1), (fold == part).nonzero().squeeze(1)
        outcome = train(Method, some(images, seen), None, 1.0, course, seed)
        probabilities[unseen] = predict(outcome.networks[0], some(images, unseen)).softmax(1)
    return probabilities


def cleanlab_precision(given: Tensor, probabilities: Tensor, wrong: Tensor) -> float:
    """Return the better of cleanlab's two rankings."""
    labels, chances = given.numpy(), probabilities.numpy()
    scores = get_label_quality_scores(labels, chances)
    flagged = find_label_issues(labels, chances, return_indices_ranked_by="self_confidence")
    suspicion = 1 - scores
    suspicion[flagged] = 2 + np.arange(len(flagged), 0, -1)
    return max(average_precision(torch.from_numpy(ranked), wrong) for ranked in (suspicion, 1 - scores))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="folder of CIFAR-10's Parquet files and CIFAR-10N")
    parser.add_argument("--noise", default="0.2,0.4,worse", help="rates of symmetric noise, or human labels")
    parser.add_argument("--epochs", default="16,4", help="of cleanlab's five trainings")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    preset = PRESETS["cpu"]
    clean = cifar10(options.data)[0].first(preset["images"])
    course = Course(**preset["course"])
    epochs = [int(count) for count in options.epochs.split(",")]
    head = ["labels", *(f"cleanlab, 5 fits of {count} epochs" for count in epochs), "Robust(), 1 fit"]
    print("| " + " | ".join(head) + " |\n" + "|---" * len(head) + "|")
    for noise in options.noise.split(","):
        human = noise in HUMAN_RATES
        settings = {"noise": noise if human else "symmetric", "true_class_included": True}
        given = given_labels(
            clean, Row("", 0.0 if human else float(noise), options.seed, settings), options.data
        )
        wrong, images = given != clean.labels, replace(clean, labels=given)
        found = [
            cleanlab_precision(given, out_of_fold(images, own, options.seed), wrong)
            for own in (replace(course, epochs=count) for count in epochs)
        ]
        right = 1 - float(wrong.float().mean())
        suspicion = train(METHODS["robust"], images, None, right, course, options.seed).method.suspicion(
            given
        )
        assert suspicion is not None
        found.append(average_precision(suspicion, wrong))
        print("| " + " | ".join([noise, *(f"{value:.3f}" for value in found)]) + " |", flush=True)


if __name__ == "__main__":
    main()
