"""Fits in passes: equal to those in memory, however the rows are divided; parts that cannot be used; resuming."""

from __future__ import annotations

import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import Ridge

from inlier import distributed
from inlier._errors import InputError
from inlier.distributed import _engines, _fit, _inspect, _output
from inlier.distributed._plan import Numbers
from inlier.fit._columns import Column, Reading
from inlier.sklearn import AdaptiveRegressor
from tests.distributed.tables import mixed, regression, write_parts

ROUNDING = 1e-8
"""Of the largest coefficient: rounding, as far as it gets through the fit of a law to the errors of the subsample."""


@pytest.fixture(autouse=True, scope="module")
def quick():
    """Leave out what takes long and is the same as for a table in memory; test_outputs.py has it all."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_output, "compare_on_holdout", lambda *_: None)
        patch.setattr(_output, "write", lambda *_: None)
        patch.setattr(_output.models, "save_pipeline", lambda *_: None)
        yield


SPREAD = {
    "many outliers": (regression(), "auto"),
    "no outliers": (regression(wrong=0.0), "auto"),
    "heavy tails": (regression(wrong=0.0, heavy=True, seed=2), "auto"),
    "a given fraction": (regression(), 0.7),
    "all are inliers": (regression(), 1.0),
}


def in_memory(fitted, table, fraction="auto", seed=0):
    """Fit the same inputs in memory."""
    vectorizer = fitted.pipeline.named_steps["transform"]
    x = np.asarray(vectorizer.transform(table.drop_columns("y").to_pandas()))
    return AdaptiveRegressor(Ridge(), inlier_fraction=fraction, random_state=seed).fit(
        x, table["y"].to_numpy()
    )


def assert_equal(fitted, memory):
    """Sums of the same numbers in another order, and what an optimiser makes of them."""
    model = fitted.pipeline.named_steps["model"]
    size = np.abs(memory.estimator_.coef_).max()
    np.testing.assert_allclose(model.coef_, memory.estimator_.coef_, rtol=0, atol=ROUNDING * size)
    np.testing.assert_allclose(model.intercept_, memory.estimator_.intercept_, rtol=0, atol=ROUNDING * size)
    assert fitted.inlier_fraction == pytest.approx(memory.inlier_fraction_, rel=1e-8)
    assert fitted.fraction_estimate.trusted == memory.fraction_estimate_.trusted
    suspects = pq.read_table(fitted.out / "suspects.parquet")
    wrong = np.flatnonzero(memory.inlier_probability_ < 0.5)
    assert suspects["index"].to_pylist() == wrong.tolist()
    found = suspects["inlier_probability"].to_numpy()
    np.testing.assert_allclose(found, memory.inlier_probability_[wrong], rtol=1e-7, atol=1e-15)
    np.testing.assert_allclose(suspects["loss"].to_numpy(), memory.losses_[wrong], rtol=1e-7)
    assert fitted.summary.record["scale"] == (
        pytest.approx(memory.scale_, rel=1e-7) if np.isfinite(memory.scale_) else None
    )


@pytest.mark.parametrize("name", SPREAD)
def test_a_fit_in_passes_equals_the_one_in_memory(name, tmp_path):
    table, fraction = SPREAD[name]
    folder = write_parts(table, tmp_path / "data", [3, 9000, 9001], row_group_size=2500)
    fitted = distributed.fit(folder, "y", out=tmp_path / "out", inlier_fraction=fraction, partition_rows=5000)
    assert fitted.rows == 20_000
    assert_equal(fitted, in_memory(fitted, table, fraction))


@settings(max_examples=5, deadline=None)
@given(
    cuts=st.sets(st.integers(1, 15_999), max_size=6).map(sorted),
    group=st.integers(500, 20_000),
    rows=st.integers(500, 20_000),
)
def test_the_partitioning_does_not_matter(cuts, group, rows, tmp_path_factory):
    table, tmp_path = regression(16_000), tmp_path_factory.mktemp("folder")
    folder = write_parts(table, tmp_path / "data", cuts, row_group_size=group)
    fitted = distributed.fit(folder, "y", out=tmp_path / "out", partition_rows=rows)
    assert_equal(fitted, in_memory(fitted, table))
    shutil.rmtree(tmp_path)


def test_few_rows_are_fitted_in_memory(tmp_path):
    table = regression(1000)
    fitted = distributed.fit(write_parts(table, tmp_path / "data", [10, 500]), "y", out=tmp_path / "out")
    assert_equal(fitted, in_memory(fitted, table))
    assert fitted.passes == 3  # A sample, sums, scores.


def test_rows_without_a_target_count_for_nothing(tmp_path):
    table = regression()
    y = table["y"].to_pandas().astype(object)
    y[::7] = None
    holes = table.set_column(4, "y", pa.array(y, pa.float64()))
    fitted = distributed.fit(write_parts(holes, tmp_path / "data", [9000]), "y", out=tmp_path / "out")
    kept = np.flatnonzero(np.arange(20_000) % 7)
    memory = in_memory(fitted, table.take(kept))
    np.testing.assert_allclose(
        fitted.pipeline.named_steps["model"].coef_, memory.estimator_.coef_, rtol=0, atol=ROUNDING
    )
    assert fitted.rows == len(kept)
    assert fitted.summary.record["rows_without_target"] == 20_000 - len(kept)
    suspects = pq.read_table(fitted.out / "suspects.parquet")
    assert suspects["index"].to_pylist() == kept[memory.inlier_probability_ < 0.5].tolist()


def test_numbers_are_transformed_as_by_the_fitted_steps(tmp_path):
    table = regression(3000)
    fitted = distributed.fit(write_parts(table, tmp_path / "data", []), "y", out=tmp_path / "out")
    vectorizer = fitted.pipeline.named_steps["transform"]
    frame = table.drop_columns("y").to_pandas()
    frame.iloc[0, 0], frame.iloc[1, 1] = 1e9, np.nan  # Far out; missing where the sample had no such cell.
    columns = [Column(name, "number") for name in frame]
    numbers = Numbers.of(columns, vectorizer)
    readings = [Reading(column, frame[column.name].to_numpy()) for column in columns]
    np.testing.assert_allclose(
        numbers(readings), np.asarray(vectorizer.transform(frame)), rtol=1e-13, atol=1e-13
    )
    assert numbers.indicated == (False, False, False, True)


def break_file(folder):
    path = folder / "part-001.parquet"
    content = bytearray(path.read_bytes())
    content[4:1000] = bytes([255]) * 996  # Within the pages: the metadata at the end stays readable.
    path.write_bytes(content)


def cut_file(folder):
    path = folder / "part-001.parquet"
    path.write_bytes(path.read_bytes()[:500])


def empty_file(folder):
    path = folder / "part-001.parquet"
    pq.write_table(pq.read_table(path).slice(0, 0), path)


def other_type(folder):
    path = folder / "part-001.parquet"
    table = pq.read_table(path)
    pq.write_table(table.set_column(1, "x", table["x"].cast(pa.string())), path)


def lacking_column(folder):
    path = folder / "part-001.parquet"
    pq.write_table(pq.read_table(path).drop_columns("city"), path)


def other_categories(folder):
    path = folder / "part-001.parquet"
    table = pq.read_table(path)
    pq.write_table(table.set_column(2, "city", pa.array(["Atlantis"] * table.num_rows)), path)


def no_targets(folder):
    path = folder / "part-001.parquet"
    table = pq.read_table(path)
    pq.write_table(table.set_column(4, "y", pa.nulls(table.num_rows, pa.float64())), path)


PROBLEMS = {
    break_file: "cannot be read",
    cut_file: "is a broken Parquet file",
    empty_file: "has no rows",
    other_type: "in column 'x', and other files",
    lacking_column: "lacks column 'city'",
    other_categories: "'Atlantis'",
    no_targets: "has no row with a target 'y'",
}


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(spoil, id=spoil.__name__, marks=() if spoil is break_file else pytest.mark.slow)
        for spoil in PROBLEMS
    ],
)
def test_a_part_that_cannot_be_used_is_named_and_refused_or_skipped(spoil, tmp_path, monkeypatch):
    table = mixed(17_000)
    folder = write_parts(table, tmp_path / "data", [8000, 8400])
    spoil(folder)
    if spoil is other_categories:
        monkeypatch.setattr(_inspect, "SAMPLE", 30)  # Few enough to miss the categories of a small file.
    with pytest.raises(InputError, match=PROBLEMS[spoil]) as error:
        distributed.fit(folder, "y", out=tmp_path / "out")
    assert "part-001.parquet" in str(error.value)
    assert not (tmp_path / "out").exists()
    fitted = distributed.fit(folder, "y", out=tmp_path / "out", on_error="skip")
    (name,) = fitted.summary.record["skipped"]
    assert name.startswith("part-001.parquet")
    assert any("part-001.parquet" in note for note in fitted.summary.notes)
    assert fitted.rows == 16_600
    if spoil is not other_categories:
        shutil.rmtree(tmp_path / "out")
        (folder / "part-001.parquet").unlink()
        without = distributed.fit(folder, "y", out=tmp_path / "out")
        models = [each.pipeline.named_steps["model"].coef_ for each in (fitted, without)]
        np.testing.assert_allclose(models[0], models[1], rtol=0, atol=0.02)


def test_a_rare_category_that_the_sample_lacks_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(_inspect, "SAMPLE", 2000)
    table = mixed(16_000)
    city = table["city"].to_pylist()
    city[9000:9003] = ["Atlantis"] * 3
    table = table.set_column(2, "city", pa.array(city))
    fitted = distributed.fit(write_parts(table, tmp_path / "data", [8000]), "y", out=tmp_path / "out")
    assert ["city", "Atlantis", 3] in fitted.summary.record["unknown_categories"]
    assert fitted.rows == 16_000


@pytest.mark.parametrize("after", [0, 1, 2, 3, 5, 6])
def test_an_interrupted_fit_resumes_where_it_was(after, tmp_path, monkeypatch):
    folder = write_parts(regression(16_000), tmp_path / "data", [8000])
    whole = distributed.fit(folder, "y", out=tmp_path / "whole")
    assert whole.passes == 7
    run, calls = _engines.Stream.run, []

    def interrupted(self, function, partitions):
        calls.append(function)
        for value in run(self, function, partitions):
            if len(calls) > after:
                raise KeyboardInterrupt
            yield value

    with monkeypatch.context() as patch:
        patch.setattr(_engines.Stream, "run", interrupted)
        with pytest.raises(KeyboardInterrupt):
            distributed.fit(folder, "y", out=tmp_path / "out")
    assert not (tmp_path / "out").exists()
    fitted = distributed.fit(folder, "y", out=tmp_path / "out")
    assert fitted.passes == whole.passes - after
    for name in ("coef_", "intercept_"):
        found = [getattr(each.pipeline.named_steps["model"], name) for each in (whole, fitted)]
        np.testing.assert_array_equal(*found)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "out", "whole"]


def test_other_options_or_files_do_not_resume(tmp_path, monkeypatch):
    folder = write_parts(regression(16_000), tmp_path / "data", [8000])
    with monkeypatch.context() as patch:
        patch.setattr(_fit, "_fitted", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            distributed.fit(folder, "y", out=tmp_path / "out")
    assert distributed.fit(folder, "y", out=tmp_path / "out", seed=1).passes == 7


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"backend": "spark"}, "backend 'spark' is unknown; choose from stream, dask, ray"),
        ({"on_error": "ignore"}, "on_error 'ignore' is unknown"),
        ({"workers": 0}, "workers 0"),
        ({"drop": ["y"]}, "the target cannot be dropped"),
    ],
)
def test_wrong_options_are_refused(options, message, tmp_path):
    folder = write_parts(regression(100), tmp_path / "data", [])
    with pytest.raises(InputError, match=message):
        distributed.fit(folder, "y", out=tmp_path / "out", **options)


def test_a_folder_without_tables_is_refused(tmp_path):
    with pytest.raises(InputError, match="is not a folder of Parquet files"):
        distributed.fit(tmp_path, "y", out=tmp_path / "out")
