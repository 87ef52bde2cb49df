"""`inlier fit --errors inputs` on tables with a clean copy, beside the frequency of values in each column.

python -m benchmarks.fit_cells --data DIR     # DIR has beers/ and hospital/, each dirty.csv and clean.csv
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    arguments = parser.parse_args()
    for name, target in TARGETS.items():
        dirty, clean = (
            pd.read_csv(arguments.data / name / f"{kind}.csv", dtype=str, keep_default_na=False)
            for kind in ("dirty", "clean")
        )
        wrong = dirty.to_numpy() != clean.to_numpy()
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder, "out")
            command = [
                sys.executable,
                "-W",
                "ignore",
                "-m",
                "inlier.cli",
                "fit",
                arguments.data / name / "dirty.csv",
            ]
            command += ["--target", target, "--errors", "inputs", "--out", out]
            subprocess.run(list(map(str, command)), check=True, stdout=subprocess.DEVNULL)
            cells = pd.read_csv(out / "cells.csv", dtype={"value": str})
        score = np.zeros(dirty.shape)
        places = {column: place for place, column in enumerate(dirty)}
        for rank, (row, column) in enumerate(zip(cells["row"], cells["column"], strict=True)):
            score[row - 2, places[column]] = len(cells) - rank
        rare = np.column_stack([-dirty[column].map(dirty[column].value_counts()) for column in dirty])
        inputs = [place for column, place in places.items() if column != target]
        some = [place for place in inputs if 0 < wrong[:, place].mean() < 0.25]
        for columns, words in (
            (inputs, "all inputs"),
            (some, "inputs of which less than a quarter is wrong"),
        ):
            truth = wrong[:, columns].ravel()
            ours = average_precision_score(truth, score[:, columns].ravel())
            baseline = average_precision_score(truth, rare[:, columns].ravel())
            print(f"{name}, {words}: {truth.sum():,} wrong cells of {truth.size:,}: average precision {ours:.3f}, "
                  f"by frequency {baseline:.3f}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
