"""Robust training on several processes: `torchrun --nproc-per-node 2 examples/distributed.py`.

The two lines that matter are the same as on one process. Every rank has the same scale and inlier fraction, and
the gradient is that of one process on the joined batch.
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import inlier


def train(steps: int = 1000) -> None:
    torch.manual_seed(0)
    x = torch.randn(3000, 5)
    truth = torch.arange(1.0, 6.0)
    y = x @ truth + 0.1 * torch.randn(3000)
    y[:1200] += 10 * torch.randn(1200)  # 40 % of the targets are outliers

    model = DistributedDataParallel(torch.nn.Linear(5, 1))
    robust = inlier.Robust(samples=len(x), warmup=200)
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    generator = torch.Generator().manual_seed(dist.get_rank())  # each process draws its own batches
    for _ in range(steps):
        index = torch.randint(len(x), (64,), generator=generator)
        losses = (model(x[index]).squeeze(1) - y[index]) ** 2
        loss = robust(losses, index)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    error = (model.module.weight[0] - truth).abs().max().item()
    scale, fraction = float(robust.scale), float(robust.inlier_fraction)
    print(
        f"rank {dist.get_rank()}: scale {scale!r}, inlier fraction {fraction:.3f}, largest error {error:.4f}"
    )


if __name__ == "__main__":
    dist.init_process_group("gloo")
    train()
    dist.barrier()  # a process that ends early is an error to the others
    dist.destroy_process_group()
