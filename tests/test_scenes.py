"""Scenes, as far as they need no nerfstudio: wrong pixels on purpose, maps, the hash grid, the presets."""

from __future__ import annotations

import io
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from inlier.experiments import Experiment, plan
from inlier.experiments.scene import PRESETS
from inlier.experiments.scene_figures import LABELS
from inlier.experiments.scene_training import METHODS
from inlier.integrations.nerfstudio.hash_grid import hash_features
from inlier.scenes.corruption import CORRUPTIONS, moving_object, pixel_noise, wrong_exposure
from inlier.scenes.maps import Photo, outlier_map, outlier_share, write_maps

NAMES = [f"{number:04}.png" for number in range(200)]


def photo(channels=3):
    return torch.rand(40, 60, channels, generator=torch.Generator().manual_seed(7))


# Corruption


@pytest.mark.parametrize("corrupt", CORRUPTIONS.values(), ids=CORRUPTIONS)
@pytest.mark.parametrize("channels", [3, 4])
def test_only_pixels_under_the_mask_change_and_the_given_image_stays_as_it_is(corrupt, channels):
    image = photo(channels)
    before = image.clone()
    for name in NAMES[:20]:
        new, wrong = corrupt(image, 0.5, name)
        assert new.shape == image.shape
        assert wrong.shape == image.shape[:2]
        assert wrong.dtype == torch.bool
        assert (new[~wrong] - image[~wrong]).abs().sum() <= (~wrong).sum() * channels / 255
        assert float(new.min()) >= 0
        assert float(new.max()) <= 1
    assert torch.equal(image, before)


@pytest.mark.parametrize("corrupt", CORRUPTIONS.values(), ids=CORRUPTIONS)
def test_at_rate_0_nothing_changes(corrupt):
    for name in NAMES[:20]:
        new, wrong = corrupt(photo(), 0.0, name)
        assert torch.equal(new, photo())
        assert not wrong.any()


@pytest.mark.parametrize("corrupt", CORRUPTIONS.values(), ids=CORRUPTIONS)
def test_a_photo_is_corrupted_by_its_name_and_the_seed_and_nothing_else(corrupt):
    torch.manual_seed(0)
    first = [corrupt(photo(), 0.5, name, 1)[0] for name in NAMES[:10]]
    torch.manual_seed(5)
    again = [corrupt(photo(), 0.5, name, 1)[0] for name in reversed(NAMES[:10])][::-1]
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    others = [corrupt(photo(), 0.5, name, 2)[0] for name in NAMES[:10]]
    assert not all(torch.equal(a, b) for a, b in zip(first, others, strict=True))


