"""The journal of a sweep: one line for each row that ended."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from inlier.experiments.sweep._experiment import Row, SweepError

if sys.platform != "win32":
    import fcntl

SYNC_EVERY = 0.1
"""Seconds between two syncs to the disk: a batched computation may end a thousand rows at once."""


@dataclass(frozen=True)
class Record:
    """How one row ended.

    Args:
        row: The row.
        metrics: Its metrics by name; None if it failed.
        error: Why it failed, in one line; None if it did not.
        seconds: The time it took to compute.
    """

    row: Row
    metrics: Mapping[str, float] | None
    error: str | None
    seconds: float


class Journal:
    """Records of finished and failed rows in a file of JSON lines, to be used in a ``with``.

    A line is written as soon as it is appended, so ``kill -9`` loses none. It is synced to the disk at once,
    unless the last sync is less than :data:`SYNC_EVERY` ago: then with a later line, or at the end. An
    incomplete last line, as a crash leaves it, is truncated on opening.

    Args:
        path: The file; it and its folder are created if missing.
        experiment: The name of the experiment: records of others in the same file are ignored.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "rows.jsonl"
        >>> with Journal(path, "mine") as journal:
        ...     journal.append([Record(Row("sgd", 0.2, 0, {}), {"error": 0.5}, None, 1.0)])
        >>> with Journal(path, "mine") as journal:
        ...     journal.records[Row("sgd", 0.2, 0, {}).key].metrics
        {'error': 0.5}
    """

    def __init__(self, path: Path, experiment: str) -> None:
        self.path = path
        self.experiment = experiment
        self.records: dict[str, Record] = {}
        self._synced = -SYNC_EVERY

    def __enter__(self) -> Journal:
        """Lock the file, truncate an incomplete last line and read the rest."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            if sys.platform != "win32":
                # The system frees the lock with the process, however that ends: no stale lock files.
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(self._file)
            where = self.path.parent
            raise SweepError(
                f"another run is writing to {where}: wait for it, or choose another --out"
            ) from error
        content = self.path.read_bytes()
        complete = content.rfind(b"\n") + 1
        if complete < len(content):
            os.truncate(self._file, complete)
        for line in content[:complete].splitlines():
            self._enter(line)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Sync and close the file."""
        os.fsync(self._file)
        os.close(self._file)

    def append(self, records: Iterable[Record]) -> None:
        """Write records, one line each; a row that is finished already keeps its first record."""
        lines = b"".join(self._line(record) for record in records if self._is_new(record))
        while lines:
            lines = lines[os.write(self._file, lines) :]
        if time.monotonic() - self._synced >= SYNC_EVERY:
            os.fsync(self._file)
            self._synced = time.monotonic()

    def _is_new(self, record: Record) -> bool:
        known = self.records.get(record.row.key)
        new = known is None or known.metrics is None
        if new:
            self.records[record.row.key] = record
        return new

    def _line(self, record: Record) -> bytes:
        row = record.row
        content = {
            "experiment": self.experiment,
            "method": row.method,
            "rate": row.rate,
            "seed": row.seed,
            "metrics": record.metrics,
            "error": record.error,
            "seconds": round(record.seconds, 6),
            "settings": row.settings,
        }
        return json.dumps(content, default=dict).encode() + b"\n"

    def _enter(self, line: bytes) -> None:
        try:
            content = json.loads(line)
            if content["experiment"] != self.experiment:
                return
            row = Row(content["method"], content["rate"], content["seed"], content["settings"])
            record = Record(row, content["metrics"], content["error"], content["seconds"])
        except (ValueError, KeyError, TypeError):
            # A corrupt line costs that row and no other: it is computed again.
            return
        self._is_new(record)
