"""Reward models on preferences of which a part is flipped: generated ones with a known oracle, and PandaLM's.

`python -m benchmarks.preferences --pretrained`: a reward model that was a language model before, as people have, is
fine-tuned on pairs of generated answers, one of which is better (its words have a larger sum of hidden values); 0, 20
and 40 % of the training pairs are flipped; accuracy on clean pairs. It is a GPT-2 with 2 layers that has learned to
predict other texts, clean ones, whose words have similar values. Without `--pretrained` a smaller one begins from
nothing. Methods: the logistic loss; label smoothing (cDPO) and robust DPO's loss, both given the true flip rate; ours,
given nothing and given the rate. `--report` has seeds that nothing was chosen on: other values, texts and pairs.
Results are kept in `.bench/preferences.jsonl`, so an interrupted run resumes.

`--proofs`: in how many unweighted trainings of one epoch (development seeds) flips would be proven at some time, by
the worth of the network that is needed; and if undecided predictions may be right more often than half of the time.

`--texts DIR`: all of MiniLM through TRL's RewardTrainer and ours, on pairs of texts of banking77 (in DIR); each of its
classes has a hidden value, the better text is that of the class with the larger one. Nothing was chosen on it.

`--pandalm FILE --encoder FOLDER`: the 902 pairs of which the first annotator preferred one; how well contradictions by
both other annotators are ranked.

`--cost`: the processor time of a step of a GPT-2 with 4 layers of width 256 on 16 pairs of 64 words, beside the same
with the logistic loss; both in turn, in blocks of steps, one thread.
"""

from __future__ import annotations

import argparse
import functools
import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import mean, median
from tempfile import mkdtemp
from unittest import mock

import torch
from sklearn.metrics import average_precision_score
from torch import Tensor, nn
from torch.nn.functional import softplus
from transformers import GPT2Config, GPT2ForSequenceClassification, GPT2LMHeadModel, GPT2Model

from inlier import RobustCrossEntropy
from inlier.fraction._label_noise import LARGEST_OFFSET, WORTH, confident_rates
from inlier.nn import _confidence
from inlier.nn._confidence import ConfidenceWindow

WORDS, LENGTH, PAIRS, BATCH = 200, 12, 3000, 32
SCRATCH = {"n_embd": 32, "n_layer": 1, "n_head": 2}
PRETRAINED = {"n_embd": 64, "n_layer": 2, "n_head": 4}
STEP_SIZE, FINE_TUNING_STEP_SIZE = 3e-3, 1e-3
"""Of all trainings from nothing; and of fine-tuning."""
PRETRAINING_STEPS, PRETRAINING_BATCH = 400, 64
TEXT_PAIRS = 1000
SPREAD, PRETRAINING_SPREAD = 0.5, 1.0
"""How much texts differ in the values of their words: answers, and the texts of the language model."""
RATES, EPOCHS = (0.0, 0.2, 0.4), (1, 3)
SEEDS = {"development": (0, 1, 2), "report": (10, 11, 12)}
METHODS = ("plain", "label smoothing", "robust DPO", "inlier", "inlier, given the rate")


def texts_of(rows: int, values: Tensor, spread: float, generator: torch.Generator) -> Tensor:
    """Return texts, in each of which a word v has a probability proportional to exp(m v), m of N(0, spread^2)."""
    if spread == 0:
        return torch.randint(len(values), (rows, LENGTH), generator=generator)
    mood = spread * torch.randn(rows, 1, generator=generator)
    return torch.multinomial((mood * values).softmax(1), LENGTH, replacement=True, generator=generator)


