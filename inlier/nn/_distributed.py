"""Distributed training: with one small message a step, every process sees the losses of all.

All processes remember and count the same rows in the same order, so that their states are equal to the bit, any
checkpoint serves all of them, and there is nothing to merge at an update.

A message is int32: a header, then a number of rows that all processes agree on (:attr:`Exchange.rows`). It grows at
once where values can be read without waiting for a device; elsewhere surplus rows are weighted but not remembered
until the next update. It shrinks at updates.
"""

from __future__ import annotations

import gc
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.algorithms.join import Joinable

from inlier.nn._validation import ABSENT, Batch, is_cheap_to_read

__all__ = ["Exchange", "all_reduce_sum", "world_size"]

CALL, PART, HEADER = range(3)
"""The header: what the call is, the part of the divisor; then come the rows.

A call is its number of rows times :data:`KINDS`, plus a bit for each column, plus :data:`REFUSED`."""

KINDS, REFUSED = 32, 16
WAIT = timedelta(seconds=8)
"""After this time, look for what may keep another process from ever answering."""


def world_size(group: dist.ProcessGroup | None = None) -> int:
    """Return the number of processes that train together, 1 without ``torch.distributed``.

    Example:
        >>> world_size()
        1
    """
    return dist.get_world_size(group) if dist.is_available() and dist.is_initialized() else 1


def all_reduce_sum(tensor: Tensor, group: dist.ProcessGroup | None = None) -> None:
    """Replace a tensor by its sum over all processes: one collective."""
    dist.all_reduce(tensor, op=dist.ReduceOp.SUM, group=group)


