"""`inlier fit` and `inlier predict` on tables: what is found, printed, written and predicted."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from inlier.fit import load_pipeline
from inlier.fit._columns import infer_columns
from inlier.fit._targets import infer_target
from inlier.fit._totals import count_totals
from tests.fit.commands import record_of, refused, run, succeed, summary_of
from tests.fit.tables import flowers, houses, line

FILES = {"model.skops", "cells.csv", "suspects.parquet", "suspects.csv", "report.html", "run.json"}


def test_wrong_prices_are_ranked_first(houses_fit):
    assert {path.name for path in houses_fit.out.iterdir()} == FILES
    held_out = record_of(houses_fit.out)["held_out"]
    assert held_out["robust"] < 6 < held_out["unweighted"]
    suspects = pd.read_parquet(houses_fit.out / "suspects.parquet")
    assert list(suspects) == ["row", "index", "inlier_probability", "loss", "given", "suggested"]
    assert sorted(suspects["index"]) == list(range(len(houses_fit.frame)))
    assert houses_fit.wrong[suspects["index"][: houses_fit.wrong.sum()]].mean() > 0.95
    assert (suspects["row"] == suspects["index"] + 2).all()
    assert (suspects["given"] == houses_fit.frame["price"].to_numpy()[suspects["index"]]).all()
    as_csv = pd.read_csv(houses_fit.out / "suspects.csv")
    np.testing.assert_allclose(as_csv.to_numpy(float), suspects.to_numpy(float))


def test_terminal_report_and_record_say_the_same_about_the_fraction(houses_fit):
    record = record_of(houses_fit.out)
    assert record["inlier_fraction"] == pytest.approx(0.85, abs=0.05)
    assert record["trusted"] is True
    assert record["standard_error"] > 0
    assert record["inlier_fraction_given"] is False
    summary = summary_of(houses_fit.printed)
    heading = re.search("<h1>(.*)</h1>", (houses_fit.out / "report.html").read_text())[1]
    assert re.fullmatch(r"About 1\d % \(\d+ to \d+ %\) of 500 rows look wrong", heading)
    assert summary["result"] == f"{heading}. {record['reason']}"
    assert summary["inlier fraction"] == f"{record['inlier_fraction']:.3f} ± {record['standard_error']:.3f}"


def prices(n=1000):
    """Clean prices with log-normal noise, and a shop in each row."""
    random = np.random.default_rng(5)
    size = random.uniform(size=n)
    price = 100 * np.exp(size + 0.3 * random.normal(size=n))
    shop = random.choice(["north", "south"], n)
    return pd.DataFrame({"shop": shop, "size": size.round(3), "price": price.round(2)})


def test_clean_prices_with_multiplicative_errors_are_called_clean(tmp_path):
    prices().to_csv(tmp_path / "prices.csv", index=False)
    out = tmp_path / "out"
    summary = summary_of(succeed("fit", tmp_path / "prices.csv", "--target", "price", "--out", out))
    assert summary["result"].startswith("No errors found in 1,000 rows. One distribution explains")
    assert "<h1>No errors found in 1,000 rows</h1>" in (out / "report.html").read_text()


@pytest.mark.parametrize(
    ("rows", "note"),
    [
        (["Total,,{total}"], "the last row adds up the others, and is skipped"),
        (["TOTAL (n=60):,,"], "the last row adds up the others, and is skipped"),
        (["Subtotal,3,500", "Grand total,,{total}"], "the last 2 rows add up the others, and are skipped"),
        (["north,,{total}"], "the sum of all rows above (row 62: '{total}')"),
        (['south,,"{total:,}"'], "the sum of all rows above (row 62: '{total:,}')"),
    ],
)
def test_totals_below_a_table_are_no_rows(tmp_path, rows, note):
    frame = prices(60)
    total = frame["price"].sum().round(2)
    text = frame.to_csv(index=False) + "\n".join(rows).format(total=total) + "\n"
    (tmp_path / "prices.csv").write_text(text)
    out = tmp_path / "out"
    printed = succeed(
        "fit", tmp_path / "prices.csv", "--target", "price", "--inlier-fraction", 0.9, "--out", out
    )
    assert note.format(total=total) in printed
    assert sorted(pd.read_csv(out / "suspects.csv")["row"]) == list(range(2, 62))


def test_a_last_row_that_only_looks_like_a_total_stays():
    names = pa.chunked_array([["total", "part"] * 20])
    assert count_totals(pa.table({"kind": names.slice(1)})) == 0  # It is in other rows too.
    assert count_totals(pa.table({"note": pa.array(["x"] * 20 + ["Total nonsense, do not buy"])})) == 0
    column = pa.chunked_array([[1.0] * 20 + [20.5]])
    assert len(infer_target("y", column, "regression").rows) == 21
    assert len(infer_target("y", pa.chunked_array([[0.0] * 30 + [1.0, 1.0]]), "regression").rows) == 32


@pytest.mark.parametrize("bare", [0.0, 0.2])
def test_amounts_in_two_currencies_are_no_target(tmp_path, bare):
    """Rounded ones would be few enough for classes."""
    random = np.random.default_rng(0)
    other = "{} EUR" if bare == 0 else "{}"
    cells = [
        (other if random.random() < 0.2 else "${}").format(10 * random.integers(1, 40)) for _ in range(400)
    ]
    pd.DataFrame({"x": range(400), "price": cells}).to_csv(tmp_path / "a.csv", index=False)
    if bare:  # Numbers without a unit are taken to be in that of the rest: that is said.
        printed = succeed("fit", tmp_path / "a.csv", "--target", "price", "--out", tmp_path / "out")
        assert re.search(r"unit \$: \d+ cells without a unit taken to be in '\$'", printed)
        cells = [cell.replace("$", "") if k % 5 else cell for k, cell in enumerate(cells)]
        pd.DataFrame({"x": range(400), "price": cells}).to_csv(tmp_path / "a.csv", index=False)
    message = refused("fit", tmp_path / "a.csv", "--target", "price", "--out", tmp_path / "new")
    assert "holds numbers in several units" in message
    assert message.endswith("that are not converted; write them in one")


def test_columns_in_several_currencies_are_noted():
    table = pa.table(
        {
            "cost": [f"{'€' if k % 4 else '$'}{k}.50" for k in range(40)],
            "part": [f"{k}.50 EUR" if k % 4 else f"{k}.50" for k in range(40)],
            "currency": ["USD", "EUR"] * 20,
        }
    )
    notes = {reading.column.name: reading.notes for reading in infer_columns(table)[0]}
    assert notes["cost"] == ("numbers in several units ('$', '€') are read as text: write them in one",)
    assert notes["part"] == ("10 cells without a unit taken to be in 'EUR'",)
    assert notes["currency"] == (
        "several currencies: amounts in other columns are compared as if they were in one",
    )


def test_an_untrusted_estimate_is_called_so_everywhere(tmp_path):
    line(30).to_csv(tmp_path / "line.csv", index=False)
    out = tmp_path / "out"
    summary = summary_of(succeed("fit", tmp_path / "line.csv", "--target", "y", "--out", out))
    record = record_of(out)
    assert record["trusted"] is False
    assert summary["result"] == f"Cannot tell how many of 30 rows are wrong. {record['reason']}"
    assert summary["inlier fraction"].endswith("not trusted")
    page = (out / "report.html").read_text()
    assert "<h1>Cannot tell how many of 30 rows are wrong</h1>" in page
    assert "The estimate is not trusted" in page


def test_the_summary_and_the_pipeline_are_printed(houses_fit):
    summary = summary_of(houses_fit.printed)
    assert list(summary)[-6:] == [
        *("result", "inlier fraction", "rows", "held-out error", "most suspect", "files"),
    ]
    first = pd.read_parquet(houses_fit.out / "suspects.parquet")["row"][:10]
    assert summary["most suspect"] == f"rows {', '.join(map(str, first))} (the header is row 1)"
    assert "mean absolute error" in summary["held-out error"]
    assert houses_fit.printed.startswith("task: regression")
    treated = {entry["name"]: entry["as"] for entry in record_of(houses_fit.out)["columns_read"]}
    kinds = {"size": "number", "rooms": "number", "city": "category", "sold": "date", "note": "free text"}
    unused = dict.fromkeys(("id", "nothing", "country"), "not used")
    assert treated == {"price": "target, 495 distinct numbers"} | kinds | unused
    page = (houses_fit.out / "report.html").read_text()
    for name, words in treated.items():
        assert f"  {name!r:<9}  {words}" in houses_fit.printed
        assert f'<td class="user">{name}</td><td class="user">{words}</td>' in page


def test_the_report_holds_the_suspects_and_no_script_of_the_table(houses_fit):
    page = (houses_fit.out / "report.html").read_text()
    assert "houses.csv" in page
    assert "<script>alert(1)" not in page
    assert str(record_of(houses_fit.out)["most_suspect_rows"][0]) in page


def test_predictions_use_the_same_pipeline(houses_fit, tmp_path):
    new, _ = houses(200, rate=0.0, seed=1)
    new.loc[0, "city"] = "Atlantis"
    new.loc[1, ["size", "rooms", "city", "sold"]] = None
    new.drop(columns=["price", "id"]).to_csv(tmp_path / "new.csv", index=False)
    out = tmp_path / "predictions.csv"
    printed = succeed("predict", houses_fit.out, tmp_path / "new.csv", "--out", out)
    assert "columns not used: 'nothing', 'country'" in printed
    predicted = pd.read_csv(out)
    assert predicted["row"].tolist() == list(range(2, 202))
    assert (predicted["prediction"] - new["price"])[2:].abs().median() < 6

    new.to_parquet(tmp_path / "new.parquet")
    succeed("predict", houses_fit.out, tmp_path / "new.parquet", "--out", tmp_path / "p.parquet")
    as_parquet = pd.read_parquet(tmp_path / "p.parquet")
    np.testing.assert_allclose(as_parquet["prediction"], predicted["prediction"], rtol=1e-9)
    assert load_pipeline(houses_fit.out / "model.skops").named_steps["model"].coef_.ndim == 1


@pytest.mark.parametrize("model", ["linear", pytest.param("boosting", marks=pytest.mark.slow)])
def test_wrong_labels_are_found_and_better_ones_suggested(model, tmp_path):
    frame, truth, wrong = flowers()
    frame.to_csv(tmp_path / "flowers.csv", index=False)
    out = tmp_path / "out"
    succeed("fit", tmp_path / "flowers.csv", "--target", "kind", "--model", model, "--out", out)
    record = record_of(out)
    assert record["inlier_fraction"] == pytest.approx(0.8, abs=0.1) or not record["trusted"]
    assert record["held_out"]["robust"] <= record["held_out"]["unweighted"] + 0.02
    suspects = pd.read_parquet(out / "suspects.parquet")
    index = suspects["index"].to_numpy()
    assert wrong[index[:40]].mean() >= 0.9
    assert (suspects["suggested"].to_numpy() == truth[index]).mean() > 0.9
    # Parquet holds labels as they are; a spreadsheet must not evaluate one as a formula.
    assert "=rose" in set(suspects["given"])
    assert "'=rose" in set(pd.read_csv(out / "suspects.csv")["given"])

    succeed("predict", out, tmp_path / "flowers.csv", "--out", tmp_path / "p.parquet")
    predicted = pd.read_parquet(tmp_path / "p.parquet")
    assert (predicted["prediction"] == truth).mean() > 0.9
    assert predicted["probability"].between(1 / 3, 1).all()


@pytest.mark.slow
def test_boosting_on_a_table_with_text_and_dates(tmp_path):
    frame, wrong = houses()
    frame.to_parquet(tmp_path / "houses.parquet")
    out = tmp_path / "out"
    succeed("fit", tmp_path / "houses.parquet", "--target", "price", "--model", "boosting", "--out", out)
    held_out = record_of(out)["held_out"]
    assert held_out["robust"] < held_out["unweighted"]
    suspects = pd.read_parquet(out / "suspects.parquet")
    assert wrong[suspects["index"][:50]].mean() > 0.9
    succeed("predict", out, tmp_path / "houses.parquet", "--out", tmp_path / "p.csv")


@pytest.mark.parametrize(
    ("values", "task", "chosen"),
    [
        ([1, 2, 3, 4, 5] * 20, "auto", "classification"),
        ([1, 2, 3, 4, 5] * 20, "regression", "regression"),
        (range(100), "auto", "regression"),
        (range(11), "auto", "regression"),
        ([0.5, 1.5] * 50, "auto", "regression"),
        ([0.5, 1.5] * 50, "classification", "classification"),
        ([True, False] * 50, "auto", "classification"),
        (["cat", "dog"] * 50, "auto", "classification"),
    ],
    ids=lambda value: value if isinstance(value, str) else f"{list(value)[:2]} x {len(value)}",
)
def test_the_task_follows_from_the_target_unless_it_is_given(values, task, chosen):
    assert infer_target("y", pa.chunked_array([pa.array(values)]), task).task == chosen


def test_rows_without_a_target_are_skipped_and_classes_keep_their_type(tmp_path):
    random = np.random.default_rng(0)
    frame = pd.DataFrame({"x": random.normal(size=100), "stars": random.integers(1, 3, 100)})
    frame["sure"] = frame["x"] > 0
    frame.loc[3, "stars"] = None
    frame.to_csv(tmp_path / "a.csv", index=False)

    def fit(*arguments):
        return succeed("fit", tmp_path / "a.csv", "--out", tmp_path / "out", "--overwrite", *arguments)

    given = ("--inlier-fraction", "0.8")
    printed = fit("--target", "stars", "--drop", "sure", *given)
    assert summary_of(printed)["rows"] == "99 (1 more without 'stars' was skipped)"
    assert summary_of(printed)["inlier fraction"] == "0.800, given"
    assert "20 % of 99 rows were assumed to be wrong, as given" in summary_of(printed)["result"]
    record = record_of(tmp_path / "out")
    assert (record["inlier_fraction"], record["inlier_fraction_given"]) == (0.8, True)
    assert record["columns_not_used"] == {"sure": "dropped by --drop"}
    suspects = pd.read_parquet(tmp_path / "out" / "suspects.parquet")
    assert set(suspects["given"]) == {"1", "2"}
    assert set(suspects["index"]) == set(range(100)) - {3}

    fit("--target", "sure", *given)
    succeed("predict", tmp_path / "out", tmp_path / "a.csv", "--out", tmp_path / "p.parquet")
    assert pq.read_schema(tmp_path / "p.parquet").field("prediction").type == pa.bool_()


def test_the_types_of_columns_are_inferred():
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
    used, unused = infer_columns(table)
    kinds = {"us": "date", "zone": "date", "codes": "text", "yes": "number", "names": "text"}
    found = {reading.column.name: reading.column.kind for reading in used}
    assert found == kinds | {"clock": "number", "year": "number"}
    assert used[0].column.month_first
    assert set(unused) == {"user_id"}


def test_codes_with_leading_zeros_stay_text_in_new_tables(tmp_path):
    random = np.random.default_rng(0)
    code = random.choice(["x1", "007", "7"], 100)
    frame = pd.DataFrame({"code": code, "y": np.select([code == "007", code == "7"], [100.0, 50.0], 0.0)})
    frame["y"] += random.normal(size=100)
    frame.to_csv(tmp_path / "a.csv", index=False)
    succeed(
        "fit", tmp_path / "a.csv", "--target", "y", "--inlier-fraction", 1, "--out", tmp_path / "out"
    )  # fmt: skip
    (tmp_path / "new.csv").write_text("code\n007\n7\n")
    succeed("predict", tmp_path / "out", tmp_path / "new.csv", "--out", tmp_path / "p.csv")
    np.testing.assert_allclose(pd.read_csv(tmp_path / "p.csv")["prediction"], [100, 50], atol=5)


def test_named_targets_are_in_the_headline(tmp_path):
    random = np.random.default_rng(0)
    x = random.normal(size=300)
    frame = pd.DataFrame({"x": x, "y": (3 * x + random.normal(0, 0.1, 300)).round(3).astype(str)})
    frame.loc[5, "y"], frame.loc[50, "y"] = "see note", "tbc."
    frame.to_csv(tmp_path / "a.csv", index=False)
    printed = succeed("fit", tmp_path / "a.csv", "--target", "y", "--out", tmp_path / "out")
    wanted = "The targets of 2 rows do not fit their column; no other errors found in 298 rows"
    assert summary_of(printed)["result"].startswith(wanted)
    assert " ".join((tmp_path / "out" / "report.html").read_text().split()).count(wanted) > 0


def test_codes_that_look_like_numbers_are_texts_for_the_model_too(tmp_path):
    random = np.random.default_rng(0)
    # More than 40 distinct ones, some missing: numbers without a scale would drown everything else.
    code = pd.Series([f"{k:05}" for k in random.integers(0, 99_999, 60)]).sample(
        300, replace=True, random_state=0
    )
    frame = pd.DataFrame({"zip": code.to_numpy(), "kind": random.choice(["a", "b"], 300)})
    frame["y"] = np.where(frame["kind"] == "a", 5.0, 0.0) + random.normal(size=300)
    frame.loc[::30, "zip"] = None
    frame.to_csv(tmp_path / "a.csv", index=False)
    printed = succeed("fit", tmp_path / "a.csv", "--target", "y", "--out", tmp_path / "out")
    assert "'zip'   free text" in printed
    assert record_of(tmp_path / "out")["held_out"]["robust"] < 1.2


def test_help_states_the_rule_and_an_example():
    printed = " ".join(run("fit", "--help").out.replace("│", " ").split())
    assert "at most 10 distinct values" in printed
    assert "inlier fit houses.csv --target price" in printed
    assert "inlier predict runs/houses-fit new.csv" in run("predict", "--help").out
