"""Training an image network with any method at the loss: resumable, on a CPU, a GPU, or several processes.

Under ``torchrun`` each process trains on its part of every batch; the batches, the order of the samples and
their crops are those of a single process. A checkpoint is written at the end of an epoch, at most every
:data:`CHECKPOINT_EVERY` seconds; a training that finds one resumes from it, bit by bit on a CPU.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from inlier._vision import distributed, networks
from inlier._vision.batches import crop_and_flip, make_generator, normalize, shuffled_batches
from inlier._vision.images import Images

if TYPE_CHECKING:
    from inlier import RobustCrossEntropy

__all__ = [
    "Method",
    "RobustMethod",
    "Task",
    "TrainingConfig",
    "TrainingResult",
    "accuracy",
    "predict",
    "train",
]

CHECKPOINT_EVERY = 60.0
"""The least number of seconds between two checkpoints."""


@dataclass(frozen=True)
class Task:
    """What a method may need to know of the training it is part of.

    Args:
        samples: Number of training samples.
        classes: Number of classes.
        inlier_fraction: The true fraction of clean labels, for methods that have it as prior knowledge.
        epochs: Number of epochs.
        steps: Steps per epoch.
    """

    samples: int
    classes: int
    inlier_fraction: float
    epochs: int
    steps: int


class Method(nn.Module):
    """The baseline, unweighted cross-entropy, and the hooks that other methods override.

    Args:
        task: The training it is part of.
    """

    networks = 1
    """How many networks it trains."""

    def __init__(self, task: Task) -> None:
        super().__init__()
        self.task = task

    def start_epoch(self, epoch: int) -> None:
        """Prepare for an epoch, counted from 0."""

    def forward(self, logits: Sequence[Tensor], labels: Tensor, index: Tensor) -> Tensor:
        """Return the loss of a batch.

        Args:
            logits: The logits of each network.
            labels: The given labels.
            index: The dataset index of each sample.
        """
        return cross_entropy(logits[0], labels)

    def change_gradients(self, gradients: Iterable[Tensor]) -> None:
        """Change the gradients in place before the step."""

    def outlier_score(self, labels: Tensor) -> Tensor | None:
        """Return a score for each sample, higher the more its given label looks noisy; None without one."""
        return None

    @property
    def estimated_fraction(self) -> float:
        """The fraction of clean labels that the method uses or estimates; NaN if it has none."""
        return math.nan


class RobustMethod(Method):
    """The cross-entropy weighted by :class:`inlier.RobustCrossEntropy`.

    Args:
        task: The training it is part of.
        criterion: The loss.
    """

    def __init__(self, task: Task, criterion: RobustCrossEntropy) -> None:
        super().__init__(task)
        self.criterion = criterion

    def forward(self, logits: Sequence[Tensor], labels: Tensor, index: Tensor) -> Tensor:
        """Return the weighted loss."""
        loss: Tensor = self.criterion(logits[0], labels, index)
        return loss

    def outlier_score(self, labels: Tensor) -> Tensor | None:
        """Return one minus the inlier probability of each sample."""
        return 1 - self.criterion.inlier_probability()

    @property
    def estimated_fraction(self) -> float:
        """The current inlier fraction."""
        return float(self.criterion.inlier_fraction.mean())


@dataclass(frozen=True)
class TrainingConfig:
    """How a network is trained.

    Args:
        network: One of :func:`inlier._vision.networks.names`.
        epochs: Number of epochs.
        batch_size: Samples per step, over all processes.
        step_size: Learning rate of stochastic gradient descent.
        schedule: "fixed", or "cosine" to anneal the step size to 0.
        momentum: Momentum of stochastic gradient descent.
        weight_decay: Weight decay of stochastic gradient descent.
        augment: Whether images are shifted and mirrored at random.
        evaluate_every: Epochs between two evaluations on the test images.
    """

    network: str
    epochs: int
    batch_size: int
    step_size: float
    schedule: str = "fixed"
    momentum: float = 0.9
    weight_decay: float = 0.0
    augment: bool = True
    evaluate_every: int = 1


@dataclass(frozen=True)
class TrainingResult:
    """A finished training.

    Args:
        test_accuracy: Accuracy in percent on the test images, by epoch, counted from 1.
        train_accuracy: Accuracy in percent on the given labels while training, by epoch.
        method: The method, with its state.
        networks: The trained networks.
    """

    test_accuracy: dict[int, float]
    train_accuracy: dict[int, float]
    method: Method
    networks: nn.ModuleList

    @property
    def device(self) -> torch.device:
        """The device of the networks."""
        return next(self.networks.parameters()).device


def train(
    make_method: Callable[[Task], Method],
    train_set: Images,
    test_set: Images | None,
    inlier_fraction: float,
    config: TrainingConfig,
    seed: int,
    checkpoint: Path | None = None,
    stop_after: int | None = None,
    on_epoch_end: Callable[[int], None] | None = None,
) -> TrainingResult:
    """Train a network with a method.

    Args:
        make_method: Returns the method for the task.
        train_set: Images with the given labels.
        test_set: Images to evaluate on; None for none.
        inlier_fraction: The true fraction of clean labels, for methods that have it as prior knowledge.
        config: How to train.
        seed: Seeds the initial weights, the order of the samples and the augmentation.
        checkpoint: The file of the checkpoint; the caller removes it.
        stop_after: Stop after this many epochs in all, with a checkpoint.
        on_epoch_end: Called after each epoch with the number of epochs done.
    """
    torch.manual_seed(seed)
    device = _device()
    steps = sum(1 for _ in _batches(len(train_set), config.batch_size, seed, 0))
    task = Task(len(train_set), train_set.classes, inlier_fraction, config.epochs, steps)
    method = make_method(task).to(device)
    trained = nn.ModuleList(networks.get(config.network, task.classes) for _ in range(method.networks))
    trained = trained.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    wrapped = [_distributed_data_parallel(network, device) for network in trained]
    optimizer = torch.optim.SGD(
        trained.parameters(), config.step_size, momentum=config.momentum, weight_decay=config.weight_decay
    )
    total = config.epochs * steps if config.schedule == "cosine" else None
    state = _TrainingState(method, trained, optimizer, {"config": asdict(config), "seed": seed})
    state.restore(checkpoint, device)
    pixels, labels = train_set.pixels.to(device), train_set.labels.to(device)
    saved = time.monotonic()
    for epoch in range(len(state.train_accuracy), min(config.epochs, stop_after or config.epochs)):
        method.start_epoch(epoch)
        correct = torch.zeros((), device=device)
        for step, batch in enumerate(_batches(len(labels), config.batch_size, seed, epoch)):
            if total is not None:
                _anneal(optimizer, config.step_size, (epoch * steps + step) / total)
            x = _own_part(_augmented(pixels, batch, config.augment, seed, epoch, step))
            index = _own_part(batch).to(device)
            logits = [network(normalize(x)) for network in wrapped]
            loss = method(logits, labels[index], index)
            optimizer.zero_grad()
            loss.backward()
            method.change_gradients(p.grad for p in trained.parameters() if p.grad is not None)
            optimizer.step()
            correct += (logits[0].detach().argmax(1) == labels[index]).sum()
        state.train_accuracy[epoch + 1] = 100 * float(distributed.all_reduce(correct)) / len(labels)
        last = epoch + 1 == config.epochs
        if test_set is not None and ((epoch + 1) % config.evaluate_every == 0 or last):
            state.test_accuracy[epoch + 1] = accuracy(trained[0], test_set)
        if on_epoch_end is not None:
            on_epoch_end(epoch + 1)
        due = time.monotonic() - saved >= CHECKPOINT_EVERY or epoch + 1 == stop_after
        if checkpoint is not None and distributed.from_rank_0(due, device):
            state.save(checkpoint)
            saved = time.monotonic()
    return TrainingResult(state.test_accuracy, state.train_accuracy, method, trained)


@dataclass
class _TrainingState:
    """All that a checkpoint holds."""

    method: Method
    networks: nn.ModuleList
    optimizer: torch.optim.Optimizer
    identity: dict[str, Any]
    """Config and seed: a checkpoint of other ones is of another training."""
    test_accuracy: dict[int, float] = field(default_factory=dict)
    train_accuracy: dict[int, float] = field(default_factory=dict)

    def save(self, path: Path) -> None:
        """Write a checkpoint atomically; rank 0 does, the others wait."""
        if distributed.rank() == 0:
            path.parent.mkdir(parents=True, exist_ok=True)
            part = path.with_suffix(".part")
            torch.save(
                {
                    "identity": self.identity,
                    "method": self.method.state_dict(),
                    "networks": self.networks.state_dict(),
                    "optimizer": self.optimizer.state_dict(),
                    "test_accuracy": self.test_accuracy,
                    "train_accuracy": self.train_accuracy,
                },
                part,
            )
            part.replace(path)
        distributed.barrier()

    def restore(self, path: Path | None, device: torch.device) -> None:
        """Resume from a checkpoint, if there is one, of the same training."""
        if path is None or not path.exists():
            return
        saved = torch.load(path, map_location=device, weights_only=True)
        if saved["identity"] != self.identity:
            raise ValueError(f"{path} is of another training: move it away, or choose another --out")
        self.method.load_state_dict(saved["method"])
        self.networks.load_state_dict(saved["networks"])
        self.optimizer.load_state_dict(saved["optimizer"])
        self.test_accuracy, self.train_accuracy = saved["test_accuracy"], saved["train_accuracy"]


def accuracy(network: nn.Module, images: Images, batch_size: int = 500) -> float:
    """Return the percentage of images whose largest logit is that of their label.

    Args:
        network: Evaluated in its ``eval()`` mode, and left in training mode.
        images: Images with their labels.
        batch_size: Images at a time.
    """
    return 100 * float((predict(network, images, batch_size).argmax(1) == images.labels).float().mean())


def predict(network: nn.Module, images: Images, batch_size: int = 500) -> Tensor:
    """Return the logits of all images, on the CPU.

    Args:
        network: Evaluated in its ``eval()`` mode, and left in training mode.
        images: The images.
        batch_size: Images at a time.
    """
    device = next(network.parameters()).device
    network.eval()
    with torch.no_grad():
        parts = [network(normalize(part.to(device))).cpu() for part in torch.split(images.pixels, batch_size)]
    network.train()
    return torch.cat(parts)


def _augmented(pixels: Tensor, index: Tensor, augment: bool, seed: int, epoch: int, step: int) -> Tensor:
    chosen = pixels[index.to(pixels.device)]
    return crop_and_flip(chosen, make_generator(seed, epoch, step)) if augment else chosen


def _batches(samples: int, batch_size: int, seed: int, epoch: int) -> Iterator[Tensor]:
    """Yield the batches of all processes; each leaves at least two samples for every process."""
    least = 2 * distributed.world_size()
    return (index for index in shuffled_batches(samples, batch_size, seed, epoch) if len(index) >= least)


def _own_part(batch: Tensor) -> Tensor:
    """Return this process's part of a batch."""
    return batch[distributed.rank() :: distributed.world_size()]


def _distributed_data_parallel(network: nn.Module, device: torch.device) -> nn.Module:
    if distributed.world_size() == 1:
        return network
    if device.type == "cuda":
        network = nn.SyncBatchNorm.convert_sync_batchnorm(network)  # type: ignore[no-untyped-call]
    return DistributedDataParallel(network, [device.index] if device.type == "cuda" else None)


def _device() -> torch.device:
    if not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)) % torch.cuda.device_count())


def _anneal(optimizer: torch.optim.Optimizer, largest: float, progress: float) -> None:
    """Set the step size on half a cosine from the largest to 0."""
    for group in optimizer.param_groups:
        group["lr"] = largest * (1 + math.cos(math.pi * progress)) / 2
