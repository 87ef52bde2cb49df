"""Dask data frames and Ray datasets: the same fit as that of a folder with the same rows."""

from __future__ import annotations

import numpy as np
import pyarrow.parquet as pq
import pytest

from inlier import distributed
from inlier._errors import InputError
from inlier.distributed import _collections, _fit, _output
from tests.distributed.tables import regression, write_parts


@pytest.fixture(autouse=True, scope="module")
def quick():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_output, "compare_on_holdout", lambda *_: None)
        patch.setattr(_output, "write", lambda *_: None)
        patch.setattr(_output.models, "save_pipeline", lambda *_: None)
        yield


@pytest.fixture(scope="module")
def table():
    return regression(18_000)


@pytest.fixture(scope="module")
def expected(table, tmp_path_factory):
    folder = tmp_path_factory.mktemp("folder")
    return distributed.fit(write_parts(table, folder / "data", [6000, 12_000]), "y", out=folder / "out")


def assert_same(fitted, expected):
    models = [each.pipeline.named_steps["model"] for each in (fitted, expected)]
    np.testing.assert_allclose(models[0].coef_, models[1].coef_, rtol=0, atol=1e-9)
    assert fitted.inlier_fraction == pytest.approx(expected.inlier_fraction, rel=1e-9)
    suspects = [pq.read_table(each.out / "suspects.parquet") for each in (fitted, expected)]
    assert suspects[0]["index"].equals(suspects[1]["index"])
    assert set(suspects[0]["file"].to_pylist()) <= {f"part-{number:08d}.parquet" for number in range(20)}
    # The copy is removed with all else that is not the output.
    assert [path.name for path in fitted.out.parent.iterdir() if path.name.startswith(".")] == []


def dask_frame(table, partitions=12):
    """More partitions than sort by their number as text, and one without rows."""
    frames = pytest.importorskip("dask.dataframe")
    frame = table.to_pandas()
    collection = frames.from_pandas(frame.assign(row=range(len(frame))), npartitions=partitions)
    empty = collection[collection["row"] < 0]
    return frames.concat([collection, empty]).drop(columns="row")


def test_a_dask_data_frame_is_fitted_like_a_folder(table, expected, tmp_path):
    fitted = distributed.fit(dask_frame(table), "y", out=tmp_path / "out", backend="stream")
    assert_same(fitted, expected)


def test_an_interrupted_fit_of_a_dask_data_frame_writes_it_once(table, expected, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(_fit, "_fitted", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            distributed.fit(dask_frame(table), "y", out=tmp_path / "out", backend="stream")
    monkeypatch.setattr(_collections.shutil, "rmtree", lambda *_, **__: pytest.fail("written again"))
    monkeypatch.setattr(_fit.shutil, "rmtree", lambda *_, **__: None)
    fitted = distributed.fit(dask_frame(table), "y", out=tmp_path / "out", backend="stream")
    assert fitted.passes == expected.passes - 2


@pytest.mark.slow
def test_a_dask_data_frame_is_fitted_by_the_client_that_is_there(table, expected, tmp_path):
    dask = pytest.importorskip("distributed")
    options = {"threads_per_worker": 1, "dashboard_address": None, "silence_logs": "CRITICAL"}
    with dask.LocalCluster(n_workers=2, **options) as cluster, dask.Client(cluster) as client:
        fitted = distributed.fit(dask_frame(table), "y", out=tmp_path / "out")
        assert client.status == "running"  # It is the caller's.
    assert fitted.summary.record["backend"] == "dask"
    assert_same(fitted, expected)


@pytest.mark.slow
def test_a_ray_dataset_is_fitted_by_ray(table, expected, tmp_path):
    ray = pytest.importorskip("ray")
    data = pytest.importorskip("ray.data")
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    try:
        collection = data.from_arrow([table.slice(first, 1500) for first in range(0, 18_000, 1500)])
        fitted = distributed.fit(collection, "y", out=tmp_path / "out")
        assert ray.is_initialized()  # It is the caller's.
        with pytest.raises(InputError, match="a Ray dataset is fitted by Ray"):
            distributed.fit(collection, "y", out=tmp_path / "b", backend="stream")
    finally:
        ray.shutdown()
    assert fitted.summary.record["backend"] == "ray"
    assert_same(fitted, expected)


def test_a_collection_needs_an_output_folder_and_rows(table, tmp_path):
    frame = dask_frame(table)
    with pytest.raises(InputError, match="name the output folder"):
        distributed.fit(frame, "y", backend="stream")
    with pytest.raises(InputError, match="the collection has no rows"):
        distributed.fit(frame[frame["y"] > 1e9], "y", out=tmp_path / "out", backend="stream")
    with pytest.raises(InputError, match="'z'"):
        distributed.fit(frame, "z", out=tmp_path / "out", backend="stream")
    assert list(tmp_path.iterdir()) == []
