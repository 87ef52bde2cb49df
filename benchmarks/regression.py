"""The speed of all regressions in one program against one at a time: `python -m benchmarks.regression`.

The simple loop is what one would write: a linear model, autograd, torch.optim.SGD and, for adaptive methods,
inlier.Robust, one sample per step. Times are per step of one run. What counts is their ratio, within one
process; the best of several repetitions each, since other load only ever adds time.
"""

from __future__ import annotations

import json
import time

import torch

import inlier
from inlier.experiments.regression.data import RegressionData, draw
from inlier.experiments.regression.experiment import STOCHASTIC
from inlier.experiments.regression.runner import Schedule, StepRule
from inlier.experiments.regression.runner import run as run_batched

RATES = [tenth / 10 for tenth in range(10)]
SEEDS = range(5)


def simple_loop(data: RegressionData, rule: StepRule, steps: int, step_size: float = 7e-4) -> torch.Tensor:
    model = torch.nn.Linear(data.x.shape[1], 1, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=step_size)
    x, y = data.x.float(), data.y.float()
    robust = None
    if rule.kind == "adaptive":
        robust = inlier.Robust(rule.kernel, max(data.inlier_fraction, 0.05), update_every=100, warmup=0)
    for i in torch.randint(len(y), (steps,)).tolist():
        losses = (model(x[i]) - y[i]).square()
        loss = losses.sum() if robust is None else robust(losses)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.weight.detach()


def seconds_each(repeats: int, *tasks: tuple) -> list[float]:
    """Return the best time of each (function, arguments...), repeated in turn."""
    best = [float("inf")] * len(tasks)
    for _ in range(repeats):
        for number, (function, *arguments) in enumerate(tasks):
            start = time.perf_counter()
            function(*arguments)
            best[number] = min(best[number], time.perf_counter() - start)
    return best


def run(steps: int = 2000, repeats: int = 3) -> dict[str, float]:
    """Return the microseconds per step of one run of both, and their ratio."""
    torch.set_num_threads(1)
    problems, seeds = [draw(rate, seed) for rate in RATES for seed in SEEDS], list(SEEDS) * len(RATES)
    # Estimating the fraction costs the same in both: it is left out of both.
    rules = [rule for rule in STOCHASTIC.values() if not rule.auto]
    adaptive = sum(rule.kind == "adaptive" for rule in rules) / len(rules)
    batched, sgd, robust = seconds_each(
        repeats,
        (run_batched, problems, seeds, rules, Schedule(steps, update_every=100)),
        (simple_loop, problems[20], STOCHASTIC["sgd"], steps),
        (simple_loop, problems[20], STOCHASTIC["adaptive-gm"], steps),
    )
    runs = len(problems) * len(rules)
    simple = (1 - adaptive) * sgd + adaptive * robust
    micro = 1e6 / steps
    return {
        "runs": runs,
        "batched_us_per_step": batched * micro,
        "batched_us_per_run_step": batched * micro / runs,
        "simple_sgd_us_per_run_step": sgd * micro,
        "simple_adaptive_us_per_run_step": robust * micro,
        "ratio": simple * runs / batched,
    }


if __name__ == "__main__":
    print(json.dumps(run(), indent=1))
