"""Logistic regression in passes: independent of the partitioning, near the one in memory, harmless on clean labels."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.linear_model import LogisticRegression

from inlier import distributed
from inlier._errors import InputError
from inlier.distributed import _classification, _fit, _inspect, _output, _survey
from inlier.sklearn import AdaptiveClassifier
from tests.distributed.tables import write_parts


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Leave out what takes long and is the same as for a table in memory."""
    monkeypatch.setattr(_output, "compare_on_holdout", lambda *_: None)
    monkeypatch.setattr(_output, "write", lambda *_: None)
    monkeypatch.setattr(_output.models, "save_pipeline", lambda *_: None)
    monkeypatch.setattr(_survey, "MOST_LABELS", 2000)
    monkeypatch.setitem(_fit.IN_MEMORY, "classification", 2000)


def labelled(rows=6000, noise=0.2, classes=2, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 3))
    centers = rng.normal(size=(classes, 3)) * 2
    truth = (x @ centers.T + rng.gumbel(size=(rows, classes))).argmax(1)
    given = np.where(rng.random(rows) < noise, rng.integers(0, classes, rows), truth)
    names = np.array(["ant", "bee", "cat", "dog"])
    return pa.table({f"x{k}": x[:, k] for k in range(3)} | {"y": names[given]}), names[truth]


def inputs(fitted, table):
    return np.asarray(fitted.pipeline.named_steps["transform"].transform(table.drop_columns("y").to_pandas()))


@pytest.mark.parametrize(("noise", "classes"), [(0.0, 2), (0.3, 2), (0.3, 3)])
def test_the_partitioning_does_not_matter(noise, classes, tmp_path):
    table, _ = labelled(noise=noise, classes=classes)
    found = []
    for name, cuts in (("one", []), ("many", [7, 2500, 2501, 4000])):
        folder = write_parts(table, tmp_path / name, cuts, row_group_size=900)
        found.append(distributed.fit(folder, "y", out=tmp_path / f"{name}-out", partition_rows=1000))
    models = [each.pipeline.named_steps["model"] for each in found]
    np.testing.assert_allclose(models[0].coef_, models[1].coef_, rtol=1e-7, atol=1e-9)
    assert found[0].inlier_fraction == pytest.approx(found[1].inlier_fraction, rel=1e-7)
    index = [pq.read_table(each.out / "suspects.parquet")["index"].to_pylist() for each in found]
    assert index[0] == index[1]


@pytest.mark.parametrize("classes", [2, 3])
def test_clean_labels_give_the_unweighted_fit(classes, tmp_path):
    table, _ = labelled(noise=0.0, classes=classes)
    fitted = distributed.fit(write_parts(table, tmp_path / "data", [3000]), "y", out=tmp_path / "out")
    plain = LogisticRegression(tol=1e-10, max_iter=1000).fit(inputs(fitted, table), table["y"].to_pylist())
    model = fitted.pipeline.named_steps["model"]
    np.testing.assert_allclose(model.coef_, plain.coef_, rtol=1e-4, atol=1e-5)
    assert fitted.passes <= 6  # A sample, sums, two or three of Newton's method, scores.
    assert model.classes_.tolist() == plain.classes_.tolist()


def test_noisy_labels_are_found_as_in_memory(tmp_path):
    table, truth = labelled(rows=12_000, noise=0.4, classes=4)
    fitted = distributed.fit(write_parts(table, tmp_path / "data", [5000]), "y", out=tmp_path / "out")
    assert fitted.fraction_estimate.trusted
    x, y = inputs(fitted, table), np.array(table["y"].to_pylist())
    memory = AdaptiveClassifier(LogisticRegression(max_iter=300), random_state=0).fit(x, y)
    assert fitted.inlier_fraction == pytest.approx(memory.inlier_fraction_, abs=0.08)
    agree = (fitted.pipeline.named_steps["model"].predict(x) == memory.predict(x)).mean()
    assert agree > 0.98
    suspects = pq.read_table(fitted.out / "suspects.parquet")
    wrong = truth != y
    precision = wrong[suspects["index"].to_numpy()].mean()
    recall = suspects.num_rows * precision / wrong.sum()
    doubtful = memory.inlier_probability_ < 0.5
    assert precision > wrong[doubtful].mean() - 0.05
    # How many are below 1/2 depends on the last digits of temperature and rate, whose likelihood is flat.
    assert recall > (wrong & doubtful).sum() / wrong.sum() - 0.2


def test_a_given_fraction_is_taken_as_given(tmp_path):
    table, _ = labelled(noise=0.3)
    folder = write_parts(table, tmp_path / "data", [3000])
    fitted = distributed.fit(folder, "y", out=tmp_path / "out", inlier_fraction=0.8)
    assert fitted.inlier_fraction == 0.8
    assert pq.read_table(fitted.out / "suspects.parquet").num_rows > 0
    fitted = distributed.fit(folder, "y", out=tmp_path / "out", inlier_fraction=1.0, overwrite=True)
    assert pq.read_table(fitted.out / "suspects.parquet").num_rows == 0


def test_few_rows_are_fitted_in_memory(tmp_path):
    table, _ = labelled(rows=1500, noise=0.3)
    fitted = distributed.fit(write_parts(table, tmp_path / "data", [500]), "y", out=tmp_path / "out")
    x, y = inputs(fitted, table), np.array(table["y"].to_pylist(), dtype=object)
    memory = AdaptiveClassifier(LogisticRegression(max_iter=300), random_state=0).fit(x, y)
    np.testing.assert_allclose(fitted.pipeline.named_steps["model"].coef_, memory.estimator_.coef_, rtol=1e-6)
    assert fitted.inlier_fraction == pytest.approx(memory.inlier_fraction_, rel=1e-9)


def test_a_rare_class_outside_of_the_sample_is_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(_inspect, "SAMPLE", 500)
    table, _ = labelled(noise=0.0)
    y = table["y"].to_pylist()
    y[5990:] = ["yak"] * 10
    table = table.set_column(3, "y", pa.array(y))
    fitted = distributed.fit(write_parts(table, tmp_path / "data", [3000]), "y", out=tmp_path / "out")
    assert "yak" in fitted.pipeline.named_steps["model"].classes_


def test_too_many_coefficients_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(_classification, "MOST_UNKNOWNS", 3)
    table, _ = labelled()
    with pytest.raises(
        InputError, match="2 classes and 3 inputs are 4 coefficients; in passes the limit is 3"
    ):
        distributed.fit(write_parts(table, tmp_path / "data", [3000]), "y", out=tmp_path / "out")
