"""Accelerate: a robust loss is registered for checkpoints; two processes are one; distributed metrics."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration, set_seed
from torch.utils.data import DataLoader, TensorDataset

from inlier import Robust

ROOT = Path(__file__).parents[2]
SAMPLES, WRONG, STEPS = 240, 80, 40


def train(accelerator: Accelerator, first: int = 0, last: int = STEPS, load: Path | None = None):
    """Train on the batches from `first` to `last`, joined batches of 24 whatever the number of processes."""
    set_seed(0)
    x = torch.randn(SAMPLES, 4)
    y = x.sum(1)
    y[:WRONG] += 10 * torch.randn(WRONG)
    order = torch.cat([torch.randperm(SAMPLES) for _ in range(4)])
    batches = TensorDataset(x[order], y[order], order)
    model, robust = torch.nn.Linear(4, 1), Robust("tukey", 0.65, warmup=20, update_every=4, window=500)
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(batches, 24))
    accelerator.register_for_checkpointing(robust)
    if load is not None:
        accelerator.load_state(str(load))
    record: dict = {"loss": [], "scale": [], "metrics": []}
    for step, (inputs, targets, index) in enumerate(loader):
        if not first <= step < last:
            continue
        with accelerator.accumulate(model):
            loss = robust((model(inputs).squeeze(1) - targets) ** 2, index)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        record["loss"].append(accelerator.gather(loss.detach()).mean().item())
        record["scale"].append(float(robust.scale))
        record["metrics"].append(robust.metrics(distributed=True))
    record["weight"] = accelerator.unwrap_model(model).weight.tolist()
    record["probability"] = torch.nan_to_num(robust.inlier_probability(), nan=-1).tolist()
    return record


def accelerator(**arguments) -> Accelerator:
    return Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(split_batches=True), **arguments)


def test_a_registered_robust_resumes_exactly(tmp_path):
    whole = train(accelerator())
    half = accelerator()
    train(half, last=18)
    half.save_state(str(tmp_path / "half"))
    resumed = train(accelerator(), first=18, load=tmp_path / "half")
    assert resumed["loss"] == whole["loss"][18:]
    assert resumed["weight"] == whole["weight"]
    assert resumed["probability"] == whole["probability"]


def test_its_checkpoint_holds_tensors_alone(tmp_path):
    half = accelerator()
    train(half, last=18)
    half.save_state(str(tmp_path))
    state = torch.load(tmp_path / "custom_checkpoint_0.pkl", weights_only=True)
    fresh = Robust("tukey", 0.65, warmup=20, update_every=4, window=500)
    fresh.load_state_dict(state)
    assert fresh.num_samples == SAMPLES


@pytest.mark.slow
def test_two_processes_are_one(tmp_path):
    command = [
        "-m",
        "torch.distributed.run",
        "--nproc-per-node",
        "2",
        "-m",
        "tests.integrations.test_accelerate",
    ]
    result = subprocess.run(
        [sys.executable, *command, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, timeout=400
    )
    assert result.returncode == 0, result.stderr
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2))
    # To the bit between the two, gathered metrics included.
    assert first == second
    # To rounding with one process.
    alone = train(accelerator())
    for key in ("loss", "scale"):
        assert first[key] == pytest.approx(alone[key], rel=1e-3, abs=1e-6)
    assert first["weight"][0] == pytest.approx(alone["weight"][0], rel=1e-3)
    for joined, metrics in zip(first["metrics"], alone["metrics"], strict=True):
        assert joined == pytest.approx(metrics, rel=1e-3, abs=1e-6)
    assert [metrics["weighted_loss"] for metrics in alone["metrics"]] == pytest.approx(
        alone["loss"], rel=1e-5
    )


def main(folder: str) -> None:
    """One of the two processes."""
    torch.set_num_threads(1)
    here = accelerator()
    record = train(here)
    Path(folder, f"{here.process_index}.json").write_text(json.dumps(record))
    here.end_training()


if __name__ == "__main__":
    main(sys.argv[1])
