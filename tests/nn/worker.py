"""One of several training processes, for tests/nn/test_distributed.py: run as a script with a JSON job."""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

import inlier
from inlier.nn._distributed import Exchange


def batches(job: dict, step: int) -> list[torch.Tensor]:
    """The sample numbers that each of job["processes"] gets in a step: uneven, and sometimes none at all."""
    generator = torch.Generator().manual_seed(step)
    order = torch.randperm(job["samples"], generator=generator)
    # As many samples in all whatever the number of processes, where the job says so.
    drawn = job.get("batches_for", job["processes"])
    sizes = [(7 * step + 5 * rank) % 9 + (0 if (step + rank) % 4 == 0 else 1) for rank in range(drawn)]
    if (step + 1) % 5 == 0:
        sizes[-1] = 0
    parts = list(order[: sum(sizes)].split(sizes))
    return [torch.cat(parts[rank :: job["processes"]] or [order[:0]]) for rank in range(job["processes"])]


def data(job: dict) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(job["samples"], 4, generator=generator)
    y = x.sum(1) + 0.1 * torch.randn(job["samples"], generator=generator)
    y[: job["samples"] // 3] += 10 * torch.randn(job["samples"] // 3, generator=generator)
    return x, y


def criterion_of(job: dict) -> nn.Module:
    kind = inlier.RobustCrossEntropy if job.get("labels") else inlier.Robust
    return kind(**job["robust"])


def loss_of(job: dict, criterion: nn.Module, output: torch.Tensor, y: torch.Tensor, mine: torch.Tensor):
    """The robust loss of a batch, called as the job says."""
    index = mine if job["index"] else None
    if job.get("labels"):
        return criterion(output, (y > 0).long(), index)
    groups = mine % 3 if job["groups"] else None
    return criterion((output.sum(1) - y) ** 2, index, groups)


def run(job: dict, rank: int | None) -> dict:
    """Train as one of several processes, or alone on the joined batches (rank None): what must agree."""
    torch.manual_seed(0)
    x, y = data(job)
    model: nn.Module = nn.Linear(4, 2)
    if rank is not None and job.get("sharded"):
        fully_shard(model, mesh=init_device_mesh("cpu", (job["processes"],)))
    elif rank is not None:
        model = DistributedDataParallel(model)
    criterion = criterion_of(job)
    optimizer = torch.optim.SGD(model.parameters(), 0.02)
    first = 0
    if job.get("resume"):
        state = torch.load(job["resume"], weights_only=True)
        unwrap(model).load_state_dict(state["model"])
        criterion.load_state_dict(state["criterion"])
        first = state["step"]
    record: dict = {"scale": [], "fraction": [], "collectives": [], "weight": [], "loss": []}
    counting = Collectives()
    for step in range(first, job["steps"]):
        if job.get("die") == [rank, step]:
            os._exit(1)
        if step == job.get("truncated_from"):
            criterion.change_kernel("truncated")
        if job.get("save") == step and rank in (0, None):
            state = {
                "model": unwrap(model).state_dict(),
                "criterion": criterion.state_dict(),
                "step": step,
            }
            torch.save(state, Path(job["out"], "checkpoint.pt"))
        parts = batches(job, step)
        mine = torch.cat(parts) if rank is None else parts[rank]
        quiet = model.no_sync() if rank is not None and job.get("no_sync") and step % 2 else nullcontext()
        with quiet:
            output = model(x[mine])
            with counting:
                loss = loss_of(job, criterion, output, y[mine], mine)
            loss.backward()
        if not (job.get("no_sync") and step % 2):
            optimizer.step()
            optimizer.zero_grad()
        record["scale"].append(criterion.scale.tolist())
        record["fraction"].append(criterion.inlier_fraction.tolist())
        record["collectives"].append(counting.calls)
        record["loss"].append(loss.item())
    parameters = [p.full_tensor() if isinstance(p, DTensor) else p for p in model.parameters()]
    record["weight"] = [p.tolist() for p in parameters]
    if job["index"]:
        record["probability"] = torch.nan_to_num(criterion.inlier_probability(), nan=-1).tolist()
    return record


def unwrap(model: nn.Module) -> nn.Module:
    return model.module if isinstance(model, DistributedDataParallel) else model


def message_sizes(job: dict, rank: int) -> dict:
    """The bytes of the message of each step, for batches of the sizes that the job gives."""
    robust, sizes, kept = inlier.Robust(update_every=4), [], Exchange._all_gather

    def measured(self, received, message):
        sizes.append(message.numel() * message.element_size())
        return kept(self, received, message)

    Exchange._all_gather = measured
    steps = []
    for size in job["sizes"]:
        robust(torch.rand(size), torch.arange(size))
        steps.append(sizes[-1])
    return {"sizes": steps}


def misuse(job: dict, rank: int) -> dict:
    """Call as the job says, one process otherwise than the others; what each of them raises, and when."""
    model = DistributedDataParallel(nn.Linear(1, 1))
    robust = inlier.Robust(update_every=4)
    begun, said = time.monotonic(), ""
    context = model.join() if job["misuse"] == "join" else nullcontext()
    try:
        with context:
            for step in range(8):
                if job["misuse"] == "join" and rank == 1 and step == 3:
                    break
                wrong = rank == 1 and step == job["at"]
                losses, index = torch.rand(4 + rank), torch.arange(4 + rank)
                if job["misuse"] == "join":
                    loss = robust(model(torch.rand(4 + rank, 1)).square().squeeze(1), index)
                    loss.backward()
                elif wrong and job["misuse"] == "no index":
                    robust(losses)
                elif wrong and job["misuse"] == "refused":
                    robust(losses, index[:2])
                elif wrong and job["misuse"] == "negative index":
                    robust(losses, index - 3)
                else:
                    robust(losses, index)
    except (RuntimeError, ValueError, IndexError, TypeError) as error:
        said = f"{type(error).__name__}: {error}"
    return {"said": said, "seconds": time.monotonic() - begun, "calls": len(robust.history)}


class Collectives:
    """Counts the collectives that are called inside a `with`."""

    def __enter__(self) -> None:
        self.calls = 0
        names = ["all_reduce", "all_gather"]
        names += ["all_gather_single" if hasattr(dist, "all_gather_single") else "all_gather_into_tensor"]
        self.kept = {name: getattr(dist, name) for name in names}
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
    work = misuse if "misuse" in job else message_sizes if "sizes" in job else run
    result = work(job, rank)
    Path(job["out"], f"{rank}.json").write_text(json.dumps(result))
    if "misuse" in job:
        os._exit(0)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
