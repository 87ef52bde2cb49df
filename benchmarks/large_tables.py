"""What `inlier fit` costs on a million rows, and on 100,000 texts; Markdown on the standard output.

    python -m benchmarks.large_tables
    python -m benchmarks.large_tables --texts DIR    # the folder of banking77

Each fit is a process of its own; its peak memory and processor time are those that the system reports. The first
table has 20 columns of numbers and a target with a sine and a product, which a linear model cannot follow; the second
16 columns of numbers, 3 of text and one of dates. A fifth of the targets is wrong (15 % of the classes). The texts are
those of banking77, drawn again and again with a quarter of their words left out, in two classes: the first and the
second half of its intents, a tenth of them exchanged.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv

MANY_TEXTS = 100_000


def numbers(rows: int, seed: int = 0) -> pa.Table:
    random = np.random.default_rng(seed)
    x = random.normal(size=(rows, 20)).round(4)
    y = x[:, :5].sum(1) + 2 * np.sin(2 * x[:, 5]) + x[:, 6] * x[:, 7] + random.normal(0, 0.3, rows)
    wrong = random.random(rows) < 0.2
    y = np.where(wrong, y + random.normal(0, 30, rows), y)
    return pa.table({f"x{k}": x[:, k] for k in range(20)} | {"y": y.round(4)})


def mixed(rows: int, seed: int = 0) -> pa.Table:
    random = np.random.default_rng(seed)
    x = random.normal(size=(rows, 16)).round(4)
    texts = {f"t{k}": random.integers(0, 10 ** (k + 1), rows) for k in range(3)}
    days = random.integers(0, 3000, rows)
    y = x[:, :5].sum(1) + 0.5 * (texts["t0"] % 3) + days / 1000 + random.normal(0, 0.3, rows)
    wrong = random.random(rows) < 0.2
    flipped = random.random(rows) < 0.15
    columns = {f"x{k}": x[:, k] for k in range(16)}
    columns |= {name: np.char.add("v", values.astype(str)) for name, values in texts.items()}
    columns["day"] = (np.datetime64("2015-01-01") + days).astype(str)
    columns["y"] = np.where(wrong, y + random.normal(0, 30, rows), y).round(4)
    columns["kind"] = np.where((y > 1.5) ^ flipped, "high", "low")
    return pa.table(columns)


def texts(rows: int, folder: Path, seed: int = 0) -> pa.Table:
    random = np.random.default_rng(seed)
    source = pd.read_csv(folder / "train.csv")
    drawn = random.integers(0, len(source), rows)
    words = [text.split() for text in source["text"]]
    kept = (" ".join(word for word in words[row] if random.random() > 0.25) for row in drawn)
    late = (source["category"].rank(method="dense") > source["category"].nunique() / 2).to_numpy()[drawn]
    flipped = random.random(rows) < 0.1
    return pa.table({"text": list(kept), "half": np.where(late ^ flipped, "second", "first")})


def measure(table: Path, target: str, model: str, *drop: str) -> str:
    command = [sys.executable, "-m", "inlier.cli", "fit", str(table), "--target", target, "--model", model]
    for name in drop:
        command += ["--drop", name]
    out = table.parent / "out"
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run([*command, "--out", str(out), "--overwrite"], check=True, stdout=subprocess.DEVNULL)
    elapsed, after = time.monotonic() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    record = json.loads((out / "run.json").read_text())
    # The largest process so far: tables are measured from the cheapest to the most expensive.
    memory, seconds = after.ru_maxrss / 2**20, after.ru_utime - before.ru_utime
    held_out = record["held_out"]
    return (
        f"| {table.stem}, `{model}` {record['task']} | {memory:.1f} GB | {seconds:.0f} s | {elapsed:.0f} s "
        f"| {record['inlier_fraction']:.3f} | {held_out['robust']:.3g} | {held_out['unweighted']:.3g} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--boosting", action="store_true", help="measure boosting too")
    parser.add_argument("--texts", type=Path, help="the folder of banking77: measure 100,000 texts instead")
    arguments = parser.parse_args()
    print("| table | peak memory | processor time | elapsed | inlier fraction | robust | unweighted |")
    print("|---|---|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        if arguments.texts is not None:
            path = Path(folder, "texts.csv")
            pa.csv.write_csv(texts(min(arguments.rows, MANY_TEXTS), arguments.texts), path)
            print(measure(path, "half", "linear"))
            return
        first, second = Path(folder, "numbers.csv"), Path(folder, "mixed.csv")
        pa.csv.write_csv(numbers(arguments.rows), first)
        pa.csv.write_csv(mixed(arguments.rows), second)
        print(measure(first, "y", "linear"), flush=True)
        if arguments.boosting:
            print(measure(first, "y", "boosting"), flush=True)
        print(measure(second, "kind", "linear", "y"), flush=True)
        print(measure(second, "y", "linear", "kind"), flush=True)


if __name__ == "__main__":
    main()
