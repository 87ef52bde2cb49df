"""The Hugging Face Trainer, on tiny models made from a config: noisy labels, tokens, accumulation, resume."""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import torch
from datasets import Dataset
from torch.nn import functional as F
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertForTokenClassification,
    GPT2Config,
    GPT2LMHeadModel,
    Trainer,
    TrainingArguments,
    set_seed,
)
from transformers.modeling_outputs import CausalLMOutput, SequenceClassifierOutput, TokenClassifierOutput

from inlier import Robust, RobustCrossEntropy
from inlier.integrations._trainers import STATE
from inlier.integrations.transformers import RobustLoss, RobustTrainer

TINY = {
    "vocab_size": 60,
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "max_position_embeddings": 16,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}


def texts(rows: int, seed: int, wrong: float = 0.0) -> tuple[Dataset, torch.Tensor]:
    """Texts of ten words, half of them of one of two topics; and which labels are flipped."""
    generator = torch.Generator().manual_seed(seed)
    truth = torch.randint(2, (rows,), generator=generator)
    words = torch.randint(2, 40, (rows, 10), generator=generator)
    topic = torch.randint(40, 50, (rows, 10), generator=generator) + 10 * truth[:, None]
    words = torch.where(torch.rand(rows, 10, generator=generator) < 0.5, topic, words)
    flipped = torch.rand(rows, generator=generator) < wrong
    labels = torch.where(flipped, 1 - truth, truth)
    return Dataset.from_dict({"input_ids": words.tolist(), "labels": labels.tolist()}), flipped


def classifier(**config) -> BertForSequenceClassification:
    set_seed(0)
    return BertForSequenceClassification(BertConfig(**TINY | config))


def arguments(folder, **changes) -> TrainingArguments:
    settings = {
        "num_train_epochs": 1,
        "per_device_train_batch_size": 25,
        "learning_rate": 3e-3,
        "report_to": [],
        "save_strategy": "no",
        "logging_strategy": "no",
        "disable_tqdm": True,
        "use_cpu": True,
        "seed": 0,
    }
    return TrainingArguments(str(folder), **settings | changes)


def parameters(model) -> torch.Tensor:
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


@pytest.mark.slow
def test_robust_training_beats_the_baseline_where_labels_are_flipped(tmp_path):
    train, flipped = texts(1000, seed=1, wrong=0.3)
    test, _ = texts(1000, seed=2)
    suspects = tmp_path / "suspects.csv"
    settings = arguments(tmp_path, num_train_epochs=15, per_device_train_batch_size=30)
    size = {"hidden_size": 32, "intermediate_size": 64}
    robust = {"robust": RobustCrossEntropy(0.7), "suspects": suspects}
    accuracy = {}
    for trainer_class, extra in ((Trainer, {}), (RobustTrainer, robust)):
        trainer = trainer_class(classifier(**size), settings, train_dataset=train, **extra)
        trainer.train()
        predictions = trainer.predict(test)
        accuracy[trainer_class] = (predictions.predictions.argmax(1) == predictions.label_ids).mean()
    assert accuracy[RobustTrainer] > accuracy[Trainer] + 0.02
    # The suspects are rows of the training set, most of them mislabelled.
    rows = pd.read_csv(suspects)["row"][: int(flipped.sum())]
    assert flipped[torch.tensor(rows.to_numpy())].float().mean() > 0.7


