"""The fraction of inliers, estimated from the losses alone.

Everything happens in the logarithm x of the loss, on a histogram. Three descriptions of it compete:

- one group, four parameters: ``log f(x) = s u - b u^2 - exp(r u) - const`` with ``u = x - m``. With b = 0 it
  is the generalized gamma distribution (squared Gaussian errors of any dimension, exponential and Weibull losses);
  b bends its left tail down, as the confident samples of a calibrated classifier do, and b alone is the
  log-normal distribution;
- two groups that differ in scale only, both Gamma of one shape, four parameters: exact for squared Gaussian
  errors whose outliers have a larger standard deviation, and sharp enough to split groups that overlap;
- two groups of generalized gamma distributions with nothing in common, seven parameters.

All are fitted by maximum likelihood. Two groups must fit better than one (by Schwarz's criterion for two shapes, by
thresholds measured on simulated losses for one shape) and be far apart in scale: the losses of a clean classifier,
many very small and few large, must not look like a mixture.

Reference: E. W. Stacy (1962), A generalization of the gamma distribution; R. L. Prentice (1974), A log gamma
model and its maximum likelihood estimation; G. Schwarz (1978), Estimating the dimension of a model.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from inlier.fraction._distributions import (
    ONE_SHAPE,
    TWO_SHAPES,
    Fits,
    LogBins,
    LogDensity,
    fit_one_group,
    fit_two_groups,
    gamma_distribution,
    grid_of,
    log_bins,
    single_distribution,
)
from inlier.fraction._estimate import FractionEstimate, pack, unpack
from inlier.histogram import LossHistogram

__all__ = ["FromLosses", "LossMixture", "estimate_inlier_fraction", "fit_inliers"]

# Every constant that decides is varied by benchmarks/constants.py.
FEWEST = 30  # With fewer losses, or all in a few bins, nothing is fitted.
AGREEMENT = 0.1  # Fits agree if they are not further apart than this.
LONGEST = 20  # At most this many fits in a row have to agree.

# When two groups of one shape are accepted. Their gap is that between the logs of their scales; while it
# grows through UNCLEAR, the required share of inliers and the required gain over one group fall from left to
# right. Lower gains find weaker groups of outliers, and mistake more clean classifiers for mixtures.
SMALLEST_GAP = 2.65
UNCLEAR = (3.8, 4.2)
NEEDED_SHARE = (0.22, 0.1)
NEEDED_GAIN = (5.0, -4.0)
STRAIGHT_COUNTS = 0.3  # What the gain over a straight group counts for.
AMPLE = 1500  # With n losses, fewer than this, the required gain grows with log(AMPLE / n) ...
SCARCE = 3.0  # ... times this.
SAFETY = 10.0  # What two groups of two shapes must gain beyond Schwarz's criterion.

# When an estimate is trusted.
FEW = 100  # With this many losses, and ...
MISFIT = (0.03, 1.6)  # ... a fit no further from them than the first, plus the second / sqrt(n), ...
LARGEST_ERROR = 0.04  # ... a standard error ...
SMALLEST_FRACTION = 0.13  # ... and a fraction within these.
AMBIGUOUS = (
    10.0,
    -10.0,
)  # Not if two groups gain this over a straight group, and not less than this over a bent one.


@dataclass(frozen=True)
class LossMixture(FractionEstimate):
    """An inlier fraction estimated from losses, with the distributions behind it.

    Args:
        value: The estimated fraction, in [0, 1]. Zero losses are inliers; infinite and NaN ones are left out.
        standard_error: Of the fraction, as far as the model is right; 0 if no outliers were found.
        trusted: Whether to trust the estimate.
        reason: Why, or why not, in a sentence.
        share: The inliers' share among the losses that were fitted (not zero).
        inliers: The fitted distribution of the inliers' log losses, or None if there was nothing to fit.
        outliers: That of the outliers, or None if none were found.
        is_described: Whether the fitted distribution describes the losses; else it is no evidence.
        mixtures: Fitted parameters of both mixtures, from which a later fit can start.
        singles: Fitted parameters of both single groups, likewise.
    """

    share: float = 1.0
    inliers: LogDensity | None = None
    outliers: LogDensity | None = None
    is_described: bool = False
    mixtures: Tensor | None = field(default=None, repr=False, compare=False)
    singles: Tensor | None = field(default=None, repr=False, compare=False)

    def density(self, losses: Tensor) -> tuple[Tensor, Tensor]:
        """Return the densities of inliers and outliers, which add up to that of the losses.

        Args:
            losses: Positive losses of any shape.

        Returns:
            ``share * p(loss | inlier)`` and ``(1 - share) * p(loss | outlier)``, float64, per unit of loss.

        Example:
            >>> import torch, inlier
            >>> fit = inlier.fit_inliers(torch.distributions.Exponential(1.0).sample((1000,)))
            >>> inliers, outliers = fit.density(torch.linspace(0.1, 5, 50))
            >>> bool(outliers.max() == 0)
            True
        """
        x = losses.double().log()
        zero = torch.zeros_like(x)
        inliers = zero if self.inliers is None else self.share * (self.inliers.log_density(x) - x).exp()
        outliers = (
            zero if self.outliers is None else (1 - self.share) * (self.outliers.log_density(x) - x).exp()
        )
        return inliers, outliers

    def posterior(self, losses: Tensor) -> Tensor:
        """Return each loss's probability of being an inlier, which never rises with the loss.

        Bayes' rule, made monotone: left of the inliers' mode it is at least what it is anywhere between here
        and the mode, right of it at most. Zero losses get 1, infinite and NaN ones 0.

        Args:
            losses: Losses of any shape.

        Returns:
            Probabilities, float64, of the same shape.

        Example:
            >>> import torch, inlier
            >>> _ = torch.manual_seed(0)
            >>> noise = torch.cat([torch.randn(800, 3), 20 * torch.randn(200, 3)])
            >>> fit = inlier.fit_inliers(noise.square().sum(1))
            >>> fit.posterior(torch.tensor([0.0, 1.0, 1000.0])).round(decimals=2)
            tensor([1., 1., 0.], dtype=torch.float64)
        """
        wide = losses.double()
        if self.inliers is None or self.outliers is None:
            return wide.isfinite().double()
        mode = self.inliers.mode
        step, left = 1 / 32, 40 * 32
        right = 32 * math.ceil(self.outliers.mode - mode + 20)
        x = mode + step * torch.arange(-left, right + 1, dtype=torch.float64, device=wide.device)
        odds = (
            self.inliers.log_density(x)
            - self.outliers.log_density(x)
            + math.log(self.share / (1 - self.share))
        )
        raw = torch.sigmoid(
            odds.nan_to_num(nan=-math.inf)
        )  # Far right both densities are 0, and surely no inliers.
        curve = torch.cat(
            (raw[: left + 1].flip(0).cummax(0).values.flip(0)[:-1], raw[left:].cummin(0).values)
        )
        place = ((wide.nan_to_num(nan=math.inf).log() - x[0]) / step).clamp(0, len(x) - 1)
        below = place.long().clamp(max=len(x) - 2)
        smooth = torch.lerp(curve[below], curve[below + 1], place - below)
        return torch.where(wide == 0, 1.0, torch.where(wide.isfinite(), smooth, 0.0))


def estimate_inlier_fraction(losses: Tensor | LossHistogram) -> float:
    """Estimate which fraction of the losses belongs to inliers; see :func:`fit_inliers`.

    Example:
        >>> import torch, inlier
        >>> from inlier.fraction import estimate_inlier_fraction
        >>> _ = torch.manual_seed(0)
        >>> noise = torch.cat([torch.randn(700), 10 * torch.randn(300)])
        >>> abs(estimate_inlier_fraction(noise**2) - 0.7) < 0.05
        True
    """
    return fit_inliers(losses).value


def fit_inliers(losses: Tensor | LossHistogram, start: LossMixture | None = None) -> LossMixture:
    """Fit one group and two groups to the losses and choose between them.

    The inliers are the group of smaller scale, whatever its share.

    Args:
        losses: Losses of at least 0, of any shape; or a :class:`LossHistogram` of them.
        start: An earlier fit to similar losses, to be refined in a few steps in place of a search. Search now and
            then, since a refinement may miss what has changed.

    Returns:
        The fraction, whether to trust it and why, and the fitted distributions.

    Raises:
        ValueError: For empty or negative losses, or if none is finite.

    Example:
        >>> import torch
        >>> from inlier.fraction import fit_inliers
        >>> _ = torch.manual_seed(0)
        >>> losses = torch.cat([torch.randn(600, 4), 10 * torch.randn(400, 4)]).square().sum(1)
        >>> fit = fit_inliers(losses)
        >>> round(fit.value, 2), fit.trusted
        (0.6, True)
        >>> round(fit_inliers(losses * 1.1, start=fit).value, 2)
        0.6
    """
    bins = log_bins(losses if isinstance(losses, LossHistogram) else LossHistogram.of(losses))
    finite = (bins.sure_inliers + float(bins.counts.sum())) / bins.total
    if bins.counts.sum() < FEWEST or len(bins.counts) < FEWEST / 3:
        return LossMixture(
            finite, 0.0, False, "Too few different losses to tell groups apart; all finite ones count."
        )
    two = fit_two_groups(bins, None if start is None else start.mixtures)
    one = fit_one_group(bins, None if start is None else start.singles)
    return _choose(bins, one, two)


def _choose(bins: LogBins, one: Fits, two: Fits) -> LossMixture:
    """Choose between one group and two, and decide whether to trust the choice."""
    n = float(bins.counts.sum())
    swapped = torch.cat((two.theta[:, 3:6], two.theta[:, :3], -two.theta[:, 6:]), dim=1)
    mixtures = torch.where(two.theta[:, :1] > two.theta[:, 3:4], swapped, two.theta)
    share = torch.sigmoid(mixtures[:, 6]).tolist()
    gain = (2 * (two.likelihood - one.likelihood[1])).tolist()
    straight_gain = 2 * float(two.likelihood[0] - one.likelihood[0])
    similar = _one_shape_is_accepted(
        float(mixtures[0, 3] - mixtures[0, 0]), share[0], gain[0], straight_gain, n
    )
    penalty = 3 * math.log(n) + SAFETY
    unlike = gain[1] >= penalty and (gain[1] - gain[0] >= penalty or not similar)
    if not (similar or unlike):
        inliers, error, weight = single_distribution(one.theta[1], grid_of(bins)), 0.0, 1.0
        outliers = None
    else:
        chosen, ties = (1, TWO_SHAPES) if unlike else (0, ONE_SHAPE)
        inliers = gamma_distribution(mixtures[chosen, :3])
        outliers = gamma_distribution(mixtures[chosen, 3:6])
        weight = share[chosen]
        error = _standard_error(weight, two.information[chosen], int(ties[6].argmax()))
    fraction = (bins.sure_inliers + weight * n) / bins.total
    fit = LossMixture(fraction, error, False, "", weight, inliers, outliers, False, mixtures, one.theta)
    distance = _distance(fit, bins)
    fit = replace(fit, is_described=distance <= MISFIT[0] + MISFIT[1] / math.sqrt(n))
    ambiguous = straight_gain > AMBIGUOUS[0] and gain[0] > AMBIGUOUS[1]
    reason = _doubt(fit, n, distance, ambiguous)
    sure = "One group fits all losses." if outliers is None else "Two groups fit, and lie far apart."
    return replace(fit, trusted=not reason, reason=reason or sure)


def _one_shape_is_accepted(gap: float, share: float, gain: float, straight_gain: float, n: float) -> bool:
    """Whether two groups of one shape are more than one bent group that looks like two.

    The bent group fits clean classifiers, but overlapping groups too, which a straight one does not fit. Hence both
    gains in log-likelihood count.
    """
    clear = min(max((gap - UNCLEAR[0]) / (UNCLEAR[1] - UNCLEAR[0]), 0.0), 1.0)
    needed_share, needed_gain = (a + clear * (b - a) for a, b in (NEEDED_SHARE, NEEDED_GAIN))
    scarce = SCARCE * max(math.log(AMPLE / n), 0.0)
    enough = gain + STRAIGHT_COUNTS * straight_gain >= needed_gain + scarce
    return enough and gap >= SMALLEST_GAP and share >= needed_share


def _standard_error(share: float, information: Tensor, place: int) -> float:
    """Return that of a share whose logit is in this place of the Fisher information; 1/2 if it tells nothing."""
    variance = float(torch.linalg.pinv(information).diagonal()[place])
    # Rounding makes the variance of what is not determined 0, or negative.
    return min(share * (1 - share) * math.sqrt(variance), 0.5) if variance > 0 else 0.5


def _distance(fit: LossMixture, bins: LogBins) -> float:
    """Return the Kolmogorov-Smirnov distance between the fitted distribution and the losses."""
    grid = grid_of(bins)
    joint = torch.zeros_like(grid)
    for group, share in ((fit.inliers, fit.share), (fit.outliers, 1 - fit.share)):
        joint += 0.0 if group is None else share * group.log_density(grid).exp()
    model = (joint.cumsum(0) - joint / 2) / joint.sum()
    seen = bins.counts.cumsum(0) - bins.counts / 2
    place = torch.searchsorted(grid, bins.x).clamp(1, len(grid) - 1)
    part = (bins.x - grid[place - 1]) / (grid[place] - grid[place - 1])
    expected = torch.lerp(model[place - 1], model[place], part)
    return float((expected - seen / bins.counts.sum()).abs().max())


def _doubt(fit: LossMixture, n: float, distance: float, ambiguous: bool) -> str:
    """Return why the fit should not be trusted, or an empty string."""
    if n < FEW:
        return f"Only {n:.0f} losses were fitted, which is too few."
    if not fit.is_described:
        return f"The fitted distribution and the losses differ by {distance:.2f} in probability."
    if fit.outliers is None and ambiguous:
        return "Two groups fit too, but no better than one with many small losses; none count as outliers."
    if fit.standard_error > LARGEST_ERROR:
        return f"The two groups overlap: the standard error of the fraction is {fit.standard_error:.2f}."
    if fit.value < SMALLEST_FRACTION:
        return f"An inlier fraction of {fit.value:.2f} is too small to know which group is which."
    return ""


def _in_unit(fit: LossMixture, shift: float) -> LossMixture:
    """Return a start for the next fit after log losses have moved by ``shift``: locations move with them."""
    if fit.mixtures is None or fit.singles is None or not math.isfinite(shift):
        return fit
    mixtures, singles = fit.mixtures.clone(), fit.singles.clone()
    mixtures[:, [0, 3]] += shift
    singles[:, 0] += shift
    return replace(fit, mixtures=mixtures, singles=singles)


class FromLosses:
    """The fraction estimator that fits a mixture to the losses, each fit starting where the last one ended.

    While a model learns, its losses form groups too, of what it knows already and what it does not know yet; but
    these groups move, and those of outliers stay. So ``patience / value`` fits in a row must describe the losses and
    agree before the value changes from what it was, 1 at first: the larger the share of outliers, the more fits.

    Args:
        smoothing: The share of the old estimate in the new one.
        patience: The number of fits in a row that must agree, times the fraction; 0 acts on every fit.

    Example:
        >>> _ = torch.manual_seed(0)
        >>> estimator = FromLosses()
        >>> losses = torch.cat([torch.randn(600), 20 * torch.randn(400)]) ** 2
        >>> estimator.observe(LossHistogram.of(losses))
        >>> round(estimator.estimate().value, 1)
        0.6
    """

    def __init__(self, smoothing: float = 0.0, patience: float = 0.0) -> None:
        self.smoothing, self.patience = smoothing, patience
        self._fitted = 0
        self._histogram: LossHistogram | None = None
        self._last: FractionEstimate = FractionEstimate(1.0, 0.0, False, "No losses were seen yet.")
        self._fit: LossMixture | None = None
        self._mean = math.nan
        # The values of the last fits, NaN where there was none that describes the losses; and which were trusted.
        self._recent = torch.full((2, LONGEST), math.nan, dtype=torch.float64)

    def observe(self, histogram: LossHistogram) -> None:
        """Take in the histogram of recent losses, in place of the last one."""
        self._histogram = histogram

    def estimate(self) -> FractionEstimate:
        """Return the estimate, from a new fit if something new was observed."""
        histogram, self._histogram = self._histogram, None
        if histogram is None or histogram.total == 0:
            return self._last
        mean = log_bins(histogram).mean
        # A search finds what a refinement may miss: the first, second, fourth, eighth, ... fits are searches.
        search = self._fitted & (self._fitted - 1) == 0
        start = None if search or self._fit is None else _in_unit(self._fit, mean - self._mean)
        fit = fit_inliers(histogram, start)
        value = fit.value if fit.is_described and histogram.total >= FEW else math.nan
        share = self.smoothing if self._agree() else 0.0
        new = self._recent.new_tensor([[value], [float(fit.trusted)]])
        self._recent = torch.cat([self._recent[:, 1:], new], 1)
        if needed := self._agree():
            value = share * self._last.value + (1 - share) * value
            doubted = fit.trusted and not bool(self._recent[1, -needed:].all())
            reason = "Some of the fits that agree are not to be trusted." if doubted else fit.reason
            self._last = replace(fit, value=value, trusted=fit.trusted and not doubted, reason=reason)
        else:
            reason = fit.reason if math.isnan(value) else "The estimate still changes as training goes on."
            self._last = replace(fit, value=self._last.value, trusted=False, reason=reason)
        self._fit, self._mean = fit, mean
        self._fitted += 1
        return self._last

    def _agree(self) -> int:
        """Return how many of the last fits had to agree, if they do; else 0."""
        value = float(self._recent[0, -1])
        needed = 1 if math.isnan(value) else math.ceil(self.patience / max(value, self.patience / LONGEST))
        needed = max(needed, 1)
        # NaN is within no distance.
        return needed if bool((self._recent[0, -needed:] - value).abs().max() <= AGREEMENT) else 0

    def state_dict(self) -> dict[str, Tensor]:
        """Return the last estimate, and what the next fit starts from."""
        counters = [float(self._fitted), self._mean]
        state = pack(self._last) | {"counters": torch.tensor(counters, dtype=torch.float64)}
        state["recent"] = self._recent
        if self._fit is not None and self._fit.mixtures is not None and self._fit.singles is not None:
            state |= {"mixtures": self._fit.mixtures, "singles": self._fit.singles}
        return state

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Restore them."""
        last = unpack(state)
        shapes = {"counters": (2,), "recent": (2, LONGEST), "mixtures": (2, 7), "singles": (2, 4)}
        for name, shape in shapes.items():
            if name in ("counters", "recent") and name not in state:
                raise ValueError(f"{name} is missing")
            if name in state and state[name].shape != shape:
                raise ValueError(f"{name} has shape {tuple(state[name].shape)}: {shape} is expected")
        fitted, mean = state["counters"].tolist()
        self._fitted, self._mean = int(fitted), mean
        self._last, self._fit, self._recent = last, None, state["recent"].double().clone()
        if "mixtures" in state:
            mixtures, singles = (state[name].double().clone() for name in ("mixtures", "singles"))
            self._fit = LossMixture(last.value, mixtures=mixtures, singles=singles)
