"""One of several training processes, for tests/test_processes.py: run as a script with a JSON job."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

import inlier


def batches(job: dict, step: int) -> list[torch.Tensor]:
    """The sample numbers that each of job["processes"] gets in a step: uneven, and sometimes none at all."""
    generator = torch.Generator().manual_seed(step)
    order = torch.randperm(job["samples"], generator=generator)
    sizes = [
        (7 * step + 5 * rank) % 9 + (0 if (step + rank) % 4 == 0 else 1) for rank in range(job["processes"])
    ]
    if (step + 1) % 5 == 0:
        sizes[-1] = 0
    return list(order[: sum(sizes)].split(sizes))


def data(job: dict) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(job["samples"], 4, generator=generator)
    y = x.sum(1) + 0.1 * torch.randn(job["samples"], generator=generator)
    y[: job["samples"] // 3] += 10 * torch.randn(job["samples"] // 3, generator=generator)
    return x, y


def losses_of(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """What is trained on, and logits of three classes, which are given where the job says so."""
    output = model(x)
    return (output.sum(1) - y) ** 2, torch.cat([output, x[:, :1]], 1)


def run(job: dict, rank: int | None) -> dict:
    """Train as one of several processes, or alone on the joined batches (rank None): what must agree."""
    torch.manual_seed(0)
    x, y = data(job)
    model: nn.Module = nn.Linear(4, 2)
    if rank is not None and job.get("sharded"):
        fully_shard(model, mesh=init_device_mesh("cpu", (job["processes"],)))
    elif rank is not None:
        model = DistributedDataParallel(model)
    robust = inlier.Robust(**job["robust"])
    optimizer = torch.optim.SGD(model.parameters(), 0.02)
    record: dict = {"scale": [], "fraction": [], "collectives": [], "weight": [], "loss": []}
    counting = Collectives()
    for step in range(job["steps"]):
        if job.get("die") == [rank, step]:
            os._exit(1)
        if step == job.get("truncated_from"):
            robust.change_kernel("truncated")
        parts = batches(job, step)
        mine = torch.cat(parts) if rank is None else parts[rank]
        losses, logits = losses_of(model, x[mine], y[mine])
        with counting:
            loss = robust(
                losses,
                mine if job["index"] else None,
                mine % 3 if job["groups"] and not job.get("labels") else None,
                labels=mine % 3 if job.get("labels") else None,
                logits=logits if job.get("logits") else None,
            )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        record["scale"].append(robust.scale.tolist())
        record["fraction"].append(robust.inlier_fraction.tolist())
        record["collectives"].append(counting.calls)
        record["loss"].append(loss.item())
    parameters = [p.full_tensor() if isinstance(p, DTensor) else p for p in model.parameters()]
    record["weight"] = [p.tolist() for p in parameters]
    record["held_out"] = robust.held_out.state.tolist()
    if job["index"]:
        record["belief"] = torch.nan_to_num(robust.inlier_probability(), nan=-1).tolist()
    return record


class Collectives:
    """Counts the collectives that are called inside a `with`."""

    def __enter__(self) -> None:
        self.calls = 0
        self.kept = {name: getattr(dist, name) for name in ("all_reduce", "all_gather")}
        for name, function in self.kept.items():
            setattr(dist, name, self._counted(function))

    def _counted(self, function):
        def call(*args, **kwargs):
            self.calls += 1
            return function(*args, **kwargs)

        return call

    def __exit__(self, *_) -> None:
        for name, function in self.kept.items():
            setattr(dist, name, function)


def main() -> None:
    job, rank = json.loads(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=job["rendezvous"], rank=rank, world_size=job["processes"])
    Path(job["out"], f"{rank}.json").write_text(json.dumps(run(job, rank)))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
