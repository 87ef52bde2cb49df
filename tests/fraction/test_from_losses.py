"""The inlier fraction from losses alone: accuracy on known mixtures, none on clean losses, properties."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from inlier import LossHistogram
from inlier.fraction import FromLosses, LossMixture, _from_losses, estimate_inlier_fraction, fit_inliers

N = 1500


def generator(*seed: object) -> torch.Generator:
    """A generator whose draws depend on the configuration, the same in every process."""
    return torch.Generator().manual_seed(sum(ord(c) * 31**i for i, c in enumerate(repr(seed))) % 2**31)


def squared_errors(
    n: int, dims: int, outliers: float, times: float, added: bool, rng: torch.Generator
) -> Tensor:
    noise = torch.randn(n, dims, generator=rng, dtype=torch.float64)
    wrong = round(n * outliers)
    large = times * torch.randn(wrong, dims, generator=rng, dtype=torch.float64)
    noise[:wrong] = large + noise[:wrong] if added else large
    return noise.square().sum(1)


def calibrated(n: int, classes: int, confidence: float, rng: torch.Generator) -> Tensor:
    log_p = (confidence * torch.randn(n, classes, generator=rng, dtype=torch.float64)).log_softmax(1)
    return -log_p.gather(1, torch.multinomial(log_p.exp(), 1, generator=rng)).squeeze(1)


def wrong_labels(n: int, outliers: float, rng: torch.Generator) -> Tensor:
    logits = torch.randn(n, 10, generator=rng, dtype=torch.float64)
    right = torch.randint(10, (n,), generator=rng)
    logits[torch.arange(n), right] += 6 + torch.randn(n, generator=rng, dtype=torch.float64)
    label = right.clone()
    wrong = round(n * outliers)
    label[:wrong] = (right[:wrong] + torch.randint(1, 10, (wrong,), generator=rng)) % 10
    return -logits.log_softmax(1).gather(1, label[:, None]).squeeze(1)


def clean(shape: str, n: int, rng: torch.Generator) -> Tensor:
    kind, *numbers = shape.split("-")
    values = [float(v) for v in numbers]
    if kind == "squares":
        return squared_errors(n, int(values[0]), 0.0, 1.0, False, rng)
    if kind == "exponential":
        return -torch.rand(n, generator=rng, dtype=torch.float64).log()
    if kind == "lognormal":
        return (values[0] * torch.randn(n, generator=rng, dtype=torch.float64)).exp()
    return calibrated(n, int(values[0]), values[1], rng)


def errors(dims: int, outliers: float, times: float, draws: int, added: bool = False) -> Tensor:
    rng = generator(dims, outliers, times, added)
    found = [
        estimate_inlier_fraction(squared_errors(N, dims, outliers, times, added, rng)) for _ in range(draws)
    ]
    return torch.tensor(found) - (1 - outliers)


OUTLIERS = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85]
SHAPES = [
    "squares-1",
    "squares-2",
    "squares-10",
    "exponential",
    "lognormal-0.5",
    "lognormal-1",
    "lognormal-1.5",
]
CALIBRATED = [f"classes-{k}-{s}" for k in (2, 10, 100) for s in (0.5, 1, 2, 5)]


@pytest.mark.parametrize("outliers", [0.0, 0.1, 0.5, 0.8, 0.85])
@pytest.mark.parametrize(("dims", "times"), [(1, 10), (1, 50), (3, 10), (10, 20)])
def test_every_draw_within_5_percent_for_outliers_of_10_to_50_times_the_noise(
    dims: int, times: float, outliers: float
) -> None:
    assert errors(dims, outliers, times, draws=5).abs().max() <= 0.05


@pytest.mark.parametrize("outliers", [0.0, 0.1, 0.4, 0.7])
@pytest.mark.parametrize("dims", [1, 3, 10])
def test_mean_within_3_percent_for_outliers_of_5_times_the_noise(dims: int, outliers: float) -> None:
    assert errors(dims, outliers, 5, draws=10 if dims == 1 else 3).mean().abs() <= 0.03


@pytest.mark.parametrize("shape", [*SHAPES, "classes-2-1", "classes-10-3", "classes-100-5"])
@pytest.mark.parametrize("n", [300, 1500, 20000])
def test_clean_losses_have_no_outliers(shape: str, n: int) -> None:
    rng = generator(shape, n)
    found = [estimate_inlier_fraction(clean(shape, n, rng)) for _ in range(4)]
    assert sorted(found)[1] >= 0.97  # one in four may fail here: one in twenty does so in the slow test


@pytest.mark.slow
@pytest.mark.parametrize("added", [False, True])
@pytest.mark.parametrize("times", [10, 50])
@pytest.mark.parametrize("dims", [1, 2, 4, 10])
def test_every_draw_within_5_percent_everywhere(dims: int, times: float, added: bool) -> None:
    for outliers in OUTLIERS:
        assert errors(dims, outliers, times, draws=20 if dims == 1 else 4, added=added).abs().max() <= 0.05


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES + CALIBRATED)
def test_clean_losses_have_no_outliers_in_19_of_20_draws(shape: str) -> None:
    rng = generator("slow", shape)
    found = [estimate_inlier_fraction(clean(shape, N, rng)) for _ in range(40)]
    assert sum(f < 0.97 for f in found) <= 2


@pytest.mark.parametrize("outliers", [0.2, 0.5, 0.8])
def test_wrong_labels(outliers: float) -> None:
    fit = fit_inliers(wrong_labels(N, outliers, generator("labels", outliers)))
    assert fit.value == pytest.approx(1 - outliers, abs=0.05)
    assert fit.trusted


@pytest.fixture(scope="module", params=[(1, 10, 0.5), (3, 10, 0.3), (0, 0, 0.4)])
def mixed(request: pytest.FixtureRequest) -> tuple[Tensor, float]:
    dims, times, outliers = request.param
    rng = generator("mixed", request.param)
    losses = squared_errors(N, dims, outliers, times, False, rng) if dims else wrong_labels(N, outliers, rng)
    return losses, outliers


def test_posterior_never_rises_and_averages_to_the_fraction(mixed: tuple[Tensor, float]) -> None:
    losses, _ = mixed
    fit = fit_inliers(losses)
    everywhere = torch.cat((torch.zeros(1), torch.logspace(-15, 15, 5000), torch.tensor([math.inf])))
    posterior = fit.posterior(everywhere)
    assert (posterior.diff() <= 0).all()
    assert posterior[0] == 1
    assert posterior[-1] == 0
    assert float(fit.posterior(losses).mean()) == pytest.approx(fit.value, abs=0.02)


def test_posterior_tells_inliers_from_outliers() -> None:
    losses = squared_errors(N, 3, 0.4, 20, False, generator("split"))
    posterior = fit_inliers(losses).posterior(losses)
    assert posterior[: round(0.4 * N)].mean() < 0.03
    assert posterior[round(0.4 * N) :].mean() > 0.97


def test_densities_add_up_to_one(mixed: tuple[Tensor, float]) -> None:
    fit = fit_inliers(mixed[0])
    losses = torch.logspace(-20, 20, 20001, dtype=torch.float64)
    inliers, outliers = (float(torch.trapezoid(part, losses)) for part in fit.density(losses))
    assert inliers == pytest.approx(fit.share, abs=1e-3)
    assert outliers == pytest.approx(1 - fit.share, abs=1e-3)


def test_density_of_clean_losses_is_theirs() -> None:
    rng = generator("density")
    fit = fit_inliers(clean("exponential", 20000, rng))
    losses = torch.tensor([0.1, 0.5, 1.0, 2.0], dtype=torch.float64)
    inliers, outliers = fit.density(losses)
    torch.testing.assert_close(inliers, (-losses).exp(), rtol=0.05, atol=0.0)
    assert not outliers.any()


@settings(max_examples=8, deadline=None)
@given(exponent=st.floats(-8, 8))
def test_scaling_the_losses_changes_nothing(exponent: float) -> None:
    losses = squared_errors(N, 2, 0.3, 10, False, generator("scale"))
    expected = estimate_inlier_fraction(losses)
    assert estimate_inlier_fraction(losses * 10**exponent) == pytest.approx(expected, abs=0.005)


def test_order_does_not_matter() -> None:
    losses = squared_errors(N, 1, 0.3, 10, False, generator("order"))
    assert estimate_inlier_fraction(losses.flip(0)) == estimate_inlier_fraction(losses)


def test_histogram_and_tensor_agree_exactly() -> None:
    losses = squared_errors(N, 1, 0.3, 10, False, generator("histogram"))
    assert fit_inliers(LossHistogram.of(losses)) == fit_inliers(losses)


def test_zero_losses_are_inliers_and_losses_that_are_not_finite_are_left_out() -> None:
    losses = squared_errors(N, 3, 0.5, 20, False, generator("zeros"))
    sure = torch.tensor([0.0] * 900 + [math.inf] * 400 + [math.nan] * 200, dtype=torch.float64)
    fit = fit_inliers(torch.cat((losses, sure)))
    assert fit.value == pytest.approx((750 + 900) / 2400, abs=0.02)
    assert fit.posterior(sure).sum() == 900


def test_an_estimator_follows_losses_whose_unit_changes() -> None:
    """Where the last fit ended is no start for losses in another unit: the next one is a search."""
    rng, estimator = generator("unit"), FromLosses()
    for unit in (1.0, 1.0, 1.0, 1e6, 1e-6, 1e-6):
        estimator.observe(LossHistogram.of(unit * squared_errors(N, 2, 0.4, 10, False, rng)))
        assert estimator.estimate().value == pytest.approx(0.6, abs=0.04)


def test_fits_must_agree_before_one_is_trusted() -> None:
    """What a model has not learned yet looks like outliers, but there is less of it from fit to fit."""
    rng, estimator = generator("agree"), FromLosses(patience=1.7)
    found = []
    for outliers in (0.6, 0.45, 0.3, 0.15, 0.4, 0.4, 0.4):
        estimator.observe(LossHistogram.of(squared_errors(N, 2, outliers, 20, False, rng)))
        found.append(estimator.estimate())
    assert [estimate.trusted for estimate in found] == [False] * 6 + [True]
    assert [estimate.value for estimate in found[:6]] == [1.0] * 6
    assert found[5].reason == "The estimate still changes as training goes on."
    assert found[6].value == pytest.approx(0.6, abs=0.04)


@pytest.mark.parametrize(("outliers", "fits"), [(0.0, 2), (0.2, 3), (0.45, 4), (0.7, 7)])
def test_the_more_is_called_wrong_the_longer_it_must_hold(outliers, fits) -> None:
    rng, estimator = generator("patience"), FromLosses(patience=2.0)
    trusted = []
    for _ in range(8):
        estimator.observe(LossHistogram.of(squared_errors(N, 2, outliers, 20, False, rng)))
        trusted.append(estimator.estimate().trusted)
    assert trusted.index(True) == fits - 1


def test_fits_that_agree_are_trusted_if_each_of_them_is() -> None:
    """Of few losses the fraction is found, but its standard error is too large."""
    rng, estimator = generator("doubted"), FromLosses(patience=1.7)
    found = []
    for n in (130, 130, 130, N, N, N):
        estimator.observe(LossHistogram.of(squared_errors(n, 2, 0.4, 10, False, rng)))
        found.append(estimator.estimate())
    assert [round(estimate.value, 1) for estimate in found] == [1.0, 1.0, 0.6, 0.6, 0.6, 0.6]
    assert [estimate.trusted for estimate in found] == [False] * 5 + [True]
    assert found[4].reason == "Some of the fits that agree are not to be trusted."


def test_a_fit_that_does_not_describe_the_losses_is_no_evidence() -> None:
    """Rounded errors form groups that are none; fits of them agree with each other all the same."""
    rng, estimator = generator("rounded"), FromLosses()
    lowest = 1.0
    for _ in range(8):
        losses = (3 * torch.randn(N, generator=rng)).round() ** 2
        lowest = min(lowest, fit_inliers(losses).value)
        estimator.observe(LossHistogram.of(losses))
        estimate = estimator.estimate()
        assert (estimate.value, estimate.trusted) == (1.0, False)
    assert lowest < 0.6


def test_warm_start_follows_moving_losses() -> None:
    rng = generator("warm")
    fit = fit_inliers(squared_errors(N, 3, 0.3, 10, False, rng))
    for outliers, times in ((0.33, 11), (0.36, 12), (0.4, 13)):
        losses = 0.8 * squared_errors(N, 3, outliers, times, False, rng)
        fit = fit_inliers(LossHistogram.of(losses), start=fit)
        assert fit.value == pytest.approx(fit_inliers(losses).value, abs=0.01)
        assert fit.value == pytest.approx(1 - outliers, abs=0.03)


def test_trust() -> None:
    rng = generator("trust")
    assert fit_inliers(squared_errors(N, 3, 0.4, 10, False, rng)).trusted
    assert fit_inliers(clean("exponential", N, rng)).trusted
    few = fit_inliers(squared_errors(50, 3, 0.4, 10, False, rng))
    assert not few.trusted
    assert "too few" in few.reason
    # Three groups are neither one nor two.
    three = torch.cat([scale * clean("squares-10", 500, rng) for scale in (1.0, 1e3, 1e6)])
    assert not fit_inliers(three).trusted


@pytest.mark.parametrize("losses", [torch.ones(100), torch.zeros(100), torch.tensor([3.0])], ids=str)
def test_nothing_to_fit(losses: Tensor) -> None:
    fit = fit_inliers(losses)
    assert fit.value == 1
    assert not fit.trusted
    assert (fit.posterior(losses) == 1).all()
    assert isinstance(
        fit_inliers(squared_errors(N, 3, 0.4, 10, False, generator("n")), start=fit), LossMixture
    )


@pytest.mark.parametrize(
    ("losses", "message"),
    [
        (torch.tensor([]), "losses is empty"),
        (torch.tensor([1.0, -2.0]), "losses must be at least 0, but the smallest is -2"),
        (torch.tensor([math.nan, math.nan]), "none is finite"),
    ],
)
def test_errors_name_the_losses(losses: Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        estimate_inlier_fraction(losses)


@pytest.mark.parametrize("information", [0.0, -1e-12, 1e-20])
def test_a_share_that_the_losses_do_not_determine_is_not_trusted(information, monkeypatch):
    torch.manual_seed(0)
    losses = (torch.randn(1000) * torch.where(torch.rand(1000) < 0.3, 20.0, 1.0)) ** 2
    assert fit_inliers(losses).trusted
    fitted = _from_losses.fit_two_groups

    def undetermined(bins, start=None):
        two = fitted(bins, start)
        return two._replace(information=information * torch.eye(7, dtype=torch.float64).expand(2, 7, 7))

    monkeypatch.setattr(_from_losses, "fit_two_groups", undetermined)
    fit = fit_inliers(losses)
    assert fit.standard_error == 0.5
    assert not fit.trusted
