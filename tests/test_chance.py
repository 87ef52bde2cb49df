"""The fraction of inliers by comparison with chance."""

import pytest
import torch

from inlier.chance import fraction_beyond_chance, others_by_disbelief


def colours(fraction, error, count=20_000):
    generator = torch.Generator().manual_seed(1)
    predictions = torch.rand(count, 3, generator=generator)
    targets = predictions + error * torch.randn(count, 3, generator=generator)
    wrong = torch.rand(count, generator=generator) >= fraction
    targets[wrong] = torch.rand(int(wrong.sum()), 3, generator=generator)
    return predictions, targets, wrong


def estimate(predictions, targets, weights):
    torch.manual_seed(2)
    others = targets[others_by_disbelief(weights, 4)]
    by_chance = (predictions[:, None] - others).square().mean(2)
    return float(fraction_beyond_chance((predictions - targets).square().mean(1), by_chance))


@pytest.mark.parametrize("fraction", [1.0, 0.8, 0.5, 0.2, 0.1])
def test_any_fraction_is_found_without_being_told_the_law_of_outliers(fraction):
    predictions, targets, _ = colours(fraction, error=0.05)
    assert abs(estimate(predictions, targets, torch.full((len(targets),), 0.5)) - fraction) < 0.02


def test_where_nothing_is_predicted_nothing_is_beyond_chance():
    predictions, targets, _ = colours(0.0, error=0.0)
    assert abs(estimate(predictions, targets, torch.full((len(targets),), 0.5))) < 0.03


def test_belief_makes_the_estimate_right_where_outliers_have_colours_of_their_own():
    # Inliers are dark, outliers all over: pairs with other inliers are closer than outliers are by chance.
    predictions, _, wrong = colours(0.6, error=0.0)
    predictions = 0.2 * predictions
    targets = torch.where(wrong[:, None], torch.rand(len(wrong), 3), predictions)
    without = estimate(predictions, targets, torch.full((len(wrong),), 0.5))
    told = estimate(predictions, targets, (~wrong).float())
    assert abs(told - 0.6) < 0.02
    assert without < 0.4


def test_others_are_drawn_by_disbelief():
    weights = torch.tensor([1.0, 0.0, 0.5, 1.0])
    torch.manual_seed(0)
    drawn = torch.bincount(others_by_disbelief(weights, 5000).flatten(), minlength=4) / 20_000
    torch.testing.assert_close(drawn, torch.tensor([0.0, 2 / 3, 1 / 3, 0.0]), atol=0.02, rtol=0)


def test_all_are_drawn_from_where_all_are_believed():
    assert others_by_disbelief(torch.ones(3), 2).shape == (3, 2)


def test_no_losses_are_refused():
    with pytest.raises(ValueError, match="0 losses"):
        fraction_beyond_chance(torch.empty(0), torch.rand(3))
