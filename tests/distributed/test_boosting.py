"""Boosting in passes: independent of the partitioning, harmless on clean rows, better on noisy ones, resumable."""

from __future__ import annotations

import importlib
import os
import signal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from inlier import distributed
from inlier.distributed import _boosting_worker, _fit, _output, _survey, _xgboost
from inlier.distributed._boosting_worker import fold_of
from inlier.distributed._xgboost import MISSING, Bins, Booster, quantized
from inlier.fit import load_pipeline
from inlier.fit._trees import BoostedRegressor
from tests.distributed.tables import write_parts

pytest.importorskip("xgboost")


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Few rows are in memory, fits are short, and what takes long and is the same as for other models is left out."""
    monkeypatch.setattr(_output, "compare_on_holdout", lambda *_: None)
    monkeypatch.setattr(_output, "write", lambda *_: None)
    monkeypatch.setattr(_fit, "IN_MEMORY", {"regression": 1000, "classification": 1000})
    monkeypatch.setattr(_survey, "MOST_LABELS", 3000)
    monkeypatch.setattr(_xgboost, "TREES", 60)


def curved(rows=8000, wrong=0.2, seed=0):
    """A curve that no line follows; numbers that are missing here and there, a category, and targets that are wrong."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2, 2, size=(rows, 3))
    city = rng.choice(["Bern", "Oslo", "Rome"], rows)
    truth = 3 * np.sin(2 * x[:, 0]) + x[:, 1] ** 2 + 2 * (city == "Oslo")
    bad = rng.random(rows) < wrong
    y = truth + 0.5 * rng.normal(size=rows) + bad * rng.uniform(5, 40, rows)
    x[rng.random(rows) < 0.02, 2] = np.nan
    table = pa.table({f"x{k}": x[:, k] for k in range(3)} | {"city": city, "y": y})
    return table, truth, bad


def fit(table, folder, name="out", cuts=(3000,), **options):
    data = folder / f"{name}-data"
    if not data.exists():
        write_parts(table, data, cuts)
    return distributed.fit(data, "y", out=folder / name, model="boosting", **options)


def predictions(fitted, table):
    return fitted.pipeline.predict(table.drop_columns("y").to_pandas())


def test_wrong_targets_are_found_and_do_no_harm(tmp_path):
    table, truth, bad = curved()
    fitted = fit(table, tmp_path)
    assert fitted.fraction_estimate.trusted
    assert fitted.inlier_fraction == pytest.approx(0.8, abs=0.05)
    given = fit(table, tmp_path, "given", inlier_fraction=1.0)
    error, unweighted = (np.abs(predictions(each, table) - truth).mean() for each in (fitted, given))
    clean = table.filter(~bad)
    best = np.abs(predictions(fit(clean, tmp_path, "clean", inlier_fraction=1.0), table) - truth).mean()
    assert error < 1.15 * best
    assert error < unweighted / 4
    suspects = pq.read_table(fitted.out / "suspects.parquet")
    found = suspects["index"].to_numpy()
    assert bad[found].mean() > 0.95
    assert bad[found].sum() > 0.95 * bad.sum()
    # The suggested value of each suspect is the model's, which is in the file of the model too.
    model = load_pipeline(fitted.out / "model.skops")
    frame = table.drop_columns("y").to_pandas()
    np.testing.assert_allclose(
        model.predict(frame)[found], suspects["suggested"].to_numpy(), rtol=1e-4, atol=1e-4
    )


def test_clean_rows_give_the_unweighted_fit(tmp_path):
    table, _, _ = curved(wrong=0.0)
    fitted = fit(table, tmp_path)
    assert fitted.inlier_fraction == 1.0
    given = fit(table, tmp_path, "given", inlier_fraction=1.0)
    np.testing.assert_array_equal(predictions(fitted, table), predictions(given, table))


def test_the_partitioning_does_not_matter(tmp_path):
    table, _, _ = curved()
    one = fit(table, tmp_path, "one", [], partition_rows=10_000)
    many = fit(table, tmp_path, "many", [7, 2500, 2501, 6000], partition_rows=900)
    assert many.fraction_estimate.value == pytest.approx(one.fraction_estimate.value, rel=1e-6)
    np.testing.assert_allclose(predictions(many, table), predictions(one, table), rtol=0, atol=1e-4)
    index = [set(pq.read_table(each.out / "suspects.parquet")["index"].to_pylist()) for each in (one, many)]
    assert len(index[0] ^ index[1]) <= 2


