"""Named entities with real label noise: yoruba_ner, whose training labels come from rules, with the truth beside them.

    python -m benchmarks.tokens --data DIR --encoder DIR [--epochs 3]

The first holds train_clean_noisy_labels.tsv, train_clean.tsv and test.tsv; the second a sentence encoder (MiniLM). A
network with one hidden layer on the frozen vectors of three neighbouring words and their spelling, three
seeds. F1 of entities on the clean test set: on the noisy labels as they are; without the tokens that
cleanlab's token classification names (by five folds of the same network); by RobustCrossEntropy with the index of each
token; and on the clean labels. Average precision of the noisy tokens. Nothing was chosen on this data.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from statistics import mean

import numpy as np
import torch
from sklearn.metrics import average_precision_score
from torch import Tensor, nn
from transformers import AutoModel, AutoTokenizer

from inlier import RobustCrossEntropy

LABELS = ("O", *(f"{place}-{kind}" for kind in ("PER", "ORG", "LOC", "DATE") for place in "BI"))
SEEDS, FOLDS, BATCH = (0, 1, 2), 5, 64


def read(path: Path) -> tuple[list[list[str]], list[np.ndarray]]:
    """Return the words and the labels of each sentence: a token a line, sentences apart by a line without one."""
    sentences: list[list[tuple[str, str]]] = [[]]
    for line in path.read_text("utf-8").splitlines():
        word, _, label = line.partition("\t")
        if label:
            sentences[-1].append((word, label))
        elif sentences[-1]:
            sentences.append([])
    sentences = [sentence for sentence in sentences if sentence]
    words = [[word for word, _ in sentence] for sentence in sentences]
    return words, [np.array([LABELS.index(label) for _, label in sentence]) for sentence in sentences]


def spelling(word: str) -> list[float]:
    """Return what an encoder that ignores case does not see."""
    tests = (
        word[:1].isupper(),
        word.isupper(),
        any(c.isdigit() for c in word),
        not any(c.isalnum() for c in word),
    )
    return [float(test) for test in tests]


def encode(sentences: list[list[str]], folder: str) -> Tensor:
    """Return a vector for each word of all sentences: the mean of its pieces, its spelling, and both neighbours'."""
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    found = []
    with torch.inference_mode():
        for words in sentences:
            pieces = tokenizer(words, is_split_into_words=True, truncation=True, return_tensors="pt")
            hidden = model(**pieces).last_hidden_state[0]
            places = torch.tensor([-1 if place is None else place for place in pieces.word_ids()])
            vectors = torch.stack(
                [hidden[places == k].mean(0) if (places == k).any() else hidden[0] for k in range(len(words))]
            )
            vectors = torch.cat([vectors, torch.tensor([spelling(word) for word in words])], 1)
            blank = torch.zeros(1, vectors.shape[1])
            before, after = torch.cat([blank, vectors[:-1]]), torch.cat([vectors[1:], blank])
            found.append(torch.cat([before, vectors, after], 1))
    return torch.cat(found)


def train(
    x: Tensor, y: Tensor, epochs: int, seed: int, given: float | str
) -> tuple[nn.Module, RobustCrossEntropy]:
    """Train a head; a given fraction of 1 is the unweighted cross-entropy."""
    torch.manual_seed(seed)
    head = nn.Sequential(nn.Linear(x.shape[1], 256), nn.ReLU(), nn.Linear(256, len(LABELS)))
    criterion = RobustCrossEntropy(given, samples=len(x))  # type: ignore[arg-type]
    optimizer = torch.optim.AdamW(head.parameters(), 1e-3)
    steps = epochs * math.ceil(len(x) / BATCH)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / steps)
    for _ in range(epochs):
        for index in torch.randperm(len(x)).split(BATCH):
            optimizer.zero_grad()
            criterion(head(x[index]), y[index], index).backward()
            optimizer.step()
            schedule.step()
    return head.eval(), criterion


def spans(labels: np.ndarray) -> set[tuple[int, int, str]]:
    """Return the entities of a sentence: first word, end, kind. An I without a beginning begins one.

    >>> sorted(spans(np.array([1, 2, 0, 5])))
    [(0, 2, 'PER'), (3, 4, 'LOC')]
    """
    found, start, kind = set(), 0, ""
    for place, label in enumerate([*(LABELS[k] for k in labels), "O"]):
        if kind and label != f"I-{kind}":
            found.add((start, place, kind))
            kind = ""
        if label != "O" and not kind:
            start, kind = place, label[2:]
    return found


