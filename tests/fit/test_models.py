"""The file of a model: what it may hold, and what is never built from it."""

from __future__ import annotations

import json
import zipfile

import numpy as np
import pandas as pd
import pytest
from sklearn.pipeline import Pipeline

from inlier.fit import _models as models
from inlier.fit._columns import Column
from inlier.fit._pipeline import ModelSpec, fit_robust
from inlier.fit._trees import BoostedClassifier, BoostedRegressor


def frame(n=200):
    random = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "x": random.normal(size=n),
            "mostly 0": np.where(random.random(n) < 0.9, 0.0, random.normal(size=n)),
            "kind": pd.Series(random.choice(["a", "b", None], n)),
            "day": pd.Timestamp("2020-01-01") + pd.to_timedelta(random.integers(0, 900_000, n), "min"),
            "note": [f"text {i} and {i * 7 % 13}" for i in range(n)],
        }
    )
    for place in range(60):
        table[f"vector[{place}]"] = random.normal(size=n)
    table.loc[3, "x"], table.loc[4, "day"] = np.nan, pd.NaT
    return table


COLUMNS = [
    Column("x", "number"), Column("mostly 0", "number"), Column("kind", "text"), Column("day", "date"),
    Column("note", "text"), Column("vector", "embedding", width=60),
]  # fmt: skip


@pytest.mark.slow
def test_the_list_of_types_is_exactly_what_fitted_pipelines_hold(tmp_path):
    table, found = frame(), set()
    x = table["x"].fillna(0).to_numpy()
    targets = {"two": np.where(x > 0, "p", "q").astype(object), "many": np.digitize(x, (-1, 1)).astype(str)}
    for model in ("linear", "boosting"):
        for columns in (COLUMNS, COLUMNS[:1], COLUMNS[4:5]):
            names = [name for column in columns for name in column.outputs]
            for task, y in (
                ("regression", x + 1.0), ("classification", targets["two"]), ("classification", targets["many"]),
            ):  # fmt: skip
                fit = fit_robust(ModelSpec(columns, task, model, 0.9, 0), table[names], y)
                models.save_pipeline(fit.pipeline, tmp_path / "model.skops")
                found |= models.types_in(tmp_path / "model.skops")
                loaded = models.load_pipeline(tmp_path / "model.skops")
                assert (loaded.predict(table[names]) == fit.pipeline.predict(table[names])).all()
    for model in (BoostedRegressor(), BoostedClassifier()):
        # A single leaf: what is fitted in passes over a folder; tests/distributed has trees of XGBoost.
        whole = np.zeros(1, dtype=np.int64)
        trees = model.set_trees(
            whole, np.ones(1), whole == 0, whole, whole, np.ones(1), whole, whole, np.ones(1), 1
        )
        models.save_pipeline(Pipeline([("model", trees)]), tmp_path / "model.skops")
        found |= models.types_in(tmp_path / "model.skops")
        assert (models.load_pipeline(tmp_path / "model.skops")["model"].raw(table[["x"]]) == 2).all()
    assert found == models.TYPES


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "model.skops"
    fit = fit_robust(
        ModelSpec(COLUMNS[3:5], "regression", "linear", 0.9, 0), frame()[["day", "note"]], np.arange(200.0)
    )
    models.save_pipeline(fit.pipeline, path)
    return path


def test_a_vocabulary_is_one_array_in_the_file_and_comes_back_whole(tmp_path):
    notes = frame()[["note"]].replace({"note": {"text 3 and 8": "naïve 東京 😀 " + "word " * 9}})
    spec = ModelSpec(COLUMNS[4:5], "regression", "linear", 0.9, 0)
    pipeline = fit_robust(spec, notes, np.arange(200.0)).pipeline
    (vectorizer,) = models._text_vectorizers(pipeline)
    words = dict(vectorizer.vocabulary_)
    assert len(words) > 500
    models.save_pipeline(pipeline, tmp_path / "model.skops")
    assert vectorizer.vocabulary_ == words  # What was saved can still be used.
    (loaded,) = models._text_vectorizers(models.load_pipeline(tmp_path / "model.skops"))
    assert loaded.vocabulary_ == words
    with zipfile.ZipFile(tmp_path / "model.skops") as archive:
        assert len(list(models._nodes(json.loads(archive.read("schema.json"))))) < len(words)


def altered(saved, path, change):
    """Write a copy of a model with another schema."""
    with zipfile.ZipFile(saved) as old, zipfile.ZipFile(path, "w") as new:
        for entry in old.infolist():
            content = old.read(entry)
            if entry.filename == "schema.json":
                schema = json.loads(content)
                for node in models._nodes(schema):
                    change(node)
                content = json.dumps(schema).encode()
            new.writestr(entry.filename, content)
    return path


def opens_files(node):
    if node.get("__class__") == "TfidfVectorizer":
        node["content"]["content"]["input"]["content"] = '"filename"'


def another_vectorizer(node):
    if node.get("__class__") == "TfidfVectorizer":
        node["__class__"] = "CountVectorizer"


def system(node):
    if node.get("__loader__") == "FunctionNode":
        node["__module__"], node["__class__"] = "os", "system"
        node["content"] = {"module_path": "os", "function": "system"}


def another_loader(node):
    if node.get("__loader__") == "FunctionNode":
        node["__loader__"] = "OperatorFuncNode"


@pytest.mark.parametrize("change", [opens_files, another_vectorizer, system, another_loader])
def test_a_model_that_was_tampered_with_is_not_built(change, saved, tmp_path):
    path = altered(saved, tmp_path / "model.skops", change)
    with pytest.raises(ValueError, match="which no model of inlier fit does; not loaded"):
        models.load_pipeline(path)


def test_a_model_that_unpacks_to_far_more_is_not_read(saved, tmp_path):
    with zipfile.ZipFile(tmp_path / "model.skops", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("schema.json", zipfile.ZipFile(saved).read("schema.json"))
        archive.writestr("1.npy", bytes(30_000_000))
    with pytest.raises(ValueError, match="unpacks to far more than its size"):
        models.load_pipeline(tmp_path / "model.skops")
