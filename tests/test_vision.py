"""Images in memory: decoding and its cache, label noise, crops and flips, batches, networks."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from inlier.vision import cifar, images, networks
from inlier.vision.batches import crop_and_flip, normalise, shuffled_batches
from inlier.vision.images import decode, read_parquet
from inlier.vision.noise import pair_flip, symmetric
from tests.pictures import png, tiny_cifar, write_parquet

DATA = Path(__file__).parent.parent.parent / "shared" / "data" / "cifar10"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason=f"needs CIFAR-10 in {DATA}")
PIXELS = {
    "train": "47af8b02cfcfb6cdf3dbbd1969ad7f1b70f4413f6f80f437b020ee4e5bc8304a",
    "test": "f9b1e2130bab680db56eb06d886f7f1ad0f1183907ceff4659d1735c890f5b04",
}
"""sha256 of the pixels of CIFAR-10, uint8 [n, 32, 32, 3]."""


@pytest.fixture
def cache(tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    monkeypatch.setenv("INLIER_CACHE", str(folder))
    return folder


# The data


@needs_data
@pytest.mark.slow
def test_cifar10_is_bit_for_bit_the_published_one(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("INLIER_CACHE", str(tmp_path_factory.mktemp("cache")))
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
def test_human_labels_are_wrong_as_often_as_published(name):
    import pyarrow.parquet as pq

    clean = torch.tensor(pq.read_table(DATA / "cifar10n.parquet")["clean_label"].to_numpy())
    rate = float((cifar.human_labels(name, DATA) != clean).float().mean())
    assert rate == pytest.approx(cifar.HUMAN_RATES[name], abs=6e-5)


def test_pictures_are_decoded_once_and_anew_when_the_file_changes(tmp_path, cache, monkeypatch):
    path = write_parquet(tmp_path / "a.parquet", [png(np.full((4, 4, 3), 7))] * 3, [0, 1, 1], ["cat", "dog"])
    first = read_parquet(path)
    assert first.class_names == ("cat", "dog")
    assert first.pixels.shape == (3, 3, 4, 4)
    assert first.pixels.unique().tolist() == [7]

    decoded = []
    monkeypatch.setattr(images, "decode", lambda content: decoded.append(1) or decode(content))
    second = read_parquet(path)
    assert decoded == []
    assert torch.equal(second.pixels, first.pixels)
    assert torch.equal(second.labels, first.labels)
    assert second.class_names == first.class_names

    write_parquet(path, [png(np.full((4, 4, 3), 9))] * 3, [0, 1, 1], ["cat", "dog"])
    os.utime(path, ns=(1, 1))  # A clock may be too coarse to tell the two files apart.
    assert read_parquet(path).pixels.unique().tolist() == [9]
    assert len(decoded) == 3
    assert not list(cache.glob("*.part"))


def test_rows_from_the_front(tmp_path, cache):
    path = write_parquet(
        tmp_path / "a.parquet", [png(np.full((2, 2, 3), i)) for i in range(5)], list(range(5))
    )
    data = read_parquet(path, rows=2)
    assert data.labels.tolist() == [0, 1]
    assert data.class_names == ("0", "1", "2", "3", "4")  # The classes are those of the whole file.


@pytest.mark.parametrize(
    ("pictures", "complaint"),
    [
        ([png(np.zeros((2, 2, 3))), b"no picture"], r"row 1 of a\.parquet"),
        ([png(np.zeros((2, 2, 3))), None], r"row 1 of a\.parquet"),
        ([png(np.zeros((2, 2, 3))), png(np.zeros((3, 2, 3)))], "2 sizes"),
        ([], "no rows"),
    ],
)
def test_a_file_that_is_no_data_set_is_refused_and_leaves_no_cache(tmp_path, cache, pictures, complaint):
    path = write_parquet(tmp_path / "a.parquet", pictures, [0] * len(pictures))
    with pytest.raises(ValueError, match=complaint):
        read_parquet(path)
    assert not list(cache.glob("*"))


def test_missing_files_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"train\.parquet"):
        cifar.cifar10(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"cifar10n\.parquet"):
        cifar.human_labels("worse", tmp_path)
    with pytest.raises(ValueError, match="aggre, random1"):
        cifar.human_labels("better", tmp_path)


def test_a_folder_of_cifar(tmp_path, cache):
    train, test = cifar.cifar10(tiny_cifar(tmp_path / "data"))
    assert (len(train), len(test), train.classes) == (96, 40, 10)
    assert len(cifar.human_labels("worse", tmp_path / "data")) == 96


def test_decoding_scales_cuts_the_middle_and_turns_upright():
    import io

    from PIL import Image

    tall = np.zeros((64, 32, 3), dtype=np.uint8)
    tall[16:48] = 200  # The middle square.
    assert decode(png(tall), size=16).shape == (3, 16, 16)
    assert decode(png(tall), size=16).min() > 180
    assert decode(png(tall)).shape == (3, 64, 32)

    half = np.zeros((16, 16, 3), dtype=np.uint8)
    half[:8] = 255
    exif = Image.Exif()
    exif[0x0112] = 3  # The camera was held upside down.
    buffer = io.BytesIO()
    Image.fromarray(half).save(buffer, "PNG", exif=exif)
    turned = decode(buffer.getvalue(), size=16)
    assert turned[:, :8].max() == 0
    assert turned[:, 8:].min() == 255


# Label noise

LABELS = torch.arange(10).repeat_interleave(500)


@settings(max_examples=30)
@given(rate=st.floats(0, 0.95), seed=st.integers(0, 100), samples=st.integers(1, 300))
def test_exactly_the_asked_for_share_is_wrong(rate, seed, samples):
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


def test_with_the_true_class_included_a_tenth_of_the_drawn_labels_is_right():
    wrong = float((symmetric(LABELS, 0.8, 10, seed=3) != LABELS).float().mean())
    assert wrong == pytest.approx(0.9 * 0.8, abs=0.02)


def test_wrong_classes_are_drawn_evenly():
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
def test_a_rate_that_is_none_is_refused(rate):
    with pytest.raises(ValueError, match="rate"):
        symmetric(LABELS, rate, 10, 0)


# Batches


@settings(max_examples=40)
@given(samples=st.integers(1, 300), batch=st.integers(1, 64), epoch=st.integers(0, 5))
def test_an_epoch_has_each_sample_once(samples, batch, epoch):
    parts = list(shuffled_batches(samples, batch, seed=4, epoch=epoch))
    assert sorted(torch.cat(parts).tolist()) == list(range(samples))
    again = list(shuffled_batches(samples, batch, seed=4, epoch=epoch))
    assert all(torch.equal(a, b) for a, b in zip(parts, again, strict=True))
    if samples > 1 and batch > 1:
        assert min(map(len, parts)) > 1


def test_epochs_and_seeds_have_orders_of_their_own():
    orders = {
        tuple(torch.cat(list(shuffled_batches(50, 8, seed, epoch))).tolist())
        for seed in range(3)
        for epoch in range(3)
    }
    assert len(orders) == 9


def slow_crop_and_flip(pixels, generator, margin):
    """Each picture by itself: pad, mirror about the middle of the cut, cut."""
    count, _, height, width = pixels.shape
    shifts = torch.randint(0, 2 * margin + 1, (count, 2), generator=generator)
    mirrored = torch.randint(0, 2, (count, 1), generator=generator)
    out = torch.zeros_like(pixels)
    for number in range(count):
        wide = torch.zeros(pixels.shape[1], height + 2 * margin, width + 2 * margin, dtype=pixels.dtype)
        wide[:, margin : margin + height, margin : margin + width] = pixels[number]
        top, left = shifts[number].tolist()
        cut = wide[:, top : top + height, left : left + width]
        out[number] = cut.flip(2) if mirrored[number] else cut
    return out


@pytest.mark.parametrize(("height", "width", "margin"), [(32, 32, 4), (8, 5, 2), (4, 4, 0)])
def test_crops_and_flips_of_a_batch_are_those_of_single_pictures(height, width, margin):
    pixels = torch.randint(1, 256, (40, 3, height, width), generator=torch.Generator().manual_seed(0))
    pixels = pixels.to(torch.uint8)
    fast = crop_and_flip(pixels, torch.Generator().manual_seed(5), margin)
    assert torch.equal(fast, slow_crop_and_flip(pixels, torch.Generator().manual_seed(5), margin))
    assert fast.dtype == torch.uint8


def test_pixels_are_normalised_about_zero():
    out = normalise(torch.tensor([0, 120, 248], dtype=torch.uint8).view(1, 3, 1, 1))
    assert out.flatten().tolist() == [-1.875, 0.0, 2.0]


# Networks


@pytest.mark.parametrize(
    ("name", "parameters"), [("compact", 290_762), ("resnet-18", 11_173_962), ("dla-34", 16_291_386)]
)
def test_networks_have_their_size_and_answer_for_each_class(name, parameters):
    network = networks.get(name, 10)
    assert sum(p.numel() for p in network.parameters()) == parameters
    with torch.no_grad():
        assert network(torch.zeros(2, 3, 32, 32)).shape == (2, 10)
    assert networks.get(name, 3)[-1][-1].out_features == 3


def test_an_unknown_network_is_refused_with_the_choices():
    with pytest.raises(ValueError, match="compact, resnet-18, dla-34"):
        networks.get("vgg", 10)


def test_dla_34_has_the_levels_of_the_paper():
    """Levels 1-1-1-2-2-1 of 16 to 512 channels; each root joins what figure 3 of Yu et al. joins."""
    network = networks.DLA34(10)
    shapes = []
    for stage in network:
        stage.register_forward_hook(
            lambda module, _, out: shapes.append((type(module).__name__, *out.shape[1:]))
        )
    with torch.no_grad():
        network(torch.zeros(1, 3, 32, 32))
    levels = [shape for shape in shapes if shape[0] in ("ConvNorm", "Tree")]
    assert levels == [
        ("ConvNorm", 16, 32, 32),
        ("ConvNorm", 16, 32, 32),
        ("ConvNorm", 32, 32, 32),
        ("Tree", 64, 32, 32),
        ("Tree", 128, 16, 16),
        ("Tree", 256, 8, 8),
        ("Tree", 512, 4, 4),
    ]
    trees = [stage for stage in network if isinstance(stage, networks.Tree)]
    assert [tree.root[0].in_channels // tree.root[0].out_channels for tree in trees] == [2, 4, 4, 2]
    convolutions = [m for m in network.modules() if isinstance(m, nn.Conv2d) and m.kernel_size == (3, 3)]
    assert len(convolutions) == 3 + 2 * (2 + 2 * 5 + 2)