class TestCheckpoints:
    def trainer(self, folder, kind="mixin", given=True, **changes):
        """A Trainer, and what returns its robust loss, which is given or made at the first batch."""
        train, _ = texts(100, seed=1, wrong=0.3)
        settings = {
            "num_train_epochs": 3,
            "save_strategy": "steps",
            "save_steps": 5,  # in the middle of an epoch
            "logging_strategy": "steps",
            "logging_steps": 4,
        }
        common = {
            "model": classifier(),
            "args": arguments(folder, **settings | changes),
            "train_dataset": train,
        }
        loss = Robust("tukey", 0.7, warmup=10, update_every=4) if given else None
        if kind == "mixin":
            trainer = RobustTrainer(**common, robust=loss)
            return trainer, lambda: trainer.robust
        function = RobustLoss(loss)
        trainer = Trainer(**common, compute_loss_func=function, callbacks=[function])
        return trainer, lambda: function.robust

    @pytest.mark.parametrize(("kind", "given"), [("mixin", True), ("function", True), ("mixin", False)])
    def test_resume_is_exact_to_the_bit(self, tmp_path, kind, given):
        whole, whole_robust = self.trainer(tmp_path, kind, given)
        whole.train()
        resumed, resumed_robust = self.trainer(tmp_path, kind, given)
        resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-5"))
        assert resumed.state.global_step == whole.state.global_step == 12
        assert torch.equal(parameters(resumed.model), parameters(whole.model))
        state = resumed_robust().state_dict()
        for name, tensor in whole_robust().state_dict().items():
            torch.testing.assert_close(state[name], tensor, rtol=0, atol=0, equal_nan=True)
        logged = [entry for entry in whole.state.log_history if "loss" in entry]
        if kind == "mixin":
            assert logged[-1]["robust/scale"] == whole_robust().metrics()["scale"]
            assert 0 < logged[-1]["robust/fraction_kept"] <= 1

    def test_a_checkpoint_elsewhere_is_found_by_the_mixin(self, tmp_path):
        trainer, _ = self.trainer(tmp_path / "here", max_steps=5)
        trainer.train()
        shutil.move(tmp_path / "here" / "checkpoint-5", tmp_path / "moved")
        other, robust = self.trainer(tmp_path / "there", max_steps=6)
        other.train(resume_from_checkpoint=str(tmp_path / "moved"))
        assert robust().num_samples == 100

    def test_a_checkpoint_without_its_state_is_refused(self, tmp_path):
        trainer, _ = self.trainer(tmp_path, "function", max_steps=5)
        trainer.train()
        (tmp_path / "checkpoint-5" / STATE).unlink()
        with pytest.raises(FileNotFoundError, match=r"no .*robust\.safetensors: set resume_from"):
            self.trainer(tmp_path, "function")[0].train(resume_from_checkpoint=True)


class TestGradientAccumulation:
    @pytest.mark.parametrize(("kind", "divide_by"), [("mixin", "samples"), ("function", "weights")])
    def test_parts_of_a_batch_are_the_batch(self, tmp_path, kind, divide_by):
        """Uneven at the end of the epoch: 110 rows in batches of 40 are 40, 40 and 30."""
        train, _ = texts(110, seed=1, wrong=0.3)
        results = []
        for size, parts in ((40, 1), (10, 4)):
            robust = Robust("tukey", 0.7, warmup=0, update_every=1000, divide_by=divide_by)
            robust.refresh(torch.linspace(0, 1, 110))  # a scale that leaves no loss its whole weight
            settings = arguments(
                tmp_path,
                per_device_train_batch_size=size,
                gradient_accumulation_steps=parts,
                optim="sgd",
                learning_rate=0.5,
                max_grad_norm=0.0,
            )
            common = {"model": classifier(), "args": settings, "train_dataset": train}
            if kind == "mixin":
                trainer = RobustTrainer(**common, robust=robust)
            else:
                trainer = Trainer(**common, compute_loss_func=RobustLoss(robust))
            start = parameters(trainer.model)
            trainer.train()
            results.append(parameters(trainer.model))
        assert (results[0] - start).abs().max() > 1e-3
        torch.testing.assert_close(results[1], results[0], rtol=1e-4, atol=1e-6)

    def test_while_all_weights_are_1_it_is_the_trainers_own_loss(self, tmp_path):
        """The same parameters come out, with label smoothing and accumulation, as of the Trainer."""
        train, _ = texts(110, seed=1)
        results = []
        for trainer_class in (Trainer, RobustTrainer):
            settings = arguments(
                tmp_path,
                gradient_accumulation_steps=2,
                label_smoothing_factor=0.2,
                optim="sgd",
                learning_rate=0.5,
            )
            extra = {"robust": Robust(update_every=1000)} if trainer_class is RobustTrainer else {}
            trainer = trainer_class(classifier(), settings, train_dataset=train, **extra)
            trainer.train()
            results.append(parameters(trainer.model))
        torch.testing.assert_close(results[1], results[0], rtol=1e-4, atol=1e-6)


