"""Dask data frames and Ray datasets as input: each is written once as Parquet, by its own means, then read in passes.

A round reads all rows again, and a collection would compute them again each time. Partitions and their order stay: file
``part-00000003.parquet`` holds the rows of partition (or block) 3.
"""

from __future__ import annotations

import importlib
import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from inlier._errors import InputError
from inlier._files import write_whole
from inlier.distributed._engines import Dask, Engine

NAME = "part-{:08d}.parquet"
DONE = "done.json"
"""Written last, beside the folder: what was written, so that an interrupted fit need not do it again."""


def engine_of(data: Any) -> str | None:
    """Return the backend that a collection belongs to; None if it is none.

    Example:
        >>> print(engine_of("houses/"))
        None
    """
    module = type(data).__module__
    if module.startswith("dask.dataframe") and hasattr(data, "to_parquet"):
        return "dask"
    return "ray" if module.startswith("ray.data") and hasattr(data, "write_parquet") else None


def write_collection(data: Any, folder: Path, engine: Engine) -> None:
    """Write a collection as a folder of Parquet files, unless that has been done.

    Args:
        data: A ``dask.dataframe.DataFrame`` or ``ray.data.Dataset``.
        folder: A folder that all workers see; it is replaced.
        engine: What computes a Dask data frame; Ray has only one.

    Raises:
        InputError: If it has no rows.
    """
    dask = engine_of(data) == "dask"
    # Dask names equal computations alike, in other processes too; a Ray dataset has no such name.
    token = importlib.import_module("dask.base").tokenize(data) if dask else None
    done = folder.parent / DONE
    if token is not None and done.exists() and json.loads(done.read_text("utf-8")) == token:
        return
    done.unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if dask:
        options = {"write_index": False, "name_function": NAME.format, "compute": False}
        writing = data.to_parquet(str(folder.absolute()), **options)
        if isinstance(engine, Dask):
            engine.client.compute(writing, sync=True)
        else:
            writing.compute()
    else:
        _write_blocks(data, folder)
    for path in folder.glob("*.parquet"):
        if pq.read_metadata(path).num_rows == 0:
            path.unlink()  # A filter may leave partitions without rows, which files may not be.
    if not any(folder.glob("*.parquet")):
        raise InputError("the collection has no rows")
    write_whole(done, json.dumps(token).encode())


def _write_blocks(data: Any, folder: Path) -> None:
    """Write a Ray dataset, a file for each block, in the order of the blocks."""
    context = importlib.import_module("ray.data").DataContext.get_current()
    options = context.execution_options
    before, bars = options.preserve_order, context.enable_progress_bars
    options.preserve_order, context.enable_progress_bars = True, False
    try:
        data.write_parquet(str(folder.absolute()))
    finally:
        options.preserve_order, context.enable_progress_bars = before, bars
    for number, path in enumerate(sorted(folder.glob("*.parquet"))):
        path.rename(folder / NAME.format(number))
