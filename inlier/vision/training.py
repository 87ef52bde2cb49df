"""Training an image network with any method at the loss: resumable, on a processor, a GPU, or several.

Under ``torchrun`` each process trains on its part of every batch; the batch, the order of the samples and
their crops are those of one process. A checkpoint is written at most every :data:`CHECKPOINT_EVERY` seconds,
at the end of an epoch, and a training that finds one goes on from there, to the bit on a processor.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from inlier import processes
from inlier.vision import networks
from inlier.vision.batches import crop_and_flip, generator_of, normalise, shuffled_batches
from inlier.vision.images import Images

__all__ = ["Course", "Method", "Outcome", "Task", "accuracy", "predict", "train"]

CHECKPOINT_EVERY = 60.0
"""Seconds between two checkpoints, at least."""


@dataclass(frozen=True)
class Task:
    """What a method may need to know.

    Args:
        samples: Number of training samples.
        classes: Number of classes.
        inlier_fraction: The true fraction of right labels, for the methods that must be told.
        epochs: How many epochs the training has.
        steps: How many steps an epoch has.
    """

    samples: int
    classes: int
    inlier_fraction: float
    epochs: int
    steps: int


class Method(nn.Module):
    """Plain training, and what the others replace of it.

    Args:
        task: What is trained.
    """

    networks = 1
    """How many networks it trains."""

    def __init__(self, task: Task) -> None:
        super().__init__()
        self.task = task

    def start_epoch(self, epoch: int) -> None:
        """Get ready for an epoch, the first of which is 0."""

    def forward(self, logits: Sequence[Tensor], labels: Tensor, index: Tensor) -> Tensor:
        """Return the loss of a batch: the mean cross-entropy.

        Args:
            logits: Those of each network.
            labels: The given labels.
            index: The sample numbers.
        """
        return cross_entropy(logits[0], labels)

    def change_gradients(self, gradients: Iterable[Tensor]) -> None:
        """Change the gradients in place before the step."""

    def suspicion(self, labels: Tensor) -> Tensor | None:
        """Return how wrong each sample's given label seems, higher for worse; None without such a belief."""
        return None

    @property
    def estimated_fraction(self) -> float:
        """The fraction of right labels that the method has found; NaN if it looks for none."""
        return math.nan


@dataclass(frozen=True)
class Course:
    """How a network is trained.

    Args:
        network: One of :func:`inlier.vision.networks.names`.
        epochs: Passes over the samples.
        batch: Samples a step, of all processes together.
        step_size: Of stochastic gradient descent.
        schedule: "fixed", or "cosine" to let the step size fall to 0.
        momentum: Of stochastic gradient descent.
        weight_decay: Of stochastic gradient descent.
        augment: Whether images are cropped and mirrored.
        evaluate_every: Epochs from one look at the test images to the next.
    """

    network: str
    epochs: int
    batch: int
    step_size: float
    schedule: str = "fixed"
    momentum: float = 0.9
    weight_decay: float = 0.0
    augment: bool = True
    evaluate_every: int = 1


@dataclass(frozen=True)
class Outcome:
    """What came out of a training.

    Args:
        test: Accuracy in percent on the test images, by epoch; the first is 1.
        fitted: Accuracy in percent on the given labels while training, by epoch.
        method: The method with what it has learned of the samples.
        networks: The trained networks.
    """

    test: dict[int, float]
    fitted: dict[int, float]
    method: Method
    networks: nn.ModuleList

    @property
    def device(self) -> torch.device:
        """Where the networks are."""
        return next(self.networks.parameters()).device


def train(
    build: Callable[[Task], Method],
    train_set: Images,
    test_set: Images | None,
    inlier_fraction: float,
    course: Course,
    seed: int,
    checkpoint: Path | None = None,
    stop_after: int | None = None,
    watch: Callable[[int], None] | None = None,
) -> Outcome:
    """Train a network with a method.

    Args:
        build: Makes the method.
        train_set: Images with the given labels.
        test_set: Images to look at now and then; None for none.
        inlier_fraction: The true fraction of right labels, for methods that must be told.
        course: How to train.
        seed: Of the first weights, the order and the crops.
        checkpoint: Where to keep the state; removed by nobody here.
        stop_after: End after this many epochs in all, with a checkpoint.
        watch: Called after each epoch with the number of epochs done.
    """
    torch.manual_seed(seed)
    device = _device()
    steps = sum(1 for _ in _own_batches(len(train_set), course.batch, seed, 0))
    task = Task(len(train_set), train_set.classes, inlier_fraction, course.epochs, steps)
    method = build(task).to(device)
    plain = nn.ModuleList(networks.get(course.network, task.classes) for _ in range(method.networks))
    plain = plain.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    trained = [_distributed(network, device) for network in plain]
    optimiser = torch.optim.SGD(
        plain.parameters(), course.step_size, momentum=course.momentum, weight_decay=course.weight_decay
    )
    total = course.epochs * steps if course.schedule == "cosine" else None
    state = _State(method, plain, optimiser, {"course": asdict(course), "seed": seed})
    state.restore(checkpoint, device)
    pixels, labels = train_set.pixels.to(device), train_set.labels.to(device)
    saved = time.monotonic()
    for epoch in range(len(state.fitted), min(course.epochs, stop_after or course.epochs)):
        method.start_epoch(epoch)
        right = torch.zeros((), device=device)
        for step, index in enumerate(_own_batches(len(labels), course.batch, seed, epoch)):
            if total is not None:
                _set_step_size(optimiser, course.step_size, (epoch * steps + step) / total)
            x = _own_part(_augmented(pixels, index, course.augment, seed, epoch, step))
            own = _own_part(index).to(device)
            logits = [network(normalise(x)) for network in trained]
            loss = method(logits, labels[own], own)
            optimiser.zero_grad()
            loss.backward()
            method.change_gradients(p.grad for p in plain.parameters() if p.grad is not None)
            optimiser.step()
            right += (logits[0].detach().argmax(1) == labels[own]).sum()
        state.fitted[epoch + 1] = 100 * float(_summed(right)) / len(labels)
        last = epoch + 1 == course.epochs
        if test_set is not None and ((epoch + 1) % course.evaluate_every == 0 or last):
            state.test[epoch + 1] = accuracy(plain[0], test_set)
        if watch is not None:
            watch(epoch + 1)
        if checkpoint is not None and _agreed(
            time.monotonic() - saved >= CHECKPOINT_EVERY or epoch + 1 == stop_after
        ):
            state.save(checkpoint)
            saved = time.monotonic()
    return Outcome(state.test, state.fitted, method, plain)


