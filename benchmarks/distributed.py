"""Fits in passes over a folder of Parquet files: `python -m benchmarks.distributed`, Markdown on the standard output.

    python -m benchmarks.distributed curve --sizes 1e5,1e6,1e7     # time and peak memory by the number of rows
    python -m benchmarks.distributed engines --rows 1e7            # Dask and Ray beside streaming; one worker, two
    python -m benchmarks.distributed labels --rows 2e6             # logistic regression, pass by pass
    python -m benchmarks.distributed sample                        # how many rows the transformation of columns needs

The table has 10 columns of float64, 9 inputs and a target of which a fifth is wrong: 8 GB for 10^8 rows. Each
measurement is a process of its own; all are ratios within one run. "Reading" is reading all files as often as the fit
does, with the same batches, and doing nothing with them: "passes / reading" compares processor times. The last passes
of engines are those from the second round of fitting on, without what workers import at first; their processor time is
that of all processes, those of the scheduler and the workers too, and hardly depends on what else a machine does.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import numpy as np

CHUNK = 1_000_000
FOLDER = Path("runs", "benchmark-distributed")
FIGURE = Path(__file__).parent.parent / "docs" / "img" / "large_tables.png"
ROUND = "fitting all rows, round 2"


def write(folder: Path, rows: int, seed: int = 0) -> Path:
    """Write the table once, a file for each million rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = folder / f"rows-{rows}"
    done = folder / "done.txt"
    if done.exists():
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    slopes = np.arange(1.0, 10.0)
    for number, first in enumerate(range(0, rows, CHUNK)):
        size = min(CHUNK, rows - first)
        random = np.random.default_rng((seed, number))
        x = random.normal(size=(size, 9))
        y = x @ slopes + 0.5 * random.normal(size=size)
        y = np.where(random.random(size) < 0.2, y + random.normal(0, 50, size), y)
        table = pa.table({f"x{k}": x[:, k] for k in range(9)} | {"y": y})
        pq.write_table(
            table, folder / f"part-{number:05d}.parquet", row_group_size=CHUNK // 4, use_dictionary=False
        )
    done.write_text("")
    return folder


def size_of(folder: Path) -> float:
    return sum(path.stat().st_size for path in folder.glob("*.parquet")) / 1e9


def run_alone(code: str, *arguments: object) -> dict[str, float]:
    """Run a function of this module in a process of its own; return its seconds, peak memory and result."""
    command = [sys.executable, "-m", "benchmarks.distributed", "--inside", code, *map(str, arguments)]
    answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1]
    return json.loads(answer)


def inside(code: str, arguments: list[str]) -> None:
    folder = Path(arguments[0])
    start = time.perf_counter()
    found: dict[str, float] = {}
    if code == "read":
        from inlier.distributed._partitions import open_folder

        opened = open_folder(folder)
        start, before = time.perf_counter(), time.process_time()
        for _ in range(int(arguments[1])):
            for partition in opened.partitions:
                for _ in partition.batches(opened.names):
                    pass
        found = {"processor": time.process_time() - before}
    else:
        import inlier.distributed

        backend, workers, out = arguments[1], int(arguments[2]), folder.parent / "out"
        shutil.rmtree(out, ignore_errors=True)
        marks: dict[str, tuple[float, list[float]]] = {}

        def progress(step: str, share: float = 1.0) -> None:
            if step not in marks:
                marks[step] = time.perf_counter(), processor_times(backend)

        start = time.perf_counter()
        options = {"backend": backend, "workers": workers, "progress": progress}
        fitted = inlier.distributed.fit(folder, "y", out=out, **options)
        # Without starting a cluster, and without the report; workers have imported what they need by the second round.
        begin, rounds, end = (marks[step] for step in (next(iter(marks)), ROUND, "writing the files"))
        workers_alone = [b - a for a, b in zip(rounds[1], end[1], strict=True)]
        found = {
            "passes_seconds": end[0] - begin[0],
            "passes_processor": sum(end[1]) - sum(begin[1]),
            "passes": fitted.passes,
            "rounds_seconds": end[0] - rounds[0],
            "rounds_processor": sum(workers_alone),
            "busiest": max(workers_alone),
            "fraction": fitted.inlier_fraction,
            "first": float(fitted.pipeline.named_steps["model"].coef_[0]),
        }
        shutil.rmtree(out)
    seconds = time.perf_counter() - start
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(json.dumps({"seconds": seconds, "gigabytes": memory, **found}))