class Exchange:
    """Gathers the rows of all processes: one collective a step.

    Args:
        process_group: The processes that train together; all of them by default.
        wide_tags: Whether tags take 64 bits, not 32.
    """

    def __init__(self, process_group: dist.ProcessGroup | None = None, wide_tags: bool = False) -> None:
        self.process_group, self.wide_tags = process_group, wide_tags
        self.rows = 0
        """The number of rows in a message; all processes have the same."""
        self._own: dist.ProcessGroup | None = None
        self.columns: int | None = None
        self._largest: Tensor | int = 0

    def __getstate__(self) -> dict[str, object]:
        """Leave out the process groups and what was agreed on: a copy starts afresh."""
        return {"wide_tags": self.wide_tags}

    def __setstate__(self, state: dict[str, bool]) -> None:
        Exchange.__init__(self, **state)  # type: ignore[arg-type]

    @property
    def world(self) -> int:
        """The number of processes."""
        return world_size(self.process_group)

    def gather(self, batch: Batch, part: Tensor) -> tuple[Batch, Tensor]:
        """Return the elements of all processes, in their order, and the sum of their parts.

        Args:
            batch: The elements of this process; any number of them.
            part: A float32 on their device: what this process adds to the divisor of the joined batch.

        Returns:
            The joined batch, padded with ABSENT values; and the sum.

        Raises:
            RuntimeError: On every process, if one of them refused its call or got other arguments than the rest.
        """
        columns = 1 + 2 * (batch.index is not None) + (4 + 8 * self.wide_tags) * (batch.tags is not None)
        if self.columns is not None and columns != self.columns:
            self.refuse(batch.values.device)
            raise ValueError(
                "index or groups were given in some calls and not in others: on several processes give them in "
                "all calls or in none"
            )
        received = self._send(columns, batch, part)
        width = columns.bit_count()
        body = received[:, HEADER:].reshape(self.world * self.rows, width)
        parts = iter(body.unbind(1))
        values = next(parts).contiguous().view(torch.float32)
        index = next(parts).long() if batch.index is not None else None
        tags = next(parts).long() if batch.tags is not None else None
        if tags is not None and self.wide_tags:
            tags = (next(parts).long() << 32) | (tags & 0xFFFFFFFF)
        return Batch.of(values, index, tags), received[:, PART].contiguous().view(torch.float32).sum()

    def refuse(self, device: torch.device) -> None:
        """Tell the other processes that this one refused its call, so that they do not wait."""
        columns = 1 if self.columns is None else self.columns
        empty = torch.empty(0, device=device)
        try:
            self._send(columns, Batch(empty), torch.zeros((), device=device), refused=True)
        except RuntimeError:
            return  # The others know; the caller raises the reason.

    def shrink(self) -> None:
        """Cut messages to the longest since the last update; called at updates, where reading may wait."""
        self.rows, self._largest = int(self._largest), 0

    def _send(self, columns: int, batch: Batch, part: Tensor, refused: bool = False) -> Tensor:
        device, count = batch.values.device, len(batch.values)
        first = self.columns is None
        if self._own is None:
            ranks = None if self.process_group is None else dist.get_process_group_ranks(self.process_group)
            # Apart from the collectives of the training, so that messages cannot be mixed up with these.
            self._own = dist.new_group(ranks, use_local_synchronization=ranks is not None)
        while True:
            width = columns.bit_count()
            message = torch.zeros(HEADER + self.rows * width, dtype=torch.int32, device=device)
            message[CALL] = count * KINDS + columns + REFUSED * refused
            message[PART] = part.float().view(torch.int32)
            body = message[HEADER:].view(self.rows, width)
            body[:, 0].view(torch.float32).fill_(ABSENT)
            fits = min(count, self.rows)
            upper = batch.tags >> 32 if self.wide_tags and batch.tags is not None else None
            filled = [batch.values.view(torch.int32), batch.index, batch.tags, upper]
            for column, numbers in enumerate(x for x in filled if x is not None):
                body[:fits, column] = numbers[:fits].to(torch.int32)
            received = torch.empty(self.world, len(message), dtype=torch.int32, device=device)
            self._all_gather(received, message)
            counts = received[:, CALL] >> (KINDS.bit_length() - 1)
            if not (first or is_cheap_to_read(received)):
                # Stays on the device until the next update.
                self._largest = counts.max().clamp(min=self._largest)
                return received
            calls = received[:, CALL].cpu().tolist()
            self._check(calls)
            most = max(calls) // KINDS
            self.columns = columns
            self._largest = max(int(self._largest), most)
            if most <= self.rows:
                return received
            self.rows = most

    def _check(self, calls: list[int]) -> None:
        """Raise, on every process alike, if one refused its call or got other arguments."""
        refused = [rank for rank, call in enumerate(calls) if call & REFUSED]
        if refused:
            raise RuntimeError(
                f"process {refused[0]} refused this call, see its error: nothing was changed on any process"
            )
        columns = [call % REFUSED for call in calls]
        if len(set(columns)) > 1:
            with_index = [rank for rank, bits in enumerate(columns) if bits & 2]
            with_groups = [rank for rank, bits in enumerate(columns) if bits & 4]
            raise RuntimeError(
                f"processes {with_index} gave an index and {with_groups} gave groups, of {len(columns)}: give "
                "the same arguments on every process; nothing was changed"
            )

    def _all_gather(self, received: Tensor, message: Tensor) -> None:
        # Newer versions of torch warn of the old name.
        gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
        work = gather(received.view(-1), message, group=self._own, async_op=True)
        if not is_cheap_to_read(message):
            work.wait()
            return
        try:
            work.wait(WAIT)
        except RuntimeError as error:
            if "timed out" not in str(error).lower():
                raise _lost(error) from error
            _look_for_join()
            try:
                work.wait()
            except RuntimeError as late:
                raise _lost(late) from late


def _lost(error: RuntimeError) -> RuntimeError:
    return RuntimeError(f"another process stopped while its losses were waited for: {error}")


def _look_for_join() -> None:
    """Raise if another process is in DDP's ``join()``, which does not answer these messages."""
    for thing in gc.get_objects():
        if issubclass(type(thing), Joinable) and thing._join_config.enable:
            raise RuntimeError(
                "a process has run out of batches inside join(), and no longer shows its losses: give every process "
                "as many batches as the others (DistributedSampler does), an empty one where it has no more"
            )
