"""What several training processes tell each other: one small message a step."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor

__all__ = ["add_up", "exchange", "world_size"]


def world_size(group: dist.ProcessGroup | None = None) -> int:
    """Return the number of processes that train together, 1 without ``torch.distributed``.

    Example:
        >>> world_size()
        1
    """
    return dist.get_world_size(group) if dist.is_available() and dist.is_initialized() else 1


def add_up(tensor: Tensor, group: dist.ProcessGroup | None = None) -> None:
    """Replace a tensor by the sum of those of all processes: one collective."""
    dist.all_reduce(tensor, op=dist.ReduceOp.SUM, group=group)


def exchange(
    header: Tensor, rows: Tensor, capacity: int, group: dist.ProcessGroup | None = None
) -> tuple[Tensor, Tensor, int]:
    """Send every process a header and some rows: one collective, two when a process has more rows than ever.

    Messages of one collective must be equally long. Rows are therefore padded to a capacity that all
    processes know; the header says how many rows a process really has, so all of them see in the same step
    that one had too many, and send again with room for it.

    Args:
        header: Numbers of float64, equally many on each process.
        rows: Rows of float64, any number of them, equally wide on each process.
        capacity: The capacity that the last call returned, 0 at first.
        group: The process group.

    Returns:
        The headers, one row a process; the rows of all processes, in the order of the processes; the capacity
        for the next call.
    """
    processes, width = world_size(group), rows.shape[1]
    while True:
        message = header.new_zeros(1 + len(header) + capacity * width)
        message[0] = len(rows)
        message[1 : 1 + len(header)] = header
        fits = rows[:capacity].reshape(-1)
        message[1 + len(header) : 1 + len(header) + len(fits)] = fits
        gathered = [torch.empty_like(message) for _ in range(processes)]
        dist.all_gather(gathered, message, group=group)
        counts = [int(received[0]) for received in gathered]
        if max(counts) <= capacity or width == 0:
            break
        capacity = max(counts)
    start = 1 + len(header)
    headers = torch.stack([received[1:start] for received in gathered])
    parts = [
        received[start : start + count * width].view(count, width)
        for received, count in zip(gathered, counts, strict=True)
    ]
    return headers, torch.cat(parts), capacity
