"""The fraction of inliers by comparison with a null model."""

import pytest
import torch

from inlier.fraction import draw_null, null_fraction


def colours(fraction, error, count=20_000):
    generator = torch.Generator().manual_seed(1)
    predictions = torch.rand(count, 3, generator=generator)
    targets = predictions + error * torch.randn(count, 3, generator=generator)
    wrong = torch.rand(count, generator=generator) >= fraction
    targets[wrong] = torch.rand(int(wrong.sum()), 3, generator=generator)
    return predictions, targets, wrong


def estimate(predictions, targets, weights):
    torch.manual_seed(2)
    others = targets[draw_null(weights, 4)]
    null_losses = (predictions[:, None] - others).square().mean(2)
    return float(null_fraction((predictions - targets).square().mean(1), null_losses))


@pytest.mark.parametrize("fraction", [1.0, 0.8, 0.5, 0.2, 0.1])
def test_any_fraction_is_found_without_knowing_the_distribution_of_outliers(fraction):
    predictions, targets, _ = colours(fraction, error=0.05)
    assert abs(estimate(predictions, targets, torch.full((len(targets),), 0.5)) - fraction) < 0.02


def test_where_nothing_is_predicted_the_fraction_is_zero():
    predictions, targets, _ = colours(0.0, error=0.0)
    assert abs(estimate(predictions, targets, torch.full((len(targets),), 0.5))) < 0.03


def test_weights_make_the_estimate_right_where_outliers_have_colours_of_their_own():
    # Inliers are dark, outliers all over: pairs with other inliers are closer than outliers are from unrelated pixels.
    predictions, _, wrong = colours(0.6, error=0.0)
    predictions = 0.2 * predictions
    targets = torch.where(wrong[:, None], torch.rand(len(wrong), 3), predictions)
    without = estimate(predictions, targets, torch.full((len(wrong),), 0.5))
    weighted = estimate(predictions, targets, (~wrong).float())
    assert abs(weighted - 0.6) < 0.02
    assert without < 0.4


def test_partners_are_drawn_by_one_minus_their_weight():
    weights = torch.tensor([1.0, 0.0, 0.5, 1.0])
    torch.manual_seed(0)
    drawn = torch.bincount(draw_null(weights, 5000).flatten(), minlength=4) / 20_000
    torch.testing.assert_close(drawn, torch.tensor([0.0, 2 / 3, 1 / 3, 0.0]), atol=0.02, rtol=0)


def test_partners_are_found_where_all_weights_are_one():
    assert draw_null(torch.ones(3), 2).shape == (3, 2)


def test_no_losses_are_refused():
    with pytest.raises(ValueError, match="0 losses"):
        null_fraction(torch.empty(0), torch.rand(3))
