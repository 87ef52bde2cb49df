"""The Hugging Face Trainer, on tiny models made from a config: wrong labels, tokens, accumulation, resume."""

from __future__ import annotations

import json
import math
import shutil

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

from inlier import Robust
from inlier.integrations.transformers import STATE, RobustLoss, RobustTrainer

TINY = {
    "vocab_size": 60,
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 64,
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
    return BertForSequenceClassification(BertConfig(**TINY, **config))


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
def test_robust_beats_plain_where_labels_are_flipped(tmp_path):
    train, flipped = texts(1000, seed=1, wrong=0.3)
    test, _ = texts(1000, seed=2)
    suspects = tmp_path / "suspects.csv"
    settings = arguments(tmp_path, num_train_epochs=15, per_device_train_batch_size=30)
    accuracy = {}
    for name in ("plain", "robust"):
        common = {"model": classifier(), "args": settings, "train_dataset": train, "eval_dataset": test}
        trainer = (
            Trainer(**common)
            if name == "plain"
            else RobustTrainer(**common, robust=Robust("truncated", warmup=150), suspects=suspects)
        )
        trainer.train()
        predictions = trainer.predict(test)
        accuracy[name] = (predictions.predictions.argmax(1) == predictions.label_ids).mean()
    assert accuracy["robust"] > accuracy["plain"] + 0.05
    assert float(trainer.robust.inlier_fraction) == pytest.approx(0.7, abs=0.1)
    # The suspects are rows of the training set, most of them really wrong.
    rows = pd.read_csv(suspects)["row"][: int(flipped.sum())]
    assert flipped[torch.tensor(rows.to_numpy())].float().mean() > 0.75


class TestCheckpoints:
    def trainer(self, folder, kind: str, **changes):
        train, _ = texts(200, seed=1, wrong=0.3)
        settings = arguments(
            folder,
            num_train_epochs=4,
            save_strategy="steps",
            save_steps=11,  # in the middle of an epoch, and between two updates of the scale
            logging_strategy="steps",
            logging_steps=4,
            **changes,
        )
        robust = Robust("tukey", 0.7, warmup=10, update_every=4)
        common = {"model": classifier(), "args": settings, "train_dataset": train}
        if kind == "mixin":
            return RobustTrainer(**common, robust=robust), robust
        loss = RobustLoss(robust)
        return Trainer(**common, compute_loss_func=loss, callbacks=[loss]), robust

    @pytest.mark.parametrize("kind", ["mixin", "function"])
    def test_resume_is_exact_to_the_bit(self, tmp_path, kind):
        whole, robust = self.trainer(tmp_path / "whole", kind)
        whole.train()
        resumed, resumed_robust = self.trainer(tmp_path / "whole", kind)
        resumed.train(resume_from_checkpoint=str(tmp_path / "whole" / "checkpoint-11"))
        assert resumed.state.global_step == whole.state.global_step == 32
        assert torch.equal(parameters(resumed.model), parameters(whole.model))
        for name, tensor in robust.state_dict().items():
            torch.testing.assert_close(
                resumed_robust.state_dict()[name], tensor, rtol=0, atol=0, equal_nan=True
            )

    def test_a_checkpoint_elsewhere_is_found_by_the_mixin(self, tmp_path):
        trainer, robust = self.trainer(tmp_path / "here", "mixin", max_steps=12)
        trainer.train()
        shutil.move(tmp_path / "here" / "checkpoint-11", tmp_path / "moved")
        other, other_robust = self.trainer(tmp_path / "there", "mixin", max_steps=12)
        other.train(resume_from_checkpoint=str(tmp_path / "moved"))
        assert torch.equal(other_robust.scale, robust.scale)
        assert len(other_robust.memory) == 200

    def test_a_checkpoint_without_its_state_is_refused(self, tmp_path):
        trainer, _ = self.trainer(tmp_path, "function", max_steps=11)
        trainer.train()
        (tmp_path / "checkpoint-11" / STATE).unlink()
        with pytest.raises(FileNotFoundError, match=r"no .*robust\.safetensors: set resume_from"):
            self.trainer(tmp_path, "function")[0].train(resume_from_checkpoint=True)

    def test_the_log_has_the_metrics(self, tmp_path):
        trainer, robust = self.trainer(tmp_path, "mixin")
        trainer.train()
        log = json.loads((tmp_path / "checkpoint-32" / "trainer_state.json").read_text())["log_history"]
        logged = [entry for entry in log if "loss" in entry]
        assert logged[-1]["robust/scale"] == robust.metrics()["scale"]
        assert 0 < logged[-1]["robust/fraction_kept"] < 1


class TestGradientAccumulation:
    @pytest.mark.parametrize("divide_by", ["samples", "weights"])
    @pytest.mark.parametrize("kind", ["mixin", "function"])
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

    def test_before_any_doubt_it_is_the_trainers_own_loss(self, tmp_path):
        """The same weights come out, with label smoothing and accumulation, as without Robust."""
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
    def test_the_robust_gets_what_a_loop_of_ones_own_would_give_it(self):
        logits, labels = torch.randn(40, 3), torch.arange(40) % 3
        labels[::7] = -100
        loss, twin = RobustLoss(Robust(), class_labels=True), Robust()
        loss.index = torch.arange(40)
        got = loss({"logits": logits}, labels)
        counts = labels >= 0
        losses = F.cross_entropy(logits[counts], labels[counts], reduction="none")
        given = {"labels": labels[counts], "logits": logits[counts]}
        assert torch.allclose(got, twin(losses, torch.arange(40)[counts], **given))
        assert 0 < int((twin.last_weights == 0).sum()) < 10, "some are held out"
        same = zip(loss.robust.state_dict().values(), twin.state_dict().values(), strict=True)
        assert all(torch.equal(a.nan_to_num(-1), b.nan_to_num(-1)) for a, b in same)

    def test_it_keeps_a_model_from_learning_flipped_labels_by_heart(self, tmp_path):
        train, flipped = texts(4000, seed=1, wrong=0.3)
        settings = arguments(tmp_path, num_train_epochs=8, per_device_train_batch_size=30, learning_rate=1e-3)
        trainer = RobustTrainer(classifier(), settings, train_dataset=train, class_labels=True)
        trainer.train()
        assert float(trainer.robust.inlier_fraction.mean()) == pytest.approx(0.7, abs=0.1)
        rows = trainer.robust.inlier_probability().argsort()[: int(flipped.sum())]
        assert flipped[rows].float().mean() > 0.75

    def test_it_is_for_one_class_a_sample(self):
        loss = RobustLoss(class_labels=True, shift=False)
        with pytest.raises(ValueError, match=r"shape \(4, 5\).*one class a sample"):
            loss({"logits": torch.randn(4, 5, 3)}, torch.zeros(4, 5, dtype=torch.long))
        with pytest.raises(ValueError, match="leave losses out"):
            RobustLoss(class_labels=True, losses=lambda outputs, labels: labels)


class TestSampleNumbers:
    def test_they_survive_where_unused_columns_go(self, tmp_path):
        train, _ = texts(50, seed=1)
        train = train.add_column("note", ["unused"] * 50)
        for dataset in (train, list(train)):  # of the datasets library, and any other
            trainer = RobustTrainer(classifier(), arguments(tmp_path), train_dataset=dataset)
            trainer.train()
            assert len(trainer.robust.memory) == 50
            assert trainer.robust.memory.means.isfinite().all()
            assert trainer.evaluate(train)["eval_loss"] > 0  # evaluation needs no numbers
            assert trainer.train_dataset is dataset

    def test_your_own_column_is_taken(self, tmp_path):
        train, _ = texts(50, seed=1)
        train = train.add_column("id", list(range(100, 150)))
        trainer = RobustTrainer(classifier(), arguments(tmp_path), train_dataset=train, index_column="id")
        trainer.train()
        seen = trainer.robust.inlier_probability().isfinite().nonzero().squeeze(1)
        assert seen.tolist() == list(range(100, 150))

    def test_a_collator_that_drops_them_is_named(self, tmp_path):
        train, _ = texts(50, seed=1)

        def collate(rows):
            return {key: torch.tensor([row[key] for row in rows]) for key in ("input_ids", "labels")}

        trainer = RobustTrainer(classifier(), arguments(tmp_path), train_dataset=train, data_collator=collate)
        with pytest.raises(ValueError, match="the data collator must keep that column"):
            trainer.train()


class TestTokens:
    def logits(self, *shape, seed=0):
        return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), requires_grad=True)

    def test_ignored_tokens_have_no_part(self):
        logits, labels = self.logits(3, 5, 7), torch.randint(7, (3, 5))
        labels[0, 2:], labels[2] = -100, -100
        for per in ("token", "sequence"):
            loss = RobustLoss(per=per)(TokenClassifierOutput(logits=logits), labels)
            torch.testing.assert_close(loss, F.cross_entropy(logits.transpose(1, 2), labels))
        (gradient,) = torch.autograd.grad(loss, logits)
        assert gradient[2].abs().sum() == 0
        assert gradient[1].abs().sum() > 0

    def test_causal_models_are_shifted_and_others_are_not(self):
        logits, labels = self.logits(3, 5, 7), torch.randint(7, (3, 5))
        shifted = F.cross_entropy(logits[:, :-1].transpose(1, 2), labels[:, 1:])
        torch.testing.assert_close(RobustLoss()(CausalLMOutput(logits=logits), labels), shifted)
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
    def test_language_models_and_token_classifiers_train(self, tmp_path, per):
        set_seed(0)
        rows = torch.randint(2, 60, (40, 8))
        labels = rows.clone()
        labels[:, 6:] = -100
        gpt = GPT2LMHeadModel(
            GPT2Config(vocab_size=60, n_positions=8, n_embd=16, n_layer=1, n_head=2, bos_token_id=0)
        )
        tagger = BertForTokenClassification(BertConfig(**TINY, num_labels=60))
        for model in (gpt, tagger):
            train = Dataset.from_dict({"input_ids": rows.tolist(), "labels": labels.tolist()})
            settings = arguments(tmp_path, num_train_epochs=4, label_smoothing_factor=0.1)
            if per == "sequence":
                trainer = RobustTrainer(model, settings, train_dataset=train)
                robust = trainer.robust
            else:
                loss = RobustLoss(label_smoothing=0.1)
                trainer, robust = (
                    Trainer(model, settings, train_dataset=train, compute_loss_func=loss),
                    loss.robust,
                )
            before = trainer.evaluate(train)["eval_loss"]
            trainer.train()
            assert trainer.evaluate(train)["eval_loss"] < before
            counted = {gpt: 5, tagger: 6}[model] if per == "token" else 1
            assert int(robust.window.pending.sum()) == 4 * 40 * counted

    def test_token_numbers_are_refused(self):
        loss = RobustLoss(per="token")
        loss.index = torch.arange(2)
        with pytest.raises(ValueError, match="use per='sequence'"):
            loss(TokenClassifierOutput(logits=self.logits(2, 4, 3)), torch.randint(3, (2, 4)))


class TestOtherLosses:
    def test_evaluation_is_plain_and_learns_nothing(self):
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

        loss = RobustLoss(losses=losses)(SequenceClassifierOutput(logits=logits), labels)
        torch.testing.assert_close(loss, F.binary_cross_entropy_with_logits(logits, labels))

    def test_a_batch_of_infinite_losses_has_no_gradient(self):
        logits = torch.full((2, 2), math.nan, requires_grad=True)
        loss = RobustLoss()(SequenceClassifierOutput(logits=logits), torch.tensor([0, 1]))
        assert loss.item() == 0
