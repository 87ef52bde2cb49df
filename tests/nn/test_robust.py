"""Robust on one process: what it computes, remembers, saves and refuses."""

from __future__ import annotations

import copy
import math
import pickle
import subprocess
import sys
import textwrap
import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import inlier
from inlier import Robust, kernels


def contaminated(n: int = 1000, rate: float = 0.4, seed: int = 0):
    """The paper's regression data: features, targets, which targets are outliers, and the true weights."""
    generator = torch.Generator().manual_seed(seed)
    x = 1 - torch.rand(n, 10, generator=generator)
    w = torch.randn(10, generator=generator)
    y = x @ w + 0.1 * torch.randn(n, generator=generator)
    outlier = torch.zeros(n, dtype=torch.bool)
    outlier[torch.randperm(n, generator=generator)[: round(rate * n)]] = True
    return x, y + outlier * 5 * torch.randn(n, generator=generator), outlier, w


def train(robust, x, y, epochs: int, batch: int = 25, step_size: float = 25 * 7e-4, seed: int = 0):
    """Plain SGD on a linear model, shuffled anew in each epoch; returns its weights."""
    generator = torch.Generator().manual_seed(seed)
    w = torch.zeros(x.shape[1], requires_grad=True)
    for _ in range(epochs):
        for i in torch.randperm(len(x), generator=generator).split(batch):
            (gradient,) = torch.autograd.grad(robust((x[i] @ w - y[i]) ** 2, i), w)
            with torch.no_grad():
                w -= step_size * gradient
    return w.detach()


class Reference:
    """Robust with a given fraction, written out: a window of all losses with their ages, and no histogram."""

    def __init__(
        self, kernel: str, fraction: float, warmup: int, window: int, update_every: int, running_mean: float
    ):
        self.kernel, self.fraction, self.warmup, self.window = kernels.get(kernel), fraction, warmup, window
        self.update_every, self.running_mean = update_every, running_mean
        self.losses, self.masses, self.means, self.fresh = torch.empty(0), torch.empty(0), {}, torch.empty(0)
        self.step, self.c, self.zeta = 0, math.inf, 1.0

    def __call__(self, losses, index=None):
        evidence = losses.detach().clone()
        if index is not None:
            for place, number in enumerate(index.tolist()):
                old = self.means.get(number, float(evidence[place]))
                evidence[place] = self.running_mean * old + (1 - self.running_mean) * float(evidence[place])
            for place, number in enumerate(index.tolist()):
                self.means[number] = float(evidence[place])
        weights = self.kernel.weight(evidence, self.c)
        loss = (weights * losses).sum() / (len(losses) * self.zeta)
        self.fresh = torch.cat([self.fresh, evidence])
        self.step += 1
        if self.step % self.update_every == 0:
            self.masses = torch.cat(
                [self.masses * math.exp(-len(self.fresh) / self.window), torch.ones(len(self.fresh))]
            )
            self.losses, self.fresh = torch.cat([self.losses, self.fresh]), torch.empty(0)
            self.zeta = 1 - (1 - self.fraction) * min(self.step / self.warmup, 1)
            self.c = self.solve()
        return loss

    def solve(self) -> float:
        if self.zeta == 1:
            return math.inf
        low, high = 1e-9, 1e9
        for _ in range(200):
            middle = math.sqrt(low * high)
            mean = float((self.kernel.weight(self.losses, middle) * self.masses).sum() / self.masses.sum())
            low, high = (middle, high) if mean < self.zeta else (low, middle)
        return high


@pytest.mark.parametrize("kernel", ["geman-mcclure", "truncated", "tukey", "symmetric-cross-entropy"])
@pytest.mark.parametrize("use_index", [True, False])
def test_agrees_with_a_slow_reference_over_many_steps(kernel, use_index):
    robust = Robust(kernel, 0.6, warmup=60, window=300, update_every=7, divide_by="weights")
    slow = Reference(kernel, 0.6, warmup=60, window=300, update_every=7, running_mean=0.7)
    generator = torch.Generator().manual_seed(0)
    for step in range(150):
        size = int(torch.randint(1, 20, (1,), generator=generator))
        losses = (
            torch.randn(size, generator=generator) * (1 + 9 * (torch.rand(size, generator=generator) < 0.3))
        ) ** 2
        losses = losses * (1 + step / 50)
        index = torch.randperm(40, generator=generator)[:size] if use_index else None
        ours, theirs = float(robust(losses, index)), float(slow(losses, index))
        # A truncated weight flips where a loss lies between two scales that differ by the width of a bin.
        if kernel != "truncated":
            assert ours == pytest.approx(theirs, rel=0.02)
        assert float(robust.inlier_fraction) == pytest.approx(slow.zeta)
        if slow.c < math.inf:
            assert float(robust.scale) == pytest.approx(slow.c, rel=0.016)


