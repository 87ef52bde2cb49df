"""The fraction of inliers, estimated from the losses alone.

Everything happens in the logarithm x of the loss, on a histogram. Three descriptions of it compete:

- one group, four parameters: ``log f(x) = s u - b u^2 - exp(r u) - const`` with ``u = x - m``. With b = 0 it
  is the generalised gamma law (squared Gaussian errors of any dimension, exponential and Weibull losses);
  b bends its left tail down, as the confident samples of a calibrated classifier do, and b alone is the
  log-normal law;
- two groups that differ in scale only, both Gamma of one shape, four parameters: exact for squared Gaussian
  errors whose outliers have a larger standard deviation, and sharp enough to split groups that overlap;
- two groups of generalised gamma laws with nothing in common, seven parameters: wrong labels.

All are fitted by maximum likelihood. Two groups must fit better than one (Schwarz's criterion for two shapes,
thresholds measured on simulated losses for one shape) and be far apart in scale: a clean classifier has many
very small losses and few large ones, and must not look mixed.

Reference: E. W. Stacy (1962), A generalization of the gamma distribution; R. L. Prentice (1974), A log gamma
model and its maximum likelihood estimation; G. Schwarz (1978), Estimating the dimension of a model.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from inlier.laws import (
    ONE_SHAPE,
    TWO_SHAPES,
    LawFits,
    LogBins,
    LogDensity,
    fit_one_group,
    fit_two_groups,
    gamma_law,
    grid_of,
    log_bins,
    single_law,
)
from inlier.scale import LossHistogram

__all__ = ["InlierFit", "estimate_inlier_fraction", "fit_inliers"]

FEWEST = 30  # With fewer losses, or all in a few bins, nothing is fitted.

# When two groups of one shape are believed. Their gap is that between the logs of their scales; while it
# grows through UNCLEAR, the needed share of inliers and the needed gain over one group fall from left to
# right. Lower gains find weaker groups of outliers, and mistake more clean classifiers for mixtures.
SMALLEST_GAP = 2.65
UNCLEAR = (3.8, 4.2)
NEEDED_SHARE = (0.22, 0.1)
NEEDED_GAIN = (5.0, -4.0)
NEEDED_GAIN_STRAIGHT = 0.5
AMPLE = 1500  # With n losses, fewer than this, both needed gains grow with log(AMPLE / n).
SAFETY = 10.0  # What two groups of two shapes must gain beyond Schwarz's criterion.


@dataclass(frozen=True)
class InlierFit:
    """What the losses say about how many of them are inliers.

    Args:
        inlier_fraction: The estimate, in [0, 1]. Zero losses are inliers, infinite and NaN ones outliers.
        trusted: Whether the estimate deserves belief.
        reason: Why, in a sentence.
        standard_error: Of the fraction, as far as the model is right; 0 if no outliers were found.
        share: The inliers' share among the losses that were fitted (neither zero nor infinite).
        inliers: The fitted law of the inliers' log losses, or None if there was nothing to fit.
        outliers: That of the outliers, or None if none were found.
        mixtures: Fitted parameters of both mixtures, where a next fit can start.
        singles: Fitted parameters of both single groups, likewise.
    """

    inlier_fraction: float
    trusted: bool
    reason: str
    standard_error: float = 0.0
    share: float = 1.0
    inliers: LogDensity | None = None
    outliers: LogDensity | None = None
    mixtures: Tensor | None = field(default=None, repr=False, compare=False)
    singles: Tensor | None = field(default=None, repr=False, compare=False)

    def density(self, losses: Tensor) -> tuple[Tensor, Tensor]:
        """Return the densities of inliers and outliers, which add up to that of the losses.

        Args:
            losses: Positive losses of any shape.

        Returns:
            ``share * p(loss | inlier)`` and ``(1 - share) * p(loss | outlier)``, float64, per unit of loss.

        Example:
            >>> import torch, inlier.fraction
            >>> fit = inlier.fraction.fit_inliers(torch.distributions.Exponential(1.0).sample((1000,)))
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
            >>> import torch, inlier.fraction
            >>> _ = torch.manual_seed(0)
            >>> noise = torch.cat([torch.randn(800, 3), 20 * torch.randn(200, 3)])
            >>> fit = inlier.fraction.fit_inliers(noise.square().sum(1))
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
        )  # Far right both laws are 0, and surely no inliers.
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
    return fit_inliers(losses).inlier_fraction


def fit_inliers(losses: Tensor | LossHistogram, start: InlierFit | None = None) -> InlierFit:
    """Fit one group and two groups to the losses and choose between them.

    The inliers are the group of smaller scale, whatever its share. See the module's description for the laws,
    and the constants at its top for how far apart two groups must be.

    Args:
        losses: Losses of at least 0, of any shape; or a :class:`LossHistogram` of them.
        start: An earlier fit to similar losses: refines its parameters in a few steps instead of searching.
            A search finds what a refinement may miss, so do one now and then.

    Returns:
        The fraction, whether to trust it and why, and the fitted laws.

    Raises:
        ValueError: For empty or negative losses, or if none is finite.

    Example:
        >>> import torch
        >>> from inlier.fraction import fit_inliers
        >>> _ = torch.manual_seed(0)
        >>> losses = torch.cat([torch.randn(600, 4), 10 * torch.randn(400, 4)]).square().sum(1)
        >>> fit = fit_inliers(losses)
        >>> round(fit.inlier_fraction, 2), fit.trusted
        (0.6, True)
        >>> round(fit_inliers(losses * 1.1, start=fit).inlier_fraction, 2)
        0.6
    """
    bins = log_bins(losses if isinstance(losses, LossHistogram) else LossHistogram.of(losses))
    finite = (bins.sure_inliers + float(bins.counts.sum())) / bins.total
    if bins.counts.sum() < FEWEST or len(bins.counts) < FEWEST / 3:
        return InlierFit(
            finite, False, "Too few different losses to tell groups apart; all finite ones count."
        )
    two = fit_two_groups(bins, None if start is None else start.mixtures)
    one = fit_one_group(bins, None if start is None else start.singles)
    return _judge(bins, one, two)


