"""What a person decided in the report: honoured by the next fit, and written into a new table."""

from __future__ import annotations

import gzip
import json
import re
import shutil

import numpy as np
import pandas as pd
import pytest

from inlier.fit._tables import inspect_table, read_columns
from inlier.fit._targets import infer_target
from tests.fit.commands import record_of, refused, succeed, summary_of
from tests.fit.tables import flowers


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("flowers")
    frame, _, _ = flowers(200)
    (folder / "flowers.csv").write_text("Flowers of May\n\n" + frame.to_csv(index=False, sep=";"))
    out = folder / "out"
    succeed("fit", folder / "flowers.csv", "--target", "kind", "--out", out, "--inlier-fraction", 0.8)
    given = [f"'{kind}" if kind.startswith("=") else kind for kind in frame["kind"]]
    text = "row,decision,given,value\n" + f"4,fix,{given[0]},=rose\n5,drop,{given[1]},\n6,keep,{given[2]},\n"
    (folder / "decisions.csv").write_text(text)
    return folder, frame


def test_a_fit_honours_decisions(fitted):
    folder, _ = fitted
    printed = succeed(
        "fit", folder / "flowers.csv", "--target", "kind", "--out", folder / "again", "--inlier-fraction", 0.8,
        "--decisions", folder / "decisions.csv",
    )  # fmt: skip
    assert summary_of(printed)["rows"] == "199 (1 more was dropped by decisions.csv)"
    suspects = pd.read_parquet(folder / "again" / "suspects.parquet").set_index("row")
    assert 5 not in suspects.index
    assert suspects.loc[4, "given"] == "=rose"
    # Rows that somebody has looked at are not suspect any more.
    assert set(suspects.index[-2:]) == {4, 6}
    assert (suspects["inlier_probability"][-2:] == 1).all()
    assert record_of(folder / "again")["decisions"].endswith("decisions.csv")


def test_a_fixed_table_is_written_beside_the_original(fitted):
    folder, frame = fitted
    before = (folder / "flowers.csv").read_bytes()
    printed = succeed("fix", folder / "out", folder / "decisions.csv")
    assert printed == f"1 row fixed, 1 dropped: {folder / 'flowers-fixed.csv'}\n"
    text = (folder / "flowers-fixed.csv").read_text()
    assert text.startswith("Flowers of May\n\na;b;kind\n")
    fixed = pd.read_csv(folder / "flowers-fixed.csv", sep=";", skiprows=2)
    wanted = frame.copy()
    wanted.loc[0, "kind"] = "=rose"
    pd.testing.assert_frame_equal(fixed, wanted.drop(index=1).reset_index(drop=True))
    assert (folder / "flowers.csv").read_bytes() == before
    assert "exists; choose another name" in refused("fix", folder / "out", folder / "decisions.csv")
    message = refused("fix", folder / "out", folder / "decisions.csv", "--out", folder / "flowers.csv")
    assert "exists" in message


def test_the_table_of_a_fit_has_to_be_there(fitted, tmp_path):
    folder, _ = fitted
    shutil.copytree(folder / "out", tmp_path / "out")
    text = (tmp_path / "out" / "run.json").read_text()
    (tmp_path / "out" / "run.json").write_text(text.replace("flowers.csv", "gone.csv"))
    message = refused("fix", tmp_path / "out", folder / "decisions.csv")
    assert "does not exist; run inlier fix in the folder where inlier fit was run" in message


def rows(name="plain"):
    """A table whose other cells a careless copy would change: a formula, a missing value, quotes."""
    middle = "".join(f"{k},{name if k == 30 else 'plain'},{2 * k}\n" for k in range(40))
    return f'x,name,y\n1,"=1+1",2\n2,NA,4\n3,"a ""b"", c",6\n{middle}'