def pairs_of(rows: int, values: Tensor, spread: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return better and worse answers, by the sum of the values of their words."""
    first, second = (texts_of(rows, values, spread, generator) for _ in range(2))
    is_better = (values[first].sum(1) > values[second].sum(1))[:, None]
    return torch.where(is_better, first, second), torch.where(is_better, second, first)


def smoothed(margins: Tensor, rate: float) -> Tensor:
    """cDPO: (1 - e) l(m) + e l(-m), where l(m) = log(1 + exp(-m)) and e is the flip rate."""
    return (1 - rate) * softplus(-margins) + rate * softplus(margins)


def unbiased(margins: Tensor, rate: float) -> Tensor:
    """Robust DPO: ((1 - e) l(m) - e l(-m)) / (1 - 2 e), whose mean over flips is the clean loss."""
    return ((1 - rate) * softplus(-margins) - rate * softplus(margins)) / (1 - 2 * rate)


def criterion_of(
    method: str, rate: float, samples: int
) -> tuple[Callable[[Tensor, Tensor], Tensor], RobustCrossEntropy | None]:
    """Return a loss of margins and dataset indices; and the robust one behind it, if it is ours."""
    if method.startswith("inlier"):
        given = 1 - rate if "given" in method else "auto"
        robust = RobustCrossEntropy(given, samples=samples)

        def weighted(margins: Tensor, index: Tensor) -> Tensor:
            logits = torch.stack([margins, torch.zeros_like(margins)], 1)
            return robust(logits, torch.zeros_like(index), index)

        return weighted, robust
    losses = {
        "plain": lambda margins: softplus(-margins),
        "label smoothing": lambda margins: smoothed(margins, rate),
        "robust DPO": lambda margins: unbiased(margins, rate),
    }
    return lambda margins, index: losses[method](margins).mean(), None


def train(
    reward: Callable[[Tensor], Tensor],
    parameters: list[nn.Parameter],
    chosen: Tensor,
    rejected: Tensor,
    criterion: Callable[[Tensor, Tensor], Tensor],
    epochs: int,
    rate: float,
) -> None:
    """Train a reward model on pairs: AdamW with a linear decay of its learning rate."""
    steps = epochs * -(-len(chosen) // BATCH)
    optimizer = torch.optim.AdamW(parameters, rate)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / steps)
    for _ in range(epochs):
        for index in torch.randperm(len(chosen)).split(BATCH):
            rewards = reward(torch.cat([chosen[index], rejected[index]]))
            better, worse = rewards.chunk(2)
            optimizer.zero_grad()
            criterion(better - worse, index).backward()
            optimizer.step()
            schedule.step()


def config_of(size: dict[str, int], **more: int) -> GPT2Config:
    """Return the configuration of a small GPT-2."""
    return GPT2Config(
        vocab_size=WORDS + 1,
        n_positions=LENGTH,
        pad_token_id=WORDS,
        bos_token_id=WORDS,
        eos_token_id=WORDS,
        **size,
        **more,
    )


@functools.cache
def language_model(seed: int) -> GPT2Model:
    """Return a GPT-2 that was trained to predict the words of texts, by the values of this seed."""
    values = torch.randn(WORDS, generator=torch.Generator().manual_seed(seed))
    generator = torch.Generator().manual_seed(1000 + seed)
    torch.manual_seed(seed)
    model = GPT2LMHeadModel(config_of(PRETRAINED))
    optimizer = torch.optim.AdamW(model.parameters(), STEP_SIZE)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / PRETRAINING_STEPS)
    for _ in range(PRETRAINING_STEPS):
        texts = texts_of(PRETRAINING_BATCH, values, PRETRAINING_SPREAD, generator)
        optimizer.zero_grad()
        model(texts, labels=texts).loss.backward()
        optimizer.step()
        schedule.step()
    return model.transformer


def preferences(
    flip: float, seed: int, is_pretrained: bool
) -> tuple[Tensor, Tensor, Tensor, tuple[Tensor, Tensor]]:
    """Return chosen and rejected answers, which pairs of them are flipped, and clean pairs to test on."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(WORDS, generator=generator)
    spread = SPREAD if is_pretrained else 0.0
    better, worse = pairs_of(PAIRS, values, spread, generator)
    test = pairs_of(2000, values, spread, generator)
    flipped = torch.rand(PAIRS, generator=generator) < flip
    chosen, rejected = (torch.where(flipped[:, None], *pair) for pair in ((worse, better), (better, worse)))
    return chosen, rejected, flipped, test


def reward_model(seed: int, is_pretrained: bool) -> GPT2ForSequenceClassification:
    """Return a reward model that begins from nothing, or from the language model of this seed."""
    pretrained = language_model(seed) if is_pretrained else None
    torch.manual_seed(seed)
    model = GPT2ForSequenceClassification(config_of(PRETRAINED if is_pretrained else SCRATCH, num_labels=1))
    if pretrained is not None:
        model.transformer.load_state_dict(pretrained.state_dict())
    return model


def generated(method: str, flip: float, epochs: int, seed: int, is_pretrained: bool) -> dict[str, float]:
    """Train on generated preferences; return the accuracy on clean pairs, and what ours says of the flips."""
    chosen, rejected, flipped, test = preferences(flip, seed, is_pretrained)
    model = reward_model(seed, is_pretrained)
    criterion, robust = criterion_of(method, flip, PAIRS)
    reward = lambda answers: model(answers).logits.squeeze(1)  # noqa: E731
    step_size = FINE_TUNING_STEP_SIZE if is_pretrained else STEP_SIZE
    train(reward, list(model.parameters()), chosen, rejected, criterion, epochs, step_size)
    model.eval()
    with torch.no_grad():
        accuracy = float((reward(test[0]) > reward(test[1])).float().mean())
    found = {"accuracy": accuracy}
    if robust is not None:
        estimate = robust.fraction_estimate
        found |= {
            "estimate": estimate.value,
            "trusted": float(estimate.trusted),
            "flipped": float(flipped.float().mean()),
        }
        if flip:
            found["precision"] = average_precision_score(flipped, 1 - robust.inlier_probability())
    return found


def run(half: str, path: Path, is_pretrained: bool) -> list[dict]:
    """Train what is missing in the file, and return all of its rows of this half."""
    path.parent.mkdir(exist_ok=True)
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    names = ("method", "flip", "epochs", "seed", "is_pretrained")
    done = {tuple(row[name] for name in names) for row in rows}
    for seed in SEEDS[half]:
        for key in (
            (method, flip, epochs, seed, is_pretrained)
            for flip in RATES
            for epochs in EPOCHS
            for method in METHODS
        ):
            if key in done or (key[1] == 0 and key[0] not in ("plain", "inlier")):
                continue
            rows.append(dict(zip(names, key, strict=True)) | generated(*key))
            with path.open("a") as file:
                file.write(json.dumps(rows[-1]) + "\n")
            print(rows[-1], flush=True)
    return [row for row in rows if row["seed"] in SEEDS[half] and row["is_pretrained"] == is_pretrained]


def table(rows: list[dict]) -> str:
    """Return accuracies in percent, means over seeds, with a row for each method."""
    cells = [(flip, epochs) for epochs in EPOCHS for flip in RATES]
    lines = [
        "| | " + " | ".join(f"{flip:.0%}, {epochs} epochs" for flip, epochs in cells) + " |",
        "|---" * (len(cells) + 1) + "|",
    ]
    for method in METHODS:
        shown = []
        for cell in cells:
            mine = [row for row in rows if row["method"] == method and (row["flip"], row["epochs"]) == cell]
            text = f"{100 * mean(row['accuracy'] for row in mine):.1f}" if mine else ""
            if mine and "estimate" in mine[0]:
                text += f" [{mean(row['estimate'] for row in mine):.2f}]"
            shown.append(text)
        lines.append(f"| {method} | " + " | ".join(shown) + " |")
    return "\n".join(lines)


def proofs() -> None:
    """Print in how many unweighted trainings of an epoch flips would be proven, by what is taken for a proof."""
    variants = {f"worth {worth:g}": (0.0, worth) for worth in (0.5, WORTH, 0.8)} | {
        "offset free, 0.5": (LARGEST_OFFSET, 0.5)
    }
    original = ConfidenceWindow._fit
    print("| | flipped | step size | " + " | ".join(variants) + " |\n" + "|---" * (3 + len(variants)) + "|")
    cells = [(True, flip, FINE_TUNING_STEP_SIZE) for flip in (0.0, 0.1, 0.2, 0.3, 0.4)]
    cells += [(False, flip, step_size) for step_size in (1e-3, 3e-3, 1e-2) for flip in RATES]
    for is_pretrained, flip, step_size in cells:
        proven = dict.fromkeys(variants, 0)
        for seed in SEEDS["development"]:
            seen: set[str] = set()

            def fit(window: ConfidenceWindow, samples: int, seen: set[str] = seen) -> None:
                for name, (offset, worth) in variants.items():
                    bounded = functools.partial(confident_rates, largest_offset=offset)
                    usual = lambda *args, made=bounded: made(*args[:4])  # noqa: E731
                    with (
                        mock.patch.object(_confidence, "confident_rates", usual),
                        mock.patch.object(_confidence, "WORTH", worth),
                    ):
                        original(window, samples)
                    if window.rates.proves_noise:
                        seen.add(name)
                window.rates = replace(window.rates, low=0.0)

            chosen, rejected, _, _ = preferences(flip, seed, is_pretrained)
            model = reward_model(seed, is_pretrained)
            reward = lambda answers, model=model: model(answers).logits.squeeze(1)  # noqa: E731
            criterion, _ = criterion_of("inlier", flip, PAIRS)
            with mock.patch.object(ConfidenceWindow, "_fit", fit):
                train(reward, list(model.parameters()), chosen, rejected, criterion, 1, step_size)
            proven = {name: count + (name in seen) for name, count in proven.items()}
        shown = " | ".join(f"{count} of {len(SEEDS['development'])}" for count in proven.values())
        start = "pretrained" if is_pretrained else "from scratch"
        print(f"| {start} | {flip:.0%} | {step_size:g} | {shown} |", flush=True)


def texts(data: Path, flip: float, epochs: int, seed: int) -> None:
    """Print the accuracy of MiniLM on clean pairs, fine-tuned by TRL's RewardTrainer and by ours."""
    from datasets import Dataset
    from transformers import AutoTokenizer, BertForSequenceClassification, set_seed
    from trl import RewardConfig, RewardTrainer

    from benchmarks.label_bench.features import encoder_folder, read_banking
    from inlier.integrations.trl import RobustRewardTrainer

    folder = encoder_folder()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    generator = torch.Generator().manual_seed(seed)

    def pairs(split: str, rows: int, values: Tensor) -> tuple[list[str], list[str]]:
        written, classes = read_banking(data, split)
        first, second = torch.randint(len(written), (2, 2 * rows), generator=generator)
        differ = classes[first] != classes[second]
        first, second = first[differ][:rows], second[differ][:rows]
        is_better = values[classes[first]] > values[classes[second]]
        better, worse = torch.where(is_better, first, second), torch.where(is_better, second, first)
        return [written[i] for i in better], [written[i] for i in worse]

    values = torch.randn(77, generator=generator)
    better, worse = pairs("train", TEXT_PAIRS, values)
    test = pairs("test", 300, values)
    flipped = torch.rand(TEXT_PAIRS, generator=generator) < flip
    given = [pair[:: -1 if swap else 1] for *pair, swap in zip(better, worse, flipped, strict=True)]
    chosen, rejected = ([tokenizer(text)["input_ids"] for text in part] for part in zip(*given, strict=True))
    for trainer_class in (RewardTrainer, RobustRewardTrainer):
        set_seed(seed)
        model = BertForSequenceClassification.from_pretrained(folder, num_labels=1)
        arguments = RewardConfig(
            mkdtemp(),
            num_train_epochs=epochs,
            per_device_train_batch_size=16,
            learning_rate=1e-4,
            seed=seed,
            gradient_checkpointing=False,
            use_cpu=True,
            bf16=False,
            report_to=[],
            save_strategy="no",
            disable_tqdm=True,
        )
        trainer = trainer_class(
            model,
            arguments,
            train_dataset=Dataset.from_dict({"chosen_ids": chosen, "rejected_ids": rejected}),
            processing_class=tokenizer,
        )
        trainer.train()
        model.eval()
        with torch.no_grad():
            good, bad = (
                model(**tokenizer(part, padding=True, return_tensors="pt")).logits.squeeze(1) for part in test
            )
        line = f"{flip:.0%} flipped, {epochs} epochs: accuracy {100 * float((good > bad).float().mean()):.1f}"
        if isinstance(trainer, RobustRewardTrainer):
            line += f", {trainer.robust.fraction_estimate}"
            if flip:
                suspicion = 1 - trainer.robust.inlier_probability()
                line += f", average precision {average_precision_score(flipped, suspicion):.3f}"
        print(f"{trainer_class.__name__}, {line}", flush=True)


def pandalm(file: Path, encoder: Path, epochs: int = 5) -> None:
    """Print how well pairs that both other annotators contradict are ranked, by ours and by the unweighted loss."""
    from sentence_transformers import SentenceTransformer

    rows = [row for row in json.loads(file.read_text()) if int(row["annotator1"])]
    votes = torch.tensor([[int(row[f"annotator{k}"]) for k in (1, 2, 3)] for row in rows])
    contradicted = ((votes[:, 1:] != votes[:, :1]) & (votes[:, 1:] != 0)).all(1)
    model = SentenceTransformer(str(encoder))
    texts = [[f"{row['instruction']} {row['input']} {row[f'response{k}']}" for row in rows] for k in (1, 2)]
    first, second = (torch.from_numpy(model.encode(part)) for part in texts)
    is_first = (votes[:, :1] == 1).float()
    chosen, rejected = (
        torch.lerp(b, a, w) for a, b, w in ((first, second, is_first), (second, first, is_first))
    )
    print(
        f"{len(rows)} pairs, {int(contradicted.sum())} contradicted: {contradicted.float().mean():.3f} by chance"
    )
    for method in ("plain", "inlier"):
        found = []
        for seed in SEEDS["report"]:
            torch.manual_seed(seed)
            head = nn.Sequential(nn.Linear(chosen.shape[1], 64), nn.ReLU(), nn.Linear(64, 1))
            criterion, robust = criterion_of(method, 0.0, len(rows))
            reward = lambda x, head=head: head(x).squeeze(1)  # noqa: E731
            train(reward, list(head.parameters()), chosen, rejected, criterion, epochs, 1e-3)
            with torch.no_grad():
                losses = softplus(reward(rejected) - reward(chosen))
            score = losses if robust is None else 1 - robust.inlier_probability()
            found.append(average_precision_score(contradicted, score))
        print(f"{method}: average precision {mean(found):.3f} ({', '.join(f'{x:.3f}' for x in found)})")


def cost(rounds: int = 12, steps: int = 5) -> None:
    """Print the ratio of the processor times of a step: ours to the logistic loss, the median over rounds."""
    config = GPT2Config(
        vocab_size=2000,
        n_positions=64,
        n_embd=256,
        n_layer=4,
        n_head=4,
        num_labels=1,
        pad_token_id=0,
        bos_token_id=0,
        eos_token_id=0,
    )
    model = GPT2ForSequenceClassification(config)
    pairs = 1000
    chosen, rejected = (torch.randint(1, 2000, (pairs, 64)) for _ in range(2))
    spent: dict[str, list[float]] = {}
    criteria = {method: criterion_of(method, 0.2, pairs)[0] for method in ("plain", "inlier")}
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    for _ in range(rounds + 1):
        for method, criterion in criteria.items():
            start = time.process_time()
            for _ in range(steps):
                index = torch.randint(pairs, (16,))
                better, worse = model(torch.cat([chosen[index], rejected[index]])).logits.squeeze(1).chunk(2)
                optimizer.zero_grad()
                criterion(better - worse, index).backward()
                optimizer.step()
            spent.setdefault(method, []).append(time.process_time() - start)
    ratios = sorted(b / a for a, b in list(zip(spent["plain"], spent["inlier"], strict=True))[1:])
    step = 1000 * median(spent["plain"]) / steps
    print(f"a step of {step:.0f} ms costs {median(ratios):.3f} x (quartiles {ratios[rounds // 4]:.3f}, "
          f"{ratios[3 * rounds // 4]:.3f})")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--pretrained", action="store_true")
    parser.add_argument("--proofs", action="store_true")
    parser.add_argument("--results", type=Path, default=Path(".bench/preferences.jsonl"))
    parser.add_argument("--pandalm", type=Path)
    parser.add_argument("--cost", action="store_true")
    parser.add_argument("--encoder", type=Path)
    parser.add_argument("--texts", type=Path)
    parser.add_argument("--flip", type=float, default=0.4, help="the flip rate of --texts")
    parser.add_argument("--epochs", type=int, default=3, help="the epochs of --texts")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.cost:
        cost()
    elif options.proofs:
        proofs()
    elif options.texts:
        texts(options.texts, options.flip, options.epochs, SEEDS["report"][0])
    elif options.pandalm:
        pandalm(options.pandalm, options.encoder)
    else:
        print(table(run("report" if options.report else "development", options.results, options.pretrained)))


if __name__ == "__main__":
    main()
