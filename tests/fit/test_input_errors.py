"""Cells of the inputs that do not fit the rest of their row."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa

from inlier.fit._columns import infer_columns, to_frame
from inlier.fit._input_errors import CLAIMED, score_cells
from tests.fit.commands import record_of, refused, succeed


def people(n=300):
    """Cities with their zip code and country, unrelated answers, and numbers that belong together."""
    random = np.random.default_rng(0)
    place = random.integers(0, 6, n)
    size = random.normal(170, 10, n)
    frame = pd.DataFrame(
        {
            "city": np.array(["Bonn", "Köln", "Ulm", "Paris", "Lyon", "Nancy"])[place],
            "zip": np.array([53111, 50667, 89073, 75001, 69001, 54000])[place],
            "country": np.array(["DE", "DE", "DE", "FR", "FR", "FR"])[place],
            "answer": random.choice(["often", "rarely", "never"], n, p=[0.5, 0.48, 0.02]),
            "height": size.round(1),
            "reach": (1.02 * size + random.normal(0, 1, n)).round(1),
        }
    )
    return frame, random


def scores(frame):
    readings, _ = infer_columns(pa.Table.from_pandas(frame, preserve_index=False))
    columns = [reading.column for reading in readings]
    texts = pa.Table.from_pandas(frame, preserve_index=False)
    return score_cells(to_frame(readings, len(frame)), texts, columns)


def test_planted_errors_lead_and_rare_answers_do_not():
    frame, _ = people()
    planted = {
        (3, "city"): ("Bnon", frame.loc[3, "city"]),
        (30, "city"): ("Paris" if frame.loc[30, "country"] == "DE" else "Ulm", frame.loc[30, "city"]),
        (60, "zip"): (53112, str(frame.loc[60, "zip"])),
        (90, "country"): ("FR" if frame.loc[90, "country"] == "DE" else "DE", frame.loc[90, "country"]),
        (120, "reach"): (17.4, None),
    }
    for (row, column), (value, _) in planted.items():
        frame.loc[row, column] = value
    found = scores(frame)
    # A right cell beside a wrong one is at odds with it too: of two numbers that belong together, either may be wrong.
    first = {(cell.position, cell.column): cell for cell in found[: len(planted) + 3]}
    assert set(first) >= set(planted)
    for key, (_, expected) in planted.items():
        assert expected is None or first[key].expected == expected
    assert not [cell for cell in found if cell.column == "answer" and cell.score > 1]


def test_a_clean_table_has_no_strong_evidence():
    frame, _ = people()
    found = scores(frame)
    assert found  # All cells with any evidence are ranked.
    assert not [cell for cell in found if cell.score > CLAIMED]


def test_a_tail_of_large_errors_is_no_claim():
    # n-grams of the prices predict the usual sizes well, and the others not at all.
    random = np.random.default_rng(1)
    size = random.normal(50, 10, 1000)
    frame = pd.DataFrame(
        {"price": [f"{'€$'[k % 2]}{v:.2f}" for k, v in enumerate(size)], "size": size.round(1)}
    )
    found = scores(frame)
    assert not [cell for cell in found if cell.score > CLAIMED]
    frame.loc[7, "size"] = 5000.0
    assert scores(frame)[0].position == 7
    assert scores(frame)[0].score > CLAIMED


def test_the_command_lists_them(tmp_path):
    frame, _ = people(200)
    frame.loc[7, "city"] = "Atlantis"
    frame.loc[9, "height"] = np.nan
    frame["height"] = frame["height"].astype(object)
    frame.loc[11, "height"] = "tall"
    frame.to_csv(tmp_path / "people.csv", index=False)
    command = ("fit", tmp_path / "people.csv", "--target", "reach", "--out", tmp_path / "out")
    assert "errors 'cells' is unknown" in refused(*command, "--errors", "cells")
    printed = succeed(*command, "--errors", "inputs")
    claimed = record_of(tmp_path / "out")["suspect_cells_of_rows"]
    assert 1 <= claimed <= 3  # Atlantis, and what stands beside it.
    assert f"1 that do not fit their column, {claimed} that do not fit the rest of their row" in printed
    cells = pd.read_csv(tmp_path / "out" / "cells.csv")
    assert cells.loc[0, ["row", "column", "value", "reason"]].tolist() == [
        13,
        "height",
        "tall",
        "not a number",
    ]
    assert cells.loc[1, ["row", "column", "value"]].tolist() == [9, "city", "Atlantis"]
    page = (tmp_path / "out" / "report.html").read_text()
    assert "Suspect cells" in page
    assert "Atlantis" in page
    assert page.count("unlike the rest of its row") == claimed < (cells["score"] > 0).sum()
