"""The theory: each statement of the paper as a statement over random inputs."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from inlier import kernels, solve_scale
from inlier.experiments.baselines import trimmed
from inlier.experiments.regression.data import draw, least_squares, squared_errors
from inlier.experiments.regression.runner import Schedule, StepRule
from inlier.experiments.sweep import load, plan
from inlier.experiments.theory.convergence import conformal_threshold, coverage, reached, starting_points
from inlier.experiments.theory.experiment import EXPERIMENT
from inlier.experiments.theory.landscape import interpolate, loss_landscape
from inlier.experiments.theory.regions import CURVES, Curve, assumptions, problem, regions, weights_at
from inlier.experiments.theory.variance import lemma_2, outlier_energy, variance_of_descent_direction

seeds = st.integers(0, 10_000)
every_curve = pytest.mark.parametrize("curve", CURVES.values(), ids=CURVES)


def random_gradients(seed: int, n: int = 40, d: int = 3, rate: float = 0.3) -> tuple[torch.Tensor, ...]:
    """Clean gradients, gradients with larger outliers (Assumption 2), which those are, and weights."""
    generator = torch.Generator().manual_seed(seed)
    clean = torch.randn(n, d, generator=generator, dtype=torch.float64)
    outlier = torch.arange(n) < rate * n
    h = torch.randn(n, d, generator=generator, dtype=torch.float64)
    least = clean.norm(dim=1).clamp(min=1) * (1 + torch.rand(n, generator=generator))
    h = torch.where(outlier[:, None], h / h.norm(dim=1, keepdim=True) * least[:, None], 0.0)
    return clean, clean + h, outlier, torch.rand(n, generator=generator, dtype=torch.float64)


@given(seeds)
def test_variance_is_that_of_numpy(seed: int) -> None:
    _, gradients, _, weights = random_gradients(seed)
    steps = 0.1 * weights.numpy()[:, None] * gradients.numpy()
    ours = variance_of_descent_direction(gradients, weights, step_size=0.1)
    assert float(ours) == pytest.approx(np.var(steps, axis=0).sum())
    centre = torch.tensor([1.0, 2.0, 3.0])
    about = variance_of_descent_direction(gradients, weights, 0.1, centre)
    assert float(about) == pytest.approx(((steps - centre.numpy()) ** 2).sum(1).mean())


def test_variance_takes_per_sample_gradients_of_any_model() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Tanh(), torch.nn.Linear(3, 1))
    x, y, parameters = torch.randn(9, 2), torch.randn(9), dict(model.named_parameters())

    def loss(parameters, x, y):
        return (torch.func.functional_call(model, parameters, x)[0] - y) ** 2

    by_name = torch.vmap(torch.func.grad(loss), (None, 0, 0))(parameters, x, y)
    gradients = torch.cat([gradient.detach().flatten(1) for gradient in by_name.values()], dim=1)
    weights = torch.rand(9)
    mean = (weights[:, None] * gradients).mean(0)
    expected = sum(float((u * g - mean).square().sum()) for u, g in zip(weights, gradients, strict=True)) / 9
    assert float(variance_of_descent_direction(gradients, weights)) == pytest.approx(expected, rel=1e-5)


@given(seeds, st.floats(0.0, 1.0), st.booleans())
def test_lemma_2_with_all_terms_holds_under_assumption_2(seed: int, rate: float, weighted: bool) -> None:
    clean, gradients, outlier, weights = random_gradients(seed, rate=rate)
    sides = lemma_2(gradients, clean, outlier, weights if weighted else None, step_size=0.3)
    assert (sides.large, sides.dominant) == (1.0, 1.0)
    assert sides.variance <= sides.bound * (1 + 1e-12)
    assert sides.variance <= sides.error * (1 + 1e-12)


def test_lemma_2_as_printed_fails_where_inliers_vary_and_outliers_are_few() -> None:
    clean, gradients, outlier, _ = random_gradients(0, rate=0.0)
    sides = lemma_2(gradients, clean, outlier)
    assert sides.printed_bound == 0 < sides.variance


def test_weights_lower_both_sides_of_lemma_2() -> None:
    data = draw(0.4, 0)
    w = least_squares(data.x, data.clean_y)
    gradients = 2 * (data.x @ w - data.y)[:, None] * data.x
    clean = 2 * (data.x @ w - data.clean_y)[:, None] * data.x
    weights = weights_at(squared_errors(data, w)[None], kernels.get("geman-mcclure"), 0.6)[0]
    unweighted, robust = (
        lemma_2(gradients, clean, data.outlier),
        lemma_2(gradients, clean, data.outlier, weights),
    )
    assert robust.variance < unweighted.variance / 100
    assert robust.printed_bound < unweighted.printed_bound / 100
    # The outliers' gradients are -2 o x: their mean is not quite 0, and few are smaller than the clean ones.
    assert 0 < unweighted.mean_ratio < 0.2
    assert 0.9 < unweighted.dominant < 1


def test_a_mean_of_pl_functions_may_have_a_smaller_constant_than_each() -> None:
    # f_1 = w_1^2 and f_2 = w_2^2 are PL with constant 2; their mean has gradient w, and constant 1.
    w = torch.randn(100, 2, dtype=torch.float64)
    for i in (0, 1):
        assert torch.allclose((2 * w[:, i]) ** 2 / (2 * w[:, i] ** 2), torch.tensor(2.0).double())
    mean = w.square().sum(1) / 2
    assert torch.allclose(w.square().sum(1) / (2 * mean), torch.tensor(1.0).double())


@every_curve
def test_gradients_of_the_curves_are_those_of_autograd(curve: Curve) -> None:
    data = problem(curve, 0.3, samples=50)
    w = torch.tensor([0.7, -0.3], dtype=torch.float64)
    expected = torch.autograd.functional.jacobian(lambda w: curve.predict(w, data.x), w)
    assert torch.allclose(curve.jacobian(w, data.x), expected)
    losses = torch.autograd.functional.jacobian(lambda w: (data.y - curve.predict(w, data.x)).square(), w)
    clean = torch.autograd.functional.jacobian(
        lambda w: (data.clean_y - curve.predict(w, data.x)).square(), w
    )
    h = -2 * (data.y - data.clean_y)[:, None] * curve.jacobian(w, data.x)
    assert torch.allclose(losses - clean, h)
    found = regions(curve, data, holds=(1,), points=3)
    at = found.grid[4]
    energy = outlier_energy(2 * (data.y - data.clean_y)[:, None] * curve.jacobian(at, data.x), data.outlier)
    assert float(found.sgd[4]) == pytest.approx(float(energy))


@every_curve
def test_regions_grow_with_weights_and_shrink_with_stale_ones(curve: Curve) -> None:
    data = problem(curve, 0.5, samples=300)
    found = regions(curve, data, points=15)
    losses = (data.y - curve.predict(found.grid, data.x)).square()
    weights = weights_at(losses, kernels.get("geman-mcclure"), data.inlier_fraction)
    h = 2 * (data.y - data.clean_y)[:, None] * curve.jacobian(found.grid, data.x)
    assert torch.allclose(found.aaa[1], outlier_energy(h, data.outlier, weights))
    assert bool((found.aaa[1] <= found.sgd * (1 + 1e-9)).all())
    assert bool((found.aaa[1] <= found.aaa[10]).all())
    assert bool((found.aaa[10] <= found.aaa[100]).all())
    areas = found.areas(0.1 * found.at_optimum)
    assert areas["sgd"] < areas["aaa_1"]
    assert areas["aaa_100"] <= areas["aaa_10"] <= areas["aaa_1"]
    held = assumptions(curve, data, found)
    # No assumption of the theorems holds everywhere, and beta allows only the tiniest steps.
    assert held.dominant < 1
    assert held.aligned < 1
    assert 0 < held.beta < 1e-3
    assert held.largest_step(0.5, 1.0, 1e-3, zeta=0.5) < held.largest_step(0.5, 1.0, 1e-3) < 7e-4


def test_the_region_of_sgd_is_all_or_nothing_for_a_linear_model() -> None:
    found = regions(CURVES["linear"], problem(CURVES["linear"], 0.5, samples=300), holds=(1,), points=9)
    assert torch.allclose(found.sgd, found.sgd[:1])
    assert found.areas(found.at_optimum * 0.999)["sgd"] == 0
    assert found.areas(found.at_optimum * 1.001)["sgd"] == 1


def test_from_anywhere_in_the_window_the_alternation_converges_and_sgd_does_not() -> None:
    data = [problem(CURVES["linear"], rate, samples=500) for rate in (0.0, 0.5)]
    rules = [StepRule("sgd"), StepRule("adaptive", "geman-mcclure")]
    converged = reached(data, rules, starting_points(3), Schedule(4000, step_size=0.02))
    shares = converged.double().mean(-1)
    assert shares[:, 0].tolist() == [1.0, 1.0]
    assert float(shares[0, 1]) < 0.2
    assert float(shares[1, 1]) == 1.0


@pytest.mark.parametrize("zeta", [0.29, 0.5, 0.73])
def test_remark_3_the_truncated_kernel_is_iterative_trimming_step_by_step(zeta: float) -> None:
    data = draw(0.4, 0, samples=200, dimension=3)
    truncated, w = kernels.get("truncated"), least_squares(data.x, data.y)
    for iterations in range(1, 8):
        losses = squared_errors(data, w)
        weights = truncated.weight(losses, solve_scale(losses, truncated, zeta))
        # zeta n is an integer here: neither floor nor ceiling moves it.
        assert torch.equal(weights.bool(), trimmed.kept_set(losses, zeta))
        w = least_squares(data.x, data.y, weights)
        fit = trimmed.fit(
            lambda weights: least_squares(data.x, data.y, weights),
            lambda model: squared_errors(data, model),
            200,
            zeta,
            max_iterations=iterations,
        )
        assert torch.allclose(fit.model, w)


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=60, unique=True), st.floats(0.02, 0.99))
def test_remark_4_the_kept_set_is_the_conformal_set(values: list[float], zeta: float) -> None:
    losses = torch.tensor(values, dtype=torch.float64)
    kept = losses <= solve_scale(losses, "truncated", zeta)
    # Sample i conforms at level zeta if more than a fraction 1 - zeta has a loss at least as large.
    p_value = (losses[None] >= losses[:, None]).double().mean(1)
    assert torch.equal(kept, p_value > 1 - zeta + 1e-9)


def test_remark_4_coverage_of_new_data() -> None:
    level, covered = 0.7, []
    for seed in range(40):
        data, fresh = draw(0.3, seed, dimension=2), draw(0.3, seed + 1000, dimension=2)
        fresh = type(fresh)(**{**vars(fresh), "y": fresh.y + fresh.x @ (data.true_w - fresh.true_w)})
        covered.append(coverage(data, fresh, data.true_w, level))
    adaptive, conformal = torch.tensor(covered).mean(0).tolist()
    assert adaptive == pytest.approx(level, abs=0.01)
    assert conformal == pytest.approx(level, abs=0.015)


def test_conformal_threshold_leaves_room_for_the_new_sample() -> None:
    losses = torch.arange(1.0, 100.0)
    assert conformal_threshold(losses, 0.9) == 90
    assert conformal_threshold(losses[:5], 0.9) == float("inf")


def test_landscape_passes_through_both_models_and_changes_neither() -> None:
    torch.manual_seed(0)
    a, b = (torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4)) for _ in range(2))
    for model in (a, b):
        model(torch.randn(20, 3) * 3 + 1)
        model.eval()
    b(torch.randn(20, 3))
    x = torch.randn(7, 3)
    expected = [float(model(x).detach().square().mean()) for model in (a, b)]
    before = [{k: v.clone() for k, v in model.state_dict().items()} for model in (a, b)]
    kappa, loss = loss_landscape(a, b, lambda model: model(x).square().mean(), steps=5, low=0.0, high=1.0)
    assert kappa.tolist() == [0, 0.25, 0.5, 0.75, 1]
    assert [float(loss[0]), float(loss[-1])] == pytest.approx(expected)
    for state, model in zip(before, (a, b), strict=True):
        assert all(torch.equal(state[k], v) for k, v in model.state_dict().items())
    middle = interpolate(a, b, 0.5)
    assert torch.allclose(middle[1].running_mean, (a[1].running_mean + b[1].running_mean) / 2)
    assert middle[1].num_batches_tracked.dtype == torch.int64


def test_landscape_refuses_different_architectures() -> None:
    with pytest.raises(ValueError, match="differ in 'bias'"):
        interpolate(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2, bias=False), 0.5)
    with pytest.raises(ValueError, match="differ in 'weight'"):
        interpolate(torch.nn.Linear(2, 2), torch.nn.Linear(3, 2), 0.5)
    with pytest.raises(ValueError, match="steps = 1"):
        loss_landscape(torch.nn.Linear(1, 1), torch.nn.Linear(1, 1), lambda model: 0.0, steps=1)


@pytest.mark.slow
def test_the_experiment_runs_and_draws(tmp_path) -> None:
    assert load("theory") is EXPERIMENT
    wanted = plan(EXPERIMENT, "smoke")
    units = EXPERIMENT.batches(wanted.rows, 2)
    assert sorted(row.key for unit in units for row in unit) == sorted(row.key for row in wanted.rows)
    frame = pd.DataFrame(
        [
            {"method": row.method, "rate": row.rate, "seed": row.seed, **metrics}
            for unit in units
            for row, metrics in EXPERIMENT.compute(unit)
        ]
    )
    assert EXPERIMENT.metric in frame
    made = EXPERIMENT.figures(frame, wanted.settings, tmp_path)
    assert all((tmp_path / name).stat().st_size > 10_000 for name, _ in made)
