"""Convergence seen, not derived: from which starting points a method reaches the outlier-free optimum.

And Remarks 3 and 4: what the truncated kernel keeps, as a trimmed set and as a conformal prediction set.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from inlier.experiments.regression_data import RegressionData, least_squares
from inlier.experiments.regression_runner import Rule, Schedule, run
from inlier.experiments.theory_regions import CURVES
from inlier.scale import solve_scale

__all__ = ["conformal_threshold", "coverage", "reached", "starting_points"]


def starting_points(per_side: int) -> Tensor:
    """Return per_side^2 starting points all over the window of the linear model, [points, 2]."""
    return CURVES["linear"].grid(per_side)


def reached(
    problems: Sequence[RegressionData],
    rules: Sequence[Rule],
    starts: Tensor,
    schedule: Schedule,
    epsilon: float = 1e-3,
    seed: int = 0,
) -> Tensor:
    """Return from where each method reaches the outlier-free optimum: f_I(w) - f_I* < epsilon in the end.

    All methods, problems and starting points advance as one program.

    Args:
        problems: Problems of one size, one for each outlier rate, say.
        rules: The methods.
        starts: Starting points, [points, k].
        schedule: The step size, and for how long.
        epsilon: How near is near; the error of inliers is 0.01, the square of their noise.
        seed: The order of samples; each starting point has its own.

    Returns:
        Booleans, [methods, problems, points].

    Example:
        >>> from inlier.experiments.theory_regions import CURVES, problem
        >>> data = problem(CURVES["linear"], rate=0.4)
        >>> rules = [Rule("sgd"), Rule("adaptive", "geman-mcclure")]
        >>> there = reached([data], rules, starting_points(3), Schedule(10_000, step_size=0.01))
        >>> there.double().mean((1, 2))
        tensor([0., 1.], dtype=torch.float64)

    Reference: Theorems 1 and 2, whose promise this is.
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

    A new sample from where these came has a loss of at most this with a probability of at least ``level``,
    whatever the model and the distribution, if the model has not seen these samples.

    Args:
        losses: n losses of samples that the model was not fitted to.
        level: The coverage asked for, in (0, 1).

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
    """Return which part of fresh losses lies below the truncated kernel's scale, and below the conformal one.

    Args:
        data: What w was fitted to: the scale is solved on it, as the alternation does.
        fresh: New data of the same kind: one half calibrates the conformal threshold, the other is covered.
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
