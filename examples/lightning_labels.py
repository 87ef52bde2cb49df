"""Lightning: a LightningModule with a Robust in it, and a callback that writes down the suspect labels."""

from pathlib import Path
from tempfile import mkdtemp

import lightning as L
import torch
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import inlier
from inlier.integrations.lightning import RobustCallback


class Classifier(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = torch.nn.Sequential(torch.nn.Linear(20, 64), torch.nn.ReLU(), torch.nn.Linear(64, 5))
        self.robust = inlier.Robust()

    def training_step(self, batch, batch_idx):
        x, y, index = batch
        logits = self.model(x)
        losses = F.cross_entropy(logits, y, reduction="none")
        return self.robust(losses, index, labels=y, logits=logits)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 1e-3)


def main(epochs: int = 20) -> None:
    torch.manual_seed(0)
    centres, truth = 3 * torch.randn(5, 20), torch.randint(5, (2000,))
    x = centres[truth] + torch.randn(2000, 20)
    wrong = torch.rand(2000) < 0.3  # 30 % of the labels are wrong
    y = torch.where(wrong, (truth + torch.randint(1, 5, (2000,))) % 5, truth)

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
    trainer.fit(model, DataLoader(TensorDataset(x, y, torch.arange(2000)), batch_size=50, shuffle=True))

    rows = [int(line.split(",")[0]) for line in (folder / "suspects.csv").read_text().splitlines()[1:]]
    found = wrong[rows[: int(wrong.sum())]].float().mean()
    fraction = model.robust.metrics()["inlier_fraction"]
    print(f"inlier fraction {fraction:.3f}, of the suspects {found:.1%} are wrong")


if __name__ == "__main__":
    main()