class TestClassLabels:
    def test_weights_are_those_of_robust_cross_entropy(self):
        """Over five visits of each sample; sums are divided by the number of labels."""
        generator = torch.Generator().manual_seed(0)
        logits, labels = torch.randn(120, 3, generator=generator), torch.arange(120) % 3
        labels[::7] = -100
        loss, twin = (
            RobustLoss(RobustCrossEntropy(0.7, update_every=1)),
            RobustCrossEntropy(0.7, update_every=1),
        )
        for _ in range(5):
            loss.index = torch.arange(120)
            got = loss({"logits": logits}, labels)
            weights = twin.weigh(logits, labels, torch.arange(120))
        losses = F.cross_entropy(logits, labels, reduction="none")
        torch.testing.assert_close(got, (weights * losses).sum() / (labels >= 0).sum())
        assert 0 < float(weights.sum()) < int((labels >= 0).sum())
        torch.testing.assert_close(
            loss.robust.inlier_probability(), twin.inlier_probability(), rtol=0, atol=0, equal_nan=True
        )

    def test_a_robust_of_your_own_is_taken(self):
        logits, labels = torch.randn(6, 3), torch.arange(6) % 3
        robust = Robust()
        loss = RobustLoss(robust)
        torch.testing.assert_close(loss({"logits": logits}, labels), F.cross_entropy(logits, labels))
        assert loss.robust is robust

    def test_class_weights_and_smoothing_of_the_criterion_apply(self):
        logits, labels = torch.randn(6, 3), torch.arange(6) % 3
        weight = torch.tensor([1.0, 2.0, 3.0])
        criterion = RobustCrossEntropy(weight=weight, label_smoothing=0.2)
        expected = F.cross_entropy(logits, labels, weight, reduction="none", label_smoothing=0.2).mean()
        torch.testing.assert_close(RobustLoss(criterion)({"logits": logits}, labels), expected)

    def test_robust_cross_entropy_is_refused_where_there_are_no_classes_or_whole_sequences(self):
        with pytest.raises(ValueError, match="needs integer labels"):
            RobustLoss(RobustCrossEntropy())({"logits": torch.randn(4, 1)}, torch.randn(4))
        loss = RobustLoss(RobustCrossEntropy(), per="sequence", shift=False)
        with pytest.raises(ValueError, match=r"pass robust=inlier\.Robust\(\) for whole sequences"):
            loss({"logits": torch.randn(4, 5, 3)}, torch.zeros(4, 5, dtype=torch.long))
        with pytest.raises(ValueError, match="leave losses out"):
            RobustLoss(RobustCrossEntropy(), losses=lambda outputs, labels: labels)


class TestDatasetIndex:
    def test_it_survives_where_unused_columns_are_removed(self, tmp_path):
        train, _ = texts(50, seed=1)
        train = train.add_column("note", ["unused"] * 50)
        for dataset in (train, list(train)):  # of the datasets library, and any other
            trainer = RobustTrainer(classifier(), arguments(tmp_path), train_dataset=dataset)
            trainer.train()
            assert trainer.robust.inlier_probability().isfinite().tolist() == [True] * 50
            assert trainer.evaluate(train)["eval_loss"] > 0  # evaluation needs no index
            assert trainer.train_dataset is dataset

    def test_a_column_of_your_own_is_taken(self, tmp_path):
        train, _ = texts(50, seed=1)
        train = train.add_column("id", list(range(100, 150)))
        for dataset in (train, list(train)):
            trainer = RobustTrainer(
                classifier(), arguments(tmp_path), train_dataset=dataset, index_column="id"
            )
            trainer.train()
            seen = trainer.robust.inlier_probability().isfinite().nonzero().squeeze(1)
            assert seen.tolist() == list(range(100, 150))

    def test_it_passes_a_collator_that_knows_other_columns_only(self, tmp_path):
        train, _ = texts(50, seed=1)

        def collate(rows):
            return {key: torch.tensor([row[key] for row in rows]) for key in ("input_ids", "labels")}

        trainer = RobustTrainer(classifier(), arguments(tmp_path), train_dataset=train, data_collator=collate)
        trainer.train()
        assert trainer.robust.num_samples == 50
        assert trainer.data_collator is collate

    def test_a_stream_without_it_is_refused(self, tmp_path):
        train, _ = texts(50, seed=1)
        trainer = RobustTrainer(
            classifier(), arguments(tmp_path, max_steps=2), train_dataset=train.to_iterable_dataset()
        )
        with pytest.raises(ValueError, match="a training set without items by number must have that column"):
            trainer.train()


