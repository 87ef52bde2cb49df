"""The paper's theory, measured (section 5): ``inlier reproduce theory``.

Lemma 2 (:mod:`~.variance`), the regions of Theorems 1 to 3 (:mod:`~.regions`), empirical convergence and
Remark 4 (:mod:`~.convergence`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from inlier import kernels
from inlier.experiments.regression.data import RegressionData, draw, least_squares
from inlier.experiments.regression.runner import Schedule, StepRule
from inlier.experiments.sweep import Experiment, Row
from inlier.experiments.theory.convergence import reached, starting_points
from inlier.experiments.theory.figures import figures
from inlier.experiments.theory.regions import CURVES, problem, weights_at
from inlier.experiments.theory.variance import LemmaTwo, lemma_2

__all__ = ["EXPERIMENT", "METHODS"]

METHODS = {
    "sgd": StepRule("sgd"),
    "adaptive-tl": StepRule("adaptive", "truncated"),
    "adaptive-gm": StepRule("adaptive", "geman-mcclure"),
    "adaptive-t-gm": StepRule("adaptive", "geman-mcclure", held=True),
}
DISTANCES = {"near": 0.1, "far": 2.0}
"""Standard deviations, in every coordinate, of the points around the outlier-free optimum for Lemma 2."""

PRESETS: dict[str, dict[str, Any]] = {
    "paper": {
        "rates": [tenth / 10 for tenth in range(10)],
        "seeds": 2,
        "random_points": 100,
        "grid_points": 51,
        "starts": 5,
        "steps": 50_000,
        "update_every": 500,
        "step_sizes": [0.001, 0.003, 0.01, 0.03, 0.1],
        "epsilon": 0.001,
    },
    "cpu": {
        "rates": [0.0, 0.2, 0.4, 0.6, 0.8],
        "seeds": 1,
        "random_points": 50,
        "grid_points": 41,
        "starts": 5,
        "steps": 20_000,
        "update_every": 500,
        "step_sizes": [0.003, 0.01, 0.03],
        "epsilon": 0.001,
    },
    "smoke": {
        "rates": [0.0, 0.4],
        "seeds": 1,
        "random_points": 5,
        "grid_points": 15,
        "starts": 2,
        "steps": 2000,
        "update_every": 500,
        "step_sizes": [0.01],
        "epsilon": 0.001,
    },
}


def batches(waiting: Sequence[Row], jobs: int) -> list[list[Row]]:
    """Return a unit of work per trial: all of its methods and rates run at once."""
    return [[row for row in waiting if row.seed == seed] for seed in sorted({row.seed for row in waiting})]


def compute(unit: Sequence[Row]) -> Iterator[tuple[Row, Mapping[str, float]]]:
    """Yield for each row both sides of Lemma 2 and the part of starting points that converge."""
    torch.set_num_threads(1)
    for seed in sorted({row.seed for row in unit}):
        of_seed = [row for row in unit if row.seed == seed]
        converged = _converged_shares(of_seed, seed)
        for row in of_seed:
            metrics = {name: share[row.method, row.rate] for name, share in converged.items()}
            if not METHODS[row.method].held:
                metrics |= _lemma_metrics(row)
            yield row, metrics


def _converged_shares(unit: Sequence[Row], seed: int) -> dict[str, dict[tuple[str, float], float]]:
    """By step size: the part of starting points from which each method converges at each rate."""
    settings = unit[0].settings
    methods = list(dict.fromkeys(row.method for row in unit))
    rates = list(dict.fromkeys(row.rate for row in unit))
    problems = [problem(CURVES["linear"], rate, seed) for rate in rates]
    found = {}
    for step_size in settings["step_sizes"]:
        converged = reached(
            problems,
            [METHODS[method] for method in methods],
            starting_points(settings["starts"]),
            Schedule(settings["steps"], step_size, settings["update_every"]),
            settings["epsilon"],
            seed,
        )
        shares = converged.double().mean(-1).tolist()
        found[f"reached_{step_size:g}"] = {
            (method, rate): shares[i][j] for i, method in enumerate(methods) for j, rate in enumerate(rates)
        }
    return found


def _lemma_metrics(row: Row) -> dict[str, float]:
    """Both sides of Lemma 2 (for eta = 1) at points near to and far from the outlier-free optimum."""
    data = draw(row.rate, row.seed)
    best = least_squares(data.x, data.clean_y)
    generator = torch.Generator().manual_seed(row.seed)
    metrics: dict[str, float] = {}
    for where, distance in DISTANCES.items():
        shape = (row.settings["random_points"], len(best))
        points = best + distance * torch.randn(shape, generator=generator, dtype=torch.float64)
        sides = [_lemma_at(data, w, METHODS[row.method]) for w in points]

        def mean(name: str, sides: Sequence[LemmaTwo] = sides) -> float:
            return float(torch.tensor([getattr(one, name) for one in sides]).double().mean())

        metrics |= {f"{name}_{where}": mean(name) for name in ("variance", "error", "printed_bound", "bound")}
        metrics |= {f"{name}_{where}": mean(name) for name in ("large", "dominant", "mean_ratio")}
        fails = [one.variance > one.printed_bound for one in sides]
        metrics[f"printed_bound_fails_{where}"] = sum(fails) / len(sides)
        fails = [one.variance > one.bound for one in sides]
        metrics[f"bound_fails_{where}"] = sum(fails) / len(sides)
    return metrics


def _lemma_at(data: RegressionData, w: Tensor, rule: StepRule) -> LemmaTwo:
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
    description="Lemma 2, Theorems 1 to 3 and Remark 4: variances, regions and convergence",
    methods=tuple(METHODS),
    presets=PRESETS,
    metric="reached_0.01",
    compute=compute,
    figures=figures,
    batches=batches,
)
