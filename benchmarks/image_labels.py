"""Finding noisy image labels, beside cleanlab: `python -m benchmarks.image_labels --data DIR`.

CIFAR-10 with the network, images and training of the classification experiment's preset `cpu`. cleanlab is
given out-of-fold probabilities of 5 unweighted trainings, each on four fifths of the images: by default of as
many epochs as the experiment's, and of a quarter, before much is memorised. What `find_label_issues` flags
ranks first, in its own order, then the rest by `get_label_quality_scores`; its scores alone are tried too,
and the better of both counts for it. `RobustCrossEntropy()` trains once, without prior knowledge. Measured is
the average precision of finding the noisy labels, one seed.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from inlier._vision.images import Images
from inlier._vision.training import Method, TrainingConfig, predict, train
from inlier.experiments.classification.experiment import PRESETS, average_precision, given_labels
from inlier.experiments.classification.methods import METHODS
from inlier.experiments.datasets.cifar import HUMAN_RATES, cifar10
from inlier.experiments.sweep import Row

FOLDS = 5


def some(images: Images, index: Tensor) -> Images:
    """Return the images of these indices."""
    return replace(images, pixels=images.pixels[index], labels=images.labels[index])


def out_of_fold(images: Images, config: TrainingConfig, seed: int) -> Tensor:
    """Return the out-of-fold probabilities of each image."""
    fold = torch.randperm(len(images), generator=torch.Generator().manual_seed(seed)) % FOLDS
    probabilities = torch.empty(len(images), images.classes)
    for part in range(FOLDS):
        seen, unseen = (fold != part).nonzero().squeeze(1), (fold == part).nonzero().squeeze(1)
        result = train(Method, some(images, seen), None, 1.0, config, seed)
        probabilities[unseen] = predict(result.networks[0], some(images, unseen)).softmax(1)
    return probabilities


def cleanlab_precision(given: Tensor, probabilities: Tensor, noisy: Tensor) -> float:
    """Return the better of cleanlab's two rankings."""
    from cleanlab.filter import find_label_issues
    from cleanlab.rank import get_label_quality_scores

    labels, predicted = given.numpy(), probabilities.numpy()
    scores = get_label_quality_scores(labels, predicted)
    flagged = find_label_issues(labels, predicted, return_indices_ranked_by="self_confidence")
    flagged_first = 1 - scores
    flagged_first[flagged] = 2 + np.arange(len(flagged), 0, -1)
    return max(average_precision(torch.from_numpy(ranked), noisy) for ranked in (flagged_first, 1 - scores))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="folder of CIFAR-10's Parquet files and CIFAR-10N")
    parser.add_argument("--noise", default="0.2,0.4,worse", help="rates of symmetric noise, or human labels")
    parser.add_argument("--epochs", default="16,4", help="epochs of cleanlab's five trainings")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    preset = PRESETS["cpu"]
    clean = cifar10(options.data)[0].first(preset["images"])
    config = TrainingConfig(**preset["training"])
    epochs = [int(count) for count in options.epochs.split(",")]
    head = ["labels", *(f"cleanlab, 5 fits of {count} epochs" for count in epochs), "inlier, 1 fit"]
    print("| " + " | ".join(head) + " |\n" + "|---" * len(head) + "|")
    for noise in options.noise.split(","):
        human = noise in HUMAN_RATES
        settings = {"noise": noise if human else "symmetric", "true_class_included": True}
        given = given_labels(
            clean, Row("", 0.0 if human else float(noise), options.seed, settings), options.data
        )
        noisy, images = given != clean.labels, replace(clean, labels=given)
        found = [
            cleanlab_precision(given, out_of_fold(images, own, options.seed), noisy)
            for own in (replace(config, epochs=count) for count in epochs)
        ]
        clean_fraction = 1 - float(noisy.float().mean())
        result = train(METHODS["inlier"], images, None, clean_fraction, config, options.seed)
        score = result.method.outlier_score(given)
        assert score is not None
        found.append(average_precision(score, noisy))
        print("| " + " | ".join([noise, *(f"{value:.3f}" for value in found)]) + " |", flush=True)


if __name__ == "__main__":
    main()