class TestTokens:
    def logits(self, *shape, seed=0):
        return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), requires_grad=True)

    def test_ignored_tokens_have_no_part(self):
        logits, labels = self.logits(3, 5, 7), torch.randint(7, (3, 5))
        labels[0, 2:], labels[2] = -100, -100
        for per in ("token", "sequence"):
            robust_loss = RobustLoss(per=per)
            loss = robust_loss(TokenClassifierOutput(logits=logits), labels)
            torch.testing.assert_close(loss, F.cross_entropy(logits.transpose(1, 2), labels))
            assert type(robust_loss.robust) is {"token": RobustCrossEntropy, "sequence": Robust}[per]
        (gradient,) = torch.autograd.grad(loss, logits)
        assert gradient[2].abs().sum() == 0
        assert gradient[1].abs().sum() > 0

    def test_causal_models_are_shifted_and_others_are_not(self):
        logits, labels = self.logits(3, 5, 7), torch.randint(7, (3, 5))
        shifted = F.cross_entropy(logits[:, :-1].transpose(1, 2), labels[:, 1:])
        loss = RobustLoss()
        torch.testing.assert_close(loss(CausalLMOutput(logits=logits), labels), shifted)
        assert type(loss.robust) is Robust, "a token of a text has many right answers"
        torch.testing.assert_close(RobustLoss(shift=True)({"logits": logits}, labels), shifted)
        with pytest.raises(ValueError, match="pass shift=True if logits are for the next token"):
            RobustLoss()({"logits": logits}, labels)

    def test_a_weight_for_each_token_or_for_each_sequence(self):
        """One token of the first sequence is absurd: alone it goes, or its whole sequence does."""
        logits = torch.zeros(4, 3, 2)
        logits[0, 1] = torch.tensor([-60.0, 60.0])
        labels = torch.zeros(4, 3, dtype=torch.long)
        for per, kept in (("token", [2, 3, 3, 3]), ("sequence", [0, 3, 3, 3])):
            robust = Robust("truncated", 0.7, warmup=0, update_every=1000)
            robust.refresh(torch.linspace(0.1, 2, 100))
            free = logits.clone().requires_grad_()
            RobustLoss(robust, per=per)(TokenClassifierOutput(logits=free), labels).backward()
            assert (free.grad.abs().sum(-1) > 0).sum(1).tolist() == kept

    @pytest.mark.parametrize("per", ["token", "sequence"])
    def test_tokens_are_divided_by_the_number_the_trainer_counts(self, per):
        logits, labels = self.logits(2, 4, 3), torch.randint(3, (2, 4))
        outputs = TokenClassifierOutput(logits=logits)
        one, other = RobustLoss(per=per), RobustLoss(per=per)
        torch.testing.assert_close(one(outputs, labels, torch.tensor(32)) * 4, other(outputs, labels))

    @pytest.mark.parametrize("per", ["token", "sequence"])
    @pytest.mark.parametrize("kind", ["language model", "token classifier"])
    def test_language_models_and_token_classifiers_train(self, tmp_path, per, kind):
        set_seed(0)
        rows = torch.randint(2, 60, (40, 8))
        labels = rows.clone()
        labels[:, 6:] = -100
        config = GPT2Config(vocab_size=60, n_positions=8, n_embd=16, n_layer=1, n_head=2, bos_token_id=0)
        model = (
            GPT2LMHeadModel(config)
            if kind == "language model"
            else BertForTokenClassification(BertConfig(**TINY, num_labels=60))
        )
        train = Dataset.from_dict({"input_ids": rows.tolist(), "labels": labels.tolist()})
        settings = arguments(tmp_path, num_train_epochs=2, label_smoothing_factor=0.1)
        if per == "sequence":
            trainer = RobustTrainer(model, settings, train_dataset=train)
            loss = trainer.robust_loss
        else:
            loss = RobustLoss(label_smoothing=0.1)
            trainer = Trainer(model, settings, train_dataset=train, compute_loss_func=loss)
        before = trainer.evaluate(train)["eval_loss"]
        trainer.train()
        assert trainer.evaluate(train)["eval_loss"] < before
        # The last batch has 15 sequences of six labels; a language model does not predict the first.
        assert loss.robust.last_weights.count_nonzero() == {
            ("token", "language model"): 15 * 5,
            ("token", "token classifier"): 15 * 6,
        }.get((per, kind), 15)

    def test_an_index_of_sequences_is_refused_for_tokens(self):
        loss = RobustLoss(per="token")
        loss.index = torch.arange(2)
        with pytest.raises(ValueError, match="use per='sequence'"):
            loss(TokenClassifierOutput(logits=self.logits(2, 4, 3)), torch.randint(3, (2, 4)))


