"""CIFAR-10 with human labels (CIFAR-10N): a PyTorch training in which two lines are new."""

import argparse
from pathlib import Path

import torch

import inlier
from inlier._vision import networks
from inlier._vision.batches import crop_and_flip, normalize
from inlier._vision.training import accuracy
from inlier.experiments.datasets import cifar


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="train, test and cifar10n.parquet")
    parser.add_argument("--labels", default="worse", choices=cifar.HUMAN_LABELS)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--images", type=int, default=10_000, help="how many images to train on")
    arguments = parser.parse_args()

    torch.manual_seed(0)
    train, test = cifar.cifar10(arguments.data)
    train, test = train.first(arguments.images), test.first(arguments.images)
    given = cifar.human_labels(arguments.labels, arguments.data)[: len(train)]

    model = networks.get("compact", train.classes)
    criterion = inlier.RobustCrossEntropy()  # in place of torch.nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), 0.02, momentum=0.9, weight_decay=5e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, arguments.epochs)
    shifts = torch.Generator().manual_seed(0)
    for _ in range(arguments.epochs):
        for index in torch.randperm(len(train)).split(128):
            logits = model(normalize(crop_and_flip(train.pixels[index], shifts)))
            loss = criterion(logits, given[index], index)  # with the index of each image
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        schedule.step()

    noisy = given != train.labels
    suspects = criterion.inlier_probability().argsort()[:100]
    print(f"test accuracy {accuracy(model, test):.1f} %, with {noisy.float().mean():.1%} noisy labels")
    print(criterion.fraction_estimate)
    print(f"of the 100 most suspect labels, {noisy[suspects].float().mean():.0%} are noisy; the first five:")
    for row in suspects[:5].tolist():
        names = train.class_names[given[row]], train.class_names[train.labels[row]]
        print(f"  image {row}: labelled {names[0]}, in truth {names[1]}")


if __name__ == "__main__":
    main()
