"""Tables for tests of fits in passes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq


def regression(rows=20_000, wrong=0.2, seed=0, heavy=False):
    """Four numbers, one of which is missing here and there, and a target of which a share is wrong."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 4))
    noise = rng.standard_t(2.5, rows) if heavy else 0.5 * rng.normal(size=rows)
    y = x @ [1.0, 2.0, 3.0, 4.0] + noise
    y = np.where(rng.random(rows) < wrong, y + rng.normal(0, 30, rows), y)
    x[rng.random(rows) < 0.01, 3] = np.nan
    return pa.table({f"x{k}": x[:, k] for k in range(4)} | {"y": y})


def mixed(rows=20_000, seed=0):
    """A number, a category, a date, and an identifier that no model uses."""
    rng = np.random.default_rng(seed)
    x, city = rng.normal(size=rows), rng.choice(["Bern", "Oslo", "Rome"], rows, p=[0.5, 0.4, 0.1])
    day = np.datetime64("2020-01-01") + rng.integers(0, 900, rows)
    y = 2 * x + (city == "Oslo") + 0.3 * rng.normal(size=rows)
    y = np.where(rng.random(rows) < 0.15, y + 20, y)
    return pa.table({"id": np.arange(rows), "x": x, "city": city, "day": day, "y": y})


def write_parts(table, folder, cuts, **options):
    """Write a table to files that end at these rows."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, (first, last) in enumerate(zip([0, *cuts], [*cuts, table.num_rows], strict=True)):
        pq.write_table(table.slice(first, last - first), folder / f"part-{number:03d}.parquet", **options)
    return folder
