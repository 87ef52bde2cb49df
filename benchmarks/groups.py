"""Many groups: what an update costs, how much memory it takes, and how exact the scales are.

Groups share about 2^20 bins (:mod:`inlier.histogram`): few groups have fine bins, many have coarse ones, and very
many are solved on a grid. The error of c is that of the scales of 40 losses a group against exact solves. Steps
include the updates as they come; those of the MLP are whole ones, from the batch to new weights.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import cycle
from statistics import median

import torch
from torch.nn import functional as F

from benchmarks import overhead
from benchmarks.timing import over_first
from inlier import Robust, RobustCrossEntropy, kernels, solve_scale
from inlier.histogram import bin_numbers, bits_for
from inlier.scale import solve_scales

BATCH = 256


def step(robust: Robust, groups: int) -> None:
    numbers = torch.randint(groups, (BATCH,))
    robust(torch.rand(BATCH) * (1 + numbers), numbers, numbers)


def trained(groups: int, update_every: int) -> Robust:
    """Past the searches of the beginning."""
    robust = Robust(num_groups=groups, samples=groups, update_every=update_every, warmup=0)
    for _ in range(12 * update_every):
        step(robust, groups)
    return robust


def update_cost(groups: int, updates: int) -> float:
    """Milliseconds of an update: the median of a step that updates, less a step that does not."""
    robust = trained(groups, update_every=2)
    seconds: dict[int, list[float]] = {0: [], 1: []}
    for number in range(2 * updates):
        begin = time.process_time()
        step(robust, groups)
        seconds[number % 2].append(time.process_time() - begin)
    return 1000 * (median(seconds[1]) - median(seconds[0]))


def memory(groups: int) -> float:
    """Megabytes of the state."""
    state = trained(groups, update_every=2).state_dict()
    return sum(t.numel() * t.element_size() for t in state.values()) / 2**20


def training_steps(groups: int) -> dict[str, Callable[[], None]]:
    """Steps of the two-layer MLP with so many groups, and of the same network with so many classes."""
    robust, criterion = trained(groups, 20), RobustCrossEntropy(samples=50_000)
    labels, batches = torch.randint(groups, (50_000,)), cycle(torch.randperm(50_000).split(BATCH)[:-1])
    numbers = cycle([torch.randint(groups, (BATCH,)) for _ in range(10)])
    x, few = torch.randn(BATCH, 784), torch.randint(10, (BATCH,))

    def by_class(logits: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
        index = next(batches)
        return criterion(logits, labels[index], index)

    def unweighted(logits: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(logits, labels[next(batches)])

    def by_group(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        chosen = next(numbers)
        return robust(F.cross_entropy(logits, target, reduction="none"), chosen, chosen)

    of_groups = overhead.steps(overhead.mlp(), x, few, {"groups": by_group})
    of_classes = overhead.steps(
        overhead.mlp(groups),
        x,
        few,
        {"unweighted": unweighted, "classes": by_class},
    )
    return of_groups | of_classes


def error_of_c(groups: int, kernel: str) -> float:
    """The mean relative error of the scales of some of the groups."""
    torch.manual_seed(0)
    losses = torch.randn(groups, 40) ** 2 * torch.logspace(-2, 2, groups)[:, None]
    bits = bits_for(groups)
    counts = torch.zeros(groups, (255 << bits) + 1)
    counts.scatter_add_(1, bin_numbers(losses, bits).long(), torch.ones_like(losses))
    chosen = kernels.get(kernel)
    solved = solve_scales(counts, chosen, torch.full((groups,), 0.7))
    some = torch.arange(0, groups, max(groups // 100, 1))
    exact = torch.stack([solve_scale(losses[k].double(), chosen, 0.7) for k in some])
    return float((solved[some] / exact - 1).abs().mean())


def run(quick: bool = False) -> list[dict[str, object]]:
    """Rows of a table: what was measured, and its goal."""
    torch.manual_seed(0)
    updates = 5 if quick else 25
    rows: list[dict[str, object]] = []
    for groups, goal in ((10, None), (1000, 10), (10_000, 60)):
        cost = update_cost(groups, updates)
        rows.append({"what": f"update with {groups:,} groups, ms", "measured": cost, "goal": goal})
    few, many = trained(10, 20), trained(1000, 20)
    functions = {"few": lambda: step(few, 10), "many": lambda: step(many, 1000)}
    ratio = over_first(functions, 3 if quick else 15, 100)["many"]
    rows.append(
        {"what": "loss alone, mean step with 1,000 groups / with 10", "measured": ratio, "goal": None}
    )
    of_few, of_many = training_steps(10), training_steps(1000)
    rounds, repeat = (3, 40) if quick else (15, 100)
    ratio = over_first({"few": of_few["groups"], "many": of_many["groups"]}, rounds, repeat)["many"]
    what = "two-layer MLP, batch 256: mean step with 1,000 groups / with 10"
    rows.append({"what": what, "measured": ratio, "goal": 1.05})
    over_unweighted = [
        over_first({name: step for name, step in steps.items() if name != "groups"}, rounds, repeat)[
            "classes"
        ]
        for steps in (of_few, of_many)
    ]
    what = "two-layer MLP, batch 256: step / step with nn.CrossEntropyLoss(), with 1,000 classes / with 10"
    rows.append({"what": what, "measured": over_unweighted[1] / over_unweighted[0], "goal": 1.05})
    rows.append({"what": "memory with 10,000 groups, MB", "measured": memory(10_000), "goal": 100})
    for groups in (10, 1000, 10_000):
        for kernel in ("geman-mcclure", "truncated"):
            what = f"mean relative error of c, {groups:,} groups, {kernel}"
            rows.append({"what": what, "measured": error_of_c(groups, kernel), "goal": None})
    return rows


if __name__ == "__main__":
    for row in run(quick=True):
        print(row)
