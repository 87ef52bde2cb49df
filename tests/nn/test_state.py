"""What a robust loss keeps, whatever is done to it: refused calls, checkpoints, dtypes, bad losses, new units."""

from __future__ import annotations

import copy
import math
import warnings
from dataclasses import replace

import pytest
import torch
from torch import nn

from inlier import Robust, RobustCrossEntropy
from inlier.fraction import FromLosses, GivenFraction


def trained(**arguments) -> Robust:
    """A Robust that has seen 40 samples, with index, in the middle of a period."""
    torch.manual_seed(0)
    robust = Robust(**({"warmup": 0, "update_every": 4} | arguments))
    for _ in range(10):
        robust(torch.rand(20) ** 2, torch.randperm(40)[:20])
    return robust


def trained_on_labels(**arguments) -> RobustCrossEntropy:
    torch.manual_seed(0)
    criterion = RobustCrossEntropy(**({"update_every": 4} | arguments))
    for _ in range(10):
        index = torch.randperm(40)[:20]
        criterion(2 * torch.randn(20, 3) + 4 * torch.eye(3)[index % 3], index % 3, index)
    return criterion


def assert_same(state: dict, other: dict) -> None:
    assert state.keys() == other.keys()
    for key in state:
        torch.testing.assert_close(state[key], other[key], rtol=0, atol=0, equal_nan=True)


LOSSES = {"Robust": trained, "hold": lambda: trained(hold=4), "RobustCrossEntropy": trained_on_labels}


@pytest.mark.parametrize("kind", LOSSES)
class TestEval:
    def test_it_is_the_plain_mean_without_an_index_and_changes_nothing(self, kind):
        criterion = LOSSES[kind]()
        before = copy.deepcopy(criterion.state_dict())
        criterion.eval()
        if kind == "RobustCrossEntropy":
            logits, target = torch.randn(7, 3), torch.tensor([0, 1, 2, -100, 1, 0, 2])
            torch.testing.assert_close(criterion(logits, target), nn.CrossEntropyLoss()(logits, target))
            assert criterion.weigh(logits, target).tolist() == [1, 1, 1, 0, 1, 1, 1]
        else:
            losses = torch.rand(7)
            torch.testing.assert_close(criterion(losses), losses.mean())
            assert criterion.weigh(losses).tolist() == [1.0] * 7
        assert_same(before, criterion.state_dict())


REFUSED = {
    "shape of index": lambda r: r(torch.rand(4), torch.arange(3)),
    "float index": lambda r: r(torch.rand(4), torch.rand(4)),
    "bool index": lambda r: r(torch.rand(4), torch.ones(4, dtype=torch.bool)),
    "negative index": lambda r: r(torch.rand(4), torch.tensor([0, 1, -1, 2])),
    "ignored index": lambda r: r(torch.rand(4), torch.tensor([0, 1, -100, 2])),
    "groups of a sudden": lambda r: r(torch.rand(4), torch.arange(4), torch.arange(4)),
    "mean": lambda r: r(torch.rand(4).mean()),
    "shape of mask": lambda r: r(torch.rand(4), torch.arange(4), mask=torch.ones(3, dtype=torch.bool)),
}


@pytest.mark.parametrize("mistake", REFUSED)
def test_a_refused_call_leaves_the_loss_as_it_was(mistake):
    robust = trained()
    before = copy.deepcopy(robust.state_dict())
    with pytest.raises((TypeError, ValueError, IndexError)):
        REFUSED[mistake](robust)
    assert_same(before, robust.state_dict())
    robust(torch.rand(4), torch.arange(4))


@pytest.mark.parametrize("group", [-1, -100])
def test_negative_groups_are_refused_in_words(group):
    robust = Robust()
    with pytest.raises(IndexError, match=rf"groups holds {group}: number from 0"):
        robust(torch.rand(3), groups=torch.tensor([0, group, 1]))
    robust(torch.rand(3))  # Without groups from the start: the mistaken call has decided nothing.


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64])
def test_any_integers_are_indices_and_groups(dtype):
    robust, expected = Robust(update_every=2), Robust(update_every=2)
    for step in range(6):
        losses, index = torch.rand(6), (torch.arange(6) + step) % 10
        value = robust(losses, index.to(dtype), (index % 3).to(dtype))
        torch.testing.assert_close(value, expected(losses, index, index % 3))
    torch.testing.assert_close(robust.inlier_probability(), expected.inlier_probability())


def test_an_index_far_beyond_the_others_is_announced_with_its_memory():
    robust = Robust()
    robust(torch.rand(4), torch.arange(4))
    with pytest.warns(RuntimeWarning, match=r"index holds 100000000, far beyond .* takes 0\.4 GiB"):
        robust(torch.rand(1), torch.tensor([100_000_000]))