def test_another_process_draws_the_same_pixels():
    code = (
        "import torch; from inlier.scenes.corruption import pixel_noise; "
        "print(pixel_noise(torch.zeros(8, 8, 3), 0.5, 'a.png', 3)[0].sum().item())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert float(done.stdout) == pixel_noise(torch.zeros(8, 8, 3), 0.5, "a.png", 3)[0].sum().item()


def test_noise_hits_pixels_one_by_one_at_the_rate_with_uniform_colours():
    image = torch.zeros(200, 300, 3)
    new, wrong = pixel_noise(image, 0.3, "a.png")
    assert float(wrong.float().mean()) == pytest.approx(0.3, abs=0.01)
    # Neighbours are independent: both are wrong as often as 0.3 squared.
    both = (wrong[:, 1:] & wrong[:, :-1]).float().mean()
    assert float(both) == pytest.approx(0.09, abs=0.01)
    colours = new[wrong]
    assert torch.allclose(colours.mean(0), torch.tensor(0.5), atol=0.02)
    assert torch.allclose(colours.var(0), torch.tensor(1 / 12), atol=0.005)


def test_noise_of_a_lower_rate_is_part_of_that_of_a_higher_one():
    low, few = pixel_noise(photo(), 0.2, "a.png")
    high, many = pixel_noise(photo(), 0.8, "a.png")
    assert few.any()
    assert bool(many[few].all())
    assert torch.equal(low[few], high[few])


def test_noise_makes_clear_pixels_opaque():
    new, wrong = pixel_noise(torch.zeros(20, 20, 4), 0.5, "a.png")
    assert bool((new[wrong][:, 3] == 1).all())
    assert not new[~wrong].any()


def test_the_object_is_in_a_part_of_the_photos_each_time_elsewhere_and_always_the_same():
    found = [moving_object(torch.full((90, 160, 3), -1.0), 0.4, name) for name in NAMES]
    there = [(new, wrong) for new, wrong in found if wrong.any()]
    assert len(there) / len(found) == pytest.approx(0.4, abs=0.1)
    colours = {tuple(colour) for new, wrong in there for colour in new[wrong].tolist()}
    assert len(colours) == 2
    centres = torch.stack([wrong.nonzero().float().mean(0) for _, wrong in there])
    assert centres.std(0).min() > 10
    # One patch, not scattered pixels: almost all of its pixels have a right neighbour in it.
    for _, wrong in there:
        assert (wrong[:, 1:] & wrong[:, :-1]).sum() > 0.9 * wrong[:, :-1].sum() - 90


def test_wrong_exposure_is_of_whole_photos_brighter_and_darker():
    grey = torch.full((4, 6, 3), 0.3)
    ratios = []
    for name in NAMES:
        new, wrong = wrong_exposure(grey, 0.5, name)
        assert bool(wrong.all()) or not wrong.any()
        if wrong.any():
            ratios.append(float(new.mean()) / 0.3)
    assert len(ratios) / len(NAMES) == pytest.approx(0.5, abs=0.1)
    assert min(ratios) == pytest.approx(2**-1.5, rel=0.1)
    assert max(ratios) == pytest.approx(2**1.5, rel=0.1)
    assert not any(2**-0.99 < ratio < 2**0.99 for ratio in ratios)


def test_black_is_right_at_any_exposure():
    half = torch.zeros(4, 6, 3)
    half[:2] = 0.4
    _, wrong = wrong_exposure(half, 0.99, "0001.png")
    assert bool(wrong[:2].all())
    assert not wrong[2:].any()


@pytest.mark.parametrize("corrupt", CORRUPTIONS.values(), ids=CORRUPTIONS)
def test_what_is_no_image_or_no_rate_is_refused_by_name(corrupt):
    with pytest.raises(ValueError, match=r"rate = 1"):
        corrupt(photo(), 1.0, "a.png")
    with pytest.raises(ValueError, match=r"rate = nan"):
        corrupt(photo(), math.nan, "a.png")
    with pytest.raises(ValueError, match=r"shape \(40, 60\)"):
        corrupt(photo()[..., 0], 0.5, "a.png")
    with pytest.raises(ValueError, match="uint8"):
        corrupt((255 * photo()).byte(), 0.5, "a.png")


# Maps


def weights(height=4, width=6, outliers=0):
    values = torch.ones(height * width)
    values[:outliers] = 0.0
    return values.view(height, width)


def test_a_map_is_bright_at_outliers_dark_at_inliers_and_clear_where_unseen():
    found = np.array(Image.open(io.BytesIO(outlier_map(torch.tensor([[1.0, 0.25, 0.0, math.nan]])))))
    assert found.tolist() == [[[0, 255], [191, 255], [255, 255], [0, 0]]]
    with pytest.raises(ValueError, match=r"shape \(5,\)"):
        outlier_map(torch.ones(5))


def test_the_share_of_outliers_counts_seen_pixels_only():
    assert outlier_share(torch.tensor([[0.0, 1.0, math.nan, math.nan]])) == 0.5
    assert outlier_share(torch.tensor([[0.75, 0.75]])) == 0.25, "half a doubt is half an outlier"
    assert math.isnan(outlier_share(torch.full((2, 2), math.nan)))


def test_the_sheet_shows_all_photos_most_suspect_first_and_loads_nothing(tmp_path):
    picture = np.zeros((4, 6, 3), dtype=np.uint8)
    unseen = torch.full((4, 6), math.nan)
    photos = [
        Photo("clean.png", picture, weights()),
        Photo("unseen.png", picture, unseen),
        Photo("bad <b>.jpg", picture, weights(outliers=12)),
    ]
    sheet = write_maps(photos, tmp_path / "maps", "My <scene>")
    page = sheet.read_text()
    assert sheet == tmp_path / "maps" / "index.html"
    assert page.index("bad &lt;b&gt;.jpg") < page.index("clean.png") < page.index("unseen.png")
    assert "50 % outliers" in page
    assert "never looked at" in page
    assert "25 % of the pixels in 3 photos" in page
    assert "My &lt;scene&gt;" in page
    assert "<b>" not in page
    assert "http" not in page.replace("http-equiv", "")
    for name in ("clean.png", "unseen.png", "bad <b>.png"):
        with Image.open(tmp_path / "maps" / name) as image:
            assert image.size == (6, 4)


def test_photos_of_one_name_keep_a_map_each_and_other_files_stay(tmp_path):
    (tmp_path / "mine.txt").write_text("kept")
    picture = np.zeros((4, 6, 3), dtype=np.uint8)
    names = ["left/0001.png", "right/0001.png", "back/0001.PNG"]
    write_maps([Photo(name, picture, weights(outliers=k)) for k, name in enumerate(names)], tmp_path, "x")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "0001-2.png",
        "0001-3.png",
        "0001.png",
        "index.html",
        "mine.txt",
    ]
    with Image.open(tmp_path / "0001-3.png") as image:
        assert np.array(image)[..., 0].ravel().tolist()[:3] == [255, 255, 0]


