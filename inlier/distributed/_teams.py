"""Workers that run one job together, each with its share of the rows, and talk to each other by XGBoost's communicator.

On Dask a task on each worker, as :mod:`xgboost.dask` does it; on Ray the XGBoost trainer of Ray Train; in this process
alone otherwise. A worker that is lost stops the job, which is then started again with the workers that are left: what
it had finished is in files.
"""

from __future__ import annotations

import importlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inlier._clusters import ClusterError
from inlier.distributed._engines import RETRIES, Dask, Engine, Ray, Stream

PATIENCE = 60.0
"""Seconds to wait for a worker of a cluster."""
POLL = 0.5
LOST = "workers were lost again and again in the training (out of memory? use workers with more, or more of them)"


@dataclass(frozen=True)
class Member:
    """A worker of a team.

    Args:
        rank: Its place among them.
        size: How many there are.
        threads: Threads that it may use.
        advance: Shows progress: called with what is being done, and the share of a step that has been done.
    """

    rank: int
    size: int
    threads: int
    advance: Callable[[str, float], None] = lambda words, share: None


Job = Callable[[Member], None]


def run_together(
    engine: Engine, job: Job, most: int, work: Path, advance: Callable[[str, float], None]
) -> None:
    """Run a job on all workers of an engine.

    Args:
        engine: The engine.
        job: It can be pickled.
        most: The most workers that have anything to do.
        work: A folder that all workers see.
        advance: Shows progress, in this process only.

    Raises:
        ClusterError: If workers are lost again and again.
    """
    if isinstance(engine, Stream):
        job(Member(0, 1, engine.threads, advance))
        return
    with _watched(work, advance):
        if isinstance(engine, Dask):
            _on_dask(engine.client, job, most)
        elif isinstance(engine, Ray):
            _on_ray(engine.ray, job, most, work)


@contextmanager
def _watched(work: Path, advance: Callable[[str, float], None]) -> Iterator[None]:
    """Show which fits workers have finished: each leaves a file."""
    done = threading.Event()

    def watch() -> None:
        known = set(work.glob("*.ubj"))
        while not done.wait(POLL):
            for path in sorted(set(work.glob("*.ubj")) - known):
                advance(f"finished {path.stem.replace('-', ' ')}", 1.0)
                known.add(path)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _on_dask(client: Any, job: Job, most: int) -> None:
    distributed: Any = importlib.import_module("distributed")
    reason = ""
    for _ in range(RETRIES + 1):
        client.wait_for_workers(1, timeout=PATIENCE)
        threads = dict(sorted(client.nthreads().items())[:most])
        # The scheduler is where xgboost.dask starts it too: workers can reach it.
        host = distributed.comm.get_address_host(client.scheduler.address)
        arguments = client.run_on_scheduler(_start_tracker, len(threads), host)
        futures = [
            client.submit(
                _join_on_dask,
                job,
                Member(rank, len(threads), max(count, 1)),
                arguments,
                workers=[address],
                allow_other_workers=False,
                pure=False,
            )
            for rank, (address, count) in enumerate(threads.items())
        ]
        try:
            while not all(future.done() for future in futures):
                time.sleep(POLL)
                lost = set(threads) - set(client.nthreads())
                if lost or any(future.status == "error" for future in futures):
                    break
            if all(future.status == "finished" for future in futures):
                return
            for future in futures:
                if future.status == "error":
                    error = future.exception()
                    if not _is_loss(error):
                        raise error
                    reason = f": {_one_line(error)}"
        finally:
            client.cancel(futures, force=True)
        time.sleep(POLL)
    raise ClusterError(LOST + reason)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:500]


def _start_tracker(workers: int, host: str) -> dict[str, Any]:
    """Start what XGBoost's workers find each other by, and return its address."""
    from xgboost.tracker import RabitTracker

    tracker = RabitTracker(n_workers=workers, host_ip=host, sortby="task")
    tracker.start()
    threading.Thread(target=tracker.wait_for, daemon=True).start()
    return dict(tracker.worker_args())


def _join_on_dask(job: Job, member: Member, arguments: dict[str, Any]) -> None:
    import xgboost
    from xgboost.collective import CommunicatorContext

    with (
        xgboost.config_context(verbosity=0),
        CommunicatorContext(**arguments, dmlc_task_id=f"{member.rank:08d}"),
    ):
        job(member)


def _is_loss(error: BaseException) -> bool:
    """Whether an error means that a worker was lost, and the job can be tried again."""
    return type(error).__name__ in ("XGBoostError", "KilledWorker", "CancelledError", "CommClosedError")


def _on_ray(ray: Any, job: Job, most: int, work: Path) -> None:
    # On a busy machine workers may take longer than the usual half a minute to import what they need.
    os.environ.setdefault("RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S", "300")
    train: Any = importlib.import_module("ray.train")
    trainers: Any = importlib.import_module("ray.train.xgboost")
    workers = max(min(int(ray.cluster_resources().get("CPU", 1)), most), 1)
    trainer = trainers.XGBoostTrainer(
        _join_on_ray,
        train_loop_config={"job": job},
        scaling_config=train.ScalingConfig(num_workers=workers),
        run_config=train.RunConfig(
            name="train",
            storage_path=str(work / "ray"),
            failure_config=train.FailureConfig(max_failures=RETRIES),
        ),
    )
    try:
        trainer.fit()
    except Exception as error:
        if "TrainingFailed" in type(error).__name__ or "WorkerGroup" in type(error).__name__:
            raise ClusterError(f"{LOST}: {_one_line(error)}") from error
        raise


def _join_on_ray(config: dict[str, Any]) -> None:
    context = importlib.import_module("ray.train").get_context()
    config["job"](Member(context.get_world_rank(), context.get_world_size(), 1))