class TestCheckpoints:
    @pytest.mark.parametrize("saved", ["auto", 0.5, 0.9])
    def test_a_given_fraction_stays_given(self, saved):
        robust = Robust(inlier_fraction=0.7, warmup=0, update_every=4)
        robust.load_state_dict(trained(inlier_fraction=saved).state_dict())
        for _ in range(4):
            robust(torch.rand(20), torch.randperm(40)[:20])
        assert float(robust.inlier_fraction) == pytest.approx(0.7)
        assert robust.fraction_estimate.value == 0.7

    def test_auto_goes_on_estimating_after_a_given_fraction(self):
        robust = Robust(warmup=0, update_every=4)
        robust.load_state_dict(trained(inlier_fraction=0.5).state_dict())
        for _ in range(60):
            robust(torch.rand(20), torch.randperm(40)[:20])
        assert float(robust.inlier_fraction) > 0.9

    @pytest.mark.parametrize("kind", LOSSES)
    def test_what_is_garbled_is_refused_by_its_key_and_changes_nothing(self, kind):
        fresh, good = LOSSES[kind](), LOSSES[kind]().state_dict()
        before = copy.deepcopy(fresh.state_dict())
        garbled = {
            "missing": lambda t: None,
            "truncated": lambda t: t[: len(t) // 2] if t.dim() else None,
            "another shape": lambda t: t.unsqueeze(0),
            "no tensor": lambda t: "what is this",
            "NaN": lambda t: torch.full_like(t, math.nan) if t.is_floating_point() else t.float() * math.nan,
        }
        tried = 0
        for key in good:
            for harm, change in garbled.items():
                # A mean of NaN is a sample that was never seen, a shorter reason is a reason.
                if (key == "memory.mean" and harm in ("NaN", "truncated")) or "reason" in key:
                    continue
                if harm in ("missing", "NaN") and key in ("memory.tags", "memory.frozen"):
                    continue
                # The mean of no losses is NaN, and so is a fit that was not trusted.
                if key.endswith(("estimator.0.counters", "estimator.0.recent")) and harm == "NaN":
                    continue
                state = dict(good)
                value = change(good[key])
                if value is None:
                    del state[key]
                else:
                    state[key] = value
                with pytest.raises((ValueError, RuntimeError), match=key.split(".")[-1]):
                    fresh.load_state_dict(state)
                assert_same(before, fresh.state_dict())
                tried += 1
        assert tried > 25
        fresh.load_state_dict(good)

    def test_another_kind_of_loss_is_refused(self):
        with pytest.raises(ValueError, match=r"kernel is margins, not GemanMcClure\(\)"):
            Robust().load_state_dict(RobustCrossEntropy().state_dict())
        with pytest.raises(ValueError, match=r"kernel is GemanMcClure\(\), not margins"):
            RobustCrossEntropy().load_state_dict(Robust().state_dict())

    def test_resume_with_labels_is_exact(self):
        def batch(generator):
            index = torch.randperm(40, generator=generator)[:20]
            return 2 * torch.randn(20, 3, generator=generator), index % 3, index

        whole, generator = RobustCrossEntropy(update_every=4), torch.Generator().manual_seed(0)
        calls = [batch(generator) for _ in range(30)]
        for call in calls[:13]:
            whole(*call)
        resumed = RobustCrossEntropy(update_every=4)
        resumed.load_state_dict(copy.deepcopy(whole.state_dict()))
        for call in calls[13:]:
            assert torch.equal(whole(*call), resumed(*call))
        assert_same(whole.state_dict(), resumed.state_dict())


class Holder(nn.Module):
    """A model with a robust loss inside."""

    def __init__(self, criterion) -> None:
        super().__init__()
        self.layer, self.criterion = nn.Linear(2, 2), criterion


@pytest.mark.parametrize("kind", LOSSES)
@pytest.mark.parametrize(
    "change",
    [
        lambda m: m.half(),
        lambda m: m.bfloat16(),
        lambda m: m.double(),
        lambda m: m.to(torch.float16),
        lambda m: m.to("cpu", torch.bfloat16),
    ],
)
def test_the_dtype_of_the_model_is_not_that_of_the_state(kind, change):
    model, untouched = Holder(LOSSES[kind]()), LOSSES[kind]()
    change(model)
    assert model.layer.weight.dtype != torch.float32
    assert_same(untouched.state_dict(), model.criterion.state_dict())
    for step in range(6):
        torch.manual_seed(step)
        index = torch.randperm(40)[:20]
        if kind == "RobustCrossEntropy":
            call = (torch.randn(20, 3), index % 3, index)
        else:
            call = (1e4 * torch.rand(20), index)
        assert torch.equal(model.criterion(*call), untouched(*call))


class TestBadLosses:
    def test_an_epoch_of_nan_moves_no_estimate(self):
        torch.manual_seed(0)
        robust = Robust(warmup=0, update_every=5)

        def epoch(bad: float) -> None:
            for _ in range(100):
                outlier = torch.rand(32) < 0.3
                losses = (torch.randn(32) * torch.where(outlier, 30.0, 1.0)) ** 2
                robust(torch.where(torch.rand(32) < bad, math.nan, losses))

        epoch(0.0)
        epoch(0.0)
        before = float(robust.inlier_fraction), float(robust.scale)
        assert before[0] == pytest.approx(0.7, abs=0.05)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            epoch(1.0)
            assert (float(robust.inlier_fraction), float(robust.scale)) == pytest.approx(before, rel=1e-4)
            epoch(0.5)
        assert float(robust.inlier_fraction) == pytest.approx(before[0], abs=0.05)
        assert robust.bad_losses > 3200

    def test_a_nan_of_any_sign_is_bad(self):
        robust = Robust(update_every=1)
        with pytest.warns(RuntimeWarning, match="weight 0"):
            robust(torch.tensor([1.0, math.nan, -math.nan, math.inf, -math.inf]))
        assert robust.bad_losses == 4
        assert robust.last_weights.tolist() == [1.0, 0.0, 0.0, 0.0, 0.0]

    def test_logits_that_are_not_finite_get_weight_0(self):
        criterion = RobustCrossEntropy(update_every=1)
        logits = torch.tensor([[0.0, 1.0], [math.nan, 0.0], [math.inf, math.inf]], requires_grad=True)
        with pytest.warns(RuntimeWarning, match="weight 0"):
            criterion(logits, torch.tensor([1, 0, 1]), torch.arange(3)).backward()
        assert logits.grad[0].abs().sum() > 0
        assert criterion.last_weights.tolist() == [1.0, 0.0, 0.0]


@pytest.mark.parametrize("factor", [1e6, 1e-6])
@pytest.mark.parametrize("index", [True, False])
def test_a_sudden_change_of_the_losses_unit_does_not_stall_the_training(factor, index):
    torch.manual_seed(0)
    robust = Robust(inlier_fraction=0.8, warmup=0)
    weights = []
    for step in range(700):
        unit = factor if step >= 600 else 1.0
        numbers = torch.randperm(5000)[:32] if index else None
        robust(unit * torch.randn(32) ** 2, numbers)
        weights.append(float(robust.last_weights.mean()))
    assert sum(weights[580:600]) / 20 == pytest.approx(0.8, abs=0.06)
    assert sum(weights[640:660]) / 20 == pytest.approx(0.8, abs=0.1)


class TestEstimators:
    def test_any_estimator_can_be_passed(self):
        class Half(GivenFraction):
            pass

        for estimator in (Half(0.5), FromLosses(), GivenFraction(0.5)):
            robust = Robust(inlier_fraction=estimator, warmup=0, update_every=2)
            for _ in range(8):
                robust(torch.rand(50))
            assert robust.fraction_estimate == estimator.estimate()

    @pytest.mark.parametrize("wrong", ["most", None, [0.5]])
    def test_anything_else_is_refused(self, wrong):
        with pytest.raises((TypeError, ValueError), match="pass 'auto', a number, or a FractionEstimator"):
            Robust(inlier_fraction=wrong)

    def test_what_is_not_trusted_is_acted_on_by_half(self):
        class Known(GivenFraction):
            def estimate(self):
                return replace(super().estimate(), value=self.value, trusted=self.is_trusted)

        estimator = Known(0.6)
        acted = []
        for value, is_trusted in ((0.6, False), (0.6, True), (0.6, False), (0.5, False), (1.0, False)):
            estimator.value, estimator.is_trusted = value, is_trusted
            if not acted:
                robust = Robust(inlier_fraction=estimator, warmup=0, update_every=1)
            robust(torch.rand(200))
            acted.append(round(float(robust.inlier_fraction), 6))
            assert robust.fraction_estimate.value == value
        # An estimate that was trusted is acted on until another one takes its place.
        assert acted == [0.8, 0.6, 0.6, 0.75, 1.0]

    @pytest.mark.parametrize(
        ("error", "acted_on"), [(0.0, 0.8), (0.02, 0.8), (0.05, 0.7), (0.15, 0.9), (0.3, 1.0)]
    )
    def test_what_is_uncertain_and_not_trusted_is_acted_on_as_far_as_it_is_certain(self, error, acted_on):
        class Uncertain(GivenFraction):
            def estimate(self):
                return replace(super().estimate(), standard_error=error, trusted=False)

        robust = Robust(inlier_fraction=Uncertain(0.6), warmup=0, update_every=1)
        robust(torch.rand(200))
        assert float(robust.inlier_fraction) == pytest.approx(acted_on)

    def test_the_estimate_says_how_far_it_can_be_trusted(self):
        torch.manual_seed(0)
        robust = Robust(warmup=0, update_every=1)
        assert not robust.fraction_estimate.trusted
        for _ in range(60):
            outlier = torch.rand(64) < 0.3
            robust((torch.randn(64) * torch.where(outlier, 30.0, 1.0)) ** 2)
        estimate = robust.fraction_estimate
        assert estimate.trusted
        assert estimate.value == pytest.approx(0.7, abs=0.06)
        assert 0 < estimate.standard_error < 0.05
        assert estimate.reason
