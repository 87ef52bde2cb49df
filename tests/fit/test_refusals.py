"""What `inlier fit` and `inlier predict` refuse: one line, exit code 2, and nothing is written."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import skops.io
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.base import BaseEstimator

from tests.fit.commands import refused, run, succeed

ROOT = Path(__file__).parents[2]
ROWS = "".join(f"{i},{i * 2}\n" for i in range(20))
BAD_TABLES = {
    "no such column": (f"a,price\n{ROWS}", "did you mean 'price'?"),
    "empty": ("", "is empty"),
    "blank": ("\n \n", "is empty"),
    "header only": ("a,prices\n", "no value in any of 0 rows"),
    "one row": ("a,prices\n1,2\n", "has a value in only 1 row; at least 10 are needed"),
    "target all missing": ("a,prices\n" + "1,\n" * 20, "no value in any of 20 rows"),
    "one class": ("a,prices\n" + "".join(f"{i},cat\n" for i in range(20)), "is 'cat' in every row"),
    "one number": ("a,prices\n" + "".join(f"{i},5\n" for i in range(20)), "is '5.0' in every row"),
    "a class for each row": (
        "a,prices\n" + "".join(f"{i},cat{i}\n" for i in range(20)),
        "20 distinct values in 20 rows",
    ),
    "duplicate names": (f"a,prices,a\n{'1,2,3' * 20}", "has 2 columns named 'a'"),
    "ragged": (f"a,prices\n{ROWS}1,2,3\n", "Expected 2 columns, got 3"),
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
    message = refused(*arguments)
    assert "'many' holds 'list<" in message
    assert "--drop 'many'" in message
    succeed(*arguments, "--drop", "many", "--inlier-fraction", 1)


def test_files_that_are_not_tables(tmp_path):
    target = ("--target", "y", "--out", tmp_path / "out")
    assert "does not exist" in refused("fit", tmp_path / "none.csv", *target)
    (tmp_path / "photos" / "cat").mkdir(parents=True)
    assert "omit --target" in refused("fit", tmp_path / "photos", *target)
    (tmp_path / "a.xlsx").write_bytes(b"PK\3\4")
    assert "is not a readable workbook" in refused("fit", tmp_path / "a.xlsx", *target)
    (tmp_path / "a.doc").write_bytes(b"PK\3\4")
    assert "its name ends neither in .csv" in refused("fit", tmp_path / "a.doc", *target)
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
        (["--inlier-fraction", "nope"], "inlier fraction 'nope' is not a number"),
        (["--inlier-fraction", "1.5"], "inlier fraction 1.5 is not in (0, 1]"),
        (["--inlier-fraction", "nan"], "inlier fraction nan is not in (0, 1]"),
        (["--encoding", "rot13"], "encoding 'rot13' is unknown"),
        (["--encoding", "base64"], "encoding 'base64' is unknown"),
        (["--encoding", "utf-99"], "encoding 'utf-99' is unknown"),
        (["--max-rows", "0"], "choose numbers above 0"),
        (["--max-gigabytes", "nan"], "choose numbers above 0"),
        (["--seed", "-1"], "seed -1 is out of range"),
        (["--seed", "x"], "--seed"),
        (["--seed=x"], "'x'"),
        (["--drop", "pryce"], "drop 'pryce'"),
        (["--drop", "price"], "the target cannot be dropped"),
        (["--task", "regression", "--target", "city"], "target 'city' holds 2 distinct texts"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else "",
)
def test_wrong_arguments_are_one_line(arguments, message, tmp_path):
    rows = "".join(f"{i},{i * 2},{'Ulm' if i % 2 else 'Bonn'}\n" for i in range(20))
    (tmp_path / "houses.csv").write_text("size,price,city\n" + rows)
    out = ("--out", tmp_path / "out")
    assert message in refused("fit", tmp_path / "houses.csv", "--target", "price", *out, *arguments)
    assert not (tmp_path / "out").exists()


def test_a_line_without_an_end_costs_neither_memory_nor_time(tmp_path):
    for name, start in (("header", b""), ("row", b"a,y\n1,2\n")):
        with (tmp_path / f"{name}.csv").open("wb") as file:
            file.write(start)
            for _ in range(300):
                file.write(b"garbage, " * 100_000)
        assert (tmp_path / f"{name}.csv").stat().st_size > 250e6
    code = (
        "import resource, sys; from pathlib import Path; from inlier._errors import InputError\n"
        "from inlier.fit._tables import inspect_table, read_columns\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "for name in ('header.csv', 'row.csv'):\n"
        "    try: read_columns(inspect_table(Path(sys.argv[1], name)), ['y'])\n"
        "    except InputError as error: print(error)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, cwd=ROOT, timeout=120
    )
    assert result.returncode == 0, result.stderr
    *messages, kilobytes = result.stdout.splitlines()
    assert len(messages) == 2
    assert all("not a CSV file" in message for message in messages)
    assert int(kilobytes) < 100_000


def test_predict_refuses_what_it_cannot_use(houses_fit, tmp_path):
    out, frame = ("--out", tmp_path / "p.csv"), houses_fit.frame

    def predict_refused(name, table):
        table.to_csv(tmp_path / name, index=False)
        return refused("predict", houses_fit.out, tmp_path / name, *out)

    assert "is not an output of inlier fit" in refused("predict", tmp_path, houses_fit.data, *out)
    assert "lacks columns of the model: 'size', 'city'" in predict_refused(
        "less.csv", frame.drop(columns=["size", "city"])
    )
    assert "'large' and 499 more: not a number" in predict_refused("text.csv", frame.assign(size="large"))
    assert "'last year' and 499 more: not a date" in predict_refused(
        "dates.csv", frame.assign(sold="last year")
    )
    assert "has no rows" in predict_refused("none.csv", frame[:0])
    assert not (tmp_path / "p.csv").exists()


def test_predict_never_overwrites_unasked(houses_fit, tmp_path):
    data, out = houses_fit.data, tmp_path / "p.csv"
    before = data.read_bytes()
    missing = tmp_path / "no" / "p.csv"
    assert "does not exist; create it" in refused("predict", houses_fit.out, data, "--out", missing)
    assert "is the input itself" in refused("predict", houses_fit.out, data, "--out", data, "--overwrite")
    out.write_text("mine")
    assert "exists" in refused("predict", houses_fit.out, data, "--out", out)
    assert out.read_text() == "mine"
    assert data.read_bytes() == before
    succeed("predict", houses_fit.out, data, "--out", out, "--overwrite")
    assert out.read_text() != "mine"


class Intruder(BaseEstimator):
    """A type that no model of `inlier fit` holds."""

    def predict(self, X):
        raise AssertionError("must not be loaded")


def test_a_model_file_with_unexpected_types_is_not_loaded(houses_fit, tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "run.json").write_bytes((houses_fit.out / "run.json").read_bytes())
    arguments = ("predict", folder, houses_fit.data, "--out", tmp_path / "p.csv")
    assert "is not a model of inlier fit" in refused(*arguments)
    skops.io.dump(Intruder(), folder / "model.skops")
    assert "Intruder', which no model of inlier fit does; not loaded" in refused(*arguments)
    (folder / "model.skops").write_bytes((houses_fit.out / "model.skops").read_bytes()[:-100])
    assert "is not a model of inlier fit" in refused(*arguments)
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
    pool = draw(st.lists(CELLS, min_size=1, max_size=30))
    columns["target"] = draw(st.lists(st.sampled_from(pool), min_size=rows, max_size=rows))
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
            succeed("predict", out, folder / "odd.csv", "--out", folder / "p.csv")


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(content=st.one_of(st.binary(max_size=300), st.text('a1,;"\n\r\t -.', max_size=300)))
def test_odd_bytes_never_give_a_traceback(content, tmp_path_factory):
    path = tmp_path_factory.mktemp("odd") / "odd.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    assert run("fit", path, "--target", "a", "--out", path.parent / "out").code in (0, 2)
