"""Passes over all partitions, whose results are kept in a folder: an interrupted fit goes on after the last one."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from inlier._errors import InputError
from inlier._files import write_whole
from inlier.distributed._engines import Engine, map_reduce
from inlier.distributed._partitions import Partition, PartitionError
from inlier.distributed._teams import Job, run_together
from inlier.fit._columns import Array
from inlier.fit._common import Progress, no_progress

Arrays = dict[str, Array]
STATE_FILE = "state.json"


@dataclass
class Passes:
    """Passes over the partitions of a folder.

    Args:
        engine: What runs them.
        partitions: The partitions that are used; those that turn out to be unusable are taken out.
        work: The folder of results.
        skip: Whether partitions that cannot be used are taken out; else the first is an error.
        progress: Shows progress.
        skipped: The partitions that were taken out by number: their names, and why.
        done: The number of passes, without those of an interrupted run.
    """

    engine: Engine
    partitions: list[Partition]
    work: Path
    skip: bool = False
    progress: Progress = no_progress
    skipped: dict[int, tuple[str, str]] = field(default_factory=dict)
    done: int = 0

    def arrays(
        self,
        name: str,
        function: Callable[[Partition], Arrays],
        merge: Callable[[Arrays, Arrays], Arrays],
        words: str,
    ) -> Arrays:
        """Return the merged arrays of a pass.

        Args:
            name: Of the pass: its result is kept under this name, and the pass is not repeated.
            function: From a partition to arrays.
            merge: Puts two results together.
            words: What the pass does, for the display of progress.
        """
        path = self.work / f"{name}.npz"
        if path.exists():
            with np.load(path, allow_pickle=False) as kept:
                return {key: kept[key] for key in kept.files}
        found: Arrays = self.run(function, merge, words)
        content = io.BytesIO()
        np.savez(content, allow_pickle=False, **found)
        write_whole(path, content.getvalue())
        return found

    def table(self, name: str, function: Callable[[Partition], pa.Table], words: str) -> pa.Table:
        """Return the tables of all partitions, one below the other."""
        path = self.work / f"{name}.parquet"
        if not path.exists():
            found = self.run(function, lambda a, b: pa.concat_tables([a, b]), words)
            content = pa.BufferOutputStream()
            pa.parquet.write_table(found, content)
            write_whole(path, content.getvalue())
        return pa.parquet.read_table(path)

    def run(self, function: Callable[[Partition], Any], merge: Callable[[Any, Any], Any], words: str) -> Any:
        """Return the merged values of a pass, which are not kept."""
        self.progress(words, 0.0)
        merged, broken = map_reduce(
            self.engine, function, self.partitions, merge, lambda share: self.progress(words, share)
        )
        self.done += 1
        if broken:
            self.drop(broken)
        if merged is None:
            raise InputError("no partition can be used")
        return merged

    def together(self, job: Job) -> None:
        """Run a job on all workers together, which read all rows once."""
        run_together(self.engine, job, len(self.partitions), self.work, self.progress)
        self.done += 1

    def drop(self, broken: list[PartitionError]) -> None:
        """Take out partitions that cannot be used, or raise the first."""
        if not self.skip:
            raise InputError(f"{broken[0]}; repair it, or add --on-error skip")
        for error in broken:
            self.skipped[error.partition.number] = (str(error.partition), error.reason)
        self.partitions = [each for each in self.partitions if each.number not in self.skipped]
        state = json.loads((self.work / STATE_FILE).read_text("utf-8"))
        write_whole(self.work / STATE_FILE, json.dumps(state | {"skipped": self.skipped}).encode())


def open_passes(
    engine: Engine,
    partitions: Sequence[Partition],
    work: Path,
    key: Mapping[str, Any],
    skip: bool = False,
    progress: Progress = no_progress,
) -> Passes:
    """Return the passes of a run, which goes on where an interrupted one with the same key stopped.

    Args:
        engine: What runs them.
        partitions: All partitions.
        work: The folder of results.
        key: Data and options of the run.
        skip: Whether partitions that cannot be used are taken out; else the first is an error.
        progress: Shows progress.
    """
    path, wanted = work / STATE_FILE, json.loads(json.dumps(key))
    try:
        state = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        state = {}
    if state.get("key") != wanted:
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        state = {"key": wanted}
        write_whole(path, json.dumps(state).encode())
    skipped = {int(number): (name, reason) for number, (name, reason) in state.get("skipped", {}).items()}
    left = [partition for partition in partitions if partition.number not in skipped]
    return Passes(engine, left, work, skip, progress, skipped)
