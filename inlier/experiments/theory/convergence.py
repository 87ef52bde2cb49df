"""Empirical convergence: from which starting points a method reaches the outlier-free optimum.

And Remark 4: what the truncated kernel keeps, as a conformal prediction set.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from inlier.experiments.regression.data import RegressionData, least_squares
from inlier.experiments.regression.runner import Schedule, StepRule, run
from inlier.experiments.theory.regions import CURVES
from inlier.scale import solve_scale

__all__ = ["conformal_threshold", "coverage", "reached", "starting_points"]


def starting_points(per_side: int) -> Tensor:
    """Return a grid of per_side^2 starting points in the window of the linear model, [points, 2]."""
    return CURVES["linear"].grid(per_side)


def reached(
    problems: Sequence[RegressionData],
    rules: Sequence[StepRule],
    starts: Tensor,
    schedule: Schedule,
    epsilon: float = 1e-3,
    seed: int = 0,
) -> Tensor:
    """Return which starting points end at the outlier-free optimum: f_I(w) - f_I* < epsilon.

    All methods, problems and starting points run as one program.

    Args:
        problems: Problems of one size, one per outlier rate, say.
        rules: The methods.
        starts: Starting points, [points, k].
        schedule: Step size and number of steps.
        epsilon: The excess loss allowed; the error of inliers is 0.01, the square of their noise.
        seed: Seeds the order of samples; each starting point has its own order.

    Returns:
        Booleans, [methods, problems, points].

    Example:
        >>> from inlier.experiments.theory.regions import CURVES, problem
        >>> data = problem(CURVES["linear"], rate=0.4)
        >>> rules = [StepRule("sgd"), StepRule("adaptive", "geman-mcclure")]
        >>> converged = reached([data], rules, starting_points(3), Schedule(4000, step_size=0.02))
        >>> converged.double().mean((1, 2))
        tensor([0., 1.], dtype=torch.float64)

    Reference: Theorems 1 and 2.
    """
    points = len(starts)
    copies = [data for data in problems for _ in range(points)]
    seeds = [seed + point for _ in problems for point in range(points)]
    first = starts.T.repeat(1, len(problems)).unsqueeze(1).expand(-1, len(rules), -1)
    w = run(copies, seeds, rules, schedule, start=first.float()).w.double()
    w = w.view(len(rules), len(problems), points, -1)
    found = []
    for number, data in enumerate(problems):
        best = least_squares(data.x, data.clean_y)
        # f_I is quadratic: its excess over the optimum is the mean squared change of predictions.
        excess = ((w[:, number] - best) @ data.x.T).square().mean(-1)
        found.append(excess < epsilon)
    return torch.stack(found, dim=1)


def conformal_threshold(losses: Tensor, level: float) -> float:
    """Return the threshold of split conformal prediction: the ceil((n + 1) level)-th smallest loss.

    A new sample of the same distribution has a loss of at most this with a probability of at least ``level``,
    whatever the model and the distribution, if the model was not fitted to these samples.

    Args:
        losses: n losses of samples that the model was not fitted to.
        level: The coverage wanted, in (0, 1).

    Returns:
        The threshold; infinite if n is too small for the level.

    Example:
        >>> import torch
        >>> conformal_threshold(torch.tensor([4.0, 1.0, 3.0, 2.0]), 0.6)
        3.0

    Reference: G. Shafer, V. Vovk (2008), A tutorial on conformal prediction, JMLR 9; Remark 4 of the paper.
    """
    rank = math.ceil((len(losses) + 1) * level - 1e-9)
    return float(losses.sort().values[rank - 1]) if rank <= len(losses) else math.inf


def coverage(data: RegressionData, fresh: RegressionData, w: Tensor, level: float) -> tuple[float, float]:
    """Return the part of new losses below the truncated kernel's scale, and below the conformal threshold.

    Args:
        data: What w was fitted to: the scale is solved from it, as in the alternation.
        fresh: New data of the same distribution: one half calibrates the threshold, the other measures
            coverage.
        w: The model.
        level: zeta.

    Returns:
        Coverage of the adaptive scale, and of split conformal prediction.

    Reference: Remark 4.
    """
    losses, new = ((part.y - part.x @ w).square() for part in (data, fresh))
    scale = float(solve_scale(losses, "truncated", level))
    calibration, test = new[::2], new[1::2]
    threshold = conformal_threshold(calibration, level)
    return float((test <= scale).double().mean()), float((test <= threshold).double().mean())