@pytest.mark.parametrize(
    ("name", "encoding", "options"),
    [
        ("a.csv", "utf-8", ()),
        ("a.csv.gz", "utf-8", ()),
        ("a.csv", "cp1252", ()),
        ("a.2024.csv", "utf-16", ()),
        ("a.csv", "shift_jis", ("--encoding", "shift_jis")),
    ],
)
def test_a_fixed_csv_file_differs_only_where_that_was_decided(name, encoding, options, tmp_path):
    word = "東京" if encoding == "shift_jis" else "café"
    content = rows(word).encode(encoding)
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    out = tmp_path / "out"
    succeed("fit", tmp_path / name, "--target", "y", "--out", out, "--inlier-fraction", 0.9, *options)
    (tmp_path / "decisions.csv").write_text("row,decision,value\n3,fix,44\n43,drop,\n")
    succeed("fix", out, tmp_path / "decisions.csv")
    fixed = (tmp_path / name.replace(".csv", "-fixed.csv").removesuffix(".gz")).read_bytes().decode(encoding)
    # The meaning of quotes stays; the csv module leaves out those that are not needed.
    wanted = rows(word).replace("2,NA,4", "2,NA,44").replace('"=1+1"', "=1+1").replace("38,plain,76\n", "")
    assert fixed == wanted


def test_a_byte_of_another_encoding_late_in_a_file_is_kept(tmp_path):
    content = (
        b"x,name,y\n"
        + b"".join(b"%d,plain,%d\n" % (k % 50, k % 50) for k in range(150_000))
        + b"1,caf\xe9,7\n"
    )
    (tmp_path / "a.csv").write_bytes(content)
    (tmp_path / "out").mkdir()
    run = {"made_by": "inlier fit", "kind": "table", "data": str(tmp_path / "a.csv"), "task": "regression"}
    run |= {"target": {"name": "y", "type": "double"}, "columns": []}
    (tmp_path / "out" / "run.json").write_text(json.dumps(run))
    (tmp_path / "decisions.csv").write_text("row,decision,value\n2,fix,44\n")
    succeed("fix", tmp_path / "out", tmp_path / "decisions.csv")
    assert (tmp_path / "a-fixed.csv").read_bytes() == content.replace(b"0,plain,0\n", b"0,plain,44\n", 1)


def as_decided_in_the_report(out, action="fix"):
    """The decision about the suspect with the largest loss, as the button of the report makes it."""
    page = (out / "report.html").read_text()
    data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page)[1])
    worst = max(data["suspects"], key=lambda suspect: suspect["loss"])
    frame = pd.DataFrame([{**worst, "decision": action, "value": worst["suggested"]}])
    return frame[["row", "decision", "given", "value"]]


def euros(values):
    return [f"{value:,.2f} €".translate(str.maketrans(",.", ".,")) for value in values]


@pytest.mark.parametrize(
    ("name", "written", "truth"),
    [
        ("a.csv", euros, 182.0),
        ("a.csv", lambda values: [f"{value / 1000:.3f} k" for value in values], 0.182),
        ("a.csv", lambda values: [f"{value // 60:.0f}h {value % 60:.0f}m" for value in values], 60 * 182.0),
        (
            "a.csv",
            lambda values: [f"{v / 100:.4f}" if k % 9 else f"{v:.2f} %" for k, v in enumerate(values)],
            1.82,
        ),
        ("a.parquet", lambda values: values.astype(int), 182.0),
        ("a.parquet", lambda values: pd.to_timedelta(values, "s"), 182.0),
    ],
    ids=["decimal comma", "thousands", "duration", "per cent", "integers", "durations of Parquet"],
)
def test_what_the_report_suggests_can_be_written_into_the_table(name, written, truth, tmp_path):
    x = np.arange(60.0)
    y = 100 + 2 * x + np.sin(x)
    y[41] = 1e6  # Below it, 100 + 2 x is 182.
    frame = pd.DataFrame({"x": x, "y": written(y)})
    path, out = tmp_path / name, tmp_path / "out"
    frame.to_csv(path, index=False) if name.endswith("csv") else frame.to_parquet(path)
    succeed("fit", path, "--target", "y", "--out", out, "--inlier-fraction", 0.9)
    as_decided_in_the_report(out).to_csv(tmp_path / "decisions.csv", index=False)
    succeed("fix", out, tmp_path / "decisions.csv")
    fixed = inspect_table(path.with_stem("a-fixed"))
    target = infer_target("y", read_columns(fixed, ["y"])["y"], "regression")
    assert target.values[41] == pytest.approx(truth, rel=0.05)
    succeed(
        "fit", path, "--target", "y", "--out", tmp_path / "again", "--decisions", tmp_path / "decisions.csv"
    )


