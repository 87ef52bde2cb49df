"""The image trainer: reproducible, resumable, checkpoints by the clock."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from inlier import RobustCrossEntropy
from inlier._vision import training
from inlier._vision.training import Method, RobustMethod, TrainingConfig, train
from tests.vision.image_files import tiny_images

CONFIG = TrainingConfig("compact", epochs=2, batch_size=16, step_size=0.02)
IMAGES = tiny_images()


def test_training_learns_and_depends_on_the_seed_alone():
    config = replace(CONFIG, epochs=6, evaluate_every=4, augment=False)
    done = []
    torch.manual_seed(1)
    first = train(Method, IMAGES, IMAGES, 1.0, config, seed=0, on_epoch_end=done.append)
    torch.manual_seed(2)
    again = train(Method, IMAGES, IMAGES, 1.0, config, seed=0)
    other = train(Method, IMAGES, None, 1.0, config, seed=1)
    assert done == [1, 2, 3, 4, 5, 6]
    assert list(first.test_accuracy) == [4, 6]
    assert other.test_accuracy == {}
    assert first.train_accuracy[6] > max(first.train_accuracy[1], 60)
    for name, value in first.networks.state_dict().items():
        assert torch.equal(value, again.networks.state_dict()[name])
    assert first.train_accuracy != other.train_accuracy


def test_the_robust_method_scores_every_label_and_reports_its_fraction():
    method = train(
        lambda task: RobustMethod(task, RobustCrossEntropy(0.75)), IMAGES, None, 1.0, CONFIG, seed=0
    ).method
    score = method.outlier_score(IMAGES.labels)
    assert score.shape == (len(IMAGES),)
    assert bool(((score >= 0) & (score <= 1)).all())
    assert 0.75 <= method.estimated_fraction <= 1


def test_a_checkpoint_of_another_training_is_refused(tmp_path):
    train(Method, IMAGES, None, 1.0, CONFIG, 0, tmp_path / "a.pt", stop_after=1)
    with pytest.raises(ValueError, match=r"a\.pt is of another training"):
        train(Method, IMAGES, None, 1.0, CONFIG, 1, tmp_path / "a.pt")


def test_checkpoints_are_written_by_the_clock(tmp_path, monkeypatch):
    config = replace(CONFIG, epochs=1)
    train(Method, IMAGES, None, 1.0, config, 0, tmp_path / "a.pt")
    assert not list(tmp_path.iterdir())
    monkeypatch.setattr(training, "CHECKPOINT_EVERY", 0.0)
    train(Method, IMAGES, None, 1.0, config, 0, tmp_path / "a.pt")
    assert [path.name for path in tmp_path.iterdir()] == ["a.pt"]


def test_predictions_are_those_of_the_network_in_evaluation_mode():
    network = train(Method, IMAGES, None, 1.0, CONFIG, 0).networks[0]
    logits = training.predict(network, IMAGES, batch_size=5)
    assert network.training
    network.eval()
    with torch.no_grad():
        expected = network(training.normalize(IMAGES.pixels))
    assert torch.allclose(logits, expected, atol=1e-5)
    correct = (logits.argmax(1) == IMAGES.labels).double().mean()
    assert training.accuracy(network, IMAGES) == pytest.approx(100 * float(correct))