class TestAlternation:
    def test_weight_is_the_slope_at_the_current_loss_and_is_not_differentiated(self):
        robust = Robust("geman-mcclure", 0.5, warmup=0, update_every=1, divide_by="samples")
        robust(torch.rand(100))
        c = robust.scale.clone()
        losses = torch.tensor([0.1, 1.0, 9.0], requires_grad=True)
        robust(losses).backward()
        torch.testing.assert_close(losses.grad, kernels.GemanMcClure().weight(losses.detach(), c) / 3)

    def test_dividing_by_weights_only_rescales_by_the_fraction(self):
        results = []
        for divide_by in ("samples", "weights"):
            robust = Robust("tukey", 0.4, warmup=0, update_every=1, divide_by=divide_by)
            robust(torch.linspace(0, 1, 100))
            results.append(float(robust(torch.linspace(0, 1, 50))))
        assert results[1] == pytest.approx(results[0] / 0.4, rel=1e-6)

    def test_warmup_lowers_the_fraction_from_one(self):
        robust = Robust("tukey", 0.5, warmup=100, update_every=10)
        fractions = []
        for _ in range(12):
            for _ in range(10):
                robust(torch.rand(20))
            fractions.append(round(float(robust.inlier_fraction), 3))
        assert fractions[:3] == [0.95, 0.9, 0.85]
        assert fractions[9:] == [0.5, 0.5, 0.5]

    def test_before_the_first_update_it_is_the_plain_mean(self):
        losses = torch.rand(10)
        torch.testing.assert_close(Robust()(losses), losses.mean())

    def test_old_losses_are_forgotten(self):
        robust = Robust("truncated", 0.5, warmup=0, window=100, update_every=1)
        for scale in (1.0, 100.0):
            for _ in range(50):
                robust(scale * torch.linspace(0.01, 1, 50))
            assert float(robust.scale) == pytest.approx(scale / 2, rel=0.05)

    def test_auto_finds_the_fraction(self):
        x, y, _, _ = contaminated(rate=0.3)
        robust = Robust()
        train(robust, x, y, epochs=120)
        assert float(robust.inlier_fraction) == pytest.approx(0.7, abs=0.05)

    def test_auto_keeps_clean_data(self):
        x, y, _, _ = contaminated(rate=0.0)
        robust = Robust()
        train(robust, x, y, epochs=120)
        assert float(robust.inlier_fraction) > 0.95

    def test_eval_is_the_plain_mean_and_learns_nothing(self):
        robust = Robust("tukey", 0.5, warmup=0, update_every=1)
        robust(torch.rand(50), torch.arange(50))
        before = copy.deepcopy(robust.state_dict())
        losses = 100 * torch.rand(50)
        torch.testing.assert_close(robust.eval()(losses, torch.arange(50)), losses.mean())
        after = robust.state_dict()
        assert all(torch.equal(before[key], after[key]) or before[key].isnan().any() for key in before)
        mask = losses < 50
        torch.testing.assert_close(robust(losses, mask=mask), losses[mask].mean())


class TestChangeOfKernel:
    def test_it_goes_on_with_the_scale_of_the_new_one(self):
        both = [Robust(kernel, 0.6, warmup=0, update_every=4) for kernel in ("geman-mcclure", "truncated")]
        changed, always = both
        for _ in range(8):
            losses = torch.rand(50)
            for robust in both:
                robust(losses)
        assert changed.scale != always.scale
        changed.change_kernel("truncated")
        assert changed.scale == always.scale
        assert torch.equal(changed.weigh(losses), always.weigh(losses))

    def test_a_checkpoint_is_of_the_new_one(self):
        changed = Robust()
        changed(torch.rand(9), torch.arange(9))
        changed.change_kernel("truncated")
        Robust("truncated").load_state_dict(changed.state_dict())
        with pytest.raises(ValueError, match=r"kernel is Truncated\(\), not GemanMcClure"):
            Robust().load_state_dict(changed.state_dict())

    def test_one_that_cannot_have_the_fraction_is_refused_and_changes_nothing(self):
        robust = Robust(inlier_fraction=0.1)
        with pytest.raises(ValueError, match=r"inlier_fraction = 0\.1: pass 'auto', or a number above 0\.2"):
            robust.change_kernel("symmetric-cross-entropy")
        assert str(robust.kernel) == "GemanMcClure()"


