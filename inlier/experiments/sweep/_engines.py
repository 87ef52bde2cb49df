"""What runs units of work: this process, local processes (loky), ``torchrun``, or a Dask or Ray cluster.

Each engine yields the records of a unit as soon as it has them, in any order, and survives the loss of a
worker: the unit is retried on another one, and a unit that keeps killing its workers is recorded as failed.
joblib runs local processes. Clusters are used through their own interfaces: under joblib a unit that keeps
killing its Dask worker is waited for forever, and Ray returns nothing before the last unit is done.
"""

from __future__ import annotations

import functools
import importlib
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from inlier._clusters import ClusterError, dask_client, ray_session
from inlier.experiments.sweep._distributed import broadcast, is_distributed, process_group
from inlier.experiments.sweep._experiment import Row, SweepError
from inlier.experiments.sweep._journal import Record

Compute: TypeAlias = Callable[[Sequence[Row]], Iterable[tuple[Row, Mapping[str, float] | Exception]]]
BACKENDS = ("loky", "dask", "ray")
KILLED = "the worker process was killed each time (out of memory? use fewer --jobs)"


class Engine(Protocol):
    """Runs ``slots`` units of work at a time."""

    @property
    def slots(self) -> int:
        """How many units run at the same time."""

    def run(self, compute: Compute, units: list[list[Row]]) -> Iterator[list[Record]]:
        """Yield the records of all rows of all units, some at a time, as they end."""


@contextmanager
def engine(backend: str, jobs: int, address: str | None = None) -> Iterator[Engine]:
    """Start an engine, or connect to a cluster, and close it at the end.

    Args:
        backend: One of :data:`BACKENDS`.
        jobs: Number of local processes, or of workers of a cluster that is started here.
        address: Address of a running cluster; by default that of the environment (``DASK_SCHEDULER_ADDRESS``,
            ``RAY_ADDRESS``), and without one a cluster of ``jobs`` workers is started here.
    """
    if is_distributed():
        with process_group():
            yield Distributed()
    elif backend == "loky":
        yield InProcess() if jobs == 1 else Loky(jobs)
    else:
        try:
            with _cluster(backend, jobs, address) as cluster:
                yield cluster
        except ClusterError as error:
            raise SweepError(str(error)) from error


@contextmanager
def _cluster(backend: str, jobs: int, address: str | None) -> Iterator[Engine]:
    if backend == "dask":
        with dask_client(jobs, address) as client:
            yield Dask(client)
    else:
        with ray_session(jobs, address) as ray:
            yield Ray(ray)


def measure(compute: Compute, rows: Sequence[Row]) -> Iterator[Record]:
    """Compute one unit and yield a record of each of its rows; rows that ``compute`` omits have failed."""
    waiting = set(rows)
    start = time.perf_counter()
    failure: Exception = RuntimeError("compute ended without this row")
    try:
        for row, result in compute(rows):
            if row not in waiting:
                raise RuntimeError(f"compute yielded {row}, which it was not asked for, or a second time")
            now = time.perf_counter()
            if isinstance(result, Exception):
                record = Record(row, None, describe(result), now - start)
            else:
                metrics = {name: float(value) for name, value in result.items()}
                record = Record(row, metrics, None, now - start)
            start = now
            waiting.remove(row)
            yield record
    except Exception as error:
        failure = error
    left = time.perf_counter() - start
    yield from (Record(row, None, describe(failure), left / len(waiting)) for row in rows if row in waiting)


