"""Corrupted images: which pixels, how many, and that nothing but name and seed matters."""

from __future__ import annotations

import math

import pytest
import torch

from inlier.experiments.datasets.corruption import CORRUPTIONS, moving_object, pixel_noise, wrong_exposure

NAMES = [f"{number:04}.png" for number in range(200)]


def make_image(channels=3):
    return torch.rand(40, 60, channels, generator=torch.Generator().manual_seed(7))


@pytest.mark.parametrize("corrupt", CORRUPTIONS.values(), ids=CORRUPTIONS)
@pytest.mark.parametrize("channels", [3, 4])
def test_only_pixels_under_the_mask_change_and_the_given_image_is_unchanged(corrupt, channels):
    image = make_image(channels)
    before = image.clone()
    for name in NAMES[:20]:
        new, corrupted = corrupt(image, 0.5, name)
        assert new.shape == image.shape
        assert corrupted.shape == image.shape[:2]
        assert corrupted.dtype == torch.bool
        assert (new[~corrupted] - image[~corrupted]).abs().sum() <= (~corrupted).sum() * channels / 255
        assert float(new.min()) >= 0
        assert float(new.max()) <= 1
    assert torch.equal(image, before)


@pytest.mark.parametrize("corrupt", CORRUPTIONS.values(), ids=CORRUPTIONS)
def test_at_rate_0_nothing_changes(corrupt):
    for name in NAMES[:20]:
        new, corrupted = corrupt(make_image(), 0.0, name)
        assert torch.equal(new, make_image())
        assert not corrupted.any()


@pytest.mark.parametrize("corrupt", CORRUPTIONS.values(), ids=CORRUPTIONS)
def test_the_corruption_depends_on_file_name_and_seed_alone(corrupt):
    torch.manual_seed(0)
    first = [corrupt(make_image(), 0.5, name, 1)[0] for name in NAMES[:10]]
    torch.manual_seed(5)
    again = [corrupt(make_image(), 0.5, name, 1)[0] for name in reversed(NAMES[:10])][::-1]
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    others = [corrupt(make_image(), 0.5, name, 2)[0] for name in NAMES[:10]]
    assert not all(torch.equal(a, b) for a, b in zip(first, others, strict=True))


def test_the_corruption_is_the_same_in_every_process_and_version():
    # The number itself: Python's own hash of a name would differ from process to process.
    assert int(pixel_noise(torch.zeros(32, 32, 3), 0.5, "a.png", 3)[1].sum()) == 517


def test_noise_hits_pixels_independently_with_uniform_colours():
    image = torch.zeros(200, 300, 3)
    new, corrupted = pixel_noise(image, 0.3, "a.png")
    assert float(corrupted.float().mean()) == pytest.approx(0.3, abs=0.01)
    # Neighbours are independent: both are corrupted as often as 0.3 squared.
    both = (corrupted[:, 1:] & corrupted[:, :-1]).float().mean()
    assert float(both) == pytest.approx(0.09, abs=0.01)
    colours = new[corrupted]
    assert torch.allclose(colours.mean(0), torch.tensor(0.5), atol=0.02)
    assert torch.allclose(colours.var(0), torch.tensor(1 / 12), atol=0.005)


def test_noise_of_a_lower_rate_is_part_of_that_of_a_higher_one():
    low, few = pixel_noise(make_image(), 0.2, "a.png")
    high, many = pixel_noise(make_image(), 0.8, "a.png")
    assert few.any()
    assert bool(many[few].all())
    assert torch.equal(low[few], high[few])


def test_noise_makes_transparent_pixels_opaque():
    new, corrupted = pixel_noise(torch.zeros(20, 20, 4), 0.5, "a.png")
    assert bool((new[corrupted][:, 3] == 1).all())
    assert not new[~corrupted].any()


def test_the_object_is_in_a_part_of_the_images_each_time_elsewhere_and_always_the_same():
    found = [moving_object(torch.full((90, 160, 3), -1.0), 0.4, name) for name in NAMES]
    there = [(new, corrupted) for new, corrupted in found if corrupted.any()]
    assert len(there) / len(found) == pytest.approx(0.4, abs=0.1)
    colours = {tuple(colour) for new, corrupted in there for colour in new[corrupted].tolist()}
    assert len(colours) == 2
    centres = torch.stack([corrupted.nonzero().float().mean(0) for _, corrupted in there])
    assert centres.std(0).min() > 10
    # One patch, not scattered pixels: almost all of its pixels have a neighbour to the right in it.
    for _, corrupted in there:
        assert (corrupted[:, 1:] & corrupted[:, :-1]).sum() > 0.9 * corrupted[:, :-1].sum() - 90


def test_wrong_exposure_changes_whole_images_up_and_down():
    grey = torch.full((4, 6, 3), 0.3)
    ratios = []
    for name in NAMES:
        new, corrupted = wrong_exposure(grey, 0.5, name)
        assert bool(corrupted.all()) or not corrupted.any()
        if corrupted.any():
            ratios.append(float(new.mean()) / 0.3)
    assert len(ratios) / len(NAMES) == pytest.approx(0.5, abs=0.1)
    assert min(ratios) == pytest.approx(2**-1.5, rel=0.1)
    assert max(ratios) == pytest.approx(2**1.5, rel=0.1)
    assert not any(2**-0.99 < ratio < 2**0.99 for ratio in ratios)


def test_black_is_clean_at_any_exposure():
    half = torch.zeros(4, 6, 3)
    half[:2] = 0.4
    _, corrupted = wrong_exposure(half, 0.99, "0001.png")
    assert bool(corrupted[:2].all())
    assert not corrupted[2:].any()


@pytest.mark.parametrize("corrupt", CORRUPTIONS.values(), ids=CORRUPTIONS)
def test_invalid_images_and_rates_are_refused_by_name(corrupt):
    with pytest.raises(ValueError, match=r"rate = 1"):
        corrupt(make_image(), 1.0, "a.png")
    with pytest.raises(ValueError, match=r"rate = nan"):
        corrupt(make_image(), math.nan, "a.png")
    with pytest.raises(ValueError, match=r"shape \(40, 60\)"):
        corrupt(make_image()[..., 0], 0.5, "a.png")
    with pytest.raises(ValueError, match="uint8"):
        corrupt((255 * make_image()).byte(), 0.5, "a.png")