class TestHold:
    """AAA_T: weights stay frozen for T calls, taken from the stored losses."""

    def test_weights_are_frozen_between_updates(self):
        robust = Robust("geman-mcclure", 0.5, hold=3, warmup=0, running_mean=0.0, divide_by="samples")
        index = torch.arange(4)
        stored = torch.tensor([0.1, 0.5, 1.0, 9.0])
        for _ in range(3):
            robust(stored, index)
        frozen = kernels.GemanMcClure().weight(stored, robust.scale)
        for _ in range(3):
            moved = 5 * torch.rand(4)
            assert float(robust(moved, index)) == pytest.approx(float((frozen * moved).mean()), rel=1e-5)
        refrozen = kernels.GemanMcClure().weight(moved, robust.scale)
        new = torch.rand(4)
        assert float(robust(new, index)) == pytest.approx(float((refrozen * new).mean()), rel=1e-5)

    def test_refresh_is_a_round_of_the_papers_algorithm(self):
        losses = torch.rand(200) ** 3
        robust = Robust("geman-mcclure", 0.6, hold=10, warmup=0, divide_by="samples")
        robust.refresh(losses)
        assert float(robust.scale) == pytest.approx(
            float(inlier.solve_scale(losses, "geman-mcclure", 0.6)), rel=0.016
        )
        weights = robust.inlier_probability()
        assert float(weights.mean()) == pytest.approx(0.6, rel=1e-3)
        new = torch.rand(50)
        index = torch.arange(100, 150)
        assert float(robust(new, index)) == pytest.approx(float((weights[index] * new).mean()), rel=1e-5)

    def test_a_sample_not_seen_before_is_evidence_by_its_current_loss(self):
        robust = Robust("truncated", 0.5, hold=2, warmup=0, divide_by="samples")
        for _ in range(2):
            robust(torch.tensor([1.0, 2.0, 3.0, 4.0]), torch.arange(4))
        assert float(robust(torch.tensor([0.1, 100.0]), torch.tensor([50, 51]))) == pytest.approx(0.05)

    def test_without_index_it_says_what_to_do(self):
        with pytest.raises(ValueError, match=r"call robust\(losses, index\)"):
            Robust(hold=5)(torch.rand(3))


class TestMemory:
    def test_bad_samples_are_named(self):
        x, y, outlier, w = contaminated(rate=0.3)
        robust = Robust()
        train(robust, x, y, epochs=100)
        probability = robust.inlier_probability()
        gross = (y - x @ w).abs() > 1
        assert probability[gross].max() < 0.25
        assert probability[~outlier].mean() > 0.9

    def test_running_mean_and_last_loss(self):
        robust = Robust(running_mean=0.7)
        index = torch.tensor([3, 1])
        robust(torch.tensor([1.0, 5.0]), index)
        robust(torch.tensor([2.0, 5.0]), index)
        assert robust.sample_losses()[[3, 1]].tolist() == pytest.approx([0.7 * 1 + 0.3 * 2, 5.0])
        assert robust.sample_losses()[2].isnan()
        assert robust.inlier_probability().isnan().tolist() == [True, False, True, False]

    def test_it_grows_or_keeps_to_the_number_given(self):
        robust = Robust()
        robust(torch.rand(2), torch.tensor([0, 9]))
        robust(torch.rand(1), torch.tensor([1000]))
        assert robust.num_samples >= 1001
        given = Robust(samples=10)
        given(torch.rand(2), torch.tensor([0, 9]))
        with pytest.raises(IndexError, match=r"index holds 10, but samples = 10"):
            given(torch.rand(1), torch.tensor([10]))
        with pytest.raises(IndexError, match="number from 0"):
            given(torch.rand(1), torch.tensor([-1]))

    def test_bytes_per_sample(self):
        for arguments, groups, most in [
            ({}, None, 4),
            ({}, torch.zeros(1000, dtype=torch.long), 8),
            ({"hold": 2}, None, 8),
        ]:
            robust = Robust(samples=1000, **arguments)
            for _ in range(2):
                robust(torch.rand(1000), torch.arange(1000), groups)
            per_sample = [t for t in robust.state_dict().values() if t.shape == (1000,)]
            assert sum(t.element_size() for t in per_sample) == most

    def test_probability_without_numbers_says_what_to_do(self):
        with pytest.raises(RuntimeError, match="train with `index` first"):
            Robust().inlier_probability()


