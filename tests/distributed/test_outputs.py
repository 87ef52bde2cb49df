"""The files of a fit in passes, in Python and on the command line."""

from __future__ import annotations

import json

import pandas as pd
import pyarrow.parquet as pq
import pytest

from inlier import distributed
from inlier.fit import load_pipeline
from inlier.fit._predict import predict
from tests.distributed.tables import mixed, write_parts
from tests.fit.commands import run


def test_the_output_is_that_of_fit(tmp_path):
    table = mixed()
    folder = write_parts(table, tmp_path / "data", [5000, 12_000])
    fitted = distributed.fit(folder, "y", out=tmp_path / "out", partition_rows=4000)
    record = json.loads((fitted.out / "run.json").read_text())
    assert record["rows"] == 20_000
    assert record["trusted"]
    assert record["inlier_fraction"] == pytest.approx(0.85, abs=0.02)
    assert "20,000" in (fitted.out / "report.html").read_text()
    suspects = pd.read_parquet(fitted.out / "suspects.parquet")
    assert set(suspects.columns) >= {
        "row",
        "index",
        "inlier_probability",
        "loss",
        "given",
        "suggested",
        "file",
    }
    assert len(suspects) == record["suspects"] == pytest.approx(3000, rel=0.1)
    # A row is found again by its file and its place in it.
    one = suspects.iloc[-1]
    assert pq.read_table(folder / one["file"])["y"][int(one["file_row"])].as_py() == one["given"]
    # The pipeline takes columns as they were read: dates as datetimes.
    inputs = table.select(["x", "city", "day"]).to_pandas(date_as_object=False)
    load_pipeline(fitted.out / "model.skops").predict(inputs)
    assert predict(fitted.out, folder, tmp_path / "predictions.csv").count == 20_000
    best = pd.read_csv(fitted.out / "suspects.csv")
    assert best["inlier_probability"].is_monotonic_increasing
    assert len(best) == 500


def test_the_command_streams_a_folder_and_names_what_does_not_apply(tmp_path):
    folder = write_parts(mixed(2000), tmp_path / "data", [700])
    # Beyond the limit of rows a folder is read in passes without being asked.
    result = run("fit", folder, "--target", "y", "--max-rows", "1000", "--out", tmp_path / "out")
    assert result.code == 0, result.error
    assert "2,000 in 2 partitions, read 3 times" in result.out
    assert json.loads((tmp_path / "out" / "run.json").read_text())["backend"] == "stream"
    for options, message in {
        ("--model", "forest"): "model 'forest' is unknown; choose from linear, boosting",
        ("--decisions", "x.csv"): "decisions applies to fits in memory",
        ("--on-error", "ignore"): "on_error 'ignore' is unknown; choose from raise, skip",
    }.items():
        result = run("fit", folder, "--target", "y", "--backend", "stream", "--out", tmp_path / "b", *options)
        assert (result.code, result.out) == (2, "")
        assert message in result.error
