"""Lightning: RobustCrossEntropy in a LightningModule, and a callback that writes down the suspect labels."""

from pathlib import Path
from tempfile import mkdtemp

import lightning as L
import torch
from torch.utils.data import DataLoader, TensorDataset

import inlier
from inlier.integrations.lightning import RobustCallback


class Classifier(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = torch.nn.Sequential(torch.nn.Linear(20, 64), torch.nn.ReLU(), torch.nn.Linear(64, 5))
        self.criterion = inlier.RobustCrossEntropy()

    def training_step(self, batch, batch_idx):
        x, y, index = batch
        return self.criterion(self.model(x), y, index)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 1e-3)


def main(epochs: int = 20) -> None:
    torch.manual_seed(0)
    centres, truth = 3 * torch.randn(5, 20), torch.randint(5, (2000,))
    x = centres[truth] + torch.randn(2000, 20)
    noisy = torch.rand(2000) < 0.3  # 30 % of the labels
    y = torch.where(noisy, (truth + torch.randint(1, 5, (2000,))) % 5, truth)

    folder = Path(mkdtemp())
    model = Classifier()
    trainer = L.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        default_root_dir=folder,
        enable_progress_bar=False,
        logger=False,
        callbacks=[RobustCallback(suspects=folder / "suspects.csv")],
    )
    trainer.fit(model, DataLoader(inlier.with_index(TensorDataset(x, y)), batch_size=50, shuffle=True))

    rows = [int(line.split(",")[0]) for line in (folder / "suspects.csv").read_text().splitlines()[1:]]
    found = noisy[rows[: int(noisy.sum())]].float().mean()
    fraction = model.criterion.metrics()["inlier_fraction"]
    print(f"estimated fraction of clean labels {fraction:.3f}, {found:.1%} of the suspects are noisy")


if __name__ == "__main__":
    main()
