"""Dask and Ray clusters: connect to a running one, or start a local one and stop it at the end."""

from __future__ import annotations

import builtins
import importlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["ClusterError", "dask_client", "ray_session"]

ONE_THREAD = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
"""What Dask sets for its workers, without MALLOC_TRIM_THRESHOLD_: with that, arrays of each batch are new memory, and
passes over rows take twice the processor time."""


class ClusterError(RuntimeError):
    """A cluster that cannot be used, with a reason of one line."""


@contextmanager
def dask_client(workers: int, address: str | None) -> Iterator[Any]:
    """Give a client of a Dask cluster.

    Args:
        workers: Workers of a cluster that is started here, of one thread each.
        address: The scheduler of a running cluster; by default that of the current client of this process or
            ``DASK_SCHEDULER_ADDRESS``, and without one a cluster is started here.

    Raises:
        ClusterError: If Dask is not installed, or no scheduler answers.
    """
    distributed = _import("distributed", "dask")
    if address is None and (current := _current_client(distributed)) is not None:
        yield current
        return
    address = address or os.environ.get("DASK_SCHEDULER_ADDRESS")
    if address:
        try:
            client = distributed.Client(address, set_as_default=False)
        except (OSError, ValueError) as error:
            raise ClusterError(f"no Dask scheduler answers at {address}: {_one_line(error)}") from error
        with client:
            yield client
    else:
        # Lost workers are reported by what is run; the logs of Dask are for those who run a cluster.
        with importlib.import_module("dask.config").set(
            {"distributed.nanny.pre-spawn-environ": dict.fromkeys(ONE_THREAD, 1)}
        ):
            cluster = distributed.LocalCluster(
                n_workers=workers, threads_per_worker=1, dashboard_address=None, silence_logs="CRITICAL"
            )
        with cluster, distributed.Client(cluster, set_as_default=False) as client:
            yield client


@contextmanager
def ray_session(workers: int, address: str | None) -> Iterator[Any]:
    """Give the module ``ray``, connected to a cluster.

    Args:
        workers: CPUs of a cluster that is started here.
        address: A running cluster; by default the one that this process is connected to or ``RAY_ADDRESS``, and
            without one a cluster is started here.

    Raises:
        ClusterError: If Ray is not installed, or no cluster answers.
    """
    # Ray puts a print of its own in place of the built-in one, which then can no longer be pickled.
    built_in = builtins.print
    ray = _import("ray", "ray")
    if ray.is_initialized():
        yield ray
        return
    address = address or os.environ.get("RAY_ADDRESS")
    # Only a cluster that is started here takes a size.
    where: dict[str, Any] = {"address": address} if address else {"address": "local", "num_cpus": workers}
    try:
        ray.init(
            log_to_driver=False, logging_level="ERROR", include_dashboard=None if address else False, **where
        )
    except ConnectionError as error:
        raise ClusterError(f"no Ray cluster answers at {address}: {_one_line(error)}") from error
    try:
        yield ray
    finally:
        ray.shutdown()
        builtins.print = built_in


def _current_client(distributed: Any) -> Any:
    """Return the client that this process works with already; None if there is none."""
    try:
        return distributed.get_client()
    except ValueError:
        return None


def _import(package: str, extra: str) -> Any:
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        message = f'--backend {extra} needs {package}, which is not installed: pip install "inlier[{extra}]"'
        raise ClusterError(message) from error


def _one_line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())
