"""Images in memory: decoding and its cache, shuffled batches, augmentation."""

from __future__ import annotations

import io
import os

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from inlier._vision import images
from inlier._vision.batches import crop_and_flip, normalize, shuffled_batches
from inlier._vision.images import decode, read_parquet
from tests.vision.image_files import png, write_parquet


@pytest.fixture
def cache(tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    monkeypatch.setenv("INLIER_CACHE", str(folder))
    return folder


# Files


def test_images_are_decoded_once_and_again_when_the_file_changes(tmp_path, cache, monkeypatch):
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


def test_only_the_first_rows(tmp_path, cache):
    contents = [png(np.full((2, 2, 3), i)) for i in range(5)]
    data = read_parquet(write_parquet(tmp_path / "a.parquet", contents, list(range(5))), rows=2)
    assert data.labels.tolist() == [0, 1]
    assert data.class_names == ("0", "1", "2", "3", "4")  # The classes are those of the whole file.


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        ([png(np.zeros((2, 2, 3))), b"no image"], r"row 1 of a\.parquet"),
        ([png(np.zeros((2, 2, 3))), None], r"row 1 of a\.parquet"),
        ([png(np.zeros((2, 2, 3))), png(np.zeros((3, 2, 3)))], "2 sizes"),
        ([], "no rows"),
    ],
)
def test_an_unusable_file_is_refused_and_leaves_no_cache(tmp_path, cache, contents, message):
    path = write_parquet(tmp_path / "a.parquet", contents, [0] * len(contents))
    with pytest.raises(ValueError, match=message):
        read_parquet(path)
    assert not list(cache.glob("*"))


def test_decoding_resizes_crops_the_centre_and_turns_upright():
    tall = np.zeros((64, 32, 3), dtype=np.uint8)
    tall[16:48] = 200  # The central square.
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


# Batches


@settings(max_examples=40)
@given(samples=st.integers(1, 300), batch_size=st.integers(1, 64), epoch=st.integers(0, 5))
def test_an_epoch_has_each_sample_once(samples, batch_size, epoch):
    parts = list(shuffled_batches(samples, batch_size, seed=4, epoch=epoch))
    assert sorted(torch.cat(parts).tolist()) == list(range(samples))
    again = list(shuffled_batches(samples, batch_size, seed=4, epoch=epoch))
    assert all(torch.equal(a, b) for a, b in zip(parts, again, strict=True))
    if samples > 1 and batch_size > 1:
        assert min(map(len, parts)) > 1


def test_every_epoch_and_seed_has_its_own_order():
    orders = {
        tuple(torch.cat(list(shuffled_batches(50, 8, seed, epoch))).tolist())
        for seed in range(3)
        for epoch in range(3)
    }
    assert len(orders) == 9


def slow_crop_and_flip(pixels, generator, margin):
    """Each image by itself: pad, crop, mirror."""
    count, _, height, width = pixels.shape
    shifts = torch.randint(0, 2 * margin + 1, (count, 2), generator=generator)
    mirrored = torch.randint(0, 2, (count, 1), generator=generator)
    out = torch.zeros_like(pixels)
    for number in range(count):
        wide = torch.zeros(pixels.shape[1], height + 2 * margin, width + 2 * margin, dtype=pixels.dtype)
        wide[:, margin : margin + height, margin : margin + width] = pixels[number]
        top, left = shifts[number].tolist()
        crop = wide[:, top : top + height, left : left + width]
        out[number] = crop.flip(2) if mirrored[number] else crop
    return out


@pytest.mark.parametrize(("height", "width", "margin"), [(32, 32, 4), (8, 5, 2), (4, 4, 0)])
def test_augmenting_a_batch_is_augmenting_its_images(height, width, margin):
    pixels = torch.randint(1, 256, (40, 3, height, width), generator=torch.Generator().manual_seed(0))
    pixels = pixels.to(torch.uint8)
    fast = crop_and_flip(pixels, torch.Generator().manual_seed(5), margin)
    assert torch.equal(fast, slow_crop_and_flip(pixels, torch.Generator().manual_seed(5), margin))
    assert fast.dtype == torch.uint8


def test_pixels_are_normalized_about_zero():
    out = normalize(torch.tensor([0, 120, 248], dtype=torch.uint8).view(1, 3, 1, 1))
    assert out.flatten().tolist() == [-1.875, 0.0, 2.0]
