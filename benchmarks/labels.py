"""Wrong labels and a network that learns by heart, quickly: `python -m benchmarks.labels --data DIR`.

The first 10,000 images of CIFAR-10, each as 800 features of random patches (k-means codes, pooled over the
four quarters of the image), and a network of two hidden layers on them, 40 epochs, no augmentation: plain
training fits nearly all labels, wrong ones included. Symmetric noise, the true class included. All methods of
the classification experiment that train one network run unchanged; this is their quick look, and no
replacement for it. Without `--methods` and `--rates`, all of them at 0 to 80 %, one seed.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import adaptive_avg_pool2d, relu, unfold

from inlier.experiments.classification import average_precision
from inlier.experiments.classification_methods import METHODS
from inlier.vision.batches import shuffled_batches
from inlier.vision.cifar import cifar10
from inlier.vision.noise import symmetric
from inlier.vision.training import Task

PATCH, CODES = 6, 200
EPOCHS, BATCH, STEP_SIZE = 40, 128, 0.02


class PatchCodes:
    """How near each patch of an image is to the centres of patches, whitened, pooled over four quarters.

    Reference: A. Coates, A. Ng, H. Lee (2011), An analysis of single-layer networks in unsupervised feature
    learning, AISTATS.
    """

    def __init__(self, images: Tensor) -> None:
        generator = torch.Generator().manual_seed(0)
        places = torch.randperm(729, generator=generator)[:40]
        patches = _normed(unfold(images.float() / 255, PATCH).transpose(1, 2)[:, places].reshape(-1, 108))
        self.mean = patches.mean(0)
        values, vectors = torch.linalg.eigh((patches - self.mean).T.cov())
        self.whiten = vectors @ torch.diag((values + 0.1).rsqrt()) @ vectors.T
        points = (patches - self.mean) @ self.whiten
        self.centres = points[torch.randperm(len(points), generator=generator)[:CODES]]
        for _ in range(20):
            nearest = torch.cdist(points, self.centres).argmin(1)
            near = [points[nearest == code] for code in range(CODES)]
            self.centres = torch.stack(
                [own.mean(0) if len(own) else old for own, old in zip(near, self.centres, strict=True)]
            )

    def __call__(self, images: Tensor) -> Tensor:
        parts = []
        for part in torch.split(images, 100):
            patches = _normed(unfold(part.float() / 255, PATCH).transpose(1, 2))
            distance = torch.cdist((patches - self.mean) @ self.whiten, self.centres)
            codes = relu(distance.mean(-1, keepdim=True) - distance).transpose(1, 2)
            parts.append(adaptive_avg_pool2d(codes.reshape(len(part), CODES, 27, 27), 2).flatten(1))
        return torch.cat(parts)


def _normed(patches: Tensor) -> Tensor:
    return (patches - patches.mean(-1, keepdim=True)) / (patches.var(-1, keepdim=True) + 0.01).sqrt()


def run(name: str, x: Tensor, truth: Tensor, test: tuple[Tensor, Tensor], rate: float, seed: int) -> dict:
    given = symmetric(truth, rate, 10, seed)
    right = float((given == truth).float().mean())
    torch.manual_seed(seed)
    network = nn.Sequential(
        *(nn.Linear(x.shape[1], 256), nn.BatchNorm1d(256), nn.ReLU()),
        *(nn.Linear(256, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Linear(128, 10)),
    )
    optimiser = torch.optim.SGD(network.parameters(), STEP_SIZE, momentum=0.9)
    method = METHODS[name](Task(len(x), 10, right, EPOCHS, -(-len(x) // BATCH)))
    for epoch in range(EPOCHS):
        method.start_epoch(epoch)
        for index in shuffled_batches(len(x), BATCH, seed, epoch):
            loss = method([network(x[index])], given[index], index)
            optimiser.zero_grad()
            loss.backward()
            method.change_gradients(p.grad for p in network.parameters())
            optimiser.step()
    network.eval()
    with torch.no_grad():
        accuracy = 100 * float((network(test[0]).argmax(1) == test[1]).float().mean())
    suspicion, wrong = method.suspicion(given), given != truth
    found = average_precision(suspicion, wrong) if suspicion is not None and bool(wrong.any()) else None
    return {"accuracy": accuracy, "found": found, "fraction": method.estimated_fraction, "right": right}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="folder of CIFAR-10's Parquet files")
    parser.add_argument("--methods", default=",".join(m for m in METHODS if m != "co-teaching"))
    parser.add_argument("--rates", default="0,0.2,0.4,0.6,0.8")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    train, test = cifar10(options.data)
    train = train.first(10_000)
    codes = PatchCodes(train.pixels[:2000])
    x, test_x = codes(train.pixels), codes(test.pixels)
    mean, spread = x.mean(0), x.std(0)
    x, test_x = (x - mean) / spread, (test_x - mean) / spread
    head = ["method", "noise rate", "accuracy (%)", "right labels", "estimated", "found (AP)"]
    print("| " + " | ".join(head) + " |\n" + "|---" * len(head) + "|")
    for rate in map(float, options.rates.split(",")):
        for name in options.methods.split(","):
            got = run(name, x, train.labels, (test_x, test.labels), rate, options.seed)
            found = "" if got["found"] is None else f"{got['found']:.3f}"
            fraction = "" if got["fraction"] != got["fraction"] else f"{got['fraction']:.2f}"
            row = [name, f"{rate:g}", f"{got['accuracy']:.1f}", f"{got['right']:.2f}", fraction, found]
            print("| " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    main()
