"""The fraction of clean labels, from the margins of their logits."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from inlier import LossHistogram, kernels
from inlier.fraction import LabelNoise
from inlier.fraction._label_noise import (
    BIN_WIDTH,
    BINS,
    CONFIDENT_ERRORS,
    RateInterval,
    clean_probability,
    confident_rates,
    margin_loss,
    noise_rate,
    prior_log_odds,
)


def margins(rho: float, n: int = 20_000) -> tuple[torch.Tensor, torch.Tensor]:
    """Margins that are the true log odds of two classes, and which labels are clean."""
    generator = torch.Generator().manual_seed(0)
    log_odds = 3 * torch.randn(n, generator=generator)
    # The network says with these odds which of two classes is right; the label follows, or is flipped.
    right = torch.rand(n, generator=generator) < torch.sigmoid(log_odds.abs())
    clean = torch.rand(n, generator=generator) >= rho
    return torch.where(right == clean, log_odds.abs(), -log_odds.abs()), clean


def predictions(
    rho: float, slope: float, n: int = 4000, classes: int = 10, seed: int = 0, misled: float = 0.0
) -> torch.Tensor:
    """Counts of predictions that are right with probability sigmoid(slope c - 1), on labels with symmetric noise.

    A part of them is wrong however confident they are.
    """
    generator = torch.Generator().manual_seed(seed)
    confidence = 8 * torch.rand(n, generator=generator) ** 2
    right = torch.rand(n, generator=generator) < torch.sigmoid(slope * confidence - 1)
    clean = torch.rand(n, generator=generator) >= rho
    lucky = torch.rand(n, generator=generator) < 1 / (classes - 1)
    right &= torch.rand(n, generator=generator) >= misled
    agrees = torch.where(clean, right, ~right & lucky)
    bins = (confidence / BIN_WIDTH).long().clamp(max=BINS - 1)
    return torch.stack([torch.bincount(bins[x], minlength=BINS) for x in (~agrees, agrees)]).float()


@pytest.mark.parametrize("rho", [0.0, 0.1, 0.3, 0.6])
@pytest.mark.parametrize("slope", [1.0, 3.0])
def test_confident_predictions_tell_the_rate(rho, slope):
    found = [confident_rates(predictions(rho, slope, seed=seed), classes=10) for seed in range(10)]
    assert all(one.proves_noise for one in found) if rho else not any(one.proves_noise for one in found)
    # An interval of 90 %, on a grid of 0.01: of ten draws at most three miss.
    assert sum(not one.low - 0.011 <= rho <= one.high + 0.011 for one in found) <= 3


@pytest.mark.parametrize("rho", [0.0, 0.2])
def test_with_two_classes_a_noisy_label_may_agree_with_a_wrong_prediction(rho):
    found = [confident_rates(predictions(rho, 3.0, classes=2, seed=seed), classes=2) for seed in range(10)]
    assert sum(not one.low - 0.011 <= rho <= one.high + 0.011 for one in found) <= 3
    assert sum(one.proves_noise for one in found) == (10 if rho else 0)


def test_of_two_answers_an_undecided_prediction_is_a_coin_toss():
    """Agreement that hardly rises with confidence is that of noise, unless an undecided network may be as good."""
    generator = torch.Generator().manual_seed(1)
    confidence = 4 * torch.rand(3000, generator=generator)
    right = torch.rand(3000, generator=generator) < torch.sigmoid(2 * confidence)
    agrees = right == (torch.rand(3000, generator=generator) >= 0.4)
    bins = (confidence / BIN_WIDTH).long()
    counts = torch.stack([torch.bincount(bins[x], minlength=BINS) for x in (~agrees, agrees)]).float()
    found = confident_rates(counts, classes=2, largest_offset=0.0)
    assert found.low - 0.011 <= 0.4 <= found.high + 0.011
    assert found.proves_noise
    assert not confident_rates(counts, classes=2).proves_noise


@pytest.mark.parametrize("rho", [0.0, 0.1, 0.4])
def test_errors_that_are_confident_are_no_noise(rho):
    """12 of 100 predictions are wrong however confident they are: a quarter of all errors, as is assumed."""
    counts = predictions(rho, 0.8, n=20_000, misled=0.12)
    assert confident_rates(counts, classes=10).low > rho + 0.04
    found = confident_rates(counts, classes=10, confident_errors=CONFIDENT_ERRORS)
    assert found.low - 0.02 <= rho <= found.high + 0.02
    assert found.proves_noise is (rho > 0)


def test_a_network_that_knows_nothing_says_nothing():
    found = confident_rates(predictions(0.0, 0.02, n=1000), classes=10)
    assert not found.proves_noise
    assert not found.proves_clean
    assert not LabelNoise().estimate().trusted


def test_agreement_by_chance_is_worth_nothing():
    """Of nine labels in ten that are of one class, a network that always predicts it knows nothing."""
    counts = predictions(0.1, 8.0)
    assert confident_rates(counts, classes=2, chance=0.5).worth > 0.5
    assert confident_rates(counts, classes=2, chance=0.8).worth < 0.3


def estimate(values: torch.Tensor, interval: RateInterval | None = None):
    estimator = LabelNoise(interval)
    estimator.observe(LossHistogram.of(margin_loss(values), 5))
    return estimator.estimate()


def test_what_the_margins_imply_is_kept_within_what_confident_predictions_allow():
    values = torch.where(torch.arange(1000) < 300, -6.0, 6.0)
    assert estimate(values, RateInterval(0.05, 1.0, 0.3, 0.02, 0.6)).value == pytest.approx(0.7, abs=0.01)
    assert estimate(values, RateInterval(0.1, 0.2, 0.15, 0.02, 0.8)).value == 0.8
    assert estimate(values, RateInterval(0.4, 0.5, 0.45, 0.02, 0.5, 0.1, 10)).value == 0.6
    assert estimate(torch.ones(10)).value == 1


def test_where_nothing_is_known_labels_count_as_clean():
    values = torch.where(torch.arange(1000) < 300, -6.0, 6.0)
    assert estimate(values).value == 1
    # A narrow interval of a network that disagrees with most labels says nothing.
    assert estimate(values, RateInterval(0.3, 0.5, 0.4, 0.05, 0.3, 0.1, 10)).value == 1
    # After the first epoch less is asked of it, but labels must be implausible.
    for proof, known in ((0.15, 1.0), (0.3, 0.7)):
        later = RateInterval(0.3, 0.5, 0.4, 0.05, 0.3, 0.1, 10, is_out_of_sample=False, proof=proof)
        assert estimate(values, later).value == pytest.approx(known)
        assert not estimate(values, later).trusted
    ignorant = RateInterval(0.0, 0.8, 0.4, 0.2, 0.2, 0.1, 10, is_out_of_sample=False, proof=0.5)
    assert estimate(values, ignorant).value == pytest.approx(0.7, abs=0.01)
    # To a network that knows nothing every class is implausible.
    assert estimate(values, replace(ignorant, agreement=0.11)).value == 1


def test_what_a_network_still_learns_is_no_noise():
    """What has become plausible since the epoch before may go on doing so."""
    before = RateInterval(0.2, 0.4, 0.3, 0.05, 0.4, 0.1, 10, is_out_of_sample=False, implausible=0.4)
    now = replace(before, implausible=0.35)
    assert now.after(before).proof == pytest.approx(0.3)
    assert now.after(before).proves_noise
    assert not now.after(replace(before, implausible=0.5)).proves_noise
    assert now.after(replace(before, implausible=0.1)).proof == 0.35
    # What an epoch says for itself is no proof without one to compare it with.
    assert not now.after(RateInterval()).proves_noise


def test_what_may_be_mistakes_of_the_network_itself_is_no_noise():
    values = torch.where(torch.arange(1000) < 300, -6.0, 6.0)
    found = estimate(values, RateInterval(0.04, 0.08, 0.06, 0.01, 0.9))
    assert (found.value, found.trusted) == (1.0, True)
    assert found.standard_error == pytest.approx(0.04)


def test_an_estimate_is_trusted_where_the_rate_is_known_and_the_network_is_worth_something():
    values = torch.where(torch.arange(1000) < 300, -6.0, 6.0)
    assert estimate(values, RateInterval(0.25, 0.35, 0.3, 0.03, 0.6, 0.1, 10)).trusted
    assert not estimate(values, RateInterval(0.25, 0.35, 0.3, 0.03, 0.4, 0.1, 10)).trusted
    assert not estimate(values, RateInterval(0.1, 0.5, 0.3, 0.15, 0.6, 0.1, 10)).trusted
    uneven = estimate(values, RateInterval(0.25, 0.35, 0.3, 0.03, 0.6, 0.2, 10))
    assert not uneven.trusted
    assert "frequency" in uneven.reason
    assert not estimate(values).trusted


def test_the_weights_add_up_to_the_fraction():
    values, _ = margins(0.3)
    rho = noise_rate(LossHistogram.of(margin_loss(values), 7))
    losses = margin_loss(values)
    for zeta, slope in ((1 - rho, 1.0), (0.5, 1.0), (0.9, 2.5)):
        log_odds = prior_log_odds(losses, torch.ones_like(losses), zeta, slope)
        assert float(clean_probability(values, log_odds, slope).mean()) == pytest.approx(zeta, abs=1e-3)
    # The fraction that the margins imply is the one whose odds are the prior.
    implied = prior_log_odds(losses, torch.ones_like(losses), 1 - rho)
    assert implied == pytest.approx(float(torch.logit(torch.tensor(1 - rho))), abs=0.02)


def test_the_weight_is_the_slope_of_a_robust_kernel():
    """As a function of the loss log(1 + exp(-S)) it meets the paper's Definition 1."""
    kappa = 0.25

    def sigma(r):
        # The integral of 1 / (1 + kappa (e^r - 1)).
        return (r - torch.log(1 + kappa * torch.expm1(r))) / (1 - kappa)

    kernel = kernels.get(lambda r: torch.where(r < 50, sigma(r.clamp(max=50)), sigma(torch.tensor(50.0))))
    r = torch.tensor([0.0, 0.1, 1.0, 5.0], dtype=torch.float64)
    odds = -torch.log(torch.expm1(r))
    expected = clean_probability(odds, float(-torch.log(torch.tensor(kappa))))
    torch.testing.assert_close(kernel.weight(r), expected)


@pytest.mark.parametrize(("high", "trusted"), [(0.08, True), (0.28, False)])
def test_labels_are_called_clean_only_if_no_other_rate_is_likely(high, trusted):
    labels = LabelNoise(RateInterval(0.0, high, high / 2, standard_error=high / 4, agreement=0.95))
    labels.observe(LossHistogram.of(torch.nn.functional.softplus(-(4 + torch.randn(500)))))
    assert labels.estimate().value == 1
    assert labels.estimate().trusted is trusted
