"""How much faster all regressions advance together than one at a time: `python -m benchmarks.regression`.

The plain loop is what one would write: a linear model, autograd, torch.optim.SGD and, for adaptive methods,
inlier.Robust, one sample a step. Times are per step of one run. What counts is their ratio, taken within one
process while nothing else changes; the best of several rounds each, for a busy machine only ever adds time.
"""

from __future__ import annotations

import json
import time

import torch

import inlier
from inlier.experiments.regression import RULES
from inlier.experiments.regression_data import RegressionData, draw
from inlier.experiments.regression_runner import Rule, Schedule
from inlier.experiments.regression_runner import run as run_together

RATES = [tenth / 10 for tenth in range(10)]
SEEDS = range(5)


def plain_loop(data: RegressionData, rule: Rule, steps: int, step_size: float = 7e-4) -> torch.Tensor:
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


def seconds_each(rounds: int, *tasks: tuple) -> list[float]:
    """Return the best time of each (function, arguments...), the rounds of all taken in turn."""
    best = [float("inf")] * len(tasks)
    for _ in range(rounds):
        for number, (function, *arguments) in enumerate(tasks):
            start = time.perf_counter()
            function(*arguments)
            best[number] = min(best[number], time.perf_counter() - start)
    return best


def run(steps: int = 2000, rounds: int = 3) -> dict[str, float]:
    """Measure both; return microseconds per step of one run, and their ratio."""
    torch.set_num_threads(1)
    problems, seeds = [draw(rate, seed) for rate in RATES for seed in SEEDS], list(SEEDS) * len(RATES)
    # Estimating the fraction is work that both ways share alike: it is left out of both.
    rules = [rule for rule in RULES.values() if not rule.auto]
    adaptive = sum(rule.kind == "adaptive" for rule in rules) / len(rules)
    together, sgd, robust = seconds_each(
        rounds,
        (run_together, problems, seeds, rules, Schedule(steps, update_every=100)),
        (plain_loop, problems[20], RULES["sgd"], steps),
        (plain_loop, problems[20], RULES["adaptive-gm"], steps),
    )
    runs = len(problems) * len(rules)
    plain = (1 - adaptive) * sgd + adaptive * robust
    micro = 1e6 / steps
    return {
        "runs": runs,
        "together_us_per_step": together * micro,
        "together_us_per_run_step": together * micro / runs,
        "plain_sgd_us_per_run_step": sgd * micro,
        "plain_adaptive_us_per_run_step": robust * micro,
        "ratio": plain * runs / together,
    }


if __name__ == "__main__":
    print(json.dumps(run(), indent=1))
