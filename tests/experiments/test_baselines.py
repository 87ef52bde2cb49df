"""Baselines against values worked out by hand and independent implementations."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from inlier.experiments.baselines import clipping, gnc, trimmed

SQUARES = torch.logspace(-4, 4, 400, dtype=torch.float64)


def line(outliers: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Points on the line 2 x + 1 with noise 0.1, the first ones of which are far off; and the line."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.stack([torch.rand(200, generator=generator), torch.ones(200)], 1).double()
    true = torch.tensor([2.0, 1.0], dtype=torch.float64)
    y = x @ true + 0.1 * torch.randn(200, generator=generator).double()
    y[:outliers] += 5 + 5 * torch.rand(outliers, generator=generator).double()
    return x, y, true


def weighted_line(x: torch.Tensor, y: torch.Tensor):
    def solve(weights: torch.Tensor) -> torch.Tensor:
        root = np.sqrt(weights.numpy())
        return torch.from_numpy(np.linalg.lstsq(x.numpy() * root[:, None], y.numpy() * root, rcond=None)[0])

    return solve, lambda w: (y - x @ w) ** 2


@given(st.lists(st.floats(-100, 100), min_size=1, max_size=8), st.floats(0.01, 50))
def test_clipping_is_what_torch_does(values: list[float], limit: float) -> None:
    ours = torch.tensor(values, dtype=torch.float64)
    parameter = torch.nn.Parameter(torch.zeros_like(ours))
    parameter.grad = ours.clone()
    torch.nn.utils.clip_grad_norm_([parameter], limit)
    norm = clipping.global_norm([ours])
    assert torch.allclose(ours * clipping.clipping_factor(norm, limit), parameter.grad, rtol=1e-5, atol=1e-6)


def test_global_norm_takes_all_tensors_together() -> None:
    parts = [torch.randn(3, 4), torch.randn(5), torch.randn(())]
    whole = torch.cat([part.reshape(-1) for part in parts])
    assert torch.isclose(clipping.global_norm(parts), whole.norm())


def test_normalized_gradients_have_length_one_and_zero_stays_zero() -> None:
    gradients = torch.randn(10, 3, dtype=torch.float64)
    gradients[0] = 0
    lengths = (gradients * clipping.normalizing_factor(gradients.norm(dim=1))[:, None]).norm(dim=1)
    assert torch.allclose(lengths[1:], torch.ones(9, dtype=torch.float64), atol=1e-6)
    assert lengths[0] == 0


def test_clipping_one_sample_of_a_linear_model_is_a_step_of_the_huber_loss() -> None:
    x, limit = torch.tensor([0.6, 0.8]), 1.0
    for residual in (-3.0, -0.2, 0.2, 3.0):
        gradient = 2 * residual * x
        clipped = gradient * clipping.clipping_factor(gradient.norm(), limit)
        # Of length 1, x turns the limit on 2 |r| into Huber's delta of 1/2.
        huber = torch.autograd.functional.jacobian(
            lambda r: 2 * torch.nn.functional.huber_loss(r, torch.zeros(()), delta=limit / 2),
            torch.tensor(residual),
        )
        assert torch.allclose(clipped, huber * x)


@pytest.mark.parametrize("mu", [1e-3, 0.3, 1.0, 20.0, 1e4])
def test_truncated_weights_follow_the_three_cases_of_the_paper(mu: float) -> None:
    bound = 0.7
    expected = []
    for square in SQUARES.tolist():
        if square >= (mu + 1) / mu * bound**2:
            expected.append(0.0)
        elif square <= mu / (mu + 1) * bound**2:
            expected.append(1.0)
        else:
            expected.append(bound / square**0.5 * (mu * (mu + 1)) ** 0.5 - mu)
    weights = gnc.truncated_weights(SQUARES, bound, mu)
    assert torch.allclose(weights, torch.tensor(expected, dtype=torch.float64), atol=1e-9)


@pytest.mark.parametrize("mu", [0.2, 1.0, 30.0])
def test_gnc_weights_minimize_the_weighted_cost_plus_the_outlier_process(mu: float) -> None:
    bound, w = 1.3, torch.linspace(0, 1, 20_001, dtype=torch.float64)
    processes = {
        gnc.truncated_weights: mu * (1 - w) / (mu + w) * bound**2,
        gnc.geman_mcclure_weights: mu * bound**2 * (w.sqrt() - 1) ** 2,
    }
    for weights, process in processes.items():
        for square in (0.01, 0.5, 2.0, 40.0):
            best = w[(w * square + process).argmin()]
            assert abs(weights(torch.tensor(square).double(), bound, mu) - best) < 1e-4


def test_gnc_ends_at_the_robust_losses_it_is_named_after() -> None:
    assert torch.equal(gnc.truncated_weights(SQUARES, 1.0, 1e12) > 0.5, SQUARES < 1)
    assert torch.allclose(gnc.geman_mcclure_weights(SQUARES, 1.0, 1.0), (1 + SQUARES) ** -2)


@pytest.mark.parametrize("method", [gnc.gnc_tls, gnc.gnc_gm])
def test_gnc_finds_a_line_among_one_sided_outliers(method) -> None:
    x, y, true = line(outliers=70)
    solve, squares = weighted_line(x, y)
    fit = method(solve, squares, len(y), bound=0.26)
    assert fit.converged
    assert float((fit.model - true).norm()) < 0.1
    assert float((solve(torch.ones(200)) - true).norm()) > 1
    assert fit.weights[:70].max() < 0.1 < 0.5 < fit.weights[70:].mean()


def test_gnc_tls_stops_at_once_if_all_fit() -> None:
    x, y, _ = line(outliers=0)
    solve, squares = weighted_line(x, y)
    fit = gnc.gnc_tls(solve, squares, len(y), bound=10.0)
    assert (fit.iterations, fit.converged) == (1, True)
    assert torch.allclose(fit.model, solve(torch.ones(200)))


def test_gnc_says_when_it_ran_out_of_iterations() -> None:
    x, y, _ = line(outliers=100)
    for method in (gnc.gnc_tls, gnc.gnc_gm):
        assert not method(*weighted_line(x, y), len(y), bound=0.01, max_iterations=3).converged


@given(st.integers(1, 60), st.floats(0.01, 1.0))
def test_trimming_keeps_the_floor_of_alpha_n_smallest(n: int, alpha: float) -> None:
    losses = torch.rand(n, generator=torch.Generator().manual_seed(n))
    kept = trimmed.kept_set(losses, alpha)
    assert int(kept.sum()) == max(int(alpha * n + 1e-9), 1)
    if 0 < int(kept.sum()) < n:
        assert losses[kept].max() <= losses[~kept].min()


def test_trimming_never_makes_the_trimmed_loss_larger() -> None:
    x, y, true = line(outliers=60)
    solve, squares = weighted_line(x, y)
    costs = [
        float(squares(fit.model)[fit.kept].sum())
        for rounds in range(2, 8)
        for fit in [trimmed.fit(solve, squares, 200, 0.7, max_iterations=rounds)]
    ]
    assert all(after <= before + 1e-12 for before, after in pairwise(costs))
    fit = trimmed.fit(solve, squares, 200, 0.7)
    assert fit.converged
    assert not fit.kept[:60].any()
    assert torch.allclose(fit.model, solve(fit.kept.double()))
    assert float((fit.model - true).norm()) < 0.1


@pytest.mark.parametrize(
    "call",
    [
        lambda: trimmed.kept_set(torch.ones(3), 0.0),
        lambda: trimmed.kept_set(torch.ones(3), 1.5),
        lambda: gnc.gnc_gm(lambda w: w, lambda m: m, 3, bound=0.0),
        lambda: clipping.clipping_factor(torch.ones(3), limit=0.0),
        lambda: clipping.normalizing_factor(torch.ones(3), smallest=0.0),
    ],
)
def test_wrong_settings_raise_and_name_the_argument(call) -> None:
    with pytest.raises(ValueError, match=r"kept_fraction|bound|limit|smallest"):
        call()
