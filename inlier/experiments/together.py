"""Rows computed by several processes together: what ``torchrun`` starts.

The first process runs the sweep, keeps the journal and tells the others each unit of work; they compute it
along with it and write nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from inlier.experiments import Row

__all__ = ["broadcast", "follow", "is_follower", "joined", "launched_together"]


def launched_together() -> bool:
    """Whether ``torchrun`` started this process beside others."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1 and "RANK" in os.environ


def is_follower() -> bool:
    """Whether this process is one of those that compute along and write nothing."""
    return launched_together() and int(os.environ["RANK"]) > 0


@contextmanager
def joined() -> Iterator[None]:
    """Join the other processes, by NCCL where there are GPUs, and leave them at the end."""
    import torch
    import torch.distributed as dist

    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)) % torch.cuda.device_count())
        dist.init_process_group("cpu:gloo,cuda:nccl")
    else:
        dist.init_process_group("gloo")
    try:
        yield
    finally:
        dist.destroy_process_group()


def broadcast(unit: list[Row] | None) -> list[Row] | None:
    """Hand a unit of work from the first process to all others; None ends their work.

    Args:
        unit: What the first process says; what the others give is not looked at.
    """
    import torch.distributed as dist

    message: list[Any] = [unit]
    dist.broadcast_object_list(message, 0)
    told: list[Row] | None = message[0]
    return told


def follow(compute: Callable[[Sequence[Row]], Iterable[Any]]) -> None:
    """Compute along with the first process until it says that it is done.

    Args:
        compute: That of the experiment; an exception ends this process, and ``torchrun`` all others.
    """
    with joined():
        while (unit := broadcast(None)) is not None:
            for _ in compute(unit):
                pass