@dataclass
class _State:
    """All that a training goes on from."""

    method: Method
    networks: nn.ModuleList
    optimiser: torch.optim.Optimizer
    what: dict[str, Any]

    def __post_init__(self) -> None:
        self.test: dict[int, float] = {}
        self.fitted: dict[int, float] = {}

    def save(self, path: Path) -> None:
        """Write a checkpoint whole; the first process does, the others wait."""
        if _rank() == 0:
            path.parent.mkdir(parents=True, exist_ok=True)
            part = path.with_suffix(".part")
            torch.save(
                {
                    "what": self.what,
                    "method": self.method.state_dict(),
                    "networks": self.networks.state_dict(),
                    "optimiser": self.optimiser.state_dict(),
                    "test": self.test,
                    "fitted": self.fitted,
                },
                part,
            )
            part.replace(path)
        if processes.world_size() > 1:
            dist.barrier()

    def restore(self, path: Path | None, device: torch.device) -> None:
        """Go on from a checkpoint, if there is one of the same training."""
        if path is None or not path.exists():
            return
        saved = torch.load(path, map_location=device, weights_only=True)
        if saved["what"] != self.what:
            raise ValueError(f"{path} is of another training: move it away, or choose another --out")
        self.method.load_state_dict(saved["method"])
        self.networks.load_state_dict(saved["networks"])
        self.optimiser.load_state_dict(saved["optimiser"])
        self.test, self.fitted = saved["test"], saved["fitted"]


def accuracy(network: nn.Module, images: Images, batch: int = 500) -> float:
    """Return the percentage of images whose largest logit is that of their label.

    Args:
        network: Evaluated in its ``eval()`` mode, and left in its training mode.
        images: Images with their labels.
        batch: Images at a time.
    """
    return 100 * float((predict(network, images, batch).argmax(1) == images.labels).float().mean())


def predict(network: nn.Module, images: Images, batch: int = 500) -> Tensor:
    """Return the logits of all images, on the processor."""
    device = next(network.parameters()).device
    network.eval()
    with torch.no_grad():
        parts = [network(normalise(part.to(device))).cpu() for part in torch.split(images.pixels, batch)]
    network.train()
    return torch.cat(parts)


def _augmented(pixels: Tensor, index: Tensor, augment: bool, seed: int, epoch: int, step: int) -> Tensor:
    chosen = pixels[index.to(pixels.device)]
    return crop_and_flip(chosen, generator_of(seed, epoch, step)) if augment else chosen


def _own_batches(samples: int, batch: int, seed: int, epoch: int) -> Iterator[Tensor]:
    """Yield whole batches that leave at least two samples for each process."""
    least = 2 * processes.world_size()
    return (index for index in shuffled_batches(samples, batch, seed, epoch) if len(index) >= least)


def _own_part(batch: Tensor) -> Tensor:
    """Return this process's part of a batch."""
    return batch[_rank() :: processes.world_size()]


def _distributed(network: nn.Module, device: torch.device) -> nn.Module:
    if processes.world_size() == 1:
        return network
    if device.type == "cuda":
        network = nn.SyncBatchNorm.convert_sync_batchnorm(network)  # type: ignore[no-untyped-call]
    return DistributedDataParallel(network, [device.index] if device.type == "cuda" else None)


def _device() -> torch.device:
    if not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)) % torch.cuda.device_count())


def _rank() -> int:
    return dist.get_rank() if processes.world_size() > 1 else 0


def _agreed(choice: bool) -> bool:
    """Return the first process's choice on all of them: clocks differ."""
    if processes.world_size() == 1:
        return choice
    said = torch.tensor(int(choice), device=_device())
    dist.broadcast(said, 0)
    return bool(said)


def _summed(number: Tensor) -> Tensor:
    if processes.world_size() > 1:
        dist.all_reduce(number)
    return number


def _set_step_size(optimiser: torch.optim.Optimizer, largest: float, progress: float) -> None:
    """Let the step size fall from the largest to 0 along half a cosine."""
    for group in optimiser.param_groups:
        group["lr"] = largest * (1 + math.cos(math.pi * progress)) / 2