def _judge(bins: LogBins, one: LawFits, two: LawFits) -> InlierFit:
    """Choose between one group and two, and say whether the choice can be trusted."""
    n = float(bins.counts.sum())
    swapped = torch.cat((two.theta[:, 3:6], two.theta[:, :3], -two.theta[:, 6:]), dim=1)
    mixtures = torch.where(two.theta[:, :1] > two.theta[:, 3:4], swapped, two.theta)
    share = torch.sigmoid(mixtures[:, 6]).tolist()
    gain = (2 * (two.likelihood - one.likelihood[1])).tolist()
    straight_gain = 2 * float(two.likelihood[0] - one.likelihood[0])
    similar = _one_shape_is_believed(
        float(mixtures[0, 3] - mixtures[0, 0]), share[0], gain[0], straight_gain, n
    )
    penalty = 3 * math.log(n) + SAFETY
    unlike = gain[1] >= penalty and (gain[1] - gain[0] >= penalty or not similar)
    if not (similar or unlike):
        law, error, weight = single_law(one.theta[1], grid_of(bins)), 0.0, 1.0
        outliers = None
    else:
        chosen, ties = (1, TWO_SHAPES) if unlike else (0, ONE_SHAPE)
        law, outliers = gamma_law(mixtures[chosen, :3]), gamma_law(mixtures[chosen, 3:6])
        weight = share[chosen]
        variance = torch.linalg.pinv(two.information[chosen]).diagonal()[int(ties[6].argmax())]
        error = weight * (1 - weight) * math.sqrt(float(variance))
    fraction = (bins.sure_inliers + weight * n) / bins.total
    fit = InlierFit(fraction, False, "", error, weight, law, outliers, mixtures, one.theta)
    reason = _doubt(fit, bins, ambiguous=straight_gain > 10 and gain[0] > -10)
    sure = "One group fits all losses." if outliers is None else "Two groups fit, and lie far apart."
    return replace(fit, trusted=not reason, reason=reason or sure)


def _one_shape_is_believed(gap: float, share: float, gain: float, straight_gain: float, n: float) -> bool:
    """Whether two groups of one shape are more than one bent group that looks like two.

    The bent group fits clean classifiers; but it fits overlapping groups well, too, where a straight one does
    not. Hence both gains in log-likelihood count, the one over the straight group by 0.3 and up to 40.
    """
    clear = min(max((gap - UNCLEAR[0]) / (UNCLEAR[1] - UNCLEAR[0]), 0.0), 1.0)
    needed_share, needed_gain = (a + clear * (b - a) for a, b in (NEEDED_SHARE, NEEDED_GAIN))
    scarce = max(math.log(AMPLE / n), 0.0)
    enough = gain + 0.3 * min(straight_gain, 40.0) >= needed_gain + 7 * scarce
    enough = enough and straight_gain >= NEEDED_GAIN_STRAIGHT + 3 * scarce
    return enough and gap >= SMALLEST_GAP and share >= needed_share


def _doubt(fit: InlierFit, bins: LogBins, ambiguous: bool) -> str:
    """Return why the fit should not be trusted, or an empty string."""
    n = float(bins.counts.sum())
    if n < 100:
        return f"Only {n:.0f} losses were fitted, which is too few."
    grid = grid_of(bins)
    joint = torch.zeros_like(grid)
    for law, share in ((fit.inliers, fit.share), (fit.outliers, 1 - fit.share)):
        joint += 0.0 if law is None else share * law.log_density(grid).exp()
    model = (joint.cumsum(0) - joint / 2) / joint.sum()
    seen = bins.counts.cumsum(0) - bins.counts / 2
    place = torch.searchsorted(grid, bins.x).clamp(1, len(grid) - 1)
    part = (bins.x - grid[place - 1]) / (grid[place] - grid[place - 1])
    distance = float((torch.lerp(model[place - 1], model[place], part) - seen / n).abs().max())
    if distance > 0.03 + 1.6 / math.sqrt(n):
        return f"The fitted law and the losses differ by {distance:.2f} in distribution."
    if fit.outliers is None and ambiguous:
        return "Two groups fit too, but no better than one with many small losses; none count as outliers."
    if fit.standard_error > 0.04:
        return f"The two groups overlap: the standard error of the fraction is {fit.standard_error:.2f}."
    if fit.inlier_fraction < 0.13:
        return f"An inlier fraction of {fit.inlier_fraction:.2f} is too small to know which group is which."
    return ""