class TestGroups:
    def test_each_group_has_its_own_scale(self):
        robust = Robust("truncated", 0.5, warmup=0, update_every=1)
        groups = torch.arange(3).repeat(1000)
        losses = torch.rand(3000) * torch.tensor([1.0, 10.0, 100.0])[groups]
        robust(losses, groups=groups)
        assert (robust.scale / torch.tensor([0.5, 5.0, 50.0])).tolist() == pytest.approx([1, 1, 1], rel=0.15)

    def test_a_hard_group_is_not_thrown_out(self):
        """With one scale a group of larger losses loses all its weight; with one each it keeps its share."""
        groups = torch.arange(2).repeat(2000)
        losses = torch.rand(4000) * torch.tensor([1.0, 50.0])[groups]
        kept = {}
        for name, given in (("one", None), ("each", groups)):
            robust = Robust("truncated", 0.5, warmup=0, update_every=1, divide_by="samples")
            robust(losses, groups=given)
            leaf = losses.clone().requires_grad_()
            robust(leaf, groups=given).backward()
            kept[name] = float((leaf.grad[groups == 1] > 0).float().mean())
        assert kept["one"] < 0.05
        assert kept["each"] == pytest.approx(0.5, abs=0.03)

    def test_each_group_has_its_own_fraction(self):
        robust = Robust("tukey", warmup=0, update_every=1, window=100_000)
        generator = torch.Generator().manual_seed(0)
        for _ in range(80):
            groups = torch.arange(2).repeat(500)
            bad = torch.rand(1000, generator=generator) < torch.tensor([0.1, 0.5])[groups]
            losses = (torch.randn(1000, generator=generator) * torch.where(bad, 30.0, 1.0)) ** 2
            robust(losses, groups=groups)
        assert robust.inlier_fraction.tolist() == pytest.approx([0.9, 0.5], abs=0.06)

    def test_small_groups_borrow_from_the_whole(self):
        robust = Robust("truncated", 0.5, warmup=0, update_every=1)
        losses = torch.cat([torch.rand(5000), torch.tensor([80.0])])
        groups = torch.cat([torch.zeros(5000), torch.ones(1)]).long()
        robust(losses, groups=groups)
        # The median of 10 pooled losses and one of 80.
        assert float(robust.scale[1]) == pytest.approx(0.55, rel=0.05)

    def test_new_groups_can_come_later(self):
        robust, at_once = (Robust("truncated", 0.5, warmup=0, update_every=3) for _ in range(2))
        first, second, third = torch.rand(3, 10)
        robust(first, groups=torch.zeros(10, dtype=torch.long))
        robust(second, groups=torch.full((10,), 6))
        robust(third, groups=torch.zeros(10, dtype=torch.long))
        both = torch.cat([torch.zeros(10), torch.full((10,), 6), torch.zeros(10)]).long()
        for _ in range(3):
            at_once(torch.empty(0), groups=torch.empty(0, dtype=torch.long))
        at_once.refresh(torch.cat([first, second, third]), both)
        assert robust.scale.shape == (7,)
        torch.testing.assert_close(robust.scale[[0, 6]], at_once.scale[[0, 6]])

    def test_always_or_never(self):
        robust = Robust()
        robust(torch.rand(3))
        with pytest.raises(ValueError, match="give them in all or in none"):
            robust(torch.rand(3), groups=torch.zeros(3, dtype=torch.long))


