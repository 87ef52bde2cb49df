"""Hugging Face Trainer: a small text classifier trained on labels of which 30 % are flipped."""

from tempfile import mkdtemp

import torch
from datasets import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed

import inlier
from inlier.integrations.transformers import RobustTrainer


def texts(rows: int, rate: float) -> tuple[Dataset, torch.Tensor]:
    """Ten words a text, about half of them from one of two topics; and which labels are flipped."""
    truth = torch.randint(2, (rows,))
    topic = torch.randint(40, 50, (rows, 10)) + 10 * truth[:, None]
    words = torch.where(torch.rand(rows, 10) < 0.5, topic, torch.randint(2, 40, (rows, 10)))
    flipped = torch.rand(rows) < rate
    labels = torch.where(flipped, 1 - truth, truth)
    return Dataset.from_dict({"input_ids": words.tolist(), "labels": labels.tolist()}), flipped


def main(epochs: int = 15) -> None:
    set_seed(0)
    (train, flipped), (test, _) = texts(1000, 0.3), texts(1000, 0.0)
    size = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    trainers = {
        "baseline": (Trainer, {}),
        "RobustCrossEntropy, by default": (RobustTrainer, {}),
        "given the fraction": (RobustTrainer, {"robust": inlier.RobustCrossEntropy(0.7)}),
        "Robust": (RobustTrainer, {"robust": inlier.Robust("truncated", warmup=150)}),
    }
    for name, (trainer_class, options) in trainers.items():
        set_seed(0)
        model = BertForSequenceClassification(BertConfig(vocab_size=60, **size))
        arguments = TrainingArguments(
            mkdtemp(),
            num_train_epochs=epochs,
            per_device_train_batch_size=30,
            learning_rate=3e-3,
            use_cpu=True,
            report_to=[],
            save_strategy="no",
            disable_tqdm=True,
        )
        trainer = trainer_class(model, arguments, train_dataset=train, **options)
        trainer.train()
        predicted = trainer.predict(test).predictions.argmax(1)
        print(f"{name}: accuracy on clean texts {(predicted == test['labels']).mean():.3f}")
    suspects = trainer.robust.inlier_probability().argsort()[: int(flipped.sum())]
    print(f"of the {len(suspects)} most suspect labels, {flipped[suspects].float().mean():.1%} are flipped")


if __name__ == "__main__":
    main()
