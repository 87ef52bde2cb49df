"""How a robust step grows with processes, groups, samples and batch size, for `Robust` and `RobustCrossEntropy`.

Processor time of a step of the loss alone, in milliseconds, means that include the updates. 1, 2 and 4 processes are
real ones that talk by gloo; the time is that of one of them. From 8 on every process but this one is played by its
message, and "on paper" is what a step takes then: what it computes, and what it receives at 10 Gbit/s with 50 µs for
each doubling of the processes. Means are of 400 steps, of 100 for batch sizes and for processes on paper, which hold
fewer updates: compare within a curve.
`python -m benchmarks --only "Training curves"` writes the figure and this section.
"""

from __future__ import annotations

import os
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor

from benchmarks.processes import played
from inlier import Robust, RobustCrossEntropy

FIGURE = Path(__file__).parent.parent / "docs" / "img" / "training_curves.png"
BATCH, CLASSES, SAMPLES = 256, 10, 10**6
BANDWIDTH, LATENCY = 10e9 / 8, 50e-6
REAL, PLAYED = (1, 2, 4), (8, 32, 128, 512, 1024)
GROUPS, SAMPLE_COUNTS, BATCHES = (
    (10, 100, 1000, 10_000),
    (10**4, 10**5, 10**6, 10**7, 10**8),
    (16, 256, 4096, 65_536),
)
LOSSES = ("Robust", "RobustCrossEntropy")


def step_of(
    name: str, batch: int = BATCH, samples: int = SAMPLES, groups: int = 0
) -> tuple[object, Callable]:
    """The loss, and one call of it on random values."""
    # Without the beginning, in which a step does less.
    if name == "Robust":
        robust = Robust(samples=samples, num_groups=groups or None, warmup=0)
    else:
        robust = RobustCrossEntropy(samples=samples)
    generator = torch.Generator().manual_seed(torch.initial_seed())

    def step() -> Tensor:
        index = torch.randint(samples, (batch,), generator=generator)
        if name == "Robust":
            losses = torch.rand(batch, generator=generator)
            return robust(losses, index, torch.randint(groups, (batch,)) if groups else None)
        logits = torch.randn(batch, CLASSES, generator=generator)
        return robust(logits, index % CLASSES, index)

    return robust, step


def milliseconds(step: Callable, steps: int) -> float:
    """The mean processor time of a step, after a beginning that is not counted."""
    for _ in range(41):
        step()
    begin = time.process_time()
    for _ in range(steps):
        step()
    return 1000 * (time.process_time() - begin) / steps