def entity_f1(predicted: np.ndarray, truth: list[np.ndarray]) -> float:
    """Return the F1 of whole entities."""
    hits = claimed = there = 0
    for mine, own in zip(np.split(predicted, np.cumsum([len(s) for s in truth])[:-1]), truth, strict=True):
        found, right = spans(mine), spans(own)
        hits, claimed, there = hits + len(found & right), claimed + len(found), there + len(right)
    return 2 * hits / max(claimed + there, 1)


def held_out(x: Tensor, y: Tensor, sentence: Tensor, epochs: int, seed: int) -> np.ndarray:
    """Return the probabilities of each token by a network that has not seen its sentence."""
    fold = torch.from_numpy(np.random.default_rng(seed).permutation(int(sentence.max()) + 1) % FOLDS)[
        sentence
    ]
    probability = torch.zeros(len(x), len(LABELS))
    for k in range(FOLDS):
        head, _ = train(x[fold != k], y[fold != k], epochs, seed, 1.0)
        with torch.inference_mode():
            probability[fold == k] = head(x[fold == k]).softmax(1)
    return probability.double().numpy()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--encoder", required=True)
    parser.add_argument("--epochs", type=int, nargs="+", default=[3])
    options = parser.parse_args()
    from cleanlab.rank import get_label_quality_scores
    from cleanlab.token_classification.filter import find_label_issues

    torch.set_num_threads(1)
    (words, given), (_, clean) = (
        read(options.data / f"train_clean{end}.tsv") for end in ("_noisy_labels", "")
    )
    test_words, test = read(options.data / "test.tsv")
    x, x_test = encode(words, options.encoder), encode(test_words, options.encoder)
    x, x_test = (part - x.mean(0) for part in (x, x_test))
    y, truth = (torch.from_numpy(np.concatenate(labels)) for labels in (given, clean))
    wrong = (y != truth).numpy()
    sentence = torch.repeat_interleave(torch.arange(len(given)), torch.tensor([len(s) for s in given]))
    starts = np.cumsum([0, *(len(labels) for labels in given)])
    print(f"{len(given)} sentences, {len(y):,} tokens, {wrong.sum()} noisy: {wrong.mean():.3f}", flush=True)
    for epochs in options.epochs:
        scores: dict[str, list[float]] = {}
        precision: dict[str, list[float]] = {}
        for seed in SEEDS:
            probability = held_out(x, y, sentence, epochs, seed)
            named = find_label_issues([*map(list, given)], np.split(probability, starts[1:-1]))
            kept = torch.ones(len(y), dtype=torch.bool)
            kept[[starts[i] + j for i, j in named]] = False
            ours, criterion = train(x, y, epochs, seed, "auto")
            heads = {
                "noisy labels": train(x, y, epochs, seed, 1.0)[0],
                "cleanlab's filter": train(x[kept], y[kept], epochs, seed, 1.0)[0],
                "RobustCrossEntropy()": ours,
                "clean labels": train(x, truth, epochs, seed, 1.0)[0],
            }
            for name, head in heads.items():
                with torch.inference_mode():
                    scores.setdefault(name, []).append(entity_f1(head(x_test).argmax(1).numpy(), test))
            quality = get_label_quality_scores(y.numpy(), probability)
            precision.setdefault("cleanlab", []).append(average_precision_score(wrong, -quality))
            suspicion = 1 - criterion.inlier_probability().numpy()
            precision.setdefault("RobustCrossEntropy()", []).append(average_precision_score(wrong, suspicion))
            estimate = criterion.fraction_estimate
            print(
                f"{epochs} epochs, seed {seed}: {len(named)} tokens named by cleanlab; estimate {estimate}",
                flush=True,
            )
        for name, values in scores.items():
            print(
                f"{epochs} epochs, {name}: F1 {100 * mean(values):.1f} ({', '.join(f'{100 * v:.1f}' for v in values)})"
            )
        for name, values in precision.items():
            print(f"{epochs} epochs, {name}: average precision {mean(values):.3f}", flush=True)


if __name__ == "__main__":
    main()