class TestShapes:
    def test_any_shape_is_the_flat_one(self):
        for shape in [(6,), (2, 3), (1, 2, 3)]:
            robust = Robust("tukey", 0.5, warmup=0, update_every=1)
            losses = torch.linspace(0.1, 1, 6)
            robust(losses.view(shape), torch.arange(6).view(shape))
            value = robust(losses.view(shape), torch.arange(6).view(shape))
            flat = Robust("tukey", 0.5, warmup=0, update_every=1)
            flat(losses, torch.arange(6))
            torch.testing.assert_close(value, flat(losses, torch.arange(6)))

    def test_masked_elements_are_left_out_of_everything(self):
        """Token losses with ignore_index: as if the ignored tokens were not there."""
        logits, labels = torch.randn(4, 5, 8), torch.randint(8, (4, 5))
        labels[:, 3:] = -100
        losses = F.cross_entropy(logits.transpose(1, 2), labels, reduction="none", ignore_index=-100)
        mask, index = labels != -100, torch.arange(20).view(4, 5)
        masked, short = (Robust("tukey", 0.5, warmup=0, update_every=1) for _ in range(2))
        for _ in range(3):
            torch.testing.assert_close(masked(losses, index, mask=mask), short(losses[mask], index[mask]))
        assert masked.scale == short.scale
        assert masked.inlier_probability()[3].isnan()

    def test_an_empty_batch_gives_zero_with_a_graph(self):
        model = nn.Linear(2, 1)
        loss = Robust()(model(torch.empty(0, 2)).squeeze(1))
        loss.backward()
        assert float(loss) == 0
        assert model.weight.grad.abs().sum() == 0