class TestOtherLosses:
    def test_evaluation_is_unweighted_and_learns_nothing(self):
        robust = Robust("tukey", 0.5, warmup=0, update_every=1)
        robust(torch.rand(100))
        before = {name: tensor.clone() for name, tensor in robust.state_dict().items()}
        logits, labels = 9 * torch.randn(5, 3), torch.randint(3, (5,))
        with torch.no_grad():
            loss = RobustLoss(robust)(SequenceClassifierOutput(logits=logits), labels)
        torch.testing.assert_close(loss, F.cross_entropy(logits, labels))
        after = robust.state_dict()
        assert all(
            torch.equal(before[name], after[name]) for name in before if not before[name].isnan().any()
        )

    def test_regression(self):
        logits, labels = torch.randn(6, 1, requires_grad=True), torch.randn(6)
        loss = RobustLoss()(SequenceClassifierOutput(logits=logits), labels)
        torch.testing.assert_close(loss, F.mse_loss(logits.squeeze(1), labels))
        with pytest.raises(ValueError, match="pass losses="):
            RobustLoss()(SequenceClassifierOutput(logits=torch.randn(6, 2)), torch.randn(6, 2))

    def test_losses_of_your_own(self):
        logits, labels = torch.randn(6, 2, requires_grad=True), torch.rand(6, 2)

        def losses(outputs, labels):
            return F.binary_cross_entropy_with_logits(outputs.logits, labels, reduction="none").mean(1)

        expected = F.binary_cross_entropy_with_logits(logits, labels)
        for items in (None, labels.numel()):  # The Trainer counts labels, of which two make one loss.
            loss = RobustLoss(losses=losses)(SequenceClassifierOutput(logits=logits), labels, items)
            torch.testing.assert_close(loss, expected)

    def test_a_batch_of_infinite_losses_has_no_gradient(self):
        logits = torch.full((2, 2), math.nan, requires_grad=True)
        loss = RobustLoss()(SequenceClassifierOutput(logits=logits), torch.tensor([0, 1]))
        assert loss.item() == 0


def train_on_all(folder, batch: int) -> RobustTrainer:
    """Train on 96 texts in joined batches of 24, whatever the number of processes."""
    train, _ = texts(96, seed=1, wrong=0.3)
    settings = {"num_train_epochs": 12, "per_device_train_batch_size": batch, "learning_rate": 1e-2}
    trainer = RobustTrainer(
        classifier(),
        arguments(folder, **settings, gradient_accumulation_steps=2),
        train_dataset=train,
        robust=RobustCrossEntropy(0.7),
    )
    trainer.train()
    return trainer


PROGRAM = """
import faulthandler, sys, torch
faulthandler.dump_traceback_later(200, exit=True)  # rather than wait for ever
torch.set_num_threads(1)
from tests.integrations.test_transformers import parameters, train_on_all
trainer = train_on_all(sys.argv[1], 6)
assert trainer.accelerator.num_processes == 2
if trainer.is_world_process_zero():
    model = trainer.accelerator.unwrap_model(trainer.model)
    torch.save([trainer.robust.inlier_probability(), parameters(model)], sys.argv[1] + "/end.pt")
torch.distributed.destroy_process_group()
"""


@pytest.mark.slow
def test_two_processes_are_one(tmp_path):
    folder = tmp_path / "out"
    folder.mkdir()
    (tmp_path / "program.py").write_text(PROGRAM)
    root = str(Path(__file__).parents[2])
    result = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
         str(tmp_path / "program.py"), str(folder)],
        env=os.environ | {"PYTHONPATH": root, "OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "1"},
        cwd=tmp_path, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr[-3000:]
    probability, weights = torch.load(folder / "end.pt")
    alone = train_on_all(tmp_path / "alone", 12)
    assert alone.robust.inlier_probability().std() > 0.05  # Some texts have lost weight.
    torch.testing.assert_close(probability, alone.robust.inlier_probability(), rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(weights, parameters(alone.model), rtol=1e-3, atol=1e-3)