def processor_times(backend: str) -> list[float]:
    """Return the processor time of this process, and of each that it has started."""
    if backend == "stream":
        return [time.process_time()]
    psutil = importlib.import_module("psutil")
    processes = psutil.Process().children(recursive=True)
    times = {each.pid: sum(each.cpu_times()[:2]) for each in processes}
    return [time.process_time(), *(times[pid] for pid in sorted(times))]


def curve(folder: Path, sizes: list[int]) -> list[dict[str, float]]:
    """Time and memory of streamed fits, by the number of rows."""
    found = []
    for rows in sizes:
        data = write(folder, rows)
        fit = run_alone("fit", data, "stream", 1)
        reading = run_alone("read", data, int(fit["passes"]))
        found.append(fit | {"rows": rows, "files": size_of(data), "reading": reading["processor"]})
        print(found[-1], flush=True)
    return found


def engines(folder: Path, rows: int) -> list[dict[str, float]]:
    """The last passes of the same fit by each engine."""
    data, found = write(folder, rows), []
    for backend, workers in (("stream", 1), ("dask", 1), ("dask", 2), ("ray", 1), ("ray", 2)):
        found.append(run_alone("fit", data, backend, workers) | {"backend": backend, "workers": workers})
        print(found[-1], flush=True)
    return found


def curve_table(found: list[dict[str, float]]) -> str:
    lines = [
        "| rows | files, GB | passes | passes, s | passes / reading | whole fit, s | peak memory, GB |",
        "|---" * 7 + "|",
    ]
    lines += [
        f"| {fit['rows']:,} | {fit['files']:.3g} | {fit['passes']:.0f} | {fit['passes_seconds']:.1f} "
        f"| {fit['passes_processor'] / fit['reading']:.2f} | {fit['seconds']:.1f} | {fit['gigabytes']:.2f} |"
        for fit in found
    ]
    return "\n".join(lines)


def engines_table(found: list[dict[str, float]]) -> str:
    base, alone = found[0], {fit["backend"]: fit for fit in found if fit["workers"] == 1}
    lines = [
        "| engine | workers | last passes, s | one worker / this | processor time, s | / streaming "
        "| busiest process, s | same result |",
        "|---" * 8 + "|",
    ]
    lines += [
        f"| {fit['backend']} | {fit['workers'] if fit is not base else ''} | {fit['rounds_seconds']:.1f} "
        f"| {alone[fit['backend']]['rounds_seconds'] / fit['rounds_seconds']:.2f} "
        f"| {fit['rounds_processor']:.1f} | {fit['rounds_processor'] / base['rounds_processor']:.2f} "
        f"| {fit['busiest']:.1f} | {'yes' if fit['first'] == base['first'] else 'no'} |"
        for fit in found
    ]
    return "\n".join(lines)


