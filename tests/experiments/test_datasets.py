"""The datasets of the experiments: CIFAR-10 and CIFAR-10N, synthetic label noise."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from inlier._vision.images import read_parquet
from inlier.experiments.datasets import cifar
from inlier.experiments.datasets.label_noise import pair_flip, symmetric
from tests.vision.image_files import tiny_cifar

DATA = Path(__file__).parents[3] / "shared" / "data" / "cifar10"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason=f"needs CIFAR-10 in {DATA}")
PIXELS = {
    "train": "47af8b02cfcfb6cdf3dbbd1969ad7f1b70f4413f6f80f437b020ee4e5bc8304a",
    "test": "f9b1e2130bab680db56eb06d886f7f1ad0f1183907ceff4659d1735c890f5b04",
}
"""sha256 of the pixels of CIFAR-10, uint8 [n, 32, 32, 3]."""

LABELS = torch.arange(10).repeat_interleave(500)


# CIFAR-10


@needs_data
@pytest.mark.slow
def test_cifar10_is_bit_for_bit_the_published_one(tmp_path, monkeypatch):
    monkeypatch.setenv("INLIER_CACHE", str(tmp_path))
    for split, count in (("train", 50_000), ("test", 10_000)):
        data = read_parquet(DATA / f"{split}.parquet")
        assert len(data) == count
        pixels = data.pixels.permute(0, 2, 3, 1).contiguous().numpy()
        assert hashlib.sha256(pixels).hexdigest() == PIXELS[split]
        assert torch.bincount(data.labels).tolist() == [count // 10] * 10
        assert data.class_names[0] == "airplane"
        assert data.class_names[9] == "truck"


@needs_data
@pytest.mark.parametrize("name", cifar.HUMAN_LABELS)
def test_human_labels_have_the_published_noise_rate(name):
    import pyarrow.parquet as pq

    clean = torch.tensor(pq.read_table(DATA / "cifar10n.parquet")["clean_label"].to_numpy())
    rate = float((cifar.human_labels(name, DATA) != clean).float().mean())
    assert rate == pytest.approx(cifar.HUMAN_RATES[name], abs=6e-5)


def test_a_folder_of_cifar(tmp_path, monkeypatch):
    monkeypatch.setenv("INLIER_CACHE", str(tmp_path / "cache"))
    train, test = cifar.cifar10(tiny_cifar(tmp_path / "data"))
    assert (len(train), len(test), train.classes) == (96, 40, 10)
    assert len(cifar.human_labels("worse", tmp_path / "data")) == 96


def test_missing_files_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"train\.parquet"):
        cifar.cifar10(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"cifar10n\.parquet"):
        cifar.human_labels("worse", tmp_path)
    with pytest.raises(ValueError, match="aggre, random1"):
        cifar.human_labels("better", tmp_path)


# Label noise


@settings(max_examples=30)
@given(rate=st.floats(0, 0.95), seed=st.integers(0, 100), samples=st.integers(1, 300))
def test_exactly_the_given_rate_is_noisy(rate, seed, samples):
    labels = LABELS[torch.randperm(len(LABELS), generator=torch.Generator().manual_seed(seed))[:samples]]
    before = labels.clone()
    for noisy in (
        symmetric(labels, rate, 10, seed, true_class_included=False),
        pair_flip(labels, rate, 10, seed),
    ):
        assert int((noisy != labels).sum()) == round(rate * samples)
        assert noisy.min() >= 0
        assert noisy.max() < 10
    included = symmetric(labels, rate, 10, seed)
    assert int((included != labels).sum()) <= round(rate * samples)
    assert torch.equal(labels, before)


def test_with_the_true_class_included_a_tenth_of_the_replaced_labels_is_clean():
    noisy = float((symmetric(LABELS, 0.8, 10, seed=3) != LABELS).float().mean())
    assert noisy == pytest.approx(0.9 * 0.8, abs=0.02)


def test_symmetric_noise_is_uniform_over_the_other_classes():
    zeros = torch.zeros(20_000, dtype=torch.int64)
    counts = torch.bincount(symmetric(zeros, 0.9, 10, seed=0, true_class_included=False), minlength=10)
    assert counts[0] == 2000
    assert ((counts[1:] - 2000).abs() < 200).all()


def test_pair_flip_goes_to_the_next_class():
    noisy = pair_flip(LABELS, 0.45, 10, seed=0)
    changed = noisy != LABELS
    assert torch.equal(noisy[changed], (LABELS[changed] + 1) % 10)


@pytest.mark.parametrize("noise", [symmetric, pair_flip])
def test_noise_depends_on_its_seed_alone(noise):
    torch.manual_seed(1)
    first = noise(LABELS, 0.4, 10, 7)
    torch.manual_seed(2)
    assert torch.equal(first, noise(LABELS, 0.4, 10, 7))
    assert not torch.equal(first, noise(LABELS, 0.4, 10, 8))


@pytest.mark.parametrize("rate", [-0.1, 1.0, float("nan")])
def test_an_invalid_rate_is_refused(rate):
    with pytest.raises(ValueError, match="rate"):
        symmetric(LABELS, rate, 10, 0)
