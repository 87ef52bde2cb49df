"""A classifier of vectors: one hidden layer, trained with RobustCrossEntropy, in two files without pickle."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from inlier._errors import InputError, quoted
from inlier.fit._columns import Array
from inlier.fit._networks import DESCRIPTION_FILE, WEIGHTS_FILE
from inlier.nn import RobustCrossEntropy

__all__ = ["Head", "load_head", "save_head", "train_head"]

HIDDEN = 512
BATCH = 64
STEP_SIZE = 1e-3
WARMUP = 0.06
"""Share of the steps in which the step size rises; then it falls to 0."""
EPOCHS = 3
"""The vectors are good already: more epochs memorise the labels."""


class Head(nn.Module):
    """Standardizes vectors, and classifies them.

    Args:
        width: The length of the vectors.
        classes: The names of the classes.

    Example:
        >>> Head(8, ("cat", "dog"))(torch.zeros(3, 8)).shape
        torch.Size([3, 2])
    """

    mean: Tensor
    spread: Tensor

    def __init__(self, width: int, classes: tuple[str, ...]) -> None:
        super().__init__()
        self.width, self.classes = width, classes
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("spread", torch.ones(width))
        self.layers = nn.Sequential(nn.Linear(width, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, len(classes)))

    def forward(self, vectors: Tensor) -> Tensor:
        """Return the logits of each class."""
        logits: Tensor = self.layers((vectors - self.mean) / self.spread)
        return logits

    def probabilities(self, vectors: Array) -> Array:
        """Return the probability of each class.

        Raises:
            InputError: If the vectors have another length.
        """
        if vectors.shape[1] != self.width:
            raise InputError(f"the encoder makes vectors of {vectors.shape[1]} numbers, not of {self.width}")
        with torch.inference_mode():
            return np.asarray(self(torch.from_numpy(vectors)).softmax(1).numpy())


def train_head(
    vectors: Tensor,
    labels: Tensor,
    classes: tuple[str, ...],
    inlier_fraction: float | Literal["auto"],
    seed: int,
    progress: Callable[[float], None] = lambda share: None,
) -> tuple[Head, RobustCrossEntropy]:
    """Train a head on labels of which some may be wrong.

    Args:
        vectors: float32, [n, width].
        labels: Places among the classes, [n].
        classes: The names of the classes.
        inlier_fraction: A number, or "auto".
        seed: Of the first weights and the order of the samples.
        progress: Called with the share that an epoch is.

    Returns:
        The head, and the loss, which knows the inlier probability of each sample.
    """
    samples = len(vectors)
    batches = math.ceil(samples / BATCH)
    criterion = RobustCrossEntropy(inlier_fraction, samples=samples)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        head = Head(vectors.shape[1], classes)
        head.mean.copy_(vectors.mean(0))
        head.spread.copy_(vectors.std(0).clamp(min=1e-6))
        # Otherwise the optimizer takes longer than the network.
        optimizer = torch.optim.AdamW(head.parameters(), STEP_SIZE, fused=True)
        schedule = torch.optim.lr_scheduler.OneCycleLR(
            optimizer, STEP_SIZE, EPOCHS * batches, pct_start=WARMUP, anneal_strategy="linear"
        )
        for _ in range(EPOCHS):
            for index in torch.split(torch.randperm(samples), BATCH):
                optimizer.zero_grad()
                criterion(head(vectors[index]), labels[index], index).backward()
                optimizer.step()
                schedule.step()
            progress(1 / EPOCHS)
    return head.eval(), criterion


def save_head(head: Head, folder: Path) -> None:
    """Write a head into a folder."""
    from safetensors.torch import save

    (folder / WEIGHTS_FILE).write_bytes(save(head.state_dict()))
    description = {"width": head.width, "classes": list(head.classes)}
    (folder / DESCRIPTION_FILE).write_text(json.dumps(description, indent=2) + "\n", "utf-8")


def load_head(folder: Path) -> Head:
    """Read the head that ``inlier fit`` wrote for images with an encoder.

    Raises:
        InputError: If a file is missing or broken, or the two do not match.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        description = json.loads((folder / DESCRIPTION_FILE).read_text("utf-8"))
        classes, width = tuple(map(str, description["classes"])), int(description["width"])
        weights = load_file(folder / WEIGHTS_FILE)
        if weights["mean"].shape != (width,):  # Before anything of that size is made.
            raise ValueError
        head = Head(width, classes)
        head.load_state_dict(weights)
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError):
        raise InputError(
            f"{quoted(folder)} holds no head of inlier fit ({WEIGHTS_FILE}, {DESCRIPTION_FILE}), or a broken one"
        ) from None
    return head.eval()
