"""Fits on real clusters of two workers, one of which is killed in the middle."""

from __future__ import annotations

import os
import signal

import numpy as np
import pyarrow.parquet as pq
import pytest

from inlier import distributed
from inlier.distributed import _output
from inlier.distributed._engines import Stream, map_reduce
from inlier.distributed._partitions import open_folder
from tests.distributed.tables import regression, write_parts


class Killer:
    """Kills a worker with SIGKILL after the first partition of a round, or as soon as one is found."""

    def __init__(self, find):
        self.find, self.victim = find, None

    def __call__(self, step, share=1.0):
        if self.victim is None and step.startswith("fitting all rows") and "1" not in step and share > 0:
            self.victim = self.find()
            if self.victim is not None:
                os.kill(self.victim, signal.SIGKILL)


@pytest.fixture(scope="module")
def streamed(tmp_path_factory):
    """A folder of 40 files, and its fit in this process."""
    folder = tmp_path_factory.mktemp("clusters")
    data = write_parts(regression(40_000), folder / "data", range(1000, 40_000, 1000))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_output, "compare_on_holdout", lambda *_: None)
        patch.setattr(_output, "write", lambda *_: None)
        patch.setattr(_output.models, "save_pipeline", lambda *_: None)
        yield data, distributed.fit(data, "y", out=folder / "streamed")


def assert_identical(fitted, other):
    """Bit by bit: results are merged in the order of the partitions, whoever was first."""
    for name in ("coef_", "intercept_"):
        values = [getattr(each.pipeline.named_steps["model"], name) for each in (fitted, other)]
        np.testing.assert_array_equal(*values)
    assert fitted.fraction_estimate == other.fraction_estimate
    assert pq.read_table(fitted.out / "suspects.parquet").equals(
        pq.read_table(other.out / "suspects.parquet")
    )


@pytest.mark.slow
def test_dask_gives_the_same_though_a_worker_is_killed(streamed, tmp_path):
    dask = pytest.importorskip("distributed")
    data, expected = streamed
    options = {"threads_per_worker": 1, "dashboard_address": None, "silence_logs": "CRITICAL"}
    with dask.LocalCluster(n_workers=2, **options) as cluster, dask.Client(cluster) as client:
        workers = list(client.run(os.getpid).values())
        killer = Killer(lambda: workers[0])
        fitted = distributed.fit(
            data,
            "y",
            out=tmp_path / "out",
            backend="dask",
            address=cluster.scheduler_address,
            progress=killer,
        )
        assert killer.victim in workers
        assert killer.victim not in client.run(os.getpid).values()
    assert_identical(fitted, expected)


@pytest.mark.slow
def test_ray_gives_the_same_though_a_worker_is_killed(streamed, tmp_path):
    pytest.importorskip("ray")
    psutil = pytest.importorskip("psutil")
    data, expected = streamed

    def busy():
        children = psutil.Process().children(recursive=True)
        # On a busy machine there are moments in which no worker has a partition.
        return next((each.pid for each in children if "ray::_quietly" in " ".join(each.cmdline())), None)

    killer = Killer(busy)
    fitted = distributed.fit(data, "y", out=tmp_path / "out", backend="ray", workers=2, progress=killer)
    assert killer.victim is not None
    assert_identical(fitted, expected)


class Slow(Stream):
    """Ends with the last partition first."""

    def run(self, function, partitions):
        yield from reversed(list(super().run(function, partitions)))


def test_results_are_merged_in_the_order_of_the_partitions(streamed):
    partitions = open_folder(streamed[0]).partitions
    shares = []
    merged, broken = map_reduce(Slow(), lambda part: [part.number], partitions, list.__add__, shares.append)
    assert merged == list(range(40))
    assert broken == []
    assert sum(shares) == pytest.approx(1)


def test_a_cluster_that_does_not_answer_is_reported(streamed, tmp_path):
    dask = pytest.importorskip("dask")
    # Its own defaults come first: what is set for a while is taken back with all that was not there before.
    pytest.importorskip("distributed")
    with (
        dask.config.set({"distributed.comm.timeouts.connect": "1s"}),
        pytest.raises(distributed.ClusterError, match=r"no Dask scheduler answers at tcp://127.0.0.1:9"),
    ):
        distributed.fit(streamed[0], "y", out=tmp_path / "out", backend="dask", address="tcp://127.0.0.1:9")
