"""Every estimator of the inlier fraction: one protocol, the same statements."""

from __future__ import annotations

import copy

import pytest
import torch

from inlier import FractionEstimate, LossHistogram, Robust
from inlier.fraction import FractionEstimator, FromLosses, GivenFraction, LabelNoise, NullModel
from inlier.fraction._label_noise import RateInterval, margin_loss

TRUE = 0.7


def losses(seed: int, n: int = 1500) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    outlier = torch.rand(n, generator=generator) >= TRUE
    return (torch.randn(n, generator=generator) * torch.where(outlier, 30.0, 1.0)) ** 2


def show_losses(estimator, seed):
    estimator.observe(LossHistogram.of(losses(seed)))


def show_margins(estimator, seed):
    clean = torch.rand(1500, generator=torch.Generator().manual_seed(seed)) < TRUE
    estimator.observe(LossHistogram.of(margin_loss(torch.where(clean, 5.0, -5.0))))


def show_null(estimator, seed):
    generator = torch.Generator().manual_seed(seed)
    for _ in range(200):
        inlier = torch.rand(400, generator=generator) < TRUE
        null = torch.rand(400, generator=generator)
        estimator.compare(torch.where(inlier, 0.01, torch.rand(400, generator=generator)), null)


ESTIMATORS = {
    "from losses": (FromLosses, show_losses),
    "label noise": (lambda: LabelNoise(RateInterval(0.25, 0.45, 0.35, 0.02, 0.55, 0.1, 10)), show_margins),
    "null model": (NullModel, show_null),
    "given": (lambda: GivenFraction(TRUE), show_losses),
}


@pytest.mark.parametrize("name", ESTIMATORS)
class TestEveryEstimator:
    def test_it_has_the_protocol_and_finds_the_fraction(self, name):
        make, show = ESTIMATORS[name]
        estimator = make()
        assert isinstance(estimator, FractionEstimator)
        show(estimator, 0)
        found = estimator.estimate()
        assert isinstance(found, FractionEstimate)
        assert found.value == pytest.approx(TRUE, abs=0.04)
        assert found.trusted
        assert found.reason
        assert estimator.estimate() == found

    def test_before_it_has_seen_anything_all_are_inliers_and_it_says_so(self, name):
        estimator = ESTIMATORS[name][0]()
        found = estimator.estimate()
        assert found.value == (TRUE if name == "given" else 1.0)
        assert found.trusted == (name == "given")

    def test_its_state_goes_through_a_checkpoint(self, name):
        make, show = ESTIMATORS[name]
        estimator, other = make(), make()
        show(estimator, 0)
        before = estimator.estimate()
        other.load_state_dict(copy.deepcopy(estimator.state_dict()))
        restored = other.estimate()
        assert (restored.value, restored.trusted, restored.reason) == (
            before.value,
            before.trusted,
            before.reason,
        )
        show(estimator, 1)
        show(other, 1)
        assert other.estimate().value == estimator.estimate().value

    def test_robust_takes_it(self, name):
        robust = Robust(inlier_fraction=ESTIMATORS[name][0](), warmup=0, update_every=2)
        for _ in range(4):
            robust(torch.rand(20))
        assert 0 < float(robust.inlier_fraction) <= 1


def test_garbled_states_are_refused():
    for estimator in (FromLosses(), LabelNoise()):
        state = estimator.state_dict()
        state["estimate"] = torch.full((3,), torch.nan)
        with pytest.raises(ValueError, match="estimate"):
            estimator.load_state_dict(state)
    with pytest.raises(ValueError, match="sums"):
        NullModel().load_state_dict({"sums": torch.zeros(2)})


@pytest.mark.parametrize("value", [0.0, -1.0, 1.1])
def test_a_given_fraction_is_one(value):
    with pytest.raises(ValueError, match=f"inlier_fraction = {value}"):
        GivenFraction(value)
