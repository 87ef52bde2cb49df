"""Maps of outlier pixels and the hash grid of the nerfstudio plugin, as far as they need no nerfstudio."""

from __future__ import annotations

import io
import math

import numpy as np
import pytest
import torch
from PIL import Image

from inlier.integrations.nerfstudio._hash_grid import hash_features
from inlier.integrations.nerfstudio._maps import WeightedImage, outlier_map, outlier_share, write_maps

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
    assert outlier_share(torch.tensor([[0.75, 0.75]])) == 0.25, "half a weight is half an outlier"
    assert math.isnan(outlier_share(torch.full((2, 2), math.nan)))


def test_the_sheet_shows_all_images_most_suspect_first_and_loads_nothing(tmp_path):
    image = np.zeros((4, 6, 3), dtype=np.uint8)
    unseen = torch.full((4, 6), math.nan)
    images = [
        WeightedImage("clean.png", image, weights()),
        WeightedImage("unseen.png", image, unseen),
        WeightedImage("bad <b>.jpg", image, weights(outliers=12), stops=-1.25),
    ]
    sheet = write_maps(images, tmp_path / "maps", "My <scene>")
    page = sheet.read_text()
    assert sheet == tmp_path / "maps" / "index.html"
    assert page.index("bad &lt;b&gt;.jpg") < page.index("clean.png") < page.index("unseen.png")
    assert "50 % outliers, 1.2 stops darker" in page
    assert "never seen" in page
    assert "25 % of the pixels of 3 images" in page
    assert "My &lt;scene&gt;" in page
    assert "<b>" not in page
    assert "http" not in page.replace("http-equiv", "")
    for name in ("clean.png", "unseen.png", "bad <b>.png"):
        with Image.open(tmp_path / "maps" / name) as image:
            assert image.size == (6, 4)


def test_images_of_one_name_keep_a_map_each_and_other_files_stay(tmp_path):
    (tmp_path / "mine.txt").write_text("kept")
    image = np.zeros((4, 6, 3), dtype=np.uint8)
    names = ["left/0001.png", "right/0001.png", "back/0001.PNG"]
    write_maps(
        [WeightedImage(name, image, weights(outliers=k)) for k, name in enumerate(names)], tmp_path, "x"
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "0001-2.png",
        "0001-3.png",
        "0001.png",
        "index.html",
        "mine.txt",
    ]
    with Image.open(tmp_path / "0001-3.png") as image:
        assert np.array(image)[..., 0].ravel().tolist()[:3] == [255, 255, 0]


def test_a_sheet_without_outliers_or_without_images_says_so(tmp_path):
    clean = WeightedImage("a.png", np.zeros((4, 6, 3), dtype=np.uint8), weights())
    assert "All pixels of 1 image fit the scene" in write_maps([clean], tmp_path, "x").read_text()
    assert "No pixel has a weight yet" in write_maps([], tmp_path, "x").read_text()


# The hash grid


def naive_features(points, table, scalings, size):
    """The features of each point, corner by corner and number by number, in integers of any length."""
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
