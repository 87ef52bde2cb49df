"""What runs a pass over all partitions: this process, or the workers of a Dask or Ray cluster.

A pass maps a function over the partitions and merges what it returns, in the order of the partitions, whoever was
first: a result does not depend on scheduling. A worker that is lost costs time only: functions have no side effects but
files that are written whole, and the cluster runs them again.
"""

from __future__ import annotations

import importlib
import os
import pickle
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol, TypeVar

from inlier._clusters import ClusterError, dask_client, ray_session
from inlier.distributed._partitions import Partition, PartitionError

BACKENDS = ("stream", "dask", "ray")
RETRIES = 3
"""How often a partition whose worker was lost is tried again."""
KILLED = (
    "a worker was lost each time that it read {} (out of memory? use workers with more, or fewer of them)"
)

T = TypeVar("T")
Function = Callable[[Partition], T]


class Engine(Protocol):
    """Runs a function on every partition."""

    def run(
        self, function: Function[T], partitions: Sequence[Partition]
    ) -> Iterator[tuple[int, T | PartitionError]]:
        """Yield the place of each partition and what the function returned or that it cannot be used, in any order."""


def map_reduce(
    engine: Engine,
    function: Function[T],
    partitions: Sequence[Partition],
    merge: Callable[[T, T], T],
    advance: Callable[[float], None] = lambda share: None,
) -> tuple[T | None, list[PartitionError]]:
    """Run a function on every partition, and merge the results in the order of the partitions.

    Args:
        engine: What runs it.
        function: From a partition to a value; it can be pickled.
        partitions: The partitions.
        merge: Puts two neighbouring values together.
        advance: Shows progress: called with the share of each partition that is done.

    Returns:
        The merged value, None if there is none; and the partitions that cannot be used.
    """
    waiting: dict[int, T | PartitionError] = {}
    merged: T | None = None
    broken = []
    total, position = sum(partition.rows for partition in partitions), 0
    for place, value in engine.run(function, partitions):
        waiting[place] = value
        advance(partitions[place].rows / total)
        while position in waiting:
            value = waiting.pop(position)
            position += 1
            if isinstance(value, PartitionError):
                broken.append(value)
            else:
                merged = value if merged is None else merge(merged, value)
    return merged, broken


@dataclass(frozen=True)
class Stream:
    """Threads of this process: reading and arithmetic run side by side, since both release Python's lock.

    Args:
        threads: The number of partitions that are read at a time.
    """

    threads: int = field(default_factory=lambda: os.cpu_count() or 1)

    def run(
        self, function: Function[T], partitions: Sequence[Partition]
    ) -> Iterator[tuple[int, T | PartitionError]]:
        """Yield the values in order."""
        pool = ThreadPoolExecutor(self.threads)
        try:
            yield from enumerate(pool.map(lambda partition: _guarded(function, partition), partitions))
        finally:
            pool.shutdown(cancel_futures=True)


@dataclass(frozen=True)
class Dask:
    """The workers of a Dask cluster.

    Args:
        client: A client of it.
    """

    client: Any

    def run(
        self, function: Function[T], partitions: Sequence[Partition]
    ) -> Iterator[tuple[int, T | PartitionError]]:
        """Yield the values as they come."""
        distributed: Any = importlib.import_module("distributed")
        submit, content = self.client.submit, pickle.dumps(function)
        futures = {
            submit(_unpickled, content, partition, pure=False, retries=RETRIES): place
            for place, partition in enumerate(partitions)
        }
        try:
            for future in distributed.as_completed(list(futures), loop=self.client.loop):
                place = futures.pop(future)
                try:
                    value = future.result()
                except distributed.KilledWorker as error:
                    raise ClusterError(KILLED.format(partitions[place])) from error
                yield place, value
                future.release()  # Lets the scheduler drop the result.
        finally:
            self.client.cancel(list(futures))


@dataclass(frozen=True)
class Ray:
    """The workers of a Ray cluster.

    Args:
        ray: The module, connected to it.
    """

    ray: Any

    def run(
        self, function: Function[T], partitions: Sequence[Partition]
    ) -> Iterator[tuple[int, T | PartitionError]]:
        """Yield the values as they come."""
        task = self.ray.remote(num_cpus=1, max_retries=RETRIES)(_quietly)
        shared = self.ray.put(function)
        futures = {task.remote(shared, partition): place for place, partition in enumerate(partitions)}
        try:
            while futures:
                (future, *_), _ = self.ray.wait(list(futures), num_returns=1)
                place = futures.pop(future)
                try:
                    value = self.ray.get(future)
                except self.ray.exceptions.WorkerCrashedError as error:
                    raise ClusterError(KILLED.format(partitions[place])) from error
                yield place, value
        finally:
            for future in futures:
                self.ray.cancel(future)


@contextmanager
def engine(backend: str, workers: int = 2, address: str | None = None) -> Iterator[Engine]:
    """Start an engine, or connect to a cluster, and close it at the end.

    Args:
        backend: One of :data:`BACKENDS`.
        workers: Workers of a cluster that is started here.
        address: A running cluster; by default that of ``DASK_SCHEDULER_ADDRESS`` or ``RAY_ADDRESS``, and without one
            a cluster is started here.

    Raises:
        ClusterError: If the cluster cannot be used.
    """
    if backend == "stream":
        yield Stream()
    elif backend == "dask":
        with dask_client(workers, address) as client:
            yield Dask(client)
    else:
        with ray_session(workers, address) as ray:
            yield Ray(ray)


def _guarded(function: Function[T], partition: Partition) -> T | PartitionError:
    """Return what the function returns, or that the partition cannot be used."""
    try:
        return function(partition)
    except PartitionError as error:
        return error


def _unpickled(content: bytes, partition: Partition) -> Any:
    """Do the same for a function as bytes, which Dask need not pickle for each partition, nor a worker unpickle."""
    return _quietly(_function(content), partition)


@lru_cache(maxsize=1)
def _function(content: bytes) -> Function[Any]:
    """Return the function of the pass that a worker is in; its bytes came from :func:`pickle.dumps` of the driver."""
    function: Function[Any] = pickle.loads(content)
    return function


def _quietly(function: Function[T], partition: Partition) -> T | PartitionError:
    """Do the same on a worker, without warnings that nobody there can do anything about."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _guarded(function, partition)
