"""The curves of docs/experiments/scene.md, from the published rows: no scene and no training is needed.

    python -m benchmarks.scene_figures

draws PSNR, and precision, recall and the estimated fraction, over the rate of corrupted pixels.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path

import pandas as pd

from inlier.experiments.scene.experiment import PRESETS
from inlier.experiments.scene.figures import figures

DOCS = Path(__file__).parent.parent / "docs" / "experiments"
SHOWN = ("psnr", "weights")


def draw(rows: Path, folder: Path) -> None:
    """Draw the rows of fox with corrupted pixels.

    Args:
        rows: A table like docs/experiments/results/scene.csv.
        folder: Where to put the figures.
    """
    frame = pd.read_csv(rows)
    frame = frame[(frame["scene"] == "fox") & (frame["corruption"] == "noise")]
    frame = frame[frame["method"] != "robust-geman-mcclure"]  # That is what robust is from 50 % on.
    with tempfile.TemporaryDirectory() as made:
        figures(frame, PRESETS["cpu"] | {"scene": "fox"}, Path(made))
        for name in SHOWN:
            shutil.copy(Path(made, f"{name}.png"), folder / f"scene_{name}.png")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=Path, default=DOCS / "results" / "scene.csv")
    parser.add_argument("--out", type=Path, default=DOCS / "img")
    options = parser.parse_args()
    draw(options.rows, options.out)
