"""Lightning: Robust as a submodule; fit, checkpoints, resume, two processes; the callback."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import lightning as L
import pandas as pd
import pytest
import torch
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch.utils.data import DataLoader, Dataset, DistributedSampler

from inlier import Robust
from inlier.integrations.lightning import RobustCallback

ROOT = Path(__file__).parent.parent
SAMPLES, WRONG = 240, 80


class Lines(Dataset):
    """A linear relation, the first third of which is wrong, with the number of each sample."""

    def __init__(self):
        generator = torch.Generator().manual_seed(0)
        self.x = torch.randn(SAMPLES, 4, generator=generator)
        self.y = self.x.sum(1)
        self.y[:WRONG] += 10 * torch.randn(WRONG, generator=generator)

    def __len__(self):
        return SAMPLES

    def __getitem__(self, row):
        return self.x[row], self.y[row], row


class Model(L.LightningModule):
    def __init__(self, index: bool = True):
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(4, 1)
        self.robust = Robust("tukey", warmup=20, update_every=4, window=500, inlier_fraction=0.65)
        self.index = index
        self.losses = []

    def training_step(self, batch, batch_idx):
        x, y, row = batch
        loss = self.robust((self.layer(x).squeeze(1) - y) ** 2, row if self.index else None)
        self.losses.append(loss.detach())
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.05)


def loader(batch: int = 24) -> DataLoader:
    # Shuffled by the number of the epoch, which Lightning tells it: a resumed run sees the same order.
    dataset = Lines()
    return DataLoader(dataset, batch, sampler=DistributedSampler(dataset, num_replicas=1, rank=0, seed=3))


def trainer(folder, **changes) -> L.Trainer:
    settings = {
        "accelerator": "cpu",
        "devices": 1,
        "logger": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "default_root_dir": folder,
        "max_epochs": 6,
        "log_every_n_steps": 5,
    }
    return L.Trainer(**settings | changes)


def test_fit_and_load_from_checkpoint(tmp_path):
    model = Model()
    fitted = trainer(tmp_path)
    fitted.fit(model, loader())
    torch.testing.assert_close(model.layer.weight, torch.ones(1, 4), rtol=0, atol=0.1)
    loaded = Model.load_from_checkpoint(fitted.checkpoint_callback.best_model_path)
    assert torch.equal(loaded.robust.inlier_probability(), model.robust.inlier_probability())
    assert (
        loaded.robust.inlier_probability()[:WRONG].mean() < loaded.robust.inlier_probability()[WRONG:].mean()
    )


def test_resume_is_exact_to_the_bit(tmp_path):
    whole = Model()
    trainer(tmp_path / "whole").fit(whole, loader())
    first = trainer(tmp_path / "first", max_epochs=3)
    first.fit(Model(), loader())
    resumed = Model()
    trainer(tmp_path / "second").fit(resumed, loader(), ckpt_path=first.checkpoint_callback.best_model_path)
    assert torch.equal(torch.stack(resumed.losses), torch.stack(whole.losses[30:]))
    assert torch.equal(resumed.layer.weight, whole.layer.weight)
    for name, tensor in whole.robust.state_dict().items():
        torch.testing.assert_close(resumed.robust.state_dict()[name], tensor, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("index", [True, False])
def test_the_callback_logs_to_every_logger(tmp_path, index):
    loggers = [TensorBoardLogger(tmp_path / "board"), CSVLogger(tmp_path / "csv")]
    model = Model(index)
    trainer(tmp_path, logger=loggers, callbacks=[RobustCallback()]).fit(model, loader())
    board = EventAccumulator(loggers[0].log_dir, {"histograms": 0, "scalars": 0})
    board.Reload()
    steps = list(range(5, 61, 5))
    assert [event.step for event in board.Scalars("robust/scale")] == steps
    assert board.Scalars("robust/scale")[-1].value == pytest.approx(float(model.robust.scale))
    assert board.Scalars("robust/inlier_fraction")[-1].value == pytest.approx(0.65)
    histograms = board.Histograms("robust/weights")
    assert [event.step for event in histograms] == steps
    assert histograms[-1].histogram_value.num == (SAMPLES if index else 24)
    table = pd.read_csv(Path(loggers[1].log_dir, "metrics.csv"))
    assert table["step"].tolist() == steps
    shares = table[[column for column in table if column.startswith("robust/weights/")]]
    assert shares.shape == (len(steps), 10)
    assert shares.sum(axis=1).tolist() == pytest.approx([1.0] * len(steps))


def test_accumulated_batches_are_logged_once_a_step(tmp_path):
    logger = CSVLogger(tmp_path)
    callback = RobustCallback(every_n_steps=2)
    trainer(tmp_path, logger=logger, callbacks=[callback], accumulate_grad_batches=2, max_epochs=1).fit(
        Model(), loader()
    )
    assert pd.read_csv(Path(logger.log_dir, "metrics.csv"))["step"].tolist() == [2, 4]


def test_the_callback_writes_the_suspects(tmp_path):
    callback = RobustCallback(suspects=tmp_path / "suspects.parquet")
    trainer(tmp_path, callbacks=[callback]).fit(Model(), loader())
    suspects = pd.read_parquet(tmp_path / "suspects.parquet")
    assert sorted(suspects["row"]) == list(range(SAMPLES))
    assert (suspects["row"][:60] < WRONG).all()


def test_mistakes_are_named_before_the_training(tmp_path):
    with pytest.raises(ValueError, match=r"end the name in \.csv or \.parquet"):
        RobustCallback(suspects="suspects.txt")
    model = Model()
    model.second = Robust()
    with pytest.raises(ValueError, match=r"has 2 Robust modules \['robust', 'second'\]"):
        trainer(tmp_path, callbacks=[RobustCallback()]).fit(model, loader())
    trainer(tmp_path, callbacks=[RobustCallback(attribute="second")], max_epochs=1).fit(model, loader())


@pytest.mark.slow
def test_two_processes_are_one(tmp_path):
    """`strategy="ddp"` starts this file again for each process; both hold what one process learns."""
    command = [sys.executable, "-m", "tests.test_lightning", str(tmp_path)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200)
    assert result.returncode == 0, result.stderr
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2))
    assert first["scale"] == second["scale"]
    assert first["belief"] == second["belief"]
    assert first["weight"] == second["weight"]
    alone = Model()
    trainer(tmp_path / "alone").fit(alone, loader(24))
    both = (torch.tensor(first["losses"]) + torch.tensor(second["losses"])) / 2
    torch.testing.assert_close(both, torch.stack(alone.losses), rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(
        torch.tensor(first["weight"]), alone.layer.weight.detach(), rtol=1e-3, atol=1e-5
    )
    assert first["scale"] == pytest.approx(float(alone.robust.scale), rel=1e-3)
    # Logged and written by the first process alone, for all.
    assert len(pd.read_csv(tmp_path / "suspects.csv")) == SAMPLES
    (table,) = tmp_path.glob("lightning_logs/*/metrics.csv")
    logged = pd.read_csv(table).set_index("step")
    assert float(logged["robust/weighted_loss"][60]) == pytest.approx(float(both[-1]), rel=1e-4)
    # The checkpoint of the first process continues alone, on the number of samples that it knows.
    (checkpoint,) = tmp_path.glob("lightning_logs/**/*.ckpt")
    loaded = Model.load_from_checkpoint(checkpoint)
    assert len(loaded.robust.memory) == SAMPLES


class Halves(DistributedSampler):
    """Each process gets its half of every batch of 24 that one process would get."""

    def __iter__(self):
        whole = DistributedSampler(self.dataset, 1, 0, seed=3)
        whole.set_epoch(self.epoch)
        order = list(whole)
        return iter([row for start in range(0, len(order), 24) for row in order[start:][:24][self.rank :: 2]])


def main(folder: str) -> None:
    """One of the two processes."""
    torch.set_num_threads(1)
    model = Model()
    fitted = trainer(
        folder,
        devices=2,
        strategy="ddp",
        use_distributed_sampler=False,
        logger=CSVLogger(folder),
        callbacks=[RobustCallback(suspects=Path(folder, "suspects.csv"))],
    )
    dataset = Lines()
    fitted.fit(model, DataLoader(dataset, 12, sampler=Halves(dataset, 2, fitted.global_rank)))
    record = {
        "scale": float(model.robust.scale),
        "belief": model.robust.inlier_probability().tolist(),
        "weight": model.layer.weight.tolist(),
        "losses": torch.stack(model.losses).tolist(),
    }
    Path(folder, f"{fitted.global_rank}.json").write_text(json.dumps(record))


if __name__ == "__main__":
    main(sys.argv[1])
