"""Boosting in passes beside boosting in memory: `python -m benchmarks.boosting_passes`, Markdown on standard output.

Generated rows (neither development nor report): six inputs, a target with a sine and a product, of which a fifth is
wrong, or none. The error is the mean distance of predictions from the right values; each fit is a process of its own.
"In memory" is `AdaptiveRegressor` around scikit-learn's boosting, "in passes" `inlier.distributed.fit`; "oracle" is the
same XGBoost on the right rows only, and "unweighted" on all.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

METHODS = ("in passes", "in passes, 3 folds", "unweighted", "oracle", "in memory")
MOST_IN_MEMORY = 200_000
CHUNK = 500_000


def rows_of(n: int, wrong: float, chunk: int):
    rng = np.random.default_rng((0, chunk))
    x = rng.normal(size=(n, 6))
    truth = x[:, :3].sum(1) + 2 * np.sin(2 * x[:, 3]) + (1 + x[:, 4]) * x[:, 5]
    bad = rng.random(n) < wrong
    return x, truth, truth + 0.3 * rng.normal(size=n) + bad * rng.normal(0, 30, n), bad


def inside(method: str, n: int, wrong: float) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from inlier import distributed
    from inlier.distributed import _boosting_worker, _output

    _output.compare_on_holdout = lambda *_: None  # The same for all, and in memory.
    if "3 folds" in method:
        _boosting_worker.FOLDS = 3
    x_new, truth_new, _, _ = rows_of(20_000, wrong, 10**6)
    chunks = range(0, n, CHUNK)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "data").mkdir()
        for number, first in enumerate(chunks):
            x, _, y, bad = rows_of(min(CHUNK, n - first), wrong, number)
            keep = ~bad if method == "oracle" else np.ones(len(y), dtype=bool)
            table = pa.table({f"x{k}": x[keep, k] for k in range(6)} | {"y": y[keep]})
            pq.write_table(table, folder / "data" / f"{number:05d}.parquet")
        before, begin = time.process_time(), time.perf_counter()
        if method == "in memory":
            from sklearn.ensemble import HistGradientBoostingRegressor

            from inlier.sklearn import AdaptiveRegressor

            base = HistGradientBoostingRegressor(random_state=0)
            model = AdaptiveRegressor(base, random_state=0).fit(x, y)
            predictions, fraction = model.predict(x_new), model.inlier_fraction_
        else:
            given = 1.0 if method in ("unweighted", "oracle") else "auto"
            fitted = distributed.fit(
                folder / "data", "y", out=folder / "out", model="boosting", inlier_fraction=given
            )
            predictions = fitted.pipeline.named_steps["model"].predict(x_new)
            fraction = fitted.inlier_fraction
        found = {
            "processor": time.process_time() - before,
            "seconds": time.perf_counter() - begin,
            "gigabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
            "error": float(np.abs(predictions - truth_new).mean()),
            "fraction": float(fraction),
        }
        shutil.rmtree(folder / "data")
    print(json.dumps(found))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", default="1e5,1e6")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--inside", nargs=3)
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if options.inside:
        method, n, wrong = options.inside
        inside(method, int(n), float(wrong))
        return
    print("| rows | wrong | fit | error | inlier fraction | processor time, s | elapsed, s | peak, GB |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    for n in [int(float(size)) for size in options.sizes.split(",")]:
        for wrong in (0.2, 0.0):
            for method in options.methods:
                if (method == "in memory" and n > MOST_IN_MEMORY) or (method == "oracle" and not wrong):
                    continue
                command = [
                    sys.executable,
                    "-m",
                    "benchmarks.boosting_passes",
                    "--inside",
                    method,
                    str(n),
                    str(wrong),
                ]
                answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout
                found = json.loads(answer.splitlines()[-1])
                print(
                    f"| {n:,} | {wrong:.0%} | {method} | {found['error']:.3f} | {found['fraction']:.3f} "
                    f"| {found['processor']:.0f} | {found['seconds']:.0f} | {found['gigabytes']:.2f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
