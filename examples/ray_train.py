"""Robust training on two workers of Ray Train, on processors with gloo: `python examples/ray_train.py`.

Ray starts the processes and joins them; the lines of the training are those of `distributed.py`.
"""

import os
import tempfile
from pathlib import Path

import ray
import torch
from ray.train import RunConfig, ScalingConfig, get_context
from ray.train.torch import TorchConfig, TorchTrainer, prepare_model

import inlier


def train(options: dict) -> None:
    torch.manual_seed(0)
    x = torch.randn(3000, 5)
    truth = torch.arange(1.0, 6.0)
    y = x @ truth + 0.1 * torch.randn(3000)
    y[:1200] += 10 * torch.randn(1200)  # 40 % of the targets are outliers

    model = prepare_model(torch.nn.Linear(5, 1))
    robust = inlier.Robust(samples=len(x), warmup=200)
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    generator = torch.Generator().manual_seed(get_context().get_world_rank())
    for _ in range(1000):
        index = torch.randint(len(x), (64,), generator=generator)
        losses = (model(x[index]).squeeze(1) - y[index]) ** 2
        loss = robust(losses, index)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    error = (model.module.weight[0] - truth).abs().max().item()
    rank, fraction = get_context().get_world_rank(), float(robust.inlier_fraction)
    line = f"scale {float(robust.scale)!r}, inlier fraction {fraction:.3f}, largest error {error:.4f}"
    Path(options["folder"], f"rank-{rank}.txt").write_text(line)


if __name__ == "__main__":
    # On a busy machine the workers may take longer than the usual minute to import torch.
    os.environ.setdefault("RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S", "300")
    ray.init(num_cpus=3, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    with tempfile.TemporaryDirectory() as folder:
        TorchTrainer(
            train,
            train_loop_config={"folder": folder},
            torch_config=TorchConfig(backend="gloo"),
            scaling_config=ScalingConfig(num_workers=2),
            run_config=RunConfig(storage_path=folder),
        ).fit()
        for path in sorted(Path(folder).glob("rank-*.txt")):
            print(f"{path.stem}: {path.read_text()}")
    ray.shutdown()