def run(quick: bool = False) -> dict[str, list]:
    """The curve and the engines; the figure is drawn too, unless they are short."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sizes = [10**5, 10**6] if quick else [10**5, 10**6, 10**7, 10**8]
    found: dict[str, list] = {"curve": curve(FOLDER, sizes), "engines": engines(FOLDER, sizes[-2])}
    found["notes"] = ["![Time and memory by the number of rows](img/large_tables.png)"]
    if not quick:
        draw(found["curve"])
    return found


def sections(found: dict[str, list]) -> list[tuple[str, str]]:
    """The tables, by heading."""
    return [("Streamed", curve_table(found["curve"])), ("Engines", engines_table(found["engines"]))]


def draw(found: list[dict[str, float]]) -> None:
    from matplotlib.figure import Figure

    from inlier._figures import style

    figure = Figure(figsize=(10, 3.6), layout="constrained")
    time_axes, memory_axes = figure.subplots(1, 2)
    rows = [fit["rows"] for fit in found]
    lines = {
        "all passes": [fit["passes_processor"] for fit in found],
        "three times reading as often": [3 * fit["reading"] for fit in found],
        "reading as often": [fit["reading"] for fit in found],
    }
    for number, (label, seconds) in enumerate(lines.items()):
        time_axes.plot(rows, seconds, label=label, **style(number))
    time_axes.set(xscale="log", yscale="log", xlabel="rows of 10 columns", ylabel="processor time, s")
    time_axes.legend()
    memory_axes.plot(rows, [fit["gigabytes"] for fit in found], label="peak memory", **style(0))
    memory_axes.plot(rows, [fit["files"] for fit in found], label="files", **style(1))
    memory_axes.set(xscale="log", yscale="log", xlabel="rows of 10 columns", ylabel="GB")
    memory_axes.legend()
    for axes in (time_axes, memory_axes):
        axes.grid(alpha=0.3)
    figure.savefig(FIGURE, dpi=110, metadata={"Software": None})


def labels(folder: Path, rows: int) -> None:
    """What each pass of a logistic regression costs, with a fifth of the labels flipped."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    import inlier.distributed

    data = folder / f"labels-{rows}"
    shutil.rmtree(data, ignore_errors=True)
    data.mkdir(parents=True)
    for number, first in enumerate(range(0, rows, CHUNK)):
        size, random = min(CHUNK, rows - first), np.random.default_rng(number)
        x = random.normal(size=(size, 9))
        up = random.random(size) < 1 / (1 + np.exp(-x @ np.linspace(0.5, 2, 9)))
        y = np.where(up ^ (random.random(size) < 0.2), "up", "down")
        table = pa.table({f"x{k}": x[:, k] for k in range(9)} | {"y": y})
        pq.write_table(table, data / f"part-{number:05d}.parquet", row_group_size=CHUNK // 4)
    marks: list[tuple[str, float]] = []

    def progress(step: str, share: float = 1.0) -> None:
        if not marks or share == 0.0:
            marks.append((step, time.process_time()))

    fitted = inlier.distributed.fit(data, "y", out=folder / "out", overwrite=True, progress=progress)
    marks.append(("", time.process_time()))
    print(f"{fitted.passes} passes, inlier fraction {fitted.inlier_fraction:.3f}\n")
    print("| pass | ns a row, processor time |\n|---|---|")
    for (step, begin), (_, end) in pairwise(marks):
        print(f"| {step} | {(end - begin) / rows * 1e9:.0f} |")


def sample(folder: Path) -> None:
    """How far predictions move with the rows that the transformation of columns is found from."""
    import pandas as pd
    import pyarrow as pa
    import pyarrow.parquet as pq

    import inlier.distributed
    from inlier.distributed import _inspect

    random = np.random.default_rng(0)
    n = 400_000
    x = random.standard_t(3, (n, 5))
    y = x.clip(-5, 5) @ [1.0, 2.0, 3.0, 4.0, 5.0] + 0.5 * random.normal(size=n)
    y = np.where(random.random(n) < 0.2, y + random.normal(0, 50, n), y)
    data = folder / "sample"
    shutil.rmtree(data, ignore_errors=True)
    data.mkdir(parents=True)
    pq.write_table(pa.table({f"x{k}": x[:, k] for k in range(5)} | {"y": y}), data / "a.parquet")
    frame = pd.DataFrame({f"x{k}": x[:, k] for k in range(5)})
    predictions = {}
    for rows in (1_000, 10_000, 100_000, n):
        _inspect.SAMPLE = rows
        fitted = inlier.distributed.fit(data, "y", out=folder / "out", overwrite=True)
        predictions[rows] = fitted.pipeline.predict(frame)
    print("| rows of the sample | distance of predictions from those with all rows, in noise deviations |")
    print("|---|---|")
    for rows, found in predictions.items():
        print(f"| {rows:,} | {np.sqrt(np.mean((found - predictions[n]) ** 2)) / 0.5:.2g} |")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="?", choices=["curve", "engines", "labels", "sample"], default="curve")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--sizes", default="1e5,1e6,1e7")
    parser.add_argument("--rows", type=float, default=1e7)
    parser.add_argument("--inside", nargs="+")
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if options.inside:
        inside(options.inside[0], options.inside[1:])
    elif options.what == "curve":
        print(curve_table(curve(options.folder, [int(float(size)) for size in options.sizes.split(",")])))
    elif options.what == "engines":
        print(engines_table(engines(options.folder, int(options.rows))))
    elif options.what == "labels":
        labels(options.folder, int(options.rows))
    else:
        sample(options.folder)


if __name__ == "__main__":
    main()
