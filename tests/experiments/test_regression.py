"""The regression experiment: its data, and the batched program against a simple loop."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
import torch

import inlier
from inlier.experiments.regression.data import RegressionData, draw, least_squares, rmse
from inlier.experiments.regression.direct import gradient_descent
from inlier.experiments.regression.experiment import DIRECT, EXPERIMENT, STOCHASTIC
from inlier.experiments.regression.runner import Schedule, StepRule, _estimate_is_due, _Shuffle, run
from inlier.experiments.sweep import Row, load, plan
from inlier.histogram import bits_for

SMALL = {"samples": 100, "dimension": 3}


def simple_loop(data: RegressionData, seed: int, schedule: Schedule, rule: StepRule) -> torch.Tensor:
    """One run, one sample at a time, with torch.optim, torch's clipping and inlier.Robust."""
    model = torch.nn.Linear(data.x.shape[1], 1, bias=False, dtype=torch.float64)
    torch.nn.init.zeros_(model.weight)
    optimizer = torch.optim.SGD(model.parameters(), lr=schedule.step_size)
    robust = None
    if rule.kind == "adaptive":
        robust = inlier.Robust(
            rule.kernel,
            data.inlier_fraction,
            hold=schedule.update_every if rule.held else 1,
            warmup=schedule.steps // 2 if rule.graduated else 0,
            window=schedule.window,
            update_every=schedule.update_every,
            divide_by="weights" if rule.divided else "samples",
            running_mean=0.0,
        )
    shuffle = _Shuffle([seed], len(data.y))
    for _ in range(schedule.steps // schedule.update_every):
        for i in shuffle.next(schedule.update_every).squeeze(1):
            losses = (model(data.x[i]) - data.y[i]).square()
            loss = losses.sum() if robust is None else robust(losses, i[None] if rule.held else None)
            optimizer.zero_grad()
            loss.backward()
            if rule.kind == "normalized":
                model.weight.grad /= model.weight.grad.norm() + 1e-8
            if rule.kind == "clipped":
                torch.nn.utils.clip_grad_norm_(model.parameters(), schedule.clip)
            optimizer.step()
    return model.weight.detach()[0]


def test_outliers_of_a_lower_rate_are_outliers_of_a_higher_one() -> None:
    low, high = draw(0.2, seed=3), draw(0.5, seed=3)
    assert (int(low.outlier.sum()), int(high.outlier.sum())) == (200, 500)
    assert bool((low.outlier <= high.outlier).all())
    assert torch.equal(low.x, high.x)
    assert torch.equal(low.y[low.outlier], high.y[low.outlier])
    assert torch.equal(high.y[~high.outlier], high.clean_y[~high.outlier])
    assert low.inlier_fraction == pytest.approx(0.8)


def test_data_have_the_spread_that_was_asked_for() -> None:
    for spread, power in (("std", 1.0), ("variance", 0.5)):
        data = draw(0.5, 0, samples=20_000, noise=0.1, outlier=5.0, spread=spread)
        assert 0 < float(data.x.min()) < float(data.x.max()) <= 1
        assert float((data.clean_y - data.x @ data.true_w).std()) == pytest.approx(0.1**power, rel=0.03)
        added = (data.y - data.clean_y)[data.outlier]
        assert float(added.std()) == pytest.approx(5.0**power, rel=0.03)
    assert not torch.equal(draw(0.1, 0).true_w, draw(0.1, 1).true_w)


def test_a_weight_of_two_counts_a_sample_twice() -> None:
    data = draw(0.3, 0, **SMALL)
    weights = torch.ones(100, dtype=torch.float64)
    weights[:20], weights[20:30] = 2, 0
    twice = torch.cat([torch.arange(20), torch.arange(20), torch.arange(30, 100)])
    expected = np.linalg.lstsq(data.x[twice].numpy(), data.y[twice].numpy(), rcond=None)[0]
    assert np.allclose(least_squares(data.x, data.y, weights), expected)


def test_gradient_descent_in_closed_form_is_the_loop() -> None:
    data, w = draw(0.4, 0, **SMALL), torch.zeros(3, dtype=torch.float64)
    for _ in range(500):
        w = w - 0.01 * 2 * data.x.T @ (data.x @ w - data.y) / 100
    assert torch.allclose(gradient_descent(data, 500, 0.01), w, atol=1e-12)


@pytest.mark.parametrize(
    "rule",
    [
        StepRule("sgd"),
        StepRule("normalized"),
        StepRule("clipped"),
        StepRule("adaptive", "truncated"),
        StepRule("adaptive", "geman-mcclure"),
        StepRule("adaptive", "geman-mcclure", graduated=True, divided=True),
        StepRule("adaptive", "truncated", graduated=True, divided=True),
        StepRule("adaptive", "geman-mcclure", held=True),
        StepRule("adaptive", "truncated", held=True, graduated=True, divided=True),
    ],
    ids=lambda rule: "-".join(
        [rule.kind, rule.kernel, *(n for n in ("held", "graduated") if getattr(rule, n))]
    ),
)
def test_a_run_is_the_simple_loop_whatever_runs_beside_it(rule: StepRule) -> None:
    schedule = Schedule(200, step_size=0.03, update_every=20, window=200, bits=bits_for(1))
    problems = [draw(rate, seed, **SMALL) for rate, seed in ((0.3, 0), (0.6, 1))]
    beside = [StepRule("clipped"), StepRule("adaptive", "welsch-leclerc"), rule, StepRule("sgd")]
    result = run(problems, [0, 1], beside, schedule, dtype=torch.float64)
    for number, (data, seed) in enumerate(zip(problems, (0, 1), strict=True)):
        expected = simple_loop(data, seed, schedule, rule)
        # Robust weights losses in float32.
        assert torch.allclose(result.w[2, number], expected, rtol=0, atol=2e-5), number


def test_starting_points_reach_the_runs_they_are_meant_for() -> None:
    problems, rules = (
        [draw(0.2, 0, **SMALL)] * 2,
        [StepRule("sgd"), StepRule("clipped"), StepRule("normalized")],
    )
    start = torch.randn(3, 3, 2, dtype=torch.float64)
    seen = []
    run(
        problems,
        [0, 0],
        rules,
        Schedule(100),
        start,
        lambda done, w: seen.append((done, w.clone())),
        torch.float64,
    )
    assert seen[0][0] == 0
    assert torch.equal(seen[0][1], start)


def test_the_inlier_fraction_is_found_where_it_is_not_given() -> None:
    problems = [draw(rate, 0, dimension=2) for rate in (0.0, 0.3, 0.6)]
    rule = StepRule("adaptive", "geman-mcclure", auto=True, graduated=True, divided=True)
    result = run(
        problems, [0, 0, 0], [rule, StepRule("sgd")], Schedule(10_000, step_size=0.02, update_every=500)
    )
    assert torch.allclose(result.inlier_fraction[0], torch.tensor([1.0, 0.7, 0.4]).double(), atol=0.03)
    assert torch.equal(result.inlier_fraction[1], torch.ones(3).double())
    oracle = rmse(problems[2], least_squares(problems[2].x, problems[2].y, (~problems[2].outlier).double()))
    assert rmse(problems[2], result.w[0, 2]) < 3 * oracle + 0.01 < rmse(problems[2], result.w[1, 2])


def test_estimates_are_spread_over_the_run() -> None:
    schedule = Schedule(10_000, update_every=100, estimates=9)
    due = [done for done in range(100, 10_001, 100) if _estimate_is_due(done, schedule)]
    assert due == list(range(1000, 10_000, 1000))


def test_a_period_that_does_not_divide_an_epoch_is_refused() -> None:
    with pytest.raises(ValueError, match="update_every = 30"):
        run([draw(0.0, 0, **SMALL)], [0], [StepRule("sgd")], Schedule(90, update_every=30))


def test_every_row_is_in_one_unit_of_work_and_rows_depend_on_themselves_alone() -> None:
    wanted = plan(EXPERIMENT, "smoke", methods=["sgd", "adaptive-gm", "huber", "gradient-descent"])
    for jobs in (1, 2, 7):
        units = EXPERIMENT.batches(wanted.rows, jobs)
        assert sorted(row.key for unit in units for row in unit) == sorted(row.key for row in wanted.rows)
    joint = {row.key: metrics for row, metrics in EXPERIMENT.compute(wanted.rows)}
    assert len(joint) == len(wanted.rows)
    for row in (wanted.rows[1], wanted.rows[-1]):
        ((_, alone),) = EXPERIMENT.compute([Row(row.method, row.rate, row.seed, row.settings)])
        assert alone == pytest.approx(joint[row.key], rel=1e-4)
    json.dumps([dict(row.settings) for row in wanted.rows])


def test_presets_hold_the_settings_of_the_paper() -> None:
    paper = EXPERIMENT.presets["paper"]
    assert paper["rates"] == pytest.approx([rate / 10 for rate in range(10)])
    assert paper["seeds"] == 5
    assert paper["data"]["samples"] == 1000
    assert paper["step_size"] == 7e-4
    assert {name: r["steps"] for name, r in paper["regimes"].items()} == {
        "printed": 10_000,
        "converged": 1_000_000,
    }
    assert set(EXPERIMENT.methods) == {*STOCHASTIC, *DIRECT, "gradient-descent"}
    assert load("regression") is EXPERIMENT


@pytest.mark.parametrize("name", list(DIRECT))
def test_direct_methods_solve_a_problem_with_few_outliers(name: str) -> None:
    data = draw(0.1, 0)
    error = rmse(data, DIRECT[name](data, 0))
    oracle = rmse(data, DIRECT["inlier-least-squares"](data, 0))
    unweighted = rmse(data, least_squares(data.x, data.y))
    assert oracle / 2 < error < unweighted / 2


@pytest.mark.slow
def test_figures_cope_with_all_rows_and_with_few(tmp_path) -> None:
    wanted = plan(EXPERIMENT, "smoke")
    frame = pd.DataFrame(
        [
            {"method": row.method, "rate": row.rate, "seed": row.seed, **metrics}
            for row, metrics in EXPERIMENT.compute(wanted.rows)
        ]
    )
    for part in (frame, frame[frame["method"] == "sgd"].dropna(axis=1, how="all")):
        made = EXPERIMENT.figures(part, wanted.settings, tmp_path)
        assert all((tmp_path / name).stat().st_size > 10_000 for name, _ in made)


@pytest.mark.slow
def test_converged_adaptive_methods_are_near_the_oracle_and_sgd_is_not() -> None:
    problems = [draw(0.6, seed, dimension=3) for seed in range(3)]
    rules = [
        STOCHASTIC["sgd"],
        STOCHASTIC["adaptive-tl"],
        STOCHASTIC["adaptive-gm"],
        STOCHASTIC["adaptive-t-gm"],
    ]
    result = run(problems, [0, 1, 2], rules, Schedule(50_000, step_size=0.007, update_every=1000))
    errors = torch.tensor([[rmse(data, w) for data, w in zip(problems, ws, strict=True)] for ws in result.w])
    oracle = torch.tensor([rmse(data, DIRECT["inlier-least-squares"](data, 0)) for data in problems])
    assert bool((errors[1:] < 2 * oracle + 0.01).all())
    assert float(errors[0].mean()) > 5 * float(errors[1:].mean())
    # Gradient descent ends at least squares on all data, not at the outlier-free optimum.
    descent = [rmse(data, gradient_descent(data, 50_000, 0.007)) for data in problems]
    assert sum(descent) / 3 > 5 * float(oracle.mean())
