"""Accelerate on two processes: `torchrun --nproc-per-node 2 examples/accelerate_two_processes.py`."""

from tempfile import mkdtemp

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

import inlier


def main(epochs: int = 30) -> None:
    torch.manual_seed(0)
    x, truth = torch.randn(2000, 5), torch.arange(1.0, 6.0)
    y = x @ truth + 0.1 * torch.randn(2000)
    y[:800] += 10 * torch.randn(800)  # 40 % of the targets are outliers

    accelerator = Accelerator(cpu=True)
    model, robust = torch.nn.Linear(5, 1), inlier.Robust(warmup=200)
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    loader = DataLoader(inlier.with_index(TensorDataset(x, y)), batch_size=50, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    accelerator.register_for_checkpointing(robust)  # saved and restored with the rest

    for _ in range(epochs):
        for inputs, targets, index in loader:
            losses = (model(inputs).squeeze(1) - targets) ** 2
            accelerator.backward(robust(losses, index))
            optimizer.step()
            optimizer.zero_grad()

    metrics = robust.metrics(distributed=True)  # of all processes: each must call it
    accelerator.save_state(mkdtemp())
    error = (accelerator.unwrap_model(model).weight[0] - truth).abs().max().item()
    accelerator.print(
        f"{accelerator.num_processes} processes: inlier fraction {metrics['inlier_fraction']:.3f}, "
        f"kept {metrics['fraction_kept']:.3f}, largest error {error:.4f}"
    )
    accelerator.end_training()


if __name__ == "__main__":
    main()
