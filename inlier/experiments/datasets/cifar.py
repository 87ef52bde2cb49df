"""CIFAR-10, and the human labels of CIFAR-10N."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from inlier._vision.images import Images, read_parquet

__all__ = ["HUMAN_LABELS", "HUMAN_RATES", "cifar10", "human_labels"]

HUB_NAME = "uoft-cs/cifar10"

HUMAN_LABELS = {
    "aggre": "aggre_label",
    "random1": "random_label1",
    "random2": "random_label2",
    "random3": "random_label3",
    "worse": "worse_label",
}
"""The five label sets of CIFAR-10N, and their columns."""

HUMAN_RATES = {"aggre": 0.0901, "random1": 0.1723, "random2": 0.1812, "random3": 0.1764, "worse": 0.4021}
"""The rate of noisy labels in each of them."""


def cifar10(data: Path | None = None) -> tuple[Images, Images]:
    """Return the training and the test images of CIFAR-10, in the original order.

    Args:
        data: A folder with ``train.parquet`` and ``test.parquet`` in the Hugging Face layout; None to load
            them from the Hugging Face hub (``uoft-cs/cifar10``).
    """
    if data is None:
        try:
            from datasets import load_dataset
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(
                f'{HUB_NAME} is loaded by datasets: pip install "inlier[images]", or pass a folder',
                name=error.name,
            ) from None

        folder = Path(load_dataset(HUB_NAME, split="train").cache_files[0]["filename"]).parent
        parts = []
        for split in ("train", "test"):
            path = folder / f"inlier-{split}.parquet"
            if not path.exists():
                load_dataset(HUB_NAME, split=split).to_parquet(path)
            parts.append(read_parquet(path))
        return parts[0], parts[1]
    for name in ("train.parquet", "test.parquet"):
        if not (data / name).is_file():
            raise FileNotFoundError(
                f"{data} has no {name}: pass the folder of CIFAR-10's Parquet files, or no folder to load "
                f"them from the Hugging Face hub ({HUB_NAME})"
            )
    return read_parquet(data / "train.parquet"), read_parquet(data / "test.parquet")


def human_labels(name: str, data: Path | None) -> Tensor:
    """Return a label set of CIFAR-10N, one label per training image.

    Args:
        name: One of :data:`HUMAN_LABELS`.
        data: The folder with ``cifar10n.parquet``: the columns of the published label file.

    Reference: J. Wei et al. (2022), Learning with noisy labels revisited: a study using real-world human
    annotations, ICLR.
    """
    if name not in HUMAN_LABELS:
        raise ValueError(f"labels {name!r} are unknown; choose from {', '.join(HUMAN_LABELS)}")
    path = None if data is None else data / "cifar10n.parquet"
    if path is None or not path.is_file():
        raise FileNotFoundError(
            "the human labels of CIFAR-10N are read from cifar10n.parquet in the data folder: pass --data DIR"
        )
    import pyarrow.parquet as pq

    column = pq.read_table(path, columns=[HUMAN_LABELS[name]]).column(0)
    return torch.tensor(column.to_numpy(), dtype=torch.int64)