def test_a_sheet_without_outliers_or_without_photos_says_so(tmp_path):
    clean = Photo("a.png", np.zeros((4, 6, 3), dtype=np.uint8), weights())
    assert "All pixels in 1 photo fit the scene" in write_maps([clean], tmp_path, "x").read_text()
    assert "Training has judged no pixel yet" in write_maps([], tmp_path, "x").read_text()


# The hash grid


def naive_features(points, table, scalings, size):
    """The features of each point, corner by corner and number by number, in whole numbers of any length."""
    found = []
    for point in points.double().tolist():
        row = []
        for level, scaling in enumerate(scalings.tolist()):
            place = [coordinate * scaling for coordinate in point]
            total = torch.zeros(table.shape[1], dtype=torch.float64)
            for corner in range(8):
                share, mixed = 1.0, 0
                for axis, prime in enumerate((1, 2654435761, 805459861)):
                    is_high = corner >> axis & 1
                    low = math.floor(place[axis])
                    share *= place[axis] - low if is_high else 1 - (place[axis] - low)
                    mixed ^= (math.ceil(place[axis]) if is_high else low) * prime
                total += share * table[level * size + mixed % size].double()
            row.append(total)
        found.append(torch.cat(row))
    return torch.stack(found)


def test_hash_features_are_those_of_the_definition_and_so_is_their_gradient():
    generator = torch.Generator().manual_seed(0)
    size, scalings = 64, torch.tensor([4.0, 7.0, 40.0])
    table = torch.rand(3 * size, 2, generator=generator).requires_grad_()
    points = torch.cat([torch.rand(40, 3, generator=generator), torch.ones(1, 3), torch.zeros(1, 3)])
    levels = torch.arange(3) * size
    found = hash_features(points.view(2, 21, 3), table, scalings, levels, size)
    expected = naive_features(points, table, scalings, size)
    assert found.shape == (2, 21, 6)
    assert torch.allclose(found.view(42, 6).double(), expected, atol=1e-5)
    pull = torch.rand(42, 6, generator=generator)
    (gradient,) = torch.autograd.grad((found.view(42, 6) * pull).sum(), table)
    (wanted,) = torch.autograd.grad((expected * pull).sum(), table)
    assert torch.allclose(gradient, wanted, atol=1e-5)


# The experiment, as far as it needs no nerfstudio


def test_rows_of_another_scene_are_other_rows():
    experiment = Experiment(
        "any", "", ("a",), {"cpu": {"rates": [0.5], "seeds": 1}}, "x", print, describe_data=named
    )
    fox, lego = (plan(experiment, data=Path(name)).rows[0] for name in ("fox", "lego"))
    assert fox.settings == {"scene": "fox"}
    assert fox != lego
    with pytest.raises(ValueError, match="data is missing"):
        plan(experiment)


def named(folder):
    if folder is None:
        raise ValueError("data is missing")
    return {"scene": folder.name}


def test_every_preset_of_the_scene_experiment_has_all_settings():
    for preset in PRESETS.values():
        assert set(preset) - {"methods", "model"} == set(PRESETS["cpu"]) - {"methods", "model"}
        assert preset["corruption"] in CORRUPTIONS
        assert set(preset.get("methods", [])) <= set(METHODS)
    assert set(LABELS) == set(METHODS)
