"""Many processes: what one of 256 with 1,024 samples each receives and computes in a step.

The collective itself is left out: every process but this one is played by its message. Bytes are what a step
receives; the time is that of unpacking, remembering and counting the rows of all processes.
"""

from __future__ import annotations

import time
from statistics import median

import torch
import torch.distributed as dist

from inlier import Robust
from inlier.nn._distributed import Exchange

BATCH = 1024


def played(exchange: Exchange) -> list[int]:
    """Let the messages of this process stand for those of all; return the list of bytes received."""
    received_bytes: list[int] = []

    def gather(received: torch.Tensor, message: torch.Tensor) -> None:
        received.copy_(message.expand_as(received))
        received_bytes.append(received.numel() * received.element_size())

    exchange._all_gather = gather  # type: ignore[method-assign]
    return received_bytes


def run(quick: bool = False) -> list[dict[str, object]]:
    """Rows of a table: what was measured, and its goal."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    rows: list[dict[str, object]] = []
    for processes in (8, 256):
        dist.init_process_group("fake", rank=0, world_size=processes, store=FakeStore())
        try:
            samples = processes * BATCH * 4
            robust = Robust(samples=samples)
            received = played(robust._exchange)
            seconds = []
            for _ in range(10 if quick else 60):
                losses, index = torch.rand(BATCH), torch.randperm(samples)[:BATCH]
                begin = time.process_time()
                robust(losses, index)
                seconds.append(time.process_time() - begin)
        finally:
            dist.destroy_process_group()
        what = f"{processes} processes of {BATCH:,} samples"
        goals = (2.1, 11.5) if processes == 256 else (None, None)
        rows.append(
            {"what": f"{what}: received a step, MB", "measured": received[-1] / 1e6, "goal": goals[0]}
        )
        rows.append(
            {"what": f"{what}: computed a step, ms", "measured": 1000 * median(seconds), "goal": goals[1]}
        )
    return rows


if __name__ == "__main__":
    for row in run(quick=True):
        print(row)
