"""What Robust adds to a training step, to memory, and to the step in which the scale is solved."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from itertools import cycle

import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.timing import over_first
from inlier import Robust
from inlier.labels import PASSES
from inlier.vision import networks


class Block(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(x + self.body(x))


def compact_cnn() -> nn.Module:
    """A residual CNN for 32 x 32 images that two cores can train."""
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        Block(16),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 1),
        Block(32),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 1),
        Block(64),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, 10),
    )


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10))


Reduce = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""From losses and logits to one number."""


def steps(
    model: nn.Module, x: torch.Tensor, y: torch.Tensor, reductions: dict[str, Reduce]
) -> dict[str, Callable[[], None]]:
    """One training step of SGD with momentum, from batch to new weights, for each reduction.

    All train the same network: two of the same kind differ by up to a tenth, by where they lie in memory.
    """
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)

    def once(reduce: Reduce) -> None:
        optimizer.zero_grad(set_to_none=True)
        logits = model(x)
        reduce(F.cross_entropy(logits, y, reduction="none"), logits).backward()
        optimizer.step()

    return {name: partial(once, reduce) for name, reduce in reductions.items()}


def compare(
    name: str, model: nn.Module, x: torch.Tensor, goal: float, rounds: int, repeat: int
) -> list[dict[str, object]]:
    """A robust step over a plain one, for each way to call Robust; updates are in, as they come."""
    batch, samples = len(x), 50_000
    y = torch.randint(10, (batch,))
    numbers = torch.randperm(samples)[:batch]
    reductions: dict[str, Reduce] = {"plain": lambda f, _: f.mean()}
    for fraction in ("auto", 0.7):
        for index in (False, True):
            robust = Robust(inlier_fraction=fraction, samples=samples)  # type: ignore[arg-type]
            # Past the warm-up, with a full window: what most steps of a training are like.
            for _ in range(robust.warmup):
                robust(torch.rand(batch), numbers if index else None)
            call = (lambda f, _, r=robust: r(f, numbers)) if index else (lambda f, _, r=robust: r(f))
            reductions[f"fraction {fraction}, {'with' if index else 'no'} index"] = call
    return table(name, steps(model, x, y, reductions), goal, rounds, repeat)


def compare_labels(rounds: int, repeat: int) -> list[dict[str, object]]:
    """The same for labels and logits, with the network of the classification experiment."""
    x, y, samples = torch.randn(128, 3, 32, 32), torch.randint(10, (128,)), 78 * 128
    reductions: dict[str, Reduce] = {"plain": lambda f, _: f.mean()}
    for when in ("while samples are held out", "later"):
        robust = Robust(samples=samples)
        # Estimates come at the end of a pass, so passes have to be as long as they are.
        batches = cycle(torch.randperm(samples).split(128))
        if when == "later":
            robust.held_out.state.copy_(torch.tensor([PASSES, 0.7, 0.0]))
        reductions[when] = lambda f, logits, r=robust, b=batches: r(f, next(b), labels=y, logits=logits)
    functions = steps(networks.get("compact", 10), x, y, reductions)
    return table("compact CNN of the experiment, labels and logits", functions, 1.03, rounds, repeat)


def table(
    name: str, functions: dict[str, Callable[[], None]], goal: float, rounds: int, repeat: int
) -> list[dict[str, object]]:
    """Rows of a table: each function's time over that of the plain step."""
    ratios = over_first(functions, rounds, repeat)
    return [
        {"what": f"{name}: {key}, robust step / plain step", "measured": value, "goal": goal}
        for key, value in ratios.items()
    ]


def update_cost() -> float:
    """Milliseconds of one update with a window of 10^6 losses, estimates of the fraction included."""
    robust = Robust(window=10**6, update_every=10**9)
    robust(torch.rand(10**6))
    # Past the wide searches of the beginning; later ones are rare (one in a thousand updates).
    robust.window.rounds = 1000
    robust.window.update(1.0)
    rounds = 100
    seconds = 0.0
    for _ in range(rounds):
        robust(torch.rand(1000))
        begin = time.perf_counter()
        robust.window.update(1.0)
        seconds += time.perf_counter() - begin
    return 1000 * seconds / rounds


def memory_per_sample() -> float:
    robust = Robust(samples=100_000)
    robust(torch.rand(10), torch.arange(10))
    return sum(buffer.numel() * buffer.element_size() for buffer in robust.memory.buffers()) / 100_000


def run(quick: bool = False) -> list[dict[str, object]]:
    """Overheads as ratios, and what they were meant to stay under."""
    torch.manual_seed(0)
    # Updates come every 20 steps, estimates of the fraction every 200: a repeat holds them, or (where steps
    # are so long that estimates hardly count) the updates.
    rounds = 3 if quick else 15
    rows = compare("compact CNN, batch 128", compact_cnn(), torch.randn(128, 3, 32, 32), 1.03, rounds, 20)
    rows += compare_labels(rounds, 20)
    rows += compare("two-layer MLP, batch 256", mlp(), torch.randn(256, 784), 1.25, rounds, 200)
    rows.append(
        {"what": "bytes of memory per sample with an index", "measured": memory_per_sample(), "goal": 12}
    )
    rows.append({"what": "update with a window of 10^6 losses, ms", "measured": update_cost(), "goal": 5})
    return rows
