"""Robust training on two workers of Ray Train, on processors with gloo: `python examples/ray_train.py`.

Ray starts the processes and joins them; the lines of the training are those of `distributed.py`.
"""

import json
import tempfile
from pathlib import Path

import ray
import torch
import torch.distributed as dist
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

    scales = [torch.zeros(1) for _ in range(dist.get_world_size())]
    dist.all_gather(scales, torch.as_tensor(robust.scale).reshape(1).float())
    error = (model.module.weight[0] - truth).abs().max().item()
    same = len({float(scale) for scale in scales}) == 1
    if get_context().get_world_rank() == 0:
        found = {"inlier_fraction": float(robust.inlier_fraction), "error": error, "same_scale": same}
        Path(options["folder"], "found.json").write_text(json.dumps(found))


if __name__ == "__main__":
    ray.init(num_cpus=3, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    with tempfile.TemporaryDirectory() as folder:
        trainer = TorchTrainer(
            train,
            train_loop_config={"folder": folder},
            torch_config=TorchConfig(backend="gloo"),
            scaling_config=ScalingConfig(num_workers=2),
            run_config=RunConfig(storage_path=folder),
        )
        trainer.fit()
        found = json.loads(Path(folder, "found.json").read_text())
    print(
        f"2 workers, same scale: {found['same_scale']}, inlier fraction {found['inlier_fraction']:.3f}, "
        f"largest error {found['error']:.4f}"
    )
    ray.shutdown()
