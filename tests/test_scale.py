"""The scale solver: what it solves, for which input, and that histograms give the same."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import inlier
from inlier import LossHistogram, kernels, solve_scale
from inlier.histogram import bits_for, coarsen
from inlier.scale import solve_scales

NAMES = kernels.names()
every_name = pytest.mark.parametrize("name", NAMES)
fractions = st.floats(0.21, 0.99)
samples = st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=50).map(
    lambda x: torch.tensor(x, dtype=torch.float64)
)


def heavy_tailed(n: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    residual = torch.randn(n, generator=generator, dtype=torch.float64)
    outlier = torch.rand(n, generator=generator) < 0.3
    return (residual * torch.where(outlier, 30.0, 1.0)) ** 2


@every_name
@pytest.mark.parametrize("zeta", [0.25, 0.5, 0.7, 0.99])
@pytest.mark.parametrize("n", [1, 7, 1000, 30_000])
def test_mean_weight_is_the_inlier_fraction(name, zeta, n):
    losses = heavy_tailed(n)
    kernel = kernels.get(name)
    c = solve_scale(losses, kernel, zeta)
    mean = float(kernel.weight(losses, c).mean())
    assert mean == pytest.approx(math.ceil(zeta * n) / n if name == "truncated" else zeta, rel=1e-10)


@given(samples, fractions, st.sampled_from(NAMES))
def test_answer_is_the_smallest_scale_that_reaches_the_fraction(losses, zeta, name):
    kernel = kernels.get(name)
    c = float(solve_scale(losses, kernel, zeta))
    assert float(kernel.weight(losses, c * (1 + 1e-9)).mean()) >= zeta - 1e-9
    assert float(kernel.weight(losses, c * (1 - 1e-6)).mean()) < zeta


@given(samples, fractions, st.sampled_from(NAMES), st.floats(1e-20, 1e20))
def test_equivariance(losses, zeta, name, k):
    c = solve_scale(losses, name, zeta)
    torch.testing.assert_close(solve_scale(k * losses, name, zeta), k * c, rtol=1e-9, atol=0)


@given(st.permutations(range(30)), fractions, st.sampled_from(NAMES))
def test_order_of_losses_does_not_matter(order, zeta, name):
    losses = heavy_tailed(30)
    torch.testing.assert_close(
        solve_scale(losses[list(order)], name, zeta), solve_scale(losses, name, zeta), rtol=1e-12, atol=0
    )


@given(st.integers(1, 200), st.integers(1, 100))
def test_truncated_keeps_the_lowest_losses(n, percent):
    """Remark 3: with the truncated kernel the rule keeps the zeta n samples of lowest loss."""
    losses = heavy_tailed(n, seed=n)
    c = solve_scale(losses, "truncated", percent / 100)
    kept = kernels.Truncated().weight(losses, c) == 1
    count = n if percent == 100 else max(1, math.ceil(percent * n / 100))
    expected = torch.zeros(n, dtype=torch.bool)
    expected[losses.argsort()[:count]] = True
    assert torch.equal(kept, expected)


def test_ties_at_the_quantile_are_all_kept():
    losses = torch.tensor([1.0, 2.0, 2.0, 2.0, 3.0])
    c = solve_scale(losses, "truncated", 0.4)
    assert float(c) == 2.0
    assert int((losses <= c).sum()) == 4


def test_dtype_device_and_shape():
    losses = torch.rand(4, 5, 6)
    assert solve_scale(losses, "tukey", 0.6).dtype == torch.float32
    assert solve_scale(losses, "tukey", 0.6).shape == ()
    assert solve_scale(losses.double(), "tukey", 0.6).dtype == torch.float64
    assert solve_scale(losses.half(), "tukey", 0.6).dtype == torch.float32
    assert not solve_scale(losses.requires_grad_(), "tukey", 0.6).requires_grad


def test_losses_far_outside_float32():
    losses = heavy_tailed(20_000)
    for k in (1e-200, 1e200):
        expected = k * solve_scale(losses, "geman-mcclure", 0.7)
        torch.testing.assert_close(solve_scale(k * losses, "geman-mcclure", 0.7), expected, rtol=1e-9, atol=0)


class TestDegenerateInput:
    """What each odd input gets, as the documentation of solve_scale lists it."""

    @every_name
    def test_fraction_one_keeps_everything(self, name):
        assert float(solve_scale(torch.rand(10), name, 1.0)) == math.inf

    @every_name
    def test_all_losses_zero(self, name):
        losses = torch.zeros(10)
        c = solve_scale(losses, name, 0.5)
        assert float(c) == 0
        assert kernels.get(name).weight(losses, c).tolist() == [1.0] * 10

    def test_enough_losses_zero(self):
        assert float(solve_scale(torch.tensor([0.0, 0.0, 0.0, 1.0]), "geman-mcclure", 0.7)) == 0

    @every_name
    def test_some_losses_zero(self, name):
        losses = torch.tensor([0.0, 0.0, 1.0, 2.0, 3.0, 9.0, 9.0, 9.0, 9.0, 9.0], dtype=torch.float64)
        kernel = kernels.get(name)
        assert float(kernel.weight(losses, solve_scale(losses, name, 0.5)).mean()) == pytest.approx(
            0.5, rel=1e-9
        )

    @every_name
    def test_infinite_and_nan_losses_are_left_out(self, name):
        losses = torch.tensor(
            [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, math.inf, math.nan], dtype=torch.float64
        )
        assert float(solve_scale(losses, name, 0.5)) == float(solve_scale(losses[:8], name, 0.5))
        histogram = float(solve_scale(LossHistogram.of(losses), name, 0.5))
        assert histogram == float(solve_scale(LossHistogram.of(losses[:8]), name, 0.5))

    def test_only_infinite_losses(self):
        assert float(solve_scale(torch.tensor([math.inf, math.nan]), "truncated", 0.6)) == math.inf

    def test_one_sample(self):
        assert float(solve_scale(torch.tensor([6.0]), "geman-mcclure", 0.25)) == pytest.approx(6.0)

    @pytest.mark.parametrize("make", [lambda x: x, LossHistogram.of])
    def test_negative_losses_raise(self, make):
        with pytest.raises(ValueError, match=r"smallest is -0\.5"):
            solve_scale(make(torch.tensor([1.0, -0.5])), "tukey", 0.5)

    def test_negative_zero_is_zero(self):
        assert LossHistogram.of(torch.tensor([-0.0, 1.0])).counts[0] == 1

    @pytest.mark.parametrize("make", [lambda x: x, LossHistogram.of])
    def test_empty_losses_raise(self, make):
        with pytest.raises(ValueError, match="losses is empty"):
            solve_scale(make(torch.empty(0)), "tukey", 0.5)

    @pytest.mark.parametrize("zeta", [0.0, -0.1, 1.1, math.nan])
    def test_fraction_outside_the_unit_interval_raises(self, zeta):
        with pytest.raises(ValueError, match=f"inlier_fraction = {zeta}"):
            solve_scale(torch.rand(3), "tukey", zeta)

    def test_fraction_at_the_floor_raises(self):
        with pytest.raises(ValueError, match=r"never falls below 0\.2"):
            solve_scale(torch.rand(3), "symmetric-cross-entropy", 0.2)


class TestHistogram:
    def test_parts_add_up_exactly_in_any_order(self):
        losses = heavy_tailed(10_001)
        whole = LossHistogram.of(losses)
        parts = [LossHistogram.of(part) for part in losses.tensor_split(7)]
        for order in (parts, parts[::-1]):
            merged = order[0]
            for part in order[1:]:
                merged = merged + part
            assert torch.equal(merged.counts, whole.counts)
            assert torch.equal(solve_scale(merged, "tukey", 0.6), solve_scale(whole, "tukey", 0.6))

    @pytest.mark.parametrize("bits", [3, 5, 7])
    def test_every_loss_lies_in_its_bin(self, bits):
        losses = torch.cat([torch.logspace(-37, 37, 999), torch.tensor([0.0, 3.4e38, math.inf, math.nan])])
        whole = LossHistogram.of(losses, bits)
        assert whole.bits == bits
        assert whole.total == len(losses) - 2
        for loss in losses[:-2].tolist():
            bin_number = int(LossHistogram.of(torch.tensor([loss]), bits).counts.argmax())
            assert float(whole.edges[bin_number]) <= loss
            assert loss < float(whole.edges[bin_number + 1])
            assert abs(float(whole.values[bin_number]) - loss) <= 2.0 ** -(bits + 1) * loss * (1 + 1e-6)
        assert int(whole.counts[-1]) == 2

    @every_name
    @pytest.mark.parametrize("zeta", [0.05, 0.25, 0.5, 0.9, 0.99])
    def test_scale_is_within_half_a_percent_of_the_exact_one(self, name, zeta):
        kernel = kernels.get(name)
        if zeta <= kernel.weight_floor:
            pytest.skip("no scale exists below the floor of the weight")
        # Clumps of equal losses are the worst case for a histogram.
        for losses in (heavy_tailed(20_000), heavy_tailed(20_000).round(decimals=1), torch.rand(50).double()):
            exact = float(solve_scale(losses, kernel, zeta))
            merged = float(solve_scale(LossHistogram.of(losses), kernel, zeta))
            assert merged == pytest.approx(exact, rel=0.004)


@pytest.mark.parametrize("kernel", ["geman-mcclure", "welsch-leclerc", "tukey"])
@pytest.mark.parametrize("groups", [100, 1000, 3000])
def test_the_scales_of_many_groups_are_those_of_each(kernel, groups):
    """As many groups as share the bins: the coarser, the larger the error, and still a few percent."""
    torch.manual_seed(0)
    losses = torch.randn(groups, 60) ** 2 * torch.logspace(-3, 3, groups)[:, None]
    bits = bits_for(groups)
    rows = torch.stack([LossHistogram.of(row, bits).counts for row in losses])
    zeta = torch.linspace(0.3, 0.9, groups)
    solved = solve_scales(rows, kernels.get(kernel), zeta)
    some = range(0, groups, groups // 20)
    exact = torch.stack([solve_scale(losses[k].double(), kernel, float(zeta[k])) for k in some])
    errors = (solved[list(some)] / exact - 1).abs()
    assert float(errors.mean()) < {100: 0.01, 1000: 0.03, 3000: 0.06}[groups]


@pytest.mark.parametrize("bits", [1, 3, 6])
def test_coarser_bins_are_unions_of_finer_ones(bits):
    losses = heavy_tailed(500)
    assert torch.equal(
        coarsen(LossHistogram.of(losses, 7).counts, bits), LossHistogram.of(losses, bits).counts
    )


def test_duality_objectives_meet_at_the_best_weights():
    losses = heavy_tailed(500)
    for name in NAMES:
        kernel = kernels.get(name)
        c = solve_scale(losses, kernel, 0.7)
        best = kernel.weight(losses, c)
        assert float(inlier.duality.duality_gap(kernel, losses, best, c)) == pytest.approx(
            0, abs=1e-9 * float(c)
        )
        worse = (best * 0.9 + 0.05).clamp(kernel.weight_floor + 1e-3, 1)
        assert float(inlier.duality.duality_gap(kernel, losses, worse, c)) > 0
        assert inlier.duality.primal_objective(kernel, losses, c) < losses.mean()
