"""The paper's theory made visible (section 5): ``inlier reproduce theory``.

Lemma 2 (:mod:`theory_variance`), the regions of Theorems 1 to 3 (:mod:`theory_regions`), convergence as it
is seen and Remarks 3 and 4 (:mod:`theory_convergence`). What makes sense for other models can be called on
them:

    variance_of_descent_direction(gradients, weights)     # Lemma 2's left side, from per-sample gradients
    lemma_2(gradients, clean_gradients, outlier, weights) # both sides, and how far the assumptions hold
    outlier_energy(outlier_gradients, outlier, weights)   # what the regions bound
    loss_landscape(model_a, model_b, loss_fn)             # the loss between two models
    conformal_threshold(losses, level)                    # Remark 4
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from inlier import kernels
from inlier.experiments import Experiment, Row
from inlier.experiments.landscape import interpolate, loss_landscape
from inlier.experiments.regression_data import RegressionData, draw, least_squares
from inlier.experiments.regression_runner import Rule, Schedule
from inlier.experiments.theory_convergence import conformal_threshold, coverage, reached, starting_points
from inlier.experiments.theory_figures import figures
from inlier.experiments.theory_regions import CURVES, assumptions, problem, regions, weights_at
from inlier.experiments.theory_variance import (
    LemmaTwo,
    lemma_2,
    outlier_energy,
    variance_of_descent_direction,
)

__all__ = [
    "EXPERIMENT",
    "assumptions",
    "conformal_threshold",
    "coverage",
    "interpolate",
    "lemma_2",
    "loss_landscape",
    "outlier_energy",
    "reached",
    "regions",
    "variance_of_descent_direction",
]

RULES = {
    "sgd": Rule("sgd"),
    "adaptive-tl": Rule("adaptive", "truncated"),
    "adaptive-gm": Rule("adaptive", "geman-mcclure"),
    "adaptive-t-gm": Rule("adaptive", "geman-mcclure", held=True),
}
DISTANCES = {"near": 0.1, "far": 2.0}
"""How far from the outlier-free optimum Lemma 2 is measured, in every coordinate (standard deviation)."""

PRESETS: dict[str, dict[str, Any]] = {
    "paper": {
        "rates": [tenth / 10 for tenth in range(10)],
        "seeds": 2,
        "places": 100,
        "points": 51,
        "starts": 5,
        "steps": 50_000,
        "update_every": 500,
        "step_sizes": [0.001, 0.003, 0.01, 0.03, 0.1],
        "epsilon": 0.001,
    },
    "cpu": {
        "rates": [0.0, 0.2, 0.4, 0.6, 0.8],
        "seeds": 1,
        "places": 50,
        "points": 41,
        "starts": 5,
        "steps": 20_000,
        "update_every": 500,
        "step_sizes": [0.003, 0.01, 0.03],
        "epsilon": 0.001,
    },
    "smoke": {
        "rates": [0.0, 0.4],
        "seeds": 1,
        "places": 5,
        "points": 15,
        "starts": 2,
        "steps": 2000,
        "update_every": 500,
        "step_sizes": [0.01],
        "epsilon": 0.001,
    },
}


def batches(waiting: Sequence[Row], jobs: int) -> list[list[Row]]:
    """Return a unit of work for each trial: all of its methods and rates advance together."""
    return [[row for row in waiting if row.seed == seed] for seed in sorted({row.seed for row in waiting})]


def compute(unit: Sequence[Row]) -> Iterator[tuple[Row, Mapping[str, float]]]:
    """Yield for each row both sides of Lemma 2 and the part of starting points that reach the optimum."""
    torch.set_num_threads(1)
    for seed in sorted({row.seed for row in unit}):
        of_seed = [row for row in unit if row.seed == seed]
        arrived = _arrivals(of_seed, seed)
        for row in of_seed:
            metrics = {name: share[row.method, row.rate] for name, share in arrived.items()}
            if not RULES[row.method].held:
                metrics |= _lemma_metrics(row)
            yield row, metrics


def _arrivals(unit: Sequence[Row], seed: int) -> dict[str, dict[tuple[str, float], float]]:
    """By step size: the part of starting points from which each method at each rate arrives."""
    settings = unit[0].settings
    methods = list(dict.fromkeys(row.method for row in unit))
    rates = list(dict.fromkeys(row.rate for row in unit))
    problems = [problem(CURVES["linear"], rate, seed) for rate in rates]
    found = {}
    for step_size in settings["step_sizes"]:
        there = reached(
            problems,
            [RULES[method] for method in methods],
            starting_points(settings["starts"]),
            Schedule(settings["steps"], step_size, settings["update_every"]),
            settings["epsilon"],
            seed,
        )
        shares = there.double().mean(-1).tolist()
        found[f"reached_{step_size:g}"] = {
            (method, rate): shares[i][j] for i, method in enumerate(methods) for j, rate in enumerate(rates)
        }
    return found


def _lemma_metrics(row: Row) -> dict[str, float]:
    """Both sides of Lemma 2 (for eta = 1) at places near to and far from the outlier-free optimum."""
    data = draw(row.rate, row.seed)
    best = least_squares(data.x, data.clean_y)
    generator = torch.Generator().manual_seed(row.seed)
    metrics: dict[str, float] = {}
    for where, distance in DISTANCES.items():
        shape = (row.settings["places"], len(best))
        places = best + distance * torch.randn(shape, generator=generator, dtype=torch.float64)
        seen = [_lemma_at(data, w, RULES[row.method]) for w in places]

        def mean(name: str, seen: Sequence[LemmaTwo] = seen) -> float:
            return float(torch.tensor([getattr(one, name) for one in seen]).double().mean())

        metrics |= {f"{name}_{where}": mean(name) for name in ("variance", "error", "printed_bound", "bound")}
        metrics |= {f"{name}_{where}": mean(name) for name in ("large", "dominant", "mean_ratio")}
        fails = [one.variance > one.printed_bound for one in seen]
        metrics[f"printed_bound_fails_{where}"] = sum(fails) / len(seen)
        fails = [one.variance > one.bound for one in seen]
        metrics[f"bound_fails_{where}"] = sum(fails) / len(seen)
    return metrics


def _lemma_at(data: RegressionData, w: Tensor, rule: Rule) -> LemmaTwo:
    residual, clean_residual = data.x @ w - data.y, data.x @ w - data.clean_y
    weights = None
    if rule.kind == "adaptive":
        losses = residual.square()
        weights = weights_at(losses[None], kernels.get(rule.kernel), data.inlier_fraction)[0]
    return lemma_2(
        2 * residual[:, None] * data.x, 2 * clean_residual[:, None] * data.x, data.outlier, weights
    )


EXPERIMENT = Experiment(
    name="theory",
    description="Lemma 2, Theorems 1 to 3 and Remarks 3 and 4: variances, regions and arrivals",
    methods=tuple(RULES),
    presets=PRESETS,
    metric="reached_0.01",
    compute=compute,
    figures=figures,
    batches=batches,
)