def test_decisions_about_true_and_false(tmp_path):
    x = np.arange(60.0)
    y = x > 30
    y[5] = True
    pd.DataFrame({"x": x, "y": y}).to_parquet(tmp_path / "a.parquet")
    succeed(
        "fit", tmp_path / "a.parquet", "--target", "y", "--out", tmp_path / "out", "--inlier-fraction", 0.9
    )
    as_decided_in_the_report(tmp_path / "out").to_csv(tmp_path / "decisions.csv", index=False)
    succeed("fix", tmp_path / "out", tmp_path / "decisions.csv")
    assert not pd.read_parquet(tmp_path / "a-fixed.parquet")["y"][5]


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("row;decision;given;value\r\n4;fix;{given};tulip\r\n5;drop;;\r\n", "utf-8-sig"),
        ('"row","decision","given","value"\n"4","fix","{given}","tulip"\n"5","drop","",""\n', "utf-8"),
        ("row\tdecision\tgiven\tvalue\r\n4\tfix\t{given}\ttulip\r\n5\tdrop\t\t\r\n", "utf-16"),
        ("Row; Decision;GIVEN;Value;Who\n4; Fix ;{given};tulip;me\n5;DROP;;;me\n", "utf-8"),
        ("row,decision,given,value\n4.0,fix,{given},tulip\n5.0,drop,,\n6,,tulip,\n,,,\n", "utf-8"),
        ("sep=;\nrow;decision;value\n4;fix;tulip\n5;drop;\n", "utf-8"),
    ],
    ids=["mark", "quotes", "Unicode text", "typed", "lines without a decision", "Excel's own line"],
)
def test_decisions_that_a_spreadsheet_program_saved(text, encoding, fitted, tmp_path):
    folder, frame = fitted
    given = frame["kind"][0]
    content = text.format(given=f"'{given}" if given.startswith("=") else given).encode(encoding)
    (tmp_path / "decisions.csv").write_bytes(content)
    printed = succeed("fix", folder / "out", tmp_path / "decisions.csv", "--out", tmp_path / "new.csv")
    assert printed.startswith("1 row fixed, 1 dropped")
    fixed = pd.read_csv(tmp_path / "new.csv", sep=";", skiprows=2)
    assert fixed["kind"][0] == "tulip"
    assert len(fixed) == 199


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("row,action\n4,fix\n", "has no such column"),
        ("row,decision\nfour,fix\n", "line 2: row 'four' is not a number"),
        ("row,decision\n4,eat\n", "'eat' is no decision"),
        ("row,decision\n4,fix\n", "no value is given"),
        ("row,decision\n4,drop\n4,keep\n", "line 3: row 4 was decided before"),
        ("row,decision\n4000,drop\n", "row 4000 does not exist; the last is 203"),
        ("row,decision\n3,drop\n", "row 3 does not exist"),
        ("row,decision,given\n4,drop,violet\n", "was 'violet' when this was decided"),
    ],
)
def test_decisions_that_do_not_fit_are_refused(lines, message, fitted, tmp_path):
    folder, _ = fitted
    (tmp_path / "decisions.csv").write_text(lines)
    assert message in refused(
        "fix", folder / "out", tmp_path / "decisions.csv", "--out", tmp_path / "new.csv"
    )
    assert not (tmp_path / "new.csv").exists()
