"""TRL's trainers, on tiny models and tokenizers made here: flipped pairs, wrong answers, accumulation, resume."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    GPT2Config,
    GPT2ForSequenceClassification,
    GPT2LMHeadModel,
    PreTrainedTokenizerFast,
    set_seed,
)

from inlier import Robust, RobustCrossEntropy

trl = pytest.importorskip("trl", reason='TRL is missing: pip install "inlier[trl]"')

from inlier.integrations import trl as integration  # noqa: E402
from inlier.integrations.trl import (  # noqa: E402
    RobustDPOTrainer,
    RobustRewardTrainer,
    RobustSFTTrainer,
    preference_weights,
)

ROOT = Path(__file__).parents[2]
WORDS = 60


def tokenizer() -> PreTrainedTokenizerFast:
    """One token a word, w0 to w59."""
    words = {"[PAD]": 0, "[EOS]": 1, "[UNK]": 2} | {f"w{number}": number + 3 for number in range(WORDS)}
    inner = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token="[PAD]", eos_token="[EOS]", unk_token="[UNK]"
    )


CONFIG = {
    "vocab_size": WORDS + 3,
    "n_positions": 32,
    "n_embd": 16,
    "n_layer": 1,
    "n_head": 2,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 1,
    "resid_pdrop": 0.0,
    "embd_pdrop": 0.0,
    "attn_pdrop": 0.0,
}


def reward_model() -> GPT2ForSequenceClassification:
    set_seed(0)
    return GPT2ForSequenceClassification(GPT2Config(**CONFIG, num_labels=1))


def language_model() -> GPT2LMHeadModel:
    set_seed(0)
    return GPT2LMHeadModel(GPT2Config(**CONFIG))


def sentences(words: torch.Tensor) -> list[str]:
    return [" ".join(f"w{word}" for word in row) for row in words.tolist()]


def preferences(rows: int, flip: float = 0.0, seed: int = 1) -> tuple[Dataset, torch.Tensor]:
    """Answers of eight words; the better one has more words above w29. And which pairs are flipped."""
    generator = torch.Generator().manual_seed(seed)
    good, bad = (
        torch.where(
            torch.rand(rows, 8, generator=generator) < rate,
            torch.randint(30, 60, (rows, 8), generator=generator),
            torch.randint(0, 30, (rows, 8), generator=generator),
        )
        for rate in (0.8, 0.2)
    )
    flipped = torch.rand(rows, generator=generator) < flip
    chosen, rejected = (torch.where(flipped[:, None], *pair) for pair in ((bad, good), (good, bad)))
    columns = {"prompt": ["w0 "] * rows, "chosen": sentences(chosen), "rejected": sentences(rejected)}
    return Dataset.from_dict(columns), flipped


def instructions(rows: int, wrong: float = 0.0, seed: int = 1) -> tuple[Dataset, torch.Tensor]:
    """Answers that repeat the last word of the question five times; wrong ones are random words."""
    generator = torch.Generator().manual_seed(seed)
    questions = torch.randint(0, 10, (rows, 3), generator=generator)
    answers = questions[:, -1:].expand(rows, 5)
    is_wrong = torch.rand(rows, generator=generator) < wrong
    answers = torch.where(is_wrong[:, None], torch.randint(0, 60, (rows, 5), generator=generator), answers)
    columns = {"prompt": [text + " " for text in sentences(questions)], "completion": sentences(answers)}
    return Dataset.from_dict(columns), is_wrong


KINDS = {
    "reward": (trl.RewardConfig, trl.RewardTrainer, RobustRewardTrainer, reward_model, preferences),
    "dpo": (trl.DPOConfig, trl.DPOTrainer, RobustDPOTrainer, language_model, preferences),
    "sft": (trl.SFTConfig, trl.SFTTrainer, RobustSFTTrainer, language_model, instructions),
}


def trainer_of(kind: str, folder, is_robust: bool = True, train: Dataset | None = None, **changes):
    """A trainer of TRL, or its robust one; settings of the robust one are in ``options``."""
    config, baseline, robust_class, model, data = KINDS[kind]
    options = changes.pop("options", {})
    settings = {
        "num_train_epochs": 1,
        "per_device_train_batch_size": 16,
        "learning_rate": 1e-2,
        "lr_scheduler_type": "constant",
        "report_to": [],
        "save_strategy": "no",
        "logging_strategy": "no",
        "disable_tqdm": True,
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        "seed": 0,
    }
    reference = {"ref_model": model()} if kind == "dpo" else {}
    return (robust_class if is_robust else baseline)(
        model=model(),
        **reference,
        args=config(str(folder), **settings | changes),
        train_dataset=data(64, 0.25)[0] if train is None else train,
        processing_class=tokenizer(),
        **(options if is_robust else {}),
    )


def weighing(kind: str, inlier_fraction: float = 0.7, **settings):
    """A robust loss that weights from early on."""
    if kind == "sft":
        return Robust("truncated", inlier_fraction, warmup=0, update_every=2, **settings)
    return RobustCrossEntropy(inlier_fraction, update_every=2)


def parameters(trainer) -> torch.Tensor:
    return torch.cat([p.detach().reshape(-1) for p in trainer.model.parameters()])


@pytest.mark.parametrize("kind", KINDS)
class TestEveryTrainer:
    def test_wrong_samples_have_lower_weights(self, tmp_path, kind):
        train, wrong = KINDS[kind][-1](192, 0.25)
        trainer = trainer_of(
            kind, tmp_path, train=train, num_train_epochs=4, options={"robust": weighing(kind)}
        )
        trainer.train()
        probability = trainer.robust.inlier_probability()
        assert len(probability) == 192
        assert probability[wrong].mean() < probability[~wrong].mean() - 0.3
        worst = probability.argsort()[: int(wrong.sum())]
        assert wrong[worst].float().mean() > 0.7

    def test_while_nothing_is_weighted_it_is_trls_own_trainer(self, tmp_path, kind):
        """To the bit, with accumulation and an uneven last batch."""
        train, _ = KINDS[kind][-1](50, 0.25)
        results = []
        for is_robust in (False, True):
            trainer = trainer_of(
                kind,
                tmp_path,
                is_robust,
                train,
                gradient_accumulation_steps=2,
                num_train_epochs=2,
                options={"robust": weighing(kind, 1.0)},
            )
            start = parameters(trainer)
            results.append((trainer.train().training_loss, parameters(trainer)))
        assert (results[0][1] - start).abs().max() > 1e-3
        assert results[0][0] == results[1][0]
        assert torch.equal(results[0][1], results[1][1])

    def test_gradients_are_weighted(self, tmp_path, kind):
        """The gradient of a batch is that of a batch of only the samples with a weight, but for the divisor."""
        train, _ = KINDS[kind][-1](8, 0.0)
        weights = torch.tensor([1.0, 0, 1, 0, 0, 1, 0, 0])
        gradients = []
        for rows in (range(8), [0, 2, 5]):
            trainer = trainer_of(kind, tmp_path, train=train.select(rows), options={"robust": weighing(kind)})
            fixed = weights[list(rows)]
            trainer.robust.weigh = lambda values, *args, fixed=fixed, **kwargs: fixed
            inputs = trainer.data_collator([trainer.train_dataset[row] for row in range(len(rows))])
            inputs[trainer.index_column] = torch.arange(len(rows))
            trainer.model.train()
            trainer.compute_loss(trainer.model, inputs, num_items_in_batch=None).backward()
            gradient = [p.grad.reshape(-1) for p in trainer.model.parameters() if p.grad is not None]
            gradients.append(torch.cat(gradient) * len(rows))
        assert gradients[0].abs().max() > 1e-4
        torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-4, atol=1e-6)

    def test_resume_is_exact_to_the_bit(self, tmp_path, kind):
        settings = {
            "num_train_epochs": 3,
            "save_strategy": "steps",
            "save_steps": 5,
            "logging_strategy": "steps",
            "logging_steps": 4,
        }
        whole = trainer_of(kind, tmp_path, options={"robust": weighing(kind)}, **settings)
        whole.train()
        resumed = trainer_of(kind, tmp_path, options={"robust": weighing(kind)}, **settings)
        resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-5"))
        assert resumed.state.global_step == whole.state.global_step == 12
        assert torch.equal(parameters(resumed), parameters(whole))
        state = resumed.robust.state_dict()
        for name, tensor in whole.robust.state_dict().items():
            torch.testing.assert_close(state[name], tensor, rtol=0, atol=0, equal_nan=True)
        logged = [entry for entry in whole.state.log_history if "loss" in entry]
        assert 0 < logged[-1]["robust/fraction_kept"] <= 1

    def test_the_index_is_that_of_the_dataset_as_given(self, tmp_path, kind):
        """Through accumulation, rows that TRL drops as too long, and columns that it does not know."""
        train, _ = KINDS[kind][-1](40, 0.0)
        if kind == "reward":
            train = train.map(
                lambda row, place: {"chosen": row["chosen"] * (1 + 5 * (place % 4 == 0))}, with_indices=True
            )
        else:
            train = train.map(
                lambda row, place: {"prompt": row["prompt"] * (1 + 40 * (place % 4 == 0))}, with_indices=True
            )
        train = train.add_column("note", ["unused"] * 40)
        trainer = trainer_of(
            kind,
            tmp_path,
            train=train,
            max_length=20,
            gradient_accumulation_steps=2,
            per_device_train_batch_size=5,
        )
        trainer.train()
        seen = trainer.robust.inlier_probability().isfinite().nonzero().squeeze(1)
        assert seen.tolist() == [row for row in range(40) if row % 4]

    def test_evaluation_is_unweighted_and_learns_nothing(self, tmp_path, kind):
        train, _ = KINDS[kind][-1](64, 0.25)
        losses = []
        for is_robust in (False, True):
            trainer = trainer_of(kind, tmp_path, is_robust, train, options={"robust": weighing(kind, 0.5)})
            if is_robust:
                trainer.robust.weigh = None
            losses.append(trainer.evaluate(KINDS[kind][-1](20, 0.5, seed=2)[0])["eval_loss"])
        assert losses[0] == losses[1]


class TestPreferences:
    def test_a_pair_is_weighted_as_a_class_label_of_two(self):
        torch.manual_seed(0)
        margins = torch.cat([3 + torch.randn(80), -3 + torch.randn(20)])
        robust, twin = RobustCrossEntropy(0.8, update_every=1), RobustCrossEntropy(0.8, update_every=1)
        for _ in range(4):
            weights = preference_weights(robust, margins, torch.arange(100))
            logits = torch.stack([margins, torch.zeros(100)], 1)
            expected = twin.weigh(logits, torch.zeros(100, dtype=torch.long), torch.arange(100))
        assert torch.equal(weights, expected)
        assert weights[:80].mean() > 0.9
        assert weights[80:].mean() < 0.2
        assert robust.suggested_label().tolist() == [int(margin < 0) for margin in margins]

    def test_losses_alone(self):
        robust = Robust("truncated", 0.5, warmup=0, update_every=1)
        margins = torch.linspace(-3, 3, 100)
        for _ in range(3):
            weights = preference_weights(robust, margins, torch.arange(100))
        assert weights[:40].max() == 0
        assert weights[60:].min() == 1

    def test_precomputed_log_probabilities_of_the_reference_give_the_same(self, tmp_path):
        results = []
        for precompute in (False, True):
            trainer = trainer_of(
                "dpo",
                tmp_path / str(precompute),
                num_train_epochs=3,
                precompute_ref_log_probs=precompute,
                options={"robust": weighing("dpo")},
            )
            trainer.train()
            results.append(trainer.robust.inlier_probability())
        torch.testing.assert_close(*results, rtol=1e-3, atol=1e-3)
        assert results[0].std() > 0.02

    @pytest.mark.parametrize("loss_type", ["ipo", "hinge", ["sigmoid", "sft"]])
    def test_other_losses_of_dpo(self, tmp_path, loss_type):
        trainer = trainer_of("dpo", tmp_path, loss_type=loss_type, options={"robust": weighing("dpo")})
        trainer.train()
        assert trainer.robust.inlier_probability().isfinite().all()

    def test_losses_that_sort_the_pairs_are_refused(self, tmp_path):
        with pytest.raises(ValueError, match="loss_type = 'aot' sorts the pairs of a batch"):
            trainer_of("dpo", tmp_path, loss_type="aot")

    def test_suspects_are_written(self, tmp_path):
        trainer_of("reward", tmp_path, options={"suspects": tmp_path / "suspects.csv"}).train()
        lines = (tmp_path / "suspects.csv").read_text().splitlines()
        assert lines[0] == "row,inlier_probability,loss,suggested_label"
        assert len(lines) == 65


class TestInstructions:
    def test_a_weight_for_each_token(self, tmp_path):
        """A wrong token is left out, and the others of its answer are not."""
        robust = Robust("truncated", 0.8, warmup=0, update_every=2)
        trainer = trainer_of("sft", tmp_path, num_train_epochs=4, options={"robust": robust, "per": "token"})
        trainer.train()
        assert robust.num_samples == 0
        weights = robust.last_weights
        assert weights.dim() == 1
        assert 0 < weights.count_nonzero() < 16 * 6  # five words and the end

    @pytest.mark.parametrize(
        ("settings", "options", "message"),
        [
            ({"packing": True}, {}, "packing = True joins several sequences in one row"),
            ({"padding_free": True, "max_length": None}, {}, "padding_free = True joins"),
            ({"label_smoothing_factor": 0.1}, {}, r"label_smoothing_factor = 0\.1 needs the logits"),
            ({}, {"compute_loss_func": print}, "would replace the weighted loss"),
            ({}, {"robust": RobustCrossEntropy()}, r"robust = RobustCrossEntropy: .* pass an inlier\.Robust"),
            ({}, {"per": "word"}, "per = 'word': choose 'sequence' or 'token'"),
            ({}, {"per": "token", "suspects": "s.csv"}, "remembers no sample"),
        ],
    )
    def test_what_cannot_be_weighted_is_refused(self, tmp_path, settings, options, message):
        with pytest.raises(ValueError, match=message):
            trainer_of("sft", tmp_path, options=options, **settings)

    def test_a_stream_needs_a_column_of_its_own(self, tmp_path):
        train, _ = instructions(32)
        with pytest.raises(ValueError, match="a training set without items by number must have that column"):
            trainer_of("sft", tmp_path, train=train.to_iterable_dataset(), max_steps=2).train()
        numbered = train.add_column("inlier_index", list(range(32))).to_iterable_dataset()
        trainer = trainer_of("sft", tmp_path, train=numbered, max_steps=2)
        trainer.train()
        assert trainer.robust.num_samples == 32


class TestVersions:
    def test_a_trl_with_another_compute_loss_is_refused_in_one_line(self, monkeypatch):
        monkeypatch.setattr(trl.DPOTrainer, "compute_loss", lambda self, model, inputs: None)
        with pytest.raises(
            ImportError, match=r"was tried with trl 1\.16.*DPOTrainer\.compute_loss takes other"
        ):
            integration.check_trl()

    def test_a_trl_whose_models_return_something_else_is_refused(self, monkeypatch):
        monkeypatch.delattr(trl.trainer.utils, "FusedCausalLMOutput")
        with pytest.raises(ImportError, match="models do not return log_probs and label_mask: pip install"):
            integration.check_trl()


PROGRAM = """
import faulthandler, sys, torch
faulthandler.dump_traceback_later(200, exit=True)  # rather than wait for ever
torch.set_num_threads(1)
from tests.integrations.test_trl import KINDS, parameters, trainer_of, weighing
kind, folder = sys.argv[1:]
train, wrong = KINDS[kind][-1](64, 0.25)
trainer = trainer_of(kind, folder, train=train, num_train_epochs=3, per_device_train_batch_size=8,
                     logging_strategy="steps", logging_steps=4, options={"robust": weighing(kind)})
trainer.train()
assert trainer.accelerator.num_processes == 2
probability = trainer.robust.inlier_probability()
assert probability.isfinite().all() and len(probability) == 64
import torch.distributed as dist
both = [torch.empty_like(probability) for _ in range(2)]
dist.all_gather(both, probability)
assert torch.equal(*both), "the two processes remember different things"
means = [torch.empty_like(parameters(trainer)) for _ in range(2)]
dist.all_gather(means, parameters(trainer))
assert torch.equal(*means)
if dist.get_rank() == 0:
    print("weights", float(probability[wrong].mean()), float(probability[~wrong].mean()))
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_two_processes_remember_the_same(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "1"}
    result = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
         str(tmp_path / "program.py"), "reward", str(tmp_path / "out")],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr[-3000:]
    wrong, clean = map(float, result.stdout.split("weights")[1].split()[:2])
    assert wrong < clean - 0.1
