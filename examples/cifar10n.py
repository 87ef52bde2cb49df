"""CIFAR-10 with the labels that people gave (CIFAR-10N), in plain PyTorch; two lines make it robust."""

import argparse
from pathlib import Path

import torch
from torch.nn import functional as F

import inlier
from inlier.vision import cifar, networks
from inlier.vision.batches import crop_and_flip, normalise
from inlier.vision.training import accuracy


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
    robust = inlier.Robust()  # the first line
    optimiser = torch.optim.SGD(model.parameters(), 0.02, momentum=0.9, weight_decay=5e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, arguments.epochs)
    shifts = torch.Generator().manual_seed(0)
    for _ in range(arguments.epochs):
        for index in torch.randperm(len(train)).split(128):
            logits = model(normalise(crop_and_flip(train.pixels[index], shifts)))
            losses = F.cross_entropy(logits, given[index], reduction="none")
            # The second line, in place of losses.mean():
            loss = robust(losses, index, labels=given[index], logits=logits)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        schedule.step()

    wrong = given != train.labels
    suspects = robust.inlier_probability().argsort()[:100]
    print(f"test accuracy {accuracy(model, test):.1f} %, with {wrong.float().mean():.1%} wrong labels")
    print(f"estimated fraction of right labels {float(robust.inlier_fraction.mean()):.2f}")
    print(f"of the 100 most suspect labels, {wrong[suspects].float().mean():.0%} are wrong; the first five:")
    for row in suspects[:5].tolist():
        names = train.class_names[given[row]], train.class_names[train.labels[row]]
        print(f"  image {row}: given {names[0]}, in truth {names[1]}")


if __name__ == "__main__":
    main()
