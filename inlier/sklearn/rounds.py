"""The alternation: fit with weights, update fraction, scale and weights, until the weights stop moving."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock

import numpy as np
import torch

from inlier.alternation import Belief, update
from inlier.fraction import InlierFit
from inlier.kernels import Kernel
from inlier.scale import LossHistogram, solve_scale
from inlier.sklearn.learners import Array, Learner

ESTIMATE_EVERY = 5
"""Estimating the fraction is dear beside a linear fit, and it moves slowly: not every round needs it."""


@dataclass(frozen=True)
class Settings:
    """What stays the same through all rounds.

    Args:
        kernel: The kernel.
        sample_weight: The user's weights, which multiply into every fit.
        repeats: How many samples each stands for, see :func:`repeats_of`.
        target: The inlier fraction; None to estimate it from the losses.
        rule: What estimates it from the losses instead of :func:`inlier.fit_inliers`, if anything.
        posterior: What gives each sample's probability of being an inlier, beside that rule.
        weigh: What weighs samples instead of the kernel, given the number of the round and the fraction.
        cut: Whether samples beyond the fraction are left out: weight 0 above the zeta-quantile of the losses.
        warmup: Rounds over which the fraction falls from 1 to its target.
        max_iter: The most rounds.
        tol: The mean change of a weight at which the rounds end.
        patient: Whether the fraction is estimated every few rounds only.
    """

    kernel: Kernel
    sample_weight: Array
    repeats: Array
    target: float | None = None
    rule: Callable[[Array], float] | None = None
    posterior: Callable[[Array], Array] | None = None
    weigh: Callable[[int, float], Array] | None = None
    cut: bool = False
    warmup: int = 10
    max_iter: int = 100
    tol: float = 1e-3
    patient: bool = True


@dataclass(frozen=True)
class Outcome:
    """Where the rounds ended.

    Args:
        weights: Those of the next fit.
        belief: How far each sample is believed, before any cut.
        losses: Those of the last fit.
        fit: The two groups of losses, if they were looked for.
        posterior: From losses to probabilities of being an inlier, where they can be told.
        history: The scale and the fraction of each round.
        converged: Whether the weights have settled.
    """

    weights: Array
    belief: Array
    losses: Array
    fit: InlierFit | None
    posterior: Callable[[Array], Array] | None
    history: list[tuple[float, float]]
    converged: bool

    @property
    def scale(self) -> float:
        """The scale c of the last round."""
        return self.history[-1][0]

    @property
    def inlier_fraction(self) -> float:
        """The fraction zeta of the last round."""
        return self.history[-1][1]

    @property
    def trusted(self) -> bool:
        """Whether the fraction was estimated, and deserves belief."""
        return self.fit is not None and self.fit.trusted


def alternate(
    learner: Learner, settings: Settings, start: Array | None = None, fit: InlierFit | None = None
) -> Outcome:
    """Alternate between fitting and weighing until the weights stop moving.

    Round t fits with the weights u, takes the losses f, and sets ``u = sigma'_c(f)`` with the scale c and the
    fraction zeta of :func:`inlier.alternation.update`.

    Args:
        learner: What is fitted.
        settings: Kernel, fraction and limits.
        start: Weights of the first fit. Without them all are 1 and the fraction is lowered gradually; with
            them the fraction is at its target at once, so that the start is not forgotten.
        fit: A fit of like losses, where the first estimate of the fraction may start.

    Returns:
        The outcome.

    Example:
        >>> import numpy as np, inlier
        >>> from inlier.sklearn.learners import LeastSquares
        >>> x = np.linspace(0, 1, 200)[:, None]
        >>> y = 3 * x[:, 0] + 0.01 * np.sin(np.arange(200))
        >>> y[::4] += 5
        >>> settings = Settings(inlier.kernels.get("geman-mcclure"), np.ones(200), np.ones(200), 0.75)
        >>> outcome = alternate(LeastSquares(x, y), settings)
        >>> bool(outcome.weights[::4].max() < 0.01)
        True
    """
    weights = np.ones(learner.size) if start is None else start
    warmup = min(settings.warmup, settings.max_iter) if start is None else 1
    belief = Belief.first(1, 1.0 if settings.target is None else settings.target)
    belief.fits[0] = fit
    history: list[tuple[float, float]] = []
    unit, settled = 0.0, False
    while not settled and len(history) < settings.max_iter:
        n_iter = len(history) + 1
        losses = finite(learner.losses(weights * settings.sample_weight))
        unit = unit or unit_of(losses, settings.repeats)
        arrived = n_iter >= warmup
        looks = not settings.patient or arrived or n_iter % ESTIMATE_EVERY == 1
        belief = _update(belief, losses, unit, settings, n_iter / warmup, looks)
        if settings.weigh is None:
            judged = weigh(settings.kernel, losses / unit, float(belief.scale[0]))
            old, weights = weights, judged * _kept(losses / unit, belief, settings)
        else:
            judged = settings.weigh(n_iter, float(belief.inlier_fraction[0]))
            old, weights = weights, judged
        moved = settings.repeats @ np.abs(weights - old) / settings.repeats.sum()
        settled = arrived and bool(moved <= settings.tol)
        history.append((float(belief.scale[0]) * unit, float(belief.inlier_fraction[0])))
    return Outcome(
        weights,
        judged,
        losses,
        belief.fits[0],
        settings.posterior or _posterior(belief.fits[0], unit),
        history,
        settled,
    )


def _posterior(fit: InlierFit | None, unit: float) -> Callable[[Array], Array] | None:
    """Return the posterior of a fit that has found two groups."""
    if fit is None or fit.outliers is None:
        return None

    def posterior(losses: Array) -> Array:
        with _one_thread():
            return np.asarray(fit.posterior(torch.from_numpy(losses / unit)).numpy())

    return posterior


def _kept(losses: Array, belief: Belief, settings: Settings) -> Array | float:
    """Return 1 for the samples that are kept at all; without a cut, for every sample."""
    zeta = float(belief.inlier_fraction[0])
    if not settings.cut or zeta >= 1:
        return 1.0
    limit = solve_scale(histogram(losses, settings.repeats), "truncated", zeta)
    # The limit is the middle of a bin: half a bin more takes in all of it.
    return (losses <= float(limit) * (1 + 2.0**-8)).astype(float)


def _update(
    belief: Belief, losses: Array, unit: float, settings: Settings, progress: float, looks: bool
) -> Belief:
    """One shared round on the histogram of the losses, with the fraction as the settings ask."""
    if settings.rule is not None:
        belief.target[0] = settings.rule(losses)
    estimate = [0] if settings.target is None and settings.rule is None and looks else []
    counts = histogram(losses / unit, settings.repeats).counts[None]
    with _one_thread():
        return update(belief, counts, settings.kernel, progress, estimate)


_threads = Lock()


@contextmanager
def _one_thread() -> Iterator[None]:
    """Keep torch to one thread: on tensors this small, waiting for others costs up to 50 times the work."""
    with _threads:  # The number is one for the process: two that set and reset it must not cross.
        before = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(before)


def polish(learner: Learner, outcome: Outcome, settings: Settings, rounds: int) -> tuple[Array, Array, Array]:
    """Turn from the kernel's weights to posteriors: the robust fit has done its work, now waste no inlier.

    Weighing by each sample's posterior is the EM step towards the most likely fit. Where there is none to be
    had, the kernel's weights stay.

    Args:
        learner: What is fitted.
        outcome: Where the alternation ended.
        settings: Its settings.
        rounds: The most fits; 0 takes the posterior of the losses as they are.

    Returns:
        The weights of the last fit, the inlier probabilities, and the losses that they belong to.
    """
    losses = outcome.losses
    if outcome.posterior is None:
        return outcome.weights, outcome.belief, losses
    belief = outcome.posterior(losses)
    for _ in range(rounds):
        losses = finite(learner.losses(belief * settings.sample_weight))
        old, belief = belief, outcome.posterior(losses)
        if np.abs(belief - old).mean() <= settings.tol:
            break
    return belief, belief, losses


def repeats_of(sample_weight: Array) -> Array:
    """Return how many samples each stands for: whole weights are repetitions, others have mean 1.

    Example:
        >>> import numpy as np
        >>> repeats_of(np.array([2.0, 0.0, 1.0])), repeats_of(np.array([0.1, 0.0, 0.3]))
        (array([2., 0., 1.]), array([0.5, 0. , 1.5]))
    """
    if (sample_weight == np.round(sample_weight)).all() or not sample_weight.any():
        return sample_weight
    return np.asarray(sample_weight / sample_weight[sample_weight > 0].mean())


def histogram(losses: Array, repeats: Array) -> LossHistogram:
    """Count losses, each as often as its sample is repeated."""
    tensor = torch.from_numpy(np.ascontiguousarray(losses, dtype=np.float64))
    if (repeats == 1).all():
        return LossHistogram.of(tensor)
    if bool((tensor < 0).any()):
        return LossHistogram.of(tensor)  # Raises, and says why.
    empty = LossHistogram.of(tensor[:0])
    bins = torch.searchsorted(empty.edges, tensor.float().double(), right=True) - 1
    return LossHistogram(torch.bincount(bins, torch.from_numpy(repeats), len(empty.counts)))


def weigh(kernel: Kernel, losses: Array, scale: float) -> Array:
    """Return sigma'_c of each loss; 0 for infinite ones."""
    weights = kernel.slope(torch.from_numpy(losses) / scale).numpy()
    return np.where(np.isfinite(losses), weights, 0.0)


def unit_of(losses: Array, repeats: Array) -> float:
    """Return a power of two near the median positive loss.

    Histograms count float32s, and squared errors of large targets would overflow them. Division by a power of
    two is exact, so that every loss stays in the bin of its neighbours.
    """
    usable = losses[(losses > 0) & np.isfinite(losses) & (repeats > 0)]
    return float(2.0 ** np.round(np.log2(np.median(usable)))) if len(usable) else 1.0


def finite(losses: Array) -> Array:
    """Return the losses as float64, with infinity for NaN: a sample that cannot be judged is an outlier."""
    wide = np.asarray(losses, dtype=np.float64)
    return np.where(np.isnan(wide), np.inf, wide)
