"""Lightning: robust losses as submodules; fit, checkpoints, resume, two processes; the callback."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import lightning as L
import pandas as pd
import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from inlier import Robust, RobustCrossEntropy, with_index
from inlier.integrations.lightning import RobustCallback

ROOT = Path(__file__).parents[2]
SAMPLES, WRONG = 240, 80


def lines():
    """A linear relation with the index of each sample; the targets of the first third are noise."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(SAMPLES, 4, generator=generator)
    y = x.sum(1)
    y[:WRONG] += 10 * torch.randn(WRONG, generator=generator)
    return with_index(TensorDataset(x, y))


class Model(L.LightningModule):
    def __init__(self, index: bool = True):
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(4, 1)
        self.robust = Robust("tukey", warmup=20, update_every=4, window=500, inlier_fraction=0.65)
        self.index = index
        self.losses = []

    def training_step(self, batch, batch_idx):
        x, y, index = batch
        loss = self.robust((self.layer(x).squeeze(1) - y) ** 2, index if self.index else None)
        self.losses.append(loss.detach())
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.05)


def loader(batch: int = 24) -> DataLoader:
    # Shuffled by the epoch, which Lightning sets: a resumed run sees the same order.
    dataset = lines()
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


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """A model that was trained for six epochs, with a checkpoint after three, and its suspects."""
    folder = tmp_path_factory.mktemp("fitted")
    model = Model()
    checkpoints = ModelCheckpoint(folder, "{epoch}", every_n_epochs=3, save_top_k=-1)
    callback = RobustCallback(suspects=folder / "suspects.parquet")
    trainer(folder, callbacks=[checkpoints, callback]).fit(model, loader())
    return model, folder


def test_the_robust_loss_is_in_the_checkpoint(fitted):
    model, folder = fitted
    torch.testing.assert_close(model.layer.weight, torch.ones(1, 4), rtol=0, atol=0.1)
    probability = Model.load_from_checkpoint(folder / "epoch=5.ckpt").robust.inlier_probability()
    assert torch.equal(probability, model.robust.inlier_probability())
    assert probability[:WRONG].mean() < probability[WRONG:].mean()


def test_resume_is_exact_to_the_bit(fitted, tmp_path):
    whole, folder = fitted
    resumed = Model()
    trainer(tmp_path).fit(resumed, loader(), ckpt_path=folder / "epoch=2.ckpt")
    assert torch.equal(torch.stack(resumed.losses), torch.stack(whole.losses[30:]))
    assert torch.equal(resumed.layer.weight, whole.layer.weight)
    for name, tensor in whole.robust.state_dict().items():
        torch.testing.assert_close(resumed.robust.state_dict()[name], tensor, rtol=0, atol=0, equal_nan=True)


def test_the_callback_writes_the_suspects(fitted):
    suspects = pd.read_parquet(fitted[1] / "suspects.parquet")
    assert sorted(suspects["row"]) == list(range(SAMPLES))
    assert (suspects["row"][:60] < WRONG).all()


class Classifier(Model):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 3)
        self.robust = RobustCrossEntropy(update_every=4)

    def training_step(self, batch, batch_idx):
        x, _, index = batch
        return self.robust(self.layer(x), x[:, :3].argmax(1), index)


def test_the_callback_knows_robust_cross_entropy(tmp_path):
    logger, suspects = CSVLogger(tmp_path), tmp_path / "suspects.csv"
    settings = {"logger": logger, "callbacks": [RobustCallback(suspects)], "max_epochs": 2}
    trainer(tmp_path, **settings).fit(Classifier(), loader())
    assert "suggested_label" in pd.read_csv(suspects)
    logged = pd.read_csv(Path(logger.log_dir, "metrics.csv"))
    assert 0 < logged["robust/inlier_fraction"].iloc[-1] <= 1


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


def test_mistakes_are_named_before_the_training(tmp_path):
    with pytest.raises(ValueError, match=r"end the name in \.csv or \.parquet"):
        RobustCallback(suspects="suspects.txt")
    model = Model()
    model.second = Robust()
    with pytest.raises(ValueError, match=r"has 2 robust losses \['robust', 'second'\]"):
        trainer(tmp_path, callbacks=[RobustCallback()]).fit(model, loader())
    assert RobustCallback(attribute="second").robust_of(model) is model.second


@pytest.mark.slow
def test_two_processes_are_one(tmp_path):
    """`strategy="ddp"` starts this file again for each process; both hold what one process learns."""
    command = [sys.executable, "-m", "tests.integrations.test_lightning", str(tmp_path)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=400)
    assert result.returncode == 0, result.stderr
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2))
    assert first["scale"] == second["scale"]
    assert first["probability"] == second["probability"]
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
    # The checkpoint of the first process holds what all have learned.
    (checkpoint,) = tmp_path.glob("lightning_logs/**/*.ckpt")
    loaded = Model.load_from_checkpoint(checkpoint)
    assert loaded.robust.inlier_probability().tolist() == first["probability"]


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
    dataset = lines()
    fitted.fit(model, DataLoader(dataset, 12, sampler=Halves(dataset, 2, fitted.global_rank)))
    record = {
        "scale": float(model.robust.scale),
        "probability": model.robust.inlier_probability().tolist(),
        "weight": model.layer.weight.tolist(),
        "losses": torch.stack(model.losses).tolist(),
    }
    Path(folder, f"{fitted.global_rank}.json").write_text(json.dumps(record))


if __name__ == "__main__":
    main(sys.argv[1])