class TestBadLosses:
    def test_they_get_weight_zero_and_are_counted(self):
        robust = Robust("tukey", 0.9, warmup=0, update_every=1)
        losses = torch.tensor([1.0, math.nan, 2.0, math.inf], requires_grad=True)
        with pytest.warns(RuntimeWarning, match="infinite or NaN losses get weight 0"):
            loss = robust(losses, torch.arange(4))
        loss.backward()
        assert losses.grad.tolist() == [0.25, 0.0, 0.25, 0.0]
        assert robust.bad_losses == 2
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            robust(torch.tensor([1.0, math.nan]))
        assert robust.bad_losses == 3
        assert robust.sample_losses().isfinite().tolist() == [True, False, True, False]

    def test_all_of_a_batch_bad(self):
        model = nn.Linear(2, 1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            loss = Robust()(model(torch.ones(3, 2)).squeeze(1) + torch.tensor([math.nan, math.inf, math.nan]))
        loss.backward()
        assert float(loss) == 0
        assert model.weight.grad.abs().sum() == 0

    def test_a_mean_survives_a_bad_loss(self):
        robust = Robust()
        robust(torch.tensor([1.0]), torch.tensor([0]))
        robust(torch.tensor([math.nan]), torch.tensor([0]))
        assert float(robust.sample_losses()[0]) == 1.0

    def test_losses_below_0_by_rounding_do_not_warn(self):
        robust = Robust(update_every=1)
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            robust(torch.tensor([-1.2e-7, 1.0]))
        assert not seen
        assert robust.last_weights.tolist() == [1.0, 1.0]

    def test_negative_losses_warn_and_count_whole(self):
        robust = Robust("tukey", 0.5, warmup=0, update_every=1, divide_by="samples")
        with pytest.warns(RuntimeWarning, match="subtract a lower bound"):
            robust(torch.tensor([-1.0, 1.0, 2.0, 3.0]))
        losses = torch.tensor([-2.0, 100.0], requires_grad=True)
        robust(losses).backward()
        assert losses.grad.tolist() == [0.5, 0.0]


class TestMistakes:
    @pytest.mark.parametrize(
        ("call", "error", "words"),
        [
            (lambda: Robust()(torch.rand(3).mean()), ValueError, "reduction='none'"),
            (lambda: Robust()(3.0), TypeError, "floating-point tensor"),
            (lambda: Robust()(torch.arange(3)), TypeError, "floating-point tensor"),
            (
                lambda: Robust()(torch.rand(3), torch.arange(4)),
                ValueError,
                r"index has shape \(4,\) and losses \(3,\)",
            ),
            (lambda: Robust()(torch.rand(3), torch.rand(3)), TypeError, "index must hold integers"),
            (
                lambda: Robust()(torch.rand(3), mask=torch.ones(3, requires_grad=True)),
                ValueError,
                r"mask\.detach\(\)",
            ),
            (lambda: Robust("nonsense"), ValueError, "choose from truncated"),
            (lambda: Robust(inlier_fraction=0.0), ValueError, "pass 'auto', or a number above 0"),
            (lambda: Robust(inlier_fraction=1.5), ValueError, "at most 1"),
            (lambda: Robust("symmetric-cross-entropy", 0.1), ValueError, r"above 0\.2"),
            (lambda: Robust(hold=0), ValueError, "hold = 0"),
            (lambda: Robust(window=0), ValueError, "window = 0"),
            (lambda: Robust(warmup=-1), ValueError, "warmup = -1"),
            (lambda: Robust(divide_by="n"), ValueError, "'samples' or 'weights'"),
            (lambda: Robust(running_mean=1.0), ValueError, r"running_mean = 1\.0"),
        ],
    )
    def test_it_says_what_to_write_instead(self, call, error, words):
        with pytest.raises(error, match=words):
            call()


class TestTrainingFeatures:
    def test_autocast_and_half_precision(self):
        for dtype in (torch.bfloat16, torch.float16):
            model, robust = nn.Linear(8, 4), Robust("tukey", 0.8, warmup=0, update_every=1)
            x, y = torch.randn(64, 8), torch.randint(4, (64,))
            scaler = torch.amp.GradScaler("cpu", enabled=dtype == torch.float16)
            optimizer = torch.optim.SGD(model.parameters(), 0.1)
            for _ in range(3):
                with torch.autocast("cpu", dtype):
                    losses = F.cross_entropy(model(x), y, reduction="none")
                    loss = robust(losses, torch.arange(64))
                assert loss.dtype == torch.float32
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad()
            assert loss.isfinite()
            half = losses.detach().to(dtype).requires_grad_()
            robust(half).backward()
            assert half.grad.dtype == dtype

    def test_double_precision_is_kept(self):
        assert Robust()(torch.rand(4, dtype=torch.float64)).dtype == torch.float64

    def test_gradient_accumulation_is_the_joined_batch(self):
        robust = Robust("geman-mcclure", 0.5, warmup=0, update_every=5)
        for _ in range(5):
            robust(torch.rand(20))
        joined, parts = copy.deepcopy(robust), copy.deepcopy(robust)
        model = nn.Linear(3, 1)
        x = torch.randn(8, 3)
        (whole,) = torch.autograd.grad(joined(model(x).square().squeeze(1)), model.weight)
        for half in x.chunk(2):
            (parts(model(half).square().squeeze(1)) / 2).backward()
        torch.testing.assert_close(model.weight.grad, whole)

    def test_compiled_step_equals_the_eager_one(self):
        def step(model, robust, x, y):
            return robust(F.mse_loss(model(x), y, reduction="none").squeeze(1))

        torch.manual_seed(0)
        model = nn.Linear(3, 1)
        data = [(torch.randn(16, 3), torch.randn(16, 1)) for _ in range(12)]
        eager_robust, compiled_robust = (Robust("tukey", 0.5, warmup=0, update_every=2) for _ in range(2))
        # The eager backend shows what is traced without needing a C++ toolchain.
        compiled = torch.compile(step, backend="eager")
        for x, y in data:
            torch.testing.assert_close(
                compiled(model, compiled_robust, x, y), step(model, eager_robust, x, y)
            )
        assert torch.equal(compiled_robust.scale, eager_robust.scale)

    @pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
    def test_cuda_equals_cpu(self):
        on_cpu, on_gpu = Robust(warmup=0, update_every=2), Robust(warmup=0, update_every=2)
        for _ in range(20):
            losses, index = torch.rand(64), torch.randperm(200)[:64]
            torch.testing.assert_close(on_gpu(losses.cuda(), index.cuda()).cpu(), on_cpu(losses, index))

    def test_meta_device_moves_with_the_module(self):
        robust = Robust()
        robust(torch.rand(5), torch.arange(5))
        moved = copy.deepcopy(robust).to(torch.float32).to("cpu")
        torch.testing.assert_close(moved(torch.ones(5)), robust(torch.ones(5)))


RESUME = """
import sys, torch, inlier
sys.path.insert(0, {path!r})
from tests.nn.test_robust import resume_losses
robust = inlier.Robust(**{arguments!r})
robust.load_state_dict(torch.load({before!r}, weights_only=True))
trace = [robust(*call) for call in resume_losses({grouped!r})[{n}:]]
torch.save([torch.stack(trace), robust.state_dict()], {after!r})
"""


def resume_losses(grouped: bool, calls: int = 250):
    generator = torch.Generator().manual_seed(1)
    result = []
    for _ in range(calls):
        bad = torch.rand(24, generator=generator) < 0.3
        losses = (torch.randn(24, generator=generator) * torch.where(bad, 20.0, 1.0)) ** 2
        index = torch.randperm(200, generator=generator)[:24]
        result.append((losses, index, index % 3 if grouped else None))
    return result


class TestState:
    @pytest.mark.parametrize("grouped", [False, True])
    @pytest.mark.parametrize("arguments", [{}, {"inlier_fraction": 0.7, "kernel": "truncated"}, {"hold": 8}])
    def test_resume_in_a_new_process_is_exact(self, tmp_path, arguments, grouped):
        calls, n = resume_losses(grouped), 123
        robust = Robust(**arguments)
        trace = []
        for number, call in enumerate(calls):
            if number == n:
                torch.save(robust.state_dict(), tmp_path / "before.pt")
            trace.append(robust(*call))
        script = RESUME.format(
            path=".",
            arguments=arguments,
            grouped=grouped,
            n=n,
            before=str(tmp_path / "before.pt"),
            after=str(tmp_path / "after.pt"),
        )
        subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=True)
        resumed, state = torch.load(tmp_path / "after.pt", weights_only=True)
        assert torch.equal(resumed, torch.stack(trace[n:]))
        for key, value in robust.state_dict().items():
            torch.testing.assert_close(state[key], value, rtol=0, atol=0, equal_nan=True)

    def test_copy_and_pickle(self):
        robust = Robust("tukey", 0.6, warmup=0, update_every=2)
        for _ in range(5):
            robust(torch.rand(30), torch.arange(30))
        for twin in (copy.deepcopy(robust), pickle.loads(pickle.dumps(robust))):
            one, other = copy.deepcopy(robust), twin
            for losses in torch.rand(5, 30):
                assert torch.equal(one(losses, torch.arange(30)), other(losses, torch.arange(30)))

    def test_it_is_saved_with_the_model_that_holds_it(self):
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer, self.robust = nn.Linear(2, 1), Robust("tukey", 0.6, warmup=0, update_every=2)

        model, other = Model(), Model()
        for _ in range(5):
            model.robust(torch.rand(30), torch.arange(30))
        other.load_state_dict(model.state_dict())
        losses = torch.rand(30)
        assert torch.equal(model.robust(losses, torch.arange(30)), other.robust(losses, torch.arange(30)))

    def test_another_kernel_is_refused(self):
        state = Robust(kernels.Barron(alpha=-1.0)).state_dict()
        with pytest.raises(
            ValueError,
            match=r"kernel is Barron\(alpha=-1.0\), not GemanMcClure\(\)",
        ):
            Robust().load_state_dict(state)

    def test_another_number_of_samples_is_refused(self):
        robust = Robust(samples=10)
        robust(torch.rand(3), torch.arange(3))
        with pytest.raises(ValueError, match="holds 10 samples, but samples = 12"):
            Robust(samples=12).load_state_dict(robust.state_dict())
        fresh = Robust()
        fresh.load_state_dict(robust.state_dict())
        assert fresh.num_samples == 10


@pytest.mark.slow
@pytest.mark.parametrize(("rate", "trials"), [(0.0, 2), (0.2, 2), (0.4, 2), (0.6, 3), (0.8, 5)])
@pytest.mark.timeout(1200)
def test_nothing_to_tune_on_the_papers_regression(rate, trials):
    """Robust() without an argument, 10^6 samples seen: within 1.5 x of least squares on the inliers alone."""
    errors, floors = [], []
    for seed in range(trials):
        x, y, outlier, w = contaminated(rate=rate, seed=seed)
        best = torch.linalg.lstsq(x[~outlier], y[~outlier, None]).solution.squeeze(1)
        found = train(Robust(), x, y, epochs=1000, seed=seed)
        test_x = 1 - torch.rand(2000, 10, generator=torch.Generator().manual_seed(seed))
        for record, weights in ((errors, found), (floors, best)):
            record.append(float((test_x @ (weights - w)).square().mean().sqrt()))
    assert sum(errors) <= 1.5 * sum(floors)
