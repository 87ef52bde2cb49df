"""Experiments that compute next to nothing, and misbehave on request, for the tests of the sweep.

Each row that is taken up leaves a line ``key pid`` in the file that ``TINY_LOG`` names. As a program this
runs one sweep: ``python -m tests.experiments.tiny_experiment OUT JOBS``.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from inlier.experiments.sweep import Experiment, load, plan

PRESETS = {
    "paper": {"rates": [0, 0.25, 0.5], "seeds": 4, "methods": ["steady", "other"], "seconds": 0.05},
    "cpu": {"rates": [0, 0.25, 0.5], "seeds": 2, "methods": ["steady", "other"], "seconds": 0.0},
    "smoke": {"rates": [0.5], "seeds": 1, "methods": ["steady"], "seconds": 0.0},
    "slow": {"rates": [0, 0.25, 0.5], "seeds": 4, "methods": ["steady", "other"], "seconds": 0.15},
}


def compute(rows):
    for row in rows:
        if "TINY_LOG" in os.environ:
            with Path(os.environ["TINY_LOG"]).open("a") as log:
                log.write(f"{row.key} {os.getpid()}\n")
        time.sleep(row.settings["seconds"])
        if row.method == "raises" and "TINY_MENDED" not in os.environ:
            raise ValueError("this row\nis bad")
        if row.method == "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        yield row, {"error": row.rate + row.seed, "pid": os.getpid()}


def compute_with_one_bad(rows):
    for row, metrics in compute(rows):
        yield row, ZeroDivisionError("no") if row.seed == 1 else metrics


def count_threads(rows):
    import torch

    for row in rows:
        yield row, {"threads": torch.get_num_threads(), "pid": os.getpid()}


def in_fives(rows, jobs):
    return [list(rows[i : i + 5]) for i in range(0, len(rows), 5)]


def figures(frame, settings, out):
    from inlier._figures import curve_plot

    curve_plot(frame, "error", out / "error", methods=EXPERIMENT.methods)
    return [("error.png", "Error over the outlier rate")]


METHODS = ("steady", "other", "raises", "dies")
EXPERIMENT = Experiment("tiny", "Adds rate and seed", METHODS, PRESETS, "error", compute, figures)
BATCHED = Experiment("batched", "The same in fives", METHODS, PRESETS, "error", compute, batches=in_fives)
ONE_BAD = Experiment(
    "one-bad", "Seed 1 fails", METHODS, PRESETS, "error", compute_with_one_bad, batches=in_fives
)
THREADS = Experiment("threads", "Counts threads of torch", METHODS, PRESETS, "threads", count_threads)
NOT_AN_EXPERIMENT = 3


if __name__ == "__main__":
    from inlier.experiments.sweep._reproduce import reproduce

    # By its place, not as a part of __main__, so that workers import it.
    experiment = load("tests.experiments.tiny_experiment:EXPERIMENT")
    reproduce(plan(experiment, "paper"), Path(sys.argv[1]), "test", jobs=int(sys.argv[2]), write_every=0.0)
