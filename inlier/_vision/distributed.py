"""What training needs of ``torch.distributed``; in a single process all of it does nothing."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor

__all__ = ["all_gather_rows", "all_reduce", "barrier", "from_rank_0", "rank", "world_size"]


def world_size() -> int:
    """Return the number of processes that train together; 1 without ``torch.distributed``."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    """Return the rank of this process; 0 without ``torch.distributed``."""
    return dist.get_rank() if world_size() > 1 else 0


def barrier() -> None:
    """Wait for all processes."""
    if world_size() > 1:
        dist.barrier()


def all_reduce(value: Tensor) -> Tensor:
    """Return the sum of a tensor over all processes; the tensor is changed."""
    if world_size() > 1:
        dist.all_reduce(value)
    return value


def from_rank_0(choice: bool, device: torch.device) -> bool:
    """Return the choice of rank 0 on every process: their clocks differ."""
    if world_size() == 1:
        return choice
    value = torch.tensor(int(choice), device=device)
    dist.broadcast(value, 0)
    return bool(value)


def all_gather_rows(rows: Tensor) -> Tensor:
    """Return the rows of all processes, in the order of their ranks.

    Args:
        rows: [n, ...]; n may differ between processes, and may be 0.

    Example:
        >>> import torch
        >>> all_gather_rows(torch.tensor([1.0, 2.0]))
        tensor([1., 2.])
    """
    if world_size() == 1:
        return rows
    count = torch.tensor([len(rows)], device=rows.device)
    counts = [torch.empty_like(count) for _ in range(world_size())]
    dist.all_gather(counts, count)
    sizes = [int(size) for size in counts]
    # Messages of one collective are equally long.
    padded = rows.new_zeros(max(sizes), *rows.shape[1:])
    padded[: len(rows)] = rows
    gathered = [torch.empty_like(padded) for _ in sizes]
    dist.all_gather(gathered, padded)
    return torch.cat([part[:size] for part, size in zip(gathered, sizes, strict=True)])