def real(name: str, processes: int, steps: int) -> float:
    """The time of one of several processes that talk to each other."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.NamedTemporaryFile("r") as answer:
        mp.spawn(_member, (name, processes, port, steps, answer.name), nprocs=processes)
        return float(answer.read())


def _member(rank: int, name: str, processes: int, port: int, steps: int, answer: str) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    torch.manual_seed(rank)
    dist.init_process_group("gloo", rank=rank, world_size=processes)
    found = milliseconds(step_of(name)[1], steps)
    if rank == 0:
        Path(answer).write_text(str(found))
    dist.destroy_process_group()


@contextmanager
def pretended(processes: int) -> Iterator[None]:
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", rank=0, world_size=processes, store=FakeStore())
    try:
        yield
    finally:
        dist.destroy_process_group()


def on_paper(name: str, processes: int, steps: int) -> tuple[float, float, float]:
    """Milliseconds that one process computes, bytes that it receives, and milliseconds of a step on paper."""
    with pretended(processes):
        robust, step = step_of(name)
        received = played(robust._exchange)
        computed = milliseconds(step, steps)
    size = fmean(received[-steps:])
    doublings = (processes - 1).bit_length()
    return computed, size, computed + 1000 * (size / BANDWIDTH + LATENCY * doublings)


def run(quick: bool = False) -> dict[str, list]:
    """The curves; the figure is drawn too, unless they are short."""
    steps = 60 if quick else 400
    torch.set_num_threads(1)
    found: dict[str, list] = {"processes": [], "groups": [], "samples": [], "batch": []}
    for name in LOSSES:
        for processes in REAL:
            measured = (
                milliseconds(step_of(name)[1], steps) if processes == 1 else real(name, processes, steps)
            )
            found["processes"].append((name, processes, measured, None, None))
        for processes in PLAYED[:2] if quick else PLAYED:
            found["processes"].append((name, processes, *on_paper(name, processes, max(steps // 4, 40))))
        for samples in SAMPLE_COUNTS[:3] if quick else SAMPLE_COUNTS:
            robust, step = step_of(name, samples=samples)
            measured = milliseconds(step, steps)
            held = sum(t.numel() * t.element_size() for t in robust.state_dict().values())
            found["samples"].append((name, samples, measured, held / samples))
            del robust, step
        for batch in BATCHES:
            found["batch"].append((name, batch, milliseconds(step_of(name, batch)[1], max(steps // 4, 40))))
    for groups in GROUPS:
        found["groups"].append(("Robust", groups, milliseconds(step_of("Robust", groups=groups)[1], steps)))
    found["notes"] = ["![Curves of a robust step](img/training_curves.png)"]
    if not quick:
        draw(found)
    return found


def sections(found: dict[str, list]) -> list[tuple[str, str]]:
    """The tables, by heading."""
    tables = {
        "Processes, 256 samples each": (
            "| loss | processes | computes, ms | receives, kB | a step on paper, ms |\n|---|---|---|---|---|",
            [
                f"| `{name}` | {count:,} | {ms:.3g} | {'' if size is None else f'{size / 1e3:.4g}'} "
                f"| {'' if paper is None else f'{paper:.3g}'} |"
                for name, count, ms, size, paper in found["processes"]
            ],
        ),
        "Groups": (
            "| loss | groups | a step, ms |\n|---|---|---|",
            [f"| `{name}` | {count:,} | {ms:.3g} |" for name, count, ms in found["groups"]],
        ),
        "Samples (dataset indices)": (
            "| loss | samples | a step, ms | bytes a sample |\n|---|---|---|---|",
            [
                f"| `{name}` | {count:,} | {ms:.3g} | {held:.3g} |"
                for name, count, ms, held in found["samples"]
            ],
        ),
        "Batch size": (
            "| loss | batch | a step, ms | µs a sample |\n|---|---|---|---|",
            [
                f"| `{name}` | {count:,} | {ms:.3g} | {1000 * ms / count:.3g} |"
                for name, count, ms in found["batch"]
            ],
        ),
    }
    return [(title, "\n".join([head, *rows])) for title, (head, rows) in tables.items()]


def draw(found: dict[str, list], path: Path = FIGURE) -> None:
    from matplotlib.figure import Figure

    from inlier._figures import style

    figure = Figure(figsize=(10, 6.4), layout="constrained")
    titles = {
        "processes": "processes of 256 samples",
        "groups": "groups",
        "samples": "samples",
        "batch": "batch size",
    }
    for axes, (key, title) in zip(figure.subplots(2, 2).flat, titles.items(), strict=True):
        for number, name in enumerate(LOSSES):
            rows = [row for row in found[key] if row[0] == name]
            if rows:
                times = [row[4] if key == "processes" and row[4] is not None else row[2] for row in rows]
                axes.plot([row[1] for row in rows], times, label=name, **style(number))
        axes.set(xscale="log", yscale="log", xlabel=title, ylabel="a step of the loss, ms")
        axes.grid(alpha=0.3)
    figure.axes[0].axvspan(6, 1400, alpha=0.08, color="black")
    figure.axes[0].text(8, figure.axes[0].get_ylim()[1] * 0.7, "on paper", fontsize=8, va="top")
    figure.axes[0].legend()
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=110, metadata={"Software": None})


if __name__ == "__main__":
    for heading, text in sections(run(quick=True)):
        print(f"\n{heading}\n\n{text}")
