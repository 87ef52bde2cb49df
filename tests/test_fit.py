"""`inlier fit` and `inlier predict` on tables, as a user meets them: commands, files, exit codes."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import skops.io
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.base import BaseEstimator

from inlier import cli
from inlier.fit import models
from inlier.fit.columns import sort_out

ROOT = Path(__file__).parent.parent
FILES = {"model.skops", "suspects.parquet", "suspects.csv", "report.html", "run.json"}


def run(*arguments):
    """Run a command in this process: importing all it needs takes longer than most commands do."""
    out, error, old = io.StringIO(), io.StringIO(), sys.argv
    sys.argv = ["inlier", *map(str, arguments)]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
            cli.main()
    except SystemExit as end:
        return SimpleNamespace(code=end.code or 0, out=out.getvalue(), error=error.getvalue())
    finally:
        sys.argv = old
    raise AssertionError("main always exits")


def refused(*arguments):
    """Run a command that is to be refused in one line; return the line."""
    result = run(*arguments)
    assert result.code == 2, (result.code, result.out, result.error)
    assert result.out == ""
    (line,) = result.error.splitlines()
    assert line.startswith("inlier: ")
    return line


def houses(n=1500, rate=0.15, seed=0):
    """Prices by size, rooms, city and date, with missing cells; and which of the prices are wrong."""
    random = np.random.default_rng(seed)
    size, rooms = random.gamma(4, 30, n).round(2), random.integers(1, 7, n).astype(float)
    city = random.choice(["Bonn", "Köln", "Ulm", "=1+1", "<script>alert(1)</script>"], n).astype(object)
    sold = pd.Timestamp("2019-01-01") + pd.to_timedelta(random.integers(0, 1500, n), "D")
    price = 50 + 2 * size + 10 * rooms + 30 * (city == "Köln") + 15 * np.isin(sold.month, (6, 7))
    price = price + 0.02 * (sold - sold.min()).days + random.normal(0, 5, n)
    wrong = np.zeros(n, dtype=bool)
    wrong[random.permutation(n)[: round(rate * n)]] = True
    price = np.where(wrong, price * random.choice((0.1, 3.0, 10.0), n), price)
    frame = pd.DataFrame(
        {
            "id": np.arange(n),
            "size": size,
            "rooms": rooms,
            "city": city,
            "sold": sold.strftime("%Y-%m-%d"),
            "note": [f"seen on {i}" for i in range(n)],
            "nothing": np.nan,
            "country": "DE",
            "price": price.round(2),
        }
    )
    for column in ("rooms", "city", "sold"):
        frame.loc[random.permutation(n)[: n // 20], column] = None
    return frame, wrong


def flowers(n=900, rate=0.2, seed=0):
    """Three kinds by two measures, a part of the kinds wrong; and the true kinds."""
    random = np.random.default_rng(seed)
    truth = random.integers(0, 3, n)
    centers = np.array([[0.0, 0.0], [4.0, 0.0], [0.0, 4.0]])[truth]
    a, b = (centers + random.normal(size=(n, 2))).T
    wrong = random.random(n) < rate
    label = np.where(wrong, (truth + random.integers(1, 3, n)) % 3, truth)
    names = np.array(["=rose", "tulip", "daisy"], dtype=object)
    return pd.DataFrame({"a": a, "b": b, "kind": names[label]}), names[truth], wrong


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """The houses, fitted once: the folder, the table, which rows are wrong, and what was printed."""
    folder = tmp_path_factory.mktemp("houses")
    frame, wrong = houses()
    frame.to_csv(folder / "houses.csv", index=False)
    result = run("fit", folder / "houses.csv", "--target", "price", "--out", folder / "out")
    assert result.code == 0, result.error
    return SimpleNamespace(folder=folder, out=folder / "out", frame=frame, wrong=wrong, printed=result.out)


def read_json(path):
    return json.loads(path.read_text())


def test_a_table_with_wrong_prices(fitted):
    record = read_json(fitted.out / "run.json")
    assert {path.name for path in fitted.out.iterdir()} == FILES
    assert abs(record["inlier_fraction"] - 0.85) < 0.03
    assert record["held_out"]["robust"] < 5 < record["held_out"]["plain"]
    suspects = pd.read_parquet(fitted.out / "suspects.parquet")
    assert list(suspects) == ["row", "index", "inlier_probability", "loss", "given", "suggested"]
    assert sorted(suspects["index"]) == list(range(len(fitted.frame)))
    found = fitted.wrong[suspects["index"][: fitted.wrong.sum()]]
    assert found.mean() > 0.97
    assert (suspects["row"] == suspects["index"] + 2).all()
    assert (suspects["given"] == fitted.frame["price"].to_numpy()[suspects["index"]]).all()
    as_csv = pd.read_csv(fitted.out / "suspects.csv")
    np.testing.assert_allclose(as_csv.to_numpy(float), suspects.to_numpy(float))


def test_the_summary_is_five_lines_and_the_pipeline_is_visible(fitted):
    lines = fitted.printed.splitlines()
    headings = ["rows", "inlier fraction", "held-out error", "most suspect", "files"]
    assert [line[:17].strip() for line in lines[-5:]] == headings
    first = pd.read_parquet(fitted.out / "suspects.parquet")["row"][:10]
    assert f"rows {', '.join(map(str, first))} " in lines[-2]
    assert "robust" in lines[-3]
    assert "median absolute error" in lines[-3]
    assert "task: regression" in lines[0]
    for unused in ("'id' (a different", "'note' (free text", "'nothing' (empty)", "'country' (one value"):
        assert unused in fitted.printed
    stages = {stage["kind"]: stage for stage in read_json(fitted.out / "run.json")["pipeline"]["stages"]}
    assert stages["number"]["columns"] == ["size", "rooms"]
    assert stages["category"]["columns"] == ["city"]
    assert stages["date"]["steps"][0] == "DateParts(one_hot=True)"
    assert "SimpleImputer > Standardize" in fitted.printed


def test_the_report_holds_the_suspects_and_no_script_of_the_table(fitted):
    page = (fitted.out / "report.html").read_text()
    assert "houses.csv" in page
    assert "<script>alert(1)" not in page
    assert str(read_json(fitted.out / "run.json")["most_suspect_rows"][0]) in page


def test_predictions_use_the_same_pipeline(fitted, tmp_path):
    new, _ = houses(200, rate=0.0, seed=1)
    new.loc[0, "city"] = "Atlantis"
    new.loc[1, ["size", "rooms", "city", "sold"]] = None
    new.drop(columns=["price", "id"]).to_csv(tmp_path / "new.csv", index=False)
    out = tmp_path / "predictions.csv"
    result = run("predict", fitted.out, tmp_path / "new.csv", "--out", out)
    assert result.code == 0, result.error
    assert "columns not used: 'note', 'nothing', 'country'" in result.out
    predicted = pd.read_csv(out)
    assert predicted["row"].tolist() == list(range(2, 202))
    assert (predicted["prediction"] - new["price"])[2:].abs().median() < 6

    new.to_parquet(tmp_path / "new.parquet")
    result = run("predict", fitted.out, tmp_path / "new.parquet", "--out", tmp_path / "p.parquet")
    assert result.code == 0, result.error
    np.testing.assert_allclose(
        pd.read_parquet(tmp_path / "p.parquet")["prediction"], predicted["prediction"], rtol=1e-9
    )


@pytest.mark.parametrize("model", ["linear", pytest.param("boosting", marks=pytest.mark.slow)])
def test_wrong_labels_are_found_and_better_ones_suggested(model, tmp_path):
    frame, truth, wrong = flowers()
    frame.to_csv(tmp_path / "flowers.csv", index=False)
    out = tmp_path / "out"
    result = run("fit", tmp_path / "flowers.csv", "--target", "kind", "--model", model, "--out", out)
    assert result.code == 0, result.error
    record = read_json(out / "run.json")
    assert abs(record["inlier_fraction"] - 0.8) < 0.05
    assert record["held_out"]["robust"] <= record["held_out"]["plain"] + 0.01
    suspects = pd.read_parquet(out / "suspects.parquet")
    index = suspects["index"].to_numpy()
    assert wrong[index[:100]].mean() > 0.9
    assert (suspects["suggested"].to_numpy() == truth[index]).mean() > 0.9
    # Parquet holds labels as they are; a spreadsheet must not take one for a formula.
    assert "=rose" in set(suspects["given"])
    assert "'=rose" in set(pd.read_csv(out / "suspects.csv")["given"])

    result = run("predict", out, tmp_path / "flowers.csv", "--out", tmp_path / "p.parquet")
    assert result.code == 0, result.error
    predicted = pd.read_parquet(tmp_path / "p.parquet")
    assert (predicted["prediction"] == truth).mean() > 0.9
    assert predicted["probability"].between(1 / 3, 1).all()


@pytest.mark.slow
def test_boosting_on_a_table_with_text_and_dates(tmp_path):
    frame, wrong = houses()
    frame.to_parquet(tmp_path / "houses.parquet")
    out = tmp_path / "out"
    result = run("fit", tmp_path / "houses.parquet", "--target", "price", "--model", "boosting", "--out", out)
    assert result.code == 0, result.error
    record = read_json(out / "run.json")
    assert record["held_out"]["robust"] < record["held_out"]["plain"]
    suspects = pd.read_parquet(out / "suspects.parquet")
    assert wrong[suspects["index"][:150]].mean() > 0.9
    assert run("predict", out, tmp_path / "houses.parquet", "--out", tmp_path / "p.csv").code == 0


def test_the_task_is_chosen_by_the_target_and_can_be_given(tmp_path):
    random = np.random.default_rng(0)
    frame = pd.DataFrame({"x": random.normal(size=200), "stars": random.integers(1, 6, 200)})
    frame["sure"] = frame["x"] > 0
    frame.loc[3, "stars"] = None
    frame.to_csv(tmp_path / "a.csv", index=False)

    def task(target, *more):
        result = run(
            "fit", tmp_path / "a.csv", "--target", target, "--out", tmp_path / "out", "--overwrite", *more
        )
        assert result.code == 0, result.error
        return read_json(tmp_path / "out" / "run.json"), result.out

    record, printed = task("stars")
    assert record["task"] == "classification"
    assert "199 (1 more set aside: no 'stars')" in printed
    suspects = pd.read_parquet(tmp_path / "out" / "suspects.parquet")
    assert set(suspects["given"]) == {"1", "2", "3", "4", "5"}
    assert 3 not in set(suspects["index"])
    assert 199 in set(suspects["index"])
    record, printed = task("stars", "--task", "regression", "--inlier-fraction", "0.8", "--drop", "sure")
    assert record["task"] == "regression"
    assert "0.800, as given" in printed
    assert record["columns_not_used"] == {"sure": "dropped by --drop"}
    assert task("x")[0]["task"] == "regression"
    assert task("sure")[0]["task"] == "classification"
    run("predict", tmp_path / "out", tmp_path / "a.csv", "--out", tmp_path / "p.parquet")
    assert pq.read_schema(tmp_path / "p.parquet").field("prediction").type == pa.bool_()


def test_what_columns_are_taken_for():
    n = 60
    table = pa.table(
        {
            "us": pa.array([f"{i % 12 + 1:02}/{i % 28 + 1:02}/2020" for i in range(n)]),
            "zone": pa.array([f"2020-01-{i % 28 + 1:02}T10:00:00Z" for i in range(n)]),
            "codes": pa.array(["007", "008", None] * 20),
            "yes": pa.array([True, None] * 30),
            "clock": pa.array(range(n), pa.time32("s")),
            "names": pa.array([f"name {i}" for i in range(n)]),
            "user_id": pa.array(range(100, 100 + n)),
            "year": pa.array(range(1950, 1950 + n)),
        }
    )
    used, unused = sort_out(table)
    kinds = {"us": "date", "zone": "date", "codes": "category", "yes": "number"}
    assert {column.name: column.kind for column in used} == kinds | {"clock": "number", "year": "number"}
    assert used[0].format == "%m/%d/%Y"
    assert set(unused) == {"names", "user_id"}


def test_codes_with_zeros_in_front_stay_text_in_new_tables(tmp_path):
    random = np.random.default_rng(0)
    code = random.choice(["x1", "007", "7"], 300)
    frame = pd.DataFrame({"code": code, "y": np.select([code == "007", code == "7"], [100.0, 50.0], 0.0)})
    frame["y"] += random.normal(size=300)
    frame.to_csv(tmp_path / "a.csv", index=False)
    assert run("fit", tmp_path / "a.csv", "--target", "y", "--out", tmp_path / "out").code == 0
    (tmp_path / "new.csv").write_text("code\n007\n7\n")
    assert run("predict", tmp_path / "out", tmp_path / "new.csv", "--out", tmp_path / "p.csv").code == 0
    np.testing.assert_allclose(pd.read_csv(tmp_path / "p.csv")["prediction"], [100, 50], atol=3)


def test_help_tells_the_rule_and_an_example():
    printed = " ".join(run("fit", "--help").out.replace("│", " ").split())
    assert "at most 10 different values" in printed
    assert "inlier fit houses.csv --target price" in printed
    assert "inlier predict runs/houses-fit new.csv" in run("predict", "--help").out


# What is refused: one line, exit code 2, and nothing is written.

ROWS = "".join(f"{i},{i * 2}\n" for i in range(20))
BAD_TABLES = {
    "no such column": (f"a,price\n{ROWS}", "did you mean 'price'?"),
    "empty": ("", "is empty"),
    "blank": ("\n \n", "is empty"),
    "header only": ("a,prices\n", "no value in any of 0 rows"),
    "one row": ("a,prices\n1,2\n", "has a value in 1 rows; at least 10 are needed"),
    "target all missing": ("a,prices\n" + "1,\n" * 20, "no value in any of 20 rows"),
    "one class": ("a,prices\n" + "".join(f"{i},cat\n" for i in range(20)), "is 'cat' in every row"),
    "one number": ("a,prices\n" + "".join(f"{i},5\n" for i in range(20)), "is '5.0' in every row"),
    "a class for each row": (
        "a,prices\n" + "".join(f"{i},cat{i}\n" for i in range(20)),
        "20 different values in 20 rows",
    ),
    "duplicate names": (f"a,prices,a\n{'1,2,3' * 20}", "has 2 columns named 'a'"),
    "infinite": (f"a,prices\n{ROWS}inf,5\n", "holds inf in row 22 (the header is row 1)"),
    "infinite target": (f"a,prices\n{ROWS}5,-1e999\n", "holds -inf in row 22"),
    "huge": (f"a,prices\n{ROWS}1e200,5\n", "holds 1e+200 in row 22"),
    "ragged": (f"a,prices\n{ROWS}1,2,3\n", "Expected 2 columns, got 3"),
    "latin-1": (f"a,prices\n{ROWS}".encode() + b"caf\xe9,5\n", "is not in UTF-8"),
    "latin-1 later": (b"a,prices\n" + b"x,5\n" * 300_000 + b"caf\xe9,5\n", "is not in UTF-8"),
    "utf-16": (f"a,prices\n{ROWS}".encode("utf-16"), "holds zero bytes"),
    "binary": (bytes(range(256)) * 10, "zero bytes"),
    "nothing to learn from": (
        "a,prices\n" + "".join(f"k,{i}\n" for i in range(20)),
        "no column to learn from",
    ),
    "dates": ("a,prices\n" + "".join(f"{i},2020-01-{i + 1:02}\n" for i in range(20)), "holds dates"),
    "open quote": (f'a,prices\n{ROWS}"1,2\n' + "3,4\n" * 2_000_000, "is a closing quote missing?"),
}


@pytest.mark.parametrize("name", BAD_TABLES)
def test_a_bad_table_is_one_line_and_nothing_is_written(name, tmp_path):
    content, message = BAD_TABLES[name]
    path = tmp_path / "bad.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    assert message in refused("fit", path, "--target", "prices", "--out", tmp_path / "out")
    assert [file.name for file in tmp_path.iterdir()] == ["bad.csv"]


def test_columns_of_lists_are_refused_unless_dropped(tmp_path):
    table = pa.table(
        {"a": range(40), "many": [[i] for i in range(40)], "y": [float(i % 7) for i in range(40)]}
    )
    pq.write_table(table, tmp_path / "lists.parquet")
    arguments = ("fit", tmp_path / "lists.parquet", "--target", "y", "--out", tmp_path / "out")
    line = refused(*arguments)
    assert "'many' holds 'list<" in line
    assert "--drop 'many'" in line
    assert run(*arguments, "--drop", "many").code == 0


def test_more_that_is_no_table(tmp_path):
    target = ("--target", "y", "--out", tmp_path / "out")
    assert "there is no file" in refused("fit", tmp_path / "none.csv", *target)
    assert "is a folder" in refused("fit", tmp_path, *target)
    (tmp_path / "a.xlsx").write_bytes(b"PK\3\4")
    assert "does not end in .csv" in refused("fit", tmp_path / "a.xlsx", *target)
    (tmp_path / "a.parquet").write_bytes(b"PAR1" + b"x" * 100)
    assert "is a broken Parquet file" in refused("fit", tmp_path / "a.parquet", *target)
    pq.write_table(pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["y", "y"]), tmp_path / "b.parquet")
    assert "2 columns named 'y'" in refused("fit", tmp_path / "b.parquet", *target)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--task", "nope"], "task 'nope' is unknown; choose from auto, regression, classification"),
        (["--model", "nope"], "model 'nope' is unknown; choose from linear, boosting"),
        (["--inlier-fraction", "nope"], "inlier fraction 'nope' is no number"),
        (["--inlier-fraction", "1.5"], "inlier fraction 1.5 is no fraction"),
        (["--inlier-fraction", "nan"], "inlier fraction nan is no fraction"),
        (["--seed", "-1"], "seed -1 is out of range"),
        (["--drop", "pryce"], "drop 'pryce'"),
        (["--drop", "price"], "this is the target"),
        (["--task", "regression", "--target", "city"], "target 'city' holds text"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else "",
)
def test_wrong_arguments_are_one_line(arguments, message, fitted, tmp_path):
    data = fitted.folder / "houses.csv"
    assert message in refused("fit", data, "--target", "price", "--out", tmp_path / "out", *arguments)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("start", [b"", b"a,y\n1,2\n"])
def test_a_line_without_an_end_costs_neither_memory_nor_time(start, tmp_path):
    path = tmp_path / "garbage.csv"
    with path.open("wb") as file:
        file.write(start)
        for _ in range(300):
            file.write(b"garbage, " * 100_000)
    code = (
        "import resource, sys, inlier.fit.run as run\n"
        "from inlier.fit import InputError; from pathlib import Path\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "try: run.fit(run.Request(Path(sys.argv[1]), 'y', Path(sys.argv[2])))\n"
        "except InputError as error: print(error)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code, str(path), str(tmp_path / "out")],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert result.returncode == 0, result.stderr
    message, kilobytes = result.stdout.splitlines()
    assert "no CSV file" in message
    assert path.stat().st_size > 250e6
    assert int(kilobytes) < 100_000


def test_an_output_is_never_written_over_unasked(fitted, tmp_path):
    data, out = fitted.folder / "houses.csv", tmp_path / "out"
    arguments = ("fit", data, "--target", "price", "--out", out)
    out.mkdir()
    (out / "thesis.txt").write_text("ten years of work")
    assert "is not empty" in refused(*arguments)
    assert "is not empty" in refused(*arguments, "--overwrite")
    assert [path.name for path in out.iterdir()] == ["thesis.txt"]
    (out / "thesis.txt").unlink()
    assert run(*arguments).code == 0  # An empty folder may be filled.
    before = (out / "run.json").read_bytes()
    assert "add --overwrite" in refused(*arguments)
    (out / "thesis.txt").write_text("again")
    assert "also holds 'thesis.txt'" in refused(*arguments, "--overwrite")
    (out / "thesis.txt").unlink()
    assert (out / "run.json").read_bytes() == before
    assert run(*arguments, "--overwrite", "--seed", 1).code == 0
    assert read_json(out / "run.json")["seed"] == 1
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert "is a file" in refused("fit", data, "--target", "price", "--out", data, "--overwrite")


def test_a_failure_while_writing_leaves_the_earlier_output(fitted, tmp_path, monkeypatch):
    data, out = fitted.folder / "houses.csv", tmp_path / "out"
    arguments = ("fit", data, "--target", "price", "--out", out, "--overwrite")
    assert run(*arguments).code == 0
    before = {path.name: path.read_bytes() for path in out.iterdir()}

    def full(pipeline, path):
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(models, "save", full)
    result = run(*arguments, "--seed", 2)
    assert result.code == 1
    assert "No space left on device" in result.error
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.slow
def test_ctrl_c_leaves_nothing_behind(tmp_path):
    frame, _ = houses(60_000)
    frame.to_csv(tmp_path / "houses.csv", index=False)
    command = [sys.executable, "-m", "inlier.cli", "fit", str(tmp_path / "houses.csv"), "--target", "price"]
    command += ["--model", "boosting", "--out", str(tmp_path / "deep" / "out")]
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        # Where the suite runs in the background, Ctrl-C is ignored, and children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and "libarrow" not in Path(f"/proc/{process.pid}/maps").read_text():
        time.sleep(0.1)
    time.sleep(8)
    os.kill(process.pid, signal.SIGINT)
    out, error = process.communicate(timeout=60)
    assert process.returncode == 130, (out, error)
    assert error.splitlines() == ["inlier: stopped; nothing was written"]
    assert [path.name for path in tmp_path.iterdir()] == ["houses.csv"]


def test_predict_refuses_what_it_cannot_use(fitted, tmp_path):
    out = ("--out", tmp_path / "p.csv")
    data = fitted.folder / "houses.csv"
    assert "is no output of inlier fit" in refused("predict", tmp_path, data, *out)
    fitted.frame.drop(columns=["size", "city"]).to_csv(tmp_path / "less.csv", index=False)
    assert "lacks 'size', 'city'" in refused("predict", fitted.out, tmp_path / "less.csv", *out)
    fitted.frame.assign(size="large").to_csv(tmp_path / "text.csv", index=False)
    line = refused("predict", fitted.out, tmp_path / "text.csv", *out)
    assert "'size' holds 'large' where numbers are expected" in line
    fitted.frame.assign(sold="last year").to_csv(tmp_path / "dates.csv", index=False)
    assert "'sold' holds values that are no dates" in refused(
        "predict", fitted.out, tmp_path / "dates.csv", *out
    )
    fitted.frame[:0].to_csv(tmp_path / "none.csv", index=False)
    assert "has no rows" in refused("predict", fitted.out, tmp_path / "none.csv", *out)
    assert "there is no folder" in refused("predict", fitted.out, data, "--out", tmp_path / "no" / "p.csv")
    assert not (tmp_path / "p.csv").exists()
    before = data.read_bytes()
    assert "is the table itself" in refused("predict", fitted.out, data, "--out", data, "--overwrite")
    (tmp_path / "p.csv").write_text("mine")
    assert "exists" in refused("predict", fitted.out, data, *out)
    assert (tmp_path / "p.csv").read_text() == "mine"
    assert data.read_bytes() == before
    assert run("predict", fitted.out, data, *out, "--overwrite").code == 0


class Intruder(BaseEstimator):
    """A type that no model of `inlier fit` holds."""

    def predict(self, X):
        raise AssertionError("must not be loaded")


def test_a_model_file_with_strange_types_is_not_loaded(fitted, tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "run.json").write_bytes((fitted.out / "run.json").read_bytes())
    arguments = ("predict", folder, fitted.folder / "houses.csv", "--out", tmp_path / "p.csv")
    assert "is no model of inlier fit" in refused(*arguments)
    skops.io.dump(Intruder(), folder / "model.skops")
    assert "Intruder', which no model of inlier fit does: not loaded" in refused(*arguments)
    (folder / "model.skops").write_bytes((fitted.out / "model.skops").read_bytes()[:-100])
    assert "is no model of inlier fit" in refused(*arguments)
    (folder / "run.json").write_text('{"made_by": "inlier fit", "columns": [1]}')
    assert "is broken" in refused(*arguments)


CELLS = st.one_of(
    st.none(),
    st.integers(-(10**20), 10**20),
    st.floats(),
    st.text(max_size=5),
    st.sampled_from(
        ["a", "b", "=1", "2020-01-01", "1/2/2020", "true", "nan", "\x00", '"', "é", "12:30", " "]
    ),
)


@st.composite
def tables(draw):
    """Small tables of odd content: each column draws its cells from a few odd values, or from all."""
    rows = draw(st.integers(0, 40))
    columns = {}
    for name in draw(st.lists(st.text(max_size=4), max_size=4, unique=True)):
        pool = draw(st.lists(CELLS, min_size=1, max_size=12))
        columns[name] = draw(st.lists(st.sampled_from(pool), min_size=rows, max_size=rows))
    columns["target"] = draw(
        st.lists(
            st.sampled_from(draw(st.lists(CELLS, min_size=1, max_size=30))), min_size=rows, max_size=rows
        )
    )
    return pd.DataFrame(columns, dtype=object)


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(table=tables(), seed=st.integers(0, 5), model=st.sampled_from(["linear", "linear", "boosting"]))
def test_odd_tables_never_give_a_traceback(table, seed, model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("odd")
    with contextlib.suppress(UnicodeEncodeError):
        table.to_csv(folder / "odd.csv", index=False)
        out = folder / "out"
        result = run(
            "fit", folder / "odd.csv", "--target", "target", "--out", out, "--model", model, "--seed", seed
        )
        assert result.code in (0, 2), result.error
        assert out.exists() == (result.code == 0)
        if result.code == 2:
            assert len(result.error.splitlines()) == 1
        else:
            result = run("predict", out, folder / "odd.csv", "--out", folder / "p.csv")
            assert result.code == 0, result.error


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(content=st.one_of(st.binary(max_size=300), st.text('a1,;"\n\r\t -.', max_size=300)))
def test_odd_bytes_never_give_a_traceback(content, tmp_path_factory):
    path = tmp_path_factory.mktemp("odd") / "odd.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    assert run("fit", path, "--target", "a", "--out", path.parent / "out").code in (0, 2)


def test_ctrl_c_that_numpy_has_turned_into_another_error_is_still_ctrl_c(tmp_path, monkeypatch, capsys):
    frame, _ = houses(200)
    frame.to_csv(tmp_path / "houses.csv", index=False)

    def interrupted(*_, **__):
        raise ValueError("not a valid buffer format") from KeyboardInterrupt()

    monkeypatch.setattr("inlier.sklearn.AdaptiveRegressor.fit", interrupted)
    monkeypatch.setattr(
        sys,
        "argv",
        ["inlier", "fit", str(tmp_path / "houses.csv"), "--target", "price", "--out", str(tmp_path / "o")],
    )
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 130
    assert capsys.readouterr().err == "inlier: stopped; nothing was written\n"
    assert [path.name for path in tmp_path.iterdir()] == ["houses.csv"]
