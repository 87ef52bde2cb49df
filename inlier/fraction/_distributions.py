"""The distributions that log losses may follow, fitted by maximum likelihood.

Losses are taken as a histogram of x = log loss. Two kinds of distribution are fitted to it, each with some of its
parameters tied and with none:

- one group, ``exp(s u - b u^2 - exp(r u))`` with ``u = x - m``, up to a constant: with b = 0 ("straight") the
  generalized gamma distribution, with b > 0 ("bent") its left tail falls faster;
- two groups of generalized gamma distributions, with one Gamma shape for both, or with nothing in common.

Reference: E. W. Stacy (1962), A generalization of the gamma distribution; R. L. Prentice (1974), A log gamma
model and its maximum likelihood estimation.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from inlier.histogram import LossHistogram

__all__ = ["Fits", "LogBins", "LogDensity", "fit_one_group", "fit_two_groups", "log_bins"]

BINS = 256
REACH = (
    30.0  # A loss more than a factor exp(30) below the median is surely an inlier, one above it an outlier.
)
COLD_STEPS, WARM_STEPS = 60, 4
TRIAL_STEPS, FINALISTS = 12, 3  # After 12 steps of a search, the best 3 starts of each kind go on.

# The parameters of a mixture: location, log spread, log skew of either group, logit of the first one's share.
# Columns say which of them move together: with spread = skew it is a Gamma distribution, and both share one shape.
ONE_SHAPE = torch.zeros(7, 7, dtype=torch.float64)
ONE_SHAPE[[0, 3, 1, 2, 4, 5, 6], [0, 1, 2, 2, 2, 2, 3]] = 1.0
TWO_SHAPES = torch.eye(7, dtype=torch.float64)
# The parameters of one group: location, slope, log bend, log rate. The bend of a straight group stays near 0.
BENT = torch.eye(4, dtype=torch.float64)
STRAIGHT = torch.diag(torch.tensor([1.0, 1.0, 0.0, 1.0], dtype=torch.float64))
# A squared scalar has log skew log(2) / 2. Sharper losses (confident classifiers) are not squared errors.
SCALAR = math.log(2) / 2
SHARPEST = SCALAR + 0.01

Evaluation = tuple[Tensor, Tensor, Tensor]
"""Log-likelihood, its gradient and the Fisher information, each for a batch of parameter vectors."""


@dataclass(frozen=True)
class LogDensity:
    """A density of x = log loss: ``exp(slope u - bend u^2 - exp(rate u) - log_norm)``, ``u = x - location``.

    With bend 0 it is the generalized gamma distribution: ``exp(rate u)`` then follows Gamma(slope / rate).

    Example:
        >>> import torch
        >>> from inlier.fraction import LogDensity
        >>> exponential = LogDensity(location=0.0, slope=1.0, bend=0.0, rate=1.0, log_norm=0.0)
        >>> exponential.log_density(torch.tensor([0.0]))  # e^x exp(-e^x) at x = 0
        tensor([-1.])
    """

    location: float
    slope: float
    bend: float
    rate: float
    log_norm: float

    def log_density(self, log_loss: Tensor) -> Tensor:
        """Return the log of the density of x = log loss, with respect to x."""
        u = log_loss - self.location
        return self.slope * u - self.bend * u * u - (self.rate * u).exp() - self.log_norm

    @property
    def mode(self) -> float:
        """The most probable log loss, for bend 0."""
        return self.location + math.log(self.slope / self.rate) / self.rate


class LogBins(NamedTuple):
    """Log losses and how many losses each of them stands for, with their mean and standard deviation."""

    x: Tensor
    counts: Tensor
    sure_inliers: float
    total: float
    mean: float
    deviation: float


class Fits(NamedTuple):
    """The best fit with tied and with untied parameters: parameters, log-likelihood, Fisher information."""

    theta: Tensor
    likelihood: Tensor
    information: Tensor


def log_bins(histogram: LossHistogram) -> LogBins:
    """Return the histogram of the log losses, coarsened to BINS bins, each at the mean of its losses."""
    counts = histogram.counts.to("cpu", torch.float64)
    used = counts[:-1].nonzero().squeeze(1)
    x, count = histogram.values[used].log(), counts[used]
    if len(x) == 0 and counts[-1] == 0:
        raise ValueError("losses is empty: an inlier fraction needs at least one loss")
    if len(x) == 0:
        raise ValueError(f"losses has {int(counts[-1])} values and none is finite: look for a diverged model")
    tally = torch.where(x.isfinite(), count, 0.0).cumsum(0)
    median = float(x[torch.searchsorted(tally, tally[-1] / 2)]) if tally[-1] > 0 else 0.0
    inside = (x - median).abs() <= REACH
    sure, total = float(count[x < median - REACH].sum()), float(count.sum())
    x, count = x[inside], count[inside]
    if len(x) == 0:
        return LogBins(x, count, sure, total, 0.0, 1.0)
    number = ((x - x[0]) * (BINS / max(float(x[-1] - x[0]), 1e-3))).long()
    sums, tally = torch.bincount(number, count * x), torch.bincount(number, count)
    x, count = sums[tally > 0] / tally[tally > 0], tally[tally > 0]
    mean, deviation = _moments(x, count)
    return LogBins(x, count, sure, total, mean, max(deviation, 1e-3))


def _moments(x: Tensor, count: Tensor) -> tuple[float, float]:
    """Return the weighted mean and standard deviation."""
    share = count / count.sum().clamp(min=1e-9)
    mean = float(x @ share)
    return mean, math.sqrt(float((x - mean) ** 2 @ share))


def _starts_of_two_groups(bins: LogBins) -> tuple[Tensor, Tensor]:
    """Return starts: for one shape a grid of shapes, gaps and shares; for two, losses cut at quantiles."""
    rows = []
    for freedom in (1.0, 3.0, 8.0):
        shape = [math.log(2 / freedom) / 2] * 2
        mean = float(torch.digamma(torch.tensor(freedom / 2))) - math.log(freedom / 2)
        for gap in (3.2, 5.5):
            for share in (0.2, 0.5, 0.85):
                location = bins.mean - mean - (1 - share) * gap
                rows.append([location, *shape, location + gap, *shape, math.log(share / (1 - share))])
    ties = [ONE_SHAPE] * len(rows)
    below = (bins.counts.cumsum(0) - bins.counts / 2) / bins.counts.sum()
    for share in (0.15, 0.3, 0.5, 0.7, 0.9):
        cut = []
        for part in (below < share, below >= share):
            mean, deviation = _moments(bins.x, bins.counts * part)
            cut += [mean + 0.3 * deviation, math.log(max(deviation, 0.05 * bins.deviation)), -0.3]
        rows.append([*cut, math.log(share / (1 - share))])
        ties.append(TWO_SHAPES)
    return torch.tensor(rows, dtype=torch.float64), torch.stack(ties)


def _starts_of_one_group(bins: LogBins) -> tuple[Tensor, Tensor]:
    """Return starts: without bend (e^-12 of the variance is nearly none), and with a little and a lot of it."""
    scale = math.log(bins.deviation)
    rows = [
        [bins.mean, 1 / bins.deviation, bend - 2 * scale, rate - scale]
        for bend in (-12.0, -3.0, -0.8)
        for rate in (-0.5, 0.7)
    ]
    return torch.tensor(rows, dtype=torch.float64), torch.stack([STRAIGHT] * 2 + [BENT] * 4)


def fit_two_groups(bins: LogBins, start: Tensor | None = None) -> Fits:
    """Fit two groups: Gamma distributions of one shape, and generalized gamma distributions of two.

    Args:
        bins: The log losses.
        start: Parameters of an earlier fit, refined in a few steps; None searches from many starts.
    """
    if start is None:
        theta, ties = _starts_of_two_groups(bins)
    else:
        theta, ties = start, torch.stack((ONE_SHAPE, TWO_SHAPES))
    steps = COLD_STEPS if start is None else WARM_STEPS
    inf, narrowest = math.inf, math.log(bins.deviation) - 4
    tied_low = theta.new_tensor([-inf, -4.0, -4.0, -inf, -4.0, -4.0, -7.0])
    tied_high = theta.new_tensor([inf, SHARPEST, SHARPEST, inf, SHARPEST, SHARPEST, 7.0])
    low = theta.new_tensor([-inf, narrowest, -4.0, -inf, narrowest, -4.0, -7.0])
    high = theta.new_tensor([inf, 3.0, 2.0, inf, 3.0, 2.0, 7.0])
    tied = _is_tied(ties)[:, None]
    bounds = torch.where(tied, tied_low, low), torch.where(tied, tied_high, high)
    return _as_squared_scalars(bins, _climb(lambda *at: _mixture(bins, *at), theta, ties, bounds, steps))


def _as_squared_scalars(bins: LogBins, two: Fits) -> Fits:
    """Give two groups of one shape that of squared scalars, if theirs is near and Schwarz's criterion agrees.

    Squared scalar errors overlap most: knowing their shape halves the standard error of the share.
    """
    theta = two.theta[:1].clone()
    if abs(float(theta[0, 2]) - SCALAR) > 0.12:
        return two
    theta[:, [1, 2, 4, 5]] = SCALAR
    ties = ONE_SHAPE.clone().unsqueeze(0)
    ties[:, :, 2] = 0.0
    bounds = theta.new_full((7,), -math.inf), theta.new_full((7,), math.inf)
    scalars = _climb(lambda *at: _mixture(bins, *at), theta, ties, bounds, 3 * WARM_STEPS)
    if 2 * float(two.likelihood[0] - scalars.likelihood[0]) > math.log(float(bins.counts.sum())):
        return two
    return Fits(
        torch.stack((scalars.theta[0], two.theta[1])),
        two.likelihood,
        torch.stack((scalars.information[0], two.information[1])),
    )


def fit_one_group(bins: LogBins, start: Tensor | None = None) -> Fits:
    """Fit one group, straight and bent; ``start`` as in :func:`fit_two_groups`."""
    theta, ties = _starts_of_one_group(bins) if start is None else (start, torch.stack((STRAIGHT, BENT)))
    steps = COLD_STEPS if start is None else WARM_STEPS
    scale = math.log(bins.deviation)
    low = theta.new_tensor([-math.inf, -50 / bins.deviation, -12 - 2 * scale, -3 - scale])
    high = theta.new_tensor([math.inf, 50 / bins.deviation, 3 - 2 * scale, 2.5 - scale])
    grid = grid_of(bins)
    return _climb(lambda *at: _single(bins, grid, *at), theta, ties, (low, high), steps)


def _is_tied(ties: Tensor) -> Tensor:
    return ties.diagonal(dim1=1, dim2=2).sum(1) < ties.shape[1]


def grid_of(bins: LogBins) -> Tensor:
    """Return points over which a density sums to 1, cut off on the left where losses are."""
    left = float(bins.x[0]) - (0.0 if bins.sure_inliers else 6 * bins.deviation)
    return torch.linspace(left, float(bins.x[-1]) + 3 * bins.deviation, 300, dtype=torch.float64)


def _mixture(bins: LogBins, theta: Tensor, ties: Tensor) -> Evaluation:
    """Evaluate two generalized gamma distributions, ``exp(k (d - e^d))`` with ``d = skew (x - location) / spread``.

    In these parameters, Prentice's, with ``k = skew^-2``, the log-normal distribution is a smooth limit.
    """
    location, log_spread, log_skew = theta[:, :6].view(-1, 2, 3, 1).unbind(2)
    k = (-2 * log_skew).exp()
    rate = (log_skew - log_spread).exp()
    d = rate * (bins.x - location)
    power = d.clamp(max=60.0).exp()
    pull, bulk = k * (1 - power), k * (d - power)
    by_skew = 1 - 2 * k * (1 - 2 * log_skew - torch.digamma(k)) - 2 * bulk + pull * d
    by_shape = torch.stack((-pull * rate, -1 - pull * d, by_skew), dim=-1)
    log_share = torch.nn.functional.logsigmoid(torch.stack((theta[:, 6:], -theta[:, 6:]), dim=1))
    joint = log_skew - log_spread - 2 * k * log_skew - torch.lgamma(k) + bulk + log_share
    total = torch.logsumexp(joint, dim=1)
    posterior = (joint - total.unsqueeze(1)).exp()
    by_group = posterior.unsqueeze(-1) * by_shape
    by_logit = posterior[:, 0] - torch.sigmoid(theta[:, 6:])
    scores = torch.cat((by_group[:, 0], by_group[:, 1], by_logit.unsqueeze(-1)), dim=-1) @ ties
    weighted = scores * bins.counts.unsqueeze(-1)
    return total @ bins.counts, weighted.sum(1), weighted.transpose(1, 2) @ scores


def _single(bins: LogBins, grid: Tensor, theta: Tensor, ties: Tensor) -> Evaluation:
    """Evaluate one bent group; its norm, mean score and information are sums over a grid."""
    location, slope, log_bend, log_rate = theta.unsqueeze(-1).unbind(1)
    u = torch.cat((bins.x, grid)) - location
    bend = log_bend.exp() * u
    power = (log_rate.exp() * u).clamp(max=60.0).exp()
    log_density = slope * u - bend * u - power
    steep = log_rate.exp() * power
    scores = torch.stack((2 * bend + steep - slope, u, -bend * u, -u * steep), dim=-1) @ ties
    size, n = len(bins.x), bins.counts.sum()
    log_norm = torch.logsumexp(log_density[:, size:], dim=1, keepdim=True)
    probability = (log_density[:, size:] - log_norm).exp().unsqueeze(-1)
    mean = (probability * scores[:, size:]).sum(1, keepdim=True)
    scores = scores - mean
    likelihood = log_density[:, :size] @ bins.counts - n * (log_norm[:, 0] + (grid[1] - grid[0]).log())
    gradient = (scores[:, :size] * bins.counts.unsqueeze(-1)).sum(1)
    return likelihood, gradient, n * (probability * scores[:, size:]).transpose(1, 2) @ scores[:, size:]


def _climb(
    evaluate: Callable[[Tensor, Tensor], Evaluation],
    theta: Tensor,
    ties: Tensor,
    bounds: tuple[Tensor, Tensor],
    steps: int,
) -> Fits:
    """Maximise the likelihood from all starts at once by damped Fisher scoring; keep the best of each kind."""
    damping = torch.full((len(theta), 1), 1e-2, dtype=torch.float64)
    low, high = (bound.expand_as(theta) for bound in bounds)
    likelihood, gradient, information = evaluate(theta, ties)
    for number in range(steps):
        if number == TRIAL_STEPS:
            kept = _finalists(likelihood, ties)
            theta, ties, low, high, damping = theta[kept], ties[kept], low[kept], high[kept], damping[kept]
            likelihood, gradient, information = likelihood[kept], gradient[kept], information[kept]
        diagonal = information.diagonal(dim1=1, dim2=2)
        # The small term keeps the matrix regular where a parameter does not matter or is tied to another.
        damped = information + torch.diag_embed(damping * diagonal + 1e-9 * diagonal.amax(1, keepdim=True))
        # A start with a singular matrix stays where it is.
        step = torch.linalg.solve_ex(damped, gradient).result.nan_to_num(0.0).clamp(-2.0, 2.0)
        trial = torch.clamp(theta + (ties @ step.unsqueeze(-1)).squeeze(-1), low, high)
        new = evaluate(trial, ties)
        gain = new[0] - likelihood
        better = gain > 0
        theta = torch.where(better[:, None], trial, theta)
        likelihood = torch.where(better, new[0], likelihood)
        gradient = torch.where(better[:, None], new[1], gradient)
        information = torch.where(better[:, None, None], new[2], information)
        damping = torch.where(better[:, None], damping * 0.3, damping * 8).clamp(1e-6, 1e6)
        if bool(torch.where(better, gain < 1e-3, damping[:, 0] > 1e4).all()):
            break
    best = _finalists(likelihood, ties, 1)
    return Fits(theta[best], likelihood[best], information[best])


def _finalists(likelihood: Tensor, ties: Tensor, number: int = FINALISTS) -> Tensor:
    """Return which starts are the best with tied parameters, then which with untied ones."""
    order, tied = likelihood.argsort(descending=True, stable=True), _is_tied(ties)
    return torch.cat([order[kind[order]][:number] for kind in (tied, ~tied)])


def gamma_distribution(theta: Tensor) -> LogDensity:
    """Rewrite location, log spread and log skew as a distribution of bend 0."""
    location, log_spread, log_skew = theta.tolist()
    rate, shape = math.exp(log_skew - log_spread), math.exp(-2 * log_skew)
    return LogDensity(
        location + 2 * log_skew / rate, shape * rate, 0.0, rate, math.lgamma(shape) - math.log(rate)
    )


def single_distribution(theta: Tensor, grid: Tensor) -> LogDensity:
    """Normalise one group over the grid."""
    location, slope, log_bend, log_rate = theta.tolist()
    density = LogDensity(location, slope, math.exp(log_bend), math.exp(log_rate), 0.0)
    log_norm = torch.logsumexp(density.log_density(grid), dim=0) + (grid[1] - grid[0]).log()
    return replace(density, log_norm=float(log_norm))