def describe(error: Exception) -> str:
    """Return an error and its place in one line."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    return " ".join(f"{type(error).__name__}: {error}".split()) + where


def failed(unit: list[Row], why: str) -> list[Record]:
    """Return a record of failure for every row of a unit."""
    return [Record(row, None, why, 0.0) for row in unit]


@dataclass(frozen=True)
class InProcess:
    """This process: yields a record after each row, not after each unit."""

    slots: int = 1

    def run(self, compute: Compute, units: list[list[Row]]) -> Iterator[list[Record]]:
        """Yield the records one by one."""
        for unit in units:
            yield from ([record] for record in measure(compute, unit))


@dataclass(frozen=True)
class Distributed:
    """The processes of ``torchrun``: all of them take part in computing each row."""

    slots: int = 1

    def run(self, compute: Compute, units: list[list[Row]]) -> Iterator[list[Record]]:
        """Broadcast each unit to the followers, compute it with them, and yield the records."""
        for unit in units:
            broadcast(unit)
            for record in measure(compute, unit):
                if record.error is not None:
                    # Followers may be waiting in a collective, where no broadcast reaches them: raise, and
                    # torchrun ends them.
                    raise SweepError(f"{record.row.method} at rate {record.row.rate:g}: {record.error}")
                yield [record]
        broadcast(None)


@dataclass(frozen=True)
class Loky:
    """Local processes, by joblib."""

    slots: int

    def run(self, compute: Compute, units: list[list[Row]]) -> Iterator[list[Record]]:
        """Yield the records of each unit; if a worker dies, continue with the units that are left."""
        from joblib.externals.loky.process_executor import BrokenProcessPool

        left = dict(enumerate(units))
        while left:
            before = len(left)
            try:
                for number, records in self._parallel(compute, left):
                    del left[number]
                    yield records
            except BrokenProcessPool:
                if len(left) < before:
                    continue
                # The pool broke again without progress. One unit at a time shows which one breaks it.
                for number in list(left):
                    unit = left.pop(number)
                    try:
                        ((_, records),) = self._parallel(compute, {number: unit})
                    except BrokenProcessPool:
                        records = failed(unit, KILLED)
                    yield records

    def _parallel(self, compute: Compute, units: dict[int, list[Row]]) -> Iterator[tuple[int, list[Record]]]:
        from joblib import Parallel, delayed, parallel_config

        calls = [delayed(_loky_unit)(number, compute, unit, os.getpid()) for number, unit in units.items()]
        with parallel_config("loky", inner_max_num_threads=1):
            parallel = Parallel(self.slots, return_as="generator_unordered", batch_size=1)
            with _block_sigint():
                finished = parallel(calls)
            yield from finished


@dataclass(frozen=True)
class Dask:
    """The workers of a Dask cluster; the scheduler reassigns the unit of a lost worker."""

    client: Any

    @property
    def slots(self) -> int:
        """The number of threads of all workers, once there is one."""
        self.client.wait_for_workers(1, timeout=60)
        return sum(self.client.nthreads().values())

    def run(self, compute: Compute, units: list[list[Row]]) -> Iterator[list[Record]]:
        """Yield the records of each unit."""
        distributed: Any = importlib.import_module("distributed")
        futures = {self.client.submit(_cluster_unit, compute, unit, pure=False): unit for unit in units}
        for future in distributed.as_completed(futures, loop=self.client.loop):
            unit = futures.pop(future)
            error = future.exception()
            if error is None:
                yield future.result()
            else:
                yield failed(unit, KILLED if isinstance(error, distributed.KilledWorker) else describe(error))
            # Lets the scheduler drop the result.
            future.release()


@dataclass(frozen=True)
class Ray:
    """The workers of a Ray cluster; Ray reassigns the unit of a lost worker."""

    ray: Any

    @property
    def slots(self) -> int:
        """The number of CPUs of the cluster."""
        return max(1, int(self.ray.cluster_resources().get("CPU", 1)))

    def run(self, compute: Compute, units: list[list[Row]]) -> Iterator[list[Record]]:
        """Yield the records of each unit."""
        task = self.ray.remote(num_cpus=1, max_retries=3)(_cluster_unit)
        futures = {task.remote(compute, unit): unit for unit in units}
        while futures:
            (future, *_), _ = self.ray.wait(list(futures), num_returns=1)
            unit = futures.pop(future)
            try:
                yield self.ray.get(future)
            except self.ray.exceptions.WorkerCrashedError:
                yield failed(unit, KILLED)
            except self.ray.exceptions.RayError as error:
                yield failed(unit, describe(error))


@contextmanager
def _block_sigint() -> Iterator[None]:
    """Block Ctrl-C; processes and threads that start meanwhile never get it.

    A terminal sends it to the workers too. They ignore it as soon as they have work, but one that is still
    importing would print a traceback.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    # Otherwise it starts with the first worker, and unblocks Ctrl-C.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@functools.cache
def _initialize_worker(parent: int) -> None:
    """Do once in each loky process: ignore Ctrl-C, and exit when the parent does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _loky_unit(number: int, compute: Compute, unit: list[Row], parent: int) -> tuple[int, list[Record]]:
    _initialize_worker(parent)
    return number, _cluster_unit(compute, unit)


def _cluster_unit(compute: Compute, unit: list[Row]) -> list[Record]:
    # The units share the cores: more threads in each would compete. An experiment that has not imported torch
    # need not do so for this.
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
    return list(measure(compute, unit))
