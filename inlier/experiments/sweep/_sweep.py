"""The resumable sweep: every row of an experiment is computed once, whatever is killed in between.

This process alone enters rows in the journal, as they end; workers only compute. Killing any of them, or this
process, at any moment loses at most the rows that were being computed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from inlier.experiments.sweep._distributed import is_distributed
from inlier.experiments.sweep._engines import Compute, engine
from inlier.experiments.sweep._experiment import Experiment, Folders, Row
from inlier.experiments.sweep._journal import Journal, Record

JOURNAL = "rows.jsonl"


class Sweep:
    """The rows of an experiment, and how each of them ended so far.

    Args:
        experiment: Computes the rows.
        rows: What to compute. Rows that are finished in the journal are not computed again; those that failed
            are. Other rows of the journal, of other settings say, are ignored.
        out: The output folder, with the journal ``rows.jsonl``.
        data: The folder of the data, for experiments that need some.

    Example:
        >>> import tempfile
        >>> def compute(rows):
        ...     for row in rows:
        ...         yield row, {"error": row.rate / 2}
        >>> half = Experiment("half", "Halves the rate", ("a",), {}, "error", compute)
        >>> sweep = Sweep(half, [Row("a", 0.2, 0, {}), Row("a", 0.4, 0, {})], Path(tempfile.mkdtemp()))
        >>> sweep.run()
        >>> [record.metrics["error"] for record in sweep.done]
        [0.1, 0.2]
    """

    def __init__(
        self, experiment: Experiment, rows: Sequence[Row], out: Path, data: Path | None = None
    ) -> None:
        self.experiment = experiment
        self.rows = list(dict.fromkeys(rows))
        self.out = out
        self.data = data
        self.running = 0
        self._records: dict[str, Record] = {}

    @property
    def done(self) -> list[Record]:
        """The records of all finished rows, in the order of ``rows``."""
        return [record for record in self._ended() if record.metrics is not None]

    @property
    def failed(self) -> list[Record]:
        """The records of all rows that failed and have not been finished since, in the order of ``rows``."""
        return [record for record in self._ended() if record.metrics is None]

    def run(
        self,
        jobs: int = 1,
        backend: str = "loky",
        address: str | None = None,
        on_progress: Callable[[Sweep], None] | None = None,
    ) -> None:
        """Compute all rows that are not finished.

        Args:
            jobs: Number of local processes; with 1, rows are computed in this process.
            backend: ``loky`` for local processes, ``dask`` or ``ray`` for a cluster.
            address: Address of the cluster; see :func:`inlier.experiments.sweep._engines.engine`.
            on_progress: Called at the start and whenever rows have ended: ``done``, ``failed`` and
                ``running`` are its state.
        """
        with Journal(self.out / JOURNAL, self.experiment.name) as journal:
            self._records = journal.records
            waiting = [row for row in self.rows if not self._is_done(row)]
            # Followers wait for a broadcast even if there is nothing to do.
            if not waiting and not is_distributed():
                return
            with engine(backend, jobs, address) as workers:
                slots = workers.slots
                units = self.experiment.batches(waiting, slots)
                _check_units(units, waiting)
                left = [set(unit) for unit in units]
                self.running = sum(map(len, left[:slots]))
                if on_progress:
                    on_progress(self)
                for records in workers.run(compute_at(self.experiment, self.out, self.data), units):
                    journal.append(records)
                    for unit in left[:]:
                        unit.difference_update(record.row for record in records)
                    # Units start in order, so the first that are left are the ones that run.
                    left = [unit for unit in left if unit]
                    self.running = sum(map(len, left[:slots]))
                    if on_progress:
                        on_progress(self)

    def _is_done(self, row: Row) -> bool:
        record = self._records.get(row.key)
        return record is not None and record.metrics is not None

    def _ended(self) -> list[Record]:
        return [self._records[row.key] for row in self.rows if row.key in self._records]


def compute_at(experiment: Experiment, out: Path, data: Path | None) -> Compute:
    """Return an experiment's ``compute`` with its folders, if it needs them."""
    if not experiment.needs_folders:
        return experiment.compute
    folders = Folders((out / "checkpoints").resolve(), None if data is None else data.resolve())
    return partial(experiment.compute, folders=folders)


def _check_units(units: Sequence[Sequence[Row]], waiting: Sequence[Row]) -> None:
    """Raise unless each row that waits is in exactly one unit."""
    given = [row for unit in units for row in unit]
    if len(given) != len(waiting) or set(given) != set(waiting):
        raise ValueError(f"batches gave {len(given)} rows for {len(waiting)}: it must give each row once")
