"""The sweep on real clusters of two workers, one of which is killed on the way."""

from __future__ import annotations

import builtins
import os
import signal

import pytest

from inlier.experiments.sweep import SweepError, plan
from inlier.experiments.sweep._engines import KILLED
from inlier.experiments.sweep._sweep import Sweep
from tests.experiments.tiny_experiment import EXPERIMENT

pytestmark = pytest.mark.slow
ROWS = plan(EXPERIMENT, "slow", seeds=2).rows


class Killer:
    """Kills the worker that ended the first row, once, while rows are still running."""

    def __init__(self):
        self.victim = None

    def __call__(self, sweep):
        if self.victim is None and sweep.done:
            self.victim = int(sweep.done[0].metrics["pid"])
            assert self.victim != os.getpid()
            os.kill(self.victim, signal.SIGKILL)


def check(sweep, killer):
    assert killer.victim is not None
    assert [record.row for record in sweep.done] == ROWS
    assert not sweep.failed
    # What the killed worker had ended stays, and another one did the rest.
    assert len({record.metrics["pid"] for record in sweep.done}) >= 2


def test_loky_goes_on_without_a_killed_worker(tmp_path):
    sweep, killer = Sweep(EXPERIMENT, ROWS, tmp_path), Killer()
    sweep.run(jobs=2, on_progress=killer)
    check(sweep, killer)


def test_dask_goes_on_without_a_killed_worker(tmp_path):
    distributed = pytest.importorskip("distributed")
    sweep, killer = Sweep(EXPERIMENT, ROWS, tmp_path), Killer()
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs="CRITICAL"
    ) as cluster:
        sweep.run(backend="dask", address=cluster.scheduler_address, on_progress=killer)
    check(sweep, killer)


def test_dask_cluster_is_started_if_none_is_named_and_a_deadly_row_fails_alone(tmp_path):
    pytest.importorskip("distributed")
    rows = plan(EXPERIMENT, "cpu", methods=["dies", "steady"], rates=[0.5], seeds=1).rows
    sweep = Sweep(EXPERIMENT, rows, tmp_path)
    sweep.run(jobs=2, backend="dask")
    assert [(record.row.method, record.error) for record in sweep.failed] == [("dies", KILLED)]
    assert [record.row.method for record in sweep.done] == ["steady"]


def test_dask_scheduler_that_does_not_answer_is_reported(tmp_path, monkeypatch):
    dask = pytest.importorskip("dask")
    pytest.importorskip("distributed")
    monkeypatch.setenv("DASK_SCHEDULER_ADDRESS", "tcp://127.0.0.1:9")
    with (
        dask.config.set({"distributed.comm.timeouts.connect": "1s"}),
        pytest.raises(SweepError, match=r"no Dask scheduler answers at tcp://127.0.0.1:9"),
    ):
        Sweep(EXPERIMENT, ROWS, tmp_path).run(backend="dask")


def test_ray_goes_on_without_a_killed_worker_and_a_deadly_row_fails_alone(tmp_path):
    pytest.importorskip("ray")
    built_in = builtins.print
    sweep, killer = Sweep(EXPERIMENT, ROWS, tmp_path), Killer()
    sweep.run(jobs=2, backend="ray", on_progress=killer)
    check(sweep, killer)
    assert builtins.print is built_in  # Ray's own would stay behind, and cannot be pickled.
    rows = plan(EXPERIMENT, "cpu", methods=["dies", "steady"], rates=[0.5], seeds=1).rows
    sweep = Sweep(EXPERIMENT, rows, tmp_path)
    sweep.run(jobs=2, backend="ray")
    assert [(record.row.method, record.error) for record in sweep.failed] == [("dies", KILLED)]
    assert [record.row.method for record in sweep.done] == ["steady"]