@pytest.mark.parametrize("classes", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_noisy_labels_are_found(classes, tmp_path):
    table, truth, _ = curved(9000, wrong=0.0)
    names = np.array(["ant", "bee", "cat"])
    right = names[np.digitize(truth, np.quantile(truth, np.arange(1, classes) / classes))]
    rng = np.random.default_rng(1)
    given = np.where(rng.random(9000) < 0.3, rng.choice(names[:classes], 9000), right)
    table = table.set_column(4, "y", pa.array(given))
    fitted = fit(table, tmp_path)
    assert fitted.fraction_estimate.trusted
    unweighted = fit(table, tmp_path, "given", inlier_fraction=1.0)
    accuracy, plain = ((predictions(each, table) == right).mean() for each in (fitted, unweighted))
    assert accuracy > plain
    assert accuracy > 0.93
    found = pq.read_table(fitted.out / "suspects.parquet")["index"].to_numpy()
    wrong = given != right
    assert wrong[found].mean() > 0.85
    assert wrong[found].sum() > 0.8 * wrong.sum()
    assert len(pq.read_table(unweighted.out / "suspects.parquet")) == 0


@pytest.mark.parametrize("after", [1, *(pytest.param(after, marks=pytest.mark.slow) for after in (0, 3, 4))])
def test_an_interrupted_fit_resumes_at_the_round(after, tmp_path, monkeypatch):
    table, _, _ = curved(4000, wrong=0.3)  # So many that there is a second round.
    whole = fit(table, tmp_path, "whole")
    train, calls = _boosting_worker.train, []

    def counted(*arguments):
        calls.append(arguments)
        if len(calls) == after + 1:
            raise KeyboardInterrupt
        return train(*arguments)

    monkeypatch.setattr(_boosting_worker, "train", counted)
    with pytest.raises(KeyboardInterrupt):
        fit(table, tmp_path)
    assert not (tmp_path / "out").exists()
    calls[:] = [None] * 10
    resumed = fit(table, tmp_path)
    assert len(calls) - 10 == 5 - after
    np.testing.assert_array_equal(predictions(resumed, table), predictions(whole, table))


def test_trees_as_arrays_predict_what_xgboost_does():
    rng = np.random.default_rng(0)
    x = np.column_stack((rng.normal(size=3000), rng.integers(0, 4, 3000), np.full(3000, 7.0)))
    x[rng.random(3000) < 0.3, 0] = np.nan
    y = np.where(np.isnan(x[:, 0]), 5.0, x[:, 0]) + x[:, 1] ** 2
    bins = Bins.of(x[:500])
    codes = bins.codes(x)
    assert (codes[np.isnan(x[:, 0]), 0] == MISSING).all()
    matrix = quantized([(codes[:1000], y[:1000]), (codes[1000:], y[1000:])], 1)
    booster = _xgboost.train(matrix, y, np.ones(3000), 0, False, 1, lambda share: None)
    assert isinstance(booster, Booster)
    expected = booster.margins(codes)
    np.testing.assert_allclose(booster.fitted_margins(matrix, 1), expected)
    model = booster.trees(BoostedRegressor(), bins, unit=2.0, baseline=1.0)
    np.testing.assert_allclose(model.predict(x), 2 * expected + 1, rtol=1e-5, atol=1e-5)
    assert np.abs(expected - y).mean() < 0.2
    with pytest.raises(NotImplementedError, match="fitted elsewhere"):
        model.fit(x, y)


def test_folds_depend_on_the_place_and_the_seed_only():
    fold = fold_of(np.arange(10_000), 3)
    np.testing.assert_array_equal(fold_of(np.arange(5000, 10_000), 3), fold[5000:])
    assert (fold != fold_of(np.arange(10_000), 4)).mean() == pytest.approx(0.5, abs=0.03)
    for period in (2, 7):
        assert fold[::period].mean() == pytest.approx(0.5, abs=0.03)


def test_without_xgboost_the_extra_is_named(tmp_path, monkeypatch):
    real = importlib.import_module

    def missing(name, *arguments):
        if name == "xgboost":
            raise ModuleNotFoundError(name)
        return real(name, *arguments)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(distributed.ClusterError, match=r"inlier\[boosting\]"):
        fit(curved(4000)[0], tmp_path)


class Killer:
    """Kills a worker with SIGKILL when the first fit is finished."""

    def __init__(self, find):
        self.find, self.victim = find, None

    def __call__(self, step, share=1.0):
        if self.victim is None and step.startswith("finished boosting"):
            self.victim = self.find()
            os.kill(self.victim, signal.SIGKILL)


def assert_near(fitted, streamed, table):
    """Workers add up gradients in another order: a split may move by a row, and with it a few predictions."""
    assert fitted.fraction_estimate.value == pytest.approx(streamed.fraction_estimate.value, abs=1e-3)
    apart = np.abs(predictions(fitted, table) - predictions(streamed, table))
    assert np.quantile(apart, 0.999) < 0.05
    assert apart.mean() < 0.01


@pytest.mark.slow
@pytest.mark.timeout(1200)  # Actors take long to start beside other tests.
def test_dask_gives_the_same_though_a_worker_is_killed(tmp_path, monkeypatch):
    dask = pytest.importorskip("distributed")
    monkeypatch.setattr(_xgboost, "TREES", 100)
    table, _, _ = curved(60_000)
    streamed = fit(table, tmp_path, "streamed", range(5000, 60_000, 5000))
    options = {"threads_per_worker": 1, "dashboard_address": None, "silence_logs": "CRITICAL"}
    with dask.LocalCluster(n_workers=2, **options) as cluster, dask.Client(cluster) as client:
        workers = list(client.run(os.getpid).values())
        killer = Killer(lambda: workers[0])
        fitted = fit(
            table, tmp_path, "dask", range(5000, 60_000, 5000), backend="dask",
            address=cluster.scheduler_address, progress=killer,
        )  # fmt: skip
        assert killer.victim in workers
    assert_near(fitted, streamed, table)


@pytest.mark.slow
@pytest.mark.timeout(1200)  # Actors take long to start beside other tests.
def test_ray_gives_the_same_though_a_worker_is_killed(tmp_path, monkeypatch):
    pytest.importorskip("ray")
    psutil = pytest.importorskip("psutil")
    monkeypatch.setattr(_xgboost, "TREES", 100)
    table, _, _ = curved(60_000)
    streamed = fit(table, tmp_path, "streamed", range(5000, 60_000, 5000))

    def training():
        children = psutil.Process().children(recursive=True)
        return next(child.pid for child in children if "RayTrainWorker" in " ".join(child.cmdline()))

    killer = Killer(training)
    fitted = fit(table, tmp_path, "ray", range(5000, 60_000, 5000), backend="ray", workers=2, progress=killer)
    assert killer.victim is not None
    assert_near(fitted, streamed, table)
