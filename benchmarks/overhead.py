"""What a robust loss adds to a training step, to memory, and to the step in which the scale is solved.

Each is compared with what it takes the place of: `Robust()(losses)` with `losses.mean()`, `RobustCrossEntropy()` with
`nn.CrossEntropyLoss()`. Steps of one network take turns, from the batch to new weights, updates and fits of mixtures
as they come. Processor time, median over rounds. [Operations](robust.md#operations) are counted, too.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from itertools import cycle

import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.timing import over_first
from inlier import Robust, RobustCrossEntropy
from inlier._vision import networks


def mlp(classes: int = 10) -> nn.Module:
    return nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, classes))


Criterion = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""From logits and targets to one number."""


def steps(
    model: nn.Module, x: torch.Tensor, y: torch.Tensor, criteria: dict[str, Criterion]
) -> dict[str, Callable[[], None]]:
    """One training step of SGD with momentum, from batch to new weights, for each criterion.

    All train the same network: two of the same kind differ by up to a tenth, by where they lie in memory.
    """
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)

    def once(criterion: Criterion) -> None:
        optimizer.zero_grad(set_to_none=True)
        criterion(model(x), y).backward()
        optimizer.step()

    return {name: partial(once, criterion) for name, criterion in criteria.items()}


def modes(batch: int, classes: int) -> dict[str, dict[str, Criterion]]:
    """Every way to call a robust loss, each long past its warm-up and first fits, as most steps of a training are.

    Returns:
        By name of what they take the place of, which comes first.
    """
    samples = 50_000
    y, groups = torch.randint(classes, (batch,)), torch.randint(8, (batch,))
    batches = cycle(torch.randperm(samples).split(batch)[:-1])
    each = partial(F.cross_entropy, reduction="none")
    of_losses: dict[str, Criterion] = {"mean": lambda z, y: each(z, y).mean()}
    calls: dict[str, Callable[[Robust, torch.Tensor], torch.Tensor]] = {
        "losses": lambda r, f: r(f),
        "index": lambda r, f: r(f, next(batches)),
        "index and groups": lambda r, f: r(f, next(batches), groups),
        "index and mask": lambda r, f: r(f, next(batches), mask=f > 0),
    }
    for name, call in calls.items():
        robust = Robust(samples=samples)
        for _ in range(10 * robust.warmup):
            call(robust, torch.rand(batch))
        of_losses[name] = lambda z, y, r=robust, c=call: c(r, each(z, y))
    # Predictions that agree with nine labels in ten, as of a network that has learned something.
    wrong = torch.rand(batch) < 0.1
    learned = 4 * F.one_hot(torch.where(wrong, (y + 1) % classes, y), classes)
    of_labels: dict[str, Criterion] = {"cross-entropy": nn.CrossEntropyLoss()}
    for name, index in (("class labels, no index", False), ("class labels and index", True)):
        criterion = RobustCrossEntropy(samples=samples)
        for _ in range(500):
            criterion(learned + torch.randn(batch, classes), y, next(batches) if index else None)
        of_labels[name] = lambda z, y, c=criterion, i=index: c(z, y, next(batches) if i else None)
    return {"losses.mean()": of_losses, "nn.CrossEntropyLoss()": of_labels}


def compare(
    name: str, model: nn.Module, x: torch.Tensor, goal: float, rounds: int, repeat: int
) -> list[dict[str, object]]:
    """Rows of a table: a robust step over an unweighted one, for each way to call a robust loss."""
    y = torch.randint(10, (len(x),))
    rows: list[dict[str, object]] = []
    for unweighted, criteria in modes(len(x), 10).items():
        ratios = over_first(steps(model, x, y, criteria), rounds, repeat)
        rows += [
            {"what": f"{name}: {key}, step / step with {unweighted}", "measured": value, "goal": goal}
            for key, value in ratios.items()
        ]
    return rows


def update_cost() -> float:
    """Milliseconds of a step that updates, with a window of 10^6 losses, estimates of the fraction included."""
    robust = Robust(window=10**6, update_every=1)
    robust(torch.rand(10**6))
    # Past the searches of the beginning; later ones are rare.
    for _ in range(300):
        robust(torch.rand(1000))
    steps = 100
    begin = time.process_time()
    for _ in range(steps):
        robust(torch.rand(1000))
    return 1000 * (time.process_time() - begin) / steps


def memory_per_sample(criterion: nn.Module, *call: torch.Tensor) -> float:
    """Bytes of a checkpoint for each sample."""
    criterion(*call)
    return sum(t.element_size() for t in criterion.state_dict().values() if t.shape == (100_000,))


def run(quick: bool = False) -> list[dict[str, object]]:
    """Overheads as ratios, and what they were meant to stay under."""
    torch.manual_seed(0)
    # Updates come every 20 steps, estimates of the fraction every 200: a repeat holds them, or (where steps
    # are so long that estimates hardly count) the updates.
    rounds = 3 if quick else 15
    cnn = networks.get("compact", 10)
    rows = compare("compact CNN, batch 128", cnn, torch.randn(128, 3, 32, 32), 1.03, rounds, 20)
    rows += compare("two-layer MLP, batch 256", mlp(), torch.randn(256, 784), 1.15, rounds, 200)
    ten = torch.arange(10)
    losses = Robust(samples=100_000), torch.rand(10), ten
    labels = RobustCrossEntropy(samples=100_000), torch.randn(10, 3), ten % 3, ten
    rows += [
        {
            "what": "bytes of memory a sample, losses with an index",
            "measured": memory_per_sample(*losses),
            "goal": 8,
        },
        {"what": "bytes of memory a sample, class labels", "measured": memory_per_sample(*labels), "goal": 8},
        {"what": "update with a window of 10^6 losses, ms", "measured": update_cost(), "goal": 5},
    ]
    return rows
