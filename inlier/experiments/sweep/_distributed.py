"""Rows computed by several processes at once, under ``torchrun``.

Rank 0 runs the sweep, keeps the journal and broadcasts each unit of work; the other ranks, the followers,
take part in computing it and write nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from inlier.experiments.sweep._experiment import Row

__all__ = ["broadcast", "follow", "is_distributed", "is_follower", "process_group"]


def is_distributed() -> bool:
    """Return whether ``torchrun`` started this process among several."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1 and "RANK" in os.environ


def is_follower() -> bool:
    """Return whether this process is a follower: any rank but 0."""
    return is_distributed() and int(os.environ["RANK"]) > 0


@contextmanager
def process_group() -> Iterator[None]:
    """Join the process group, by NCCL where there are GPUs, and leave it at the end."""
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
    """Broadcast a unit of work from rank 0; None ends the work of the followers.

    Args:
        unit: The unit on rank 0; ignored on other ranks.
    """
    import torch.distributed as dist

    message: list[Any] = [unit]
    dist.broadcast_object_list(message, 0)
    received: list[Row] | None = message[0]
    return received


def follow(compute: Callable[[Sequence[Row]], Iterable[Any]]) -> None:
    """Take part in every unit that rank 0 broadcasts, until it has no more.

    Args:
        compute: The ``compute`` of the experiment; an exception ends this process, and ``torchrun`` all
            others.
    """
    with process_group():
        while (unit := broadcast(None)) is not None:
            for _ in compute(unit):
                pass
