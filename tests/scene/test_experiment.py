"""``inlier reproduce scene``: corrupted photos, clean evaluation, every method, figures; real nerfstudio."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import torch

pytest.importorskip("nerfstudio", reason="needs nerfstudio; make test-scene installs it")

from inlier.experiments.scene import PRESETS
from inlier.experiments.scene_data import corrupted_photos, describe, read_into, right_fraction
from inlier.experiments.scene_training import METHODS, probe_loss, restored, train

DATA = Path(__file__).parent.parent.parent.parent / "shared" / "data"
FOX, LEGO = DATA / "fox", DATA / "lego100"
pytestmark = pytest.mark.skipif(not FOX.is_dir(), reason=f"needs the scenes fox and lego100 in {DATA}")


def settings(scene=FOX, **changes):
    """Those of the preset smoke, for a training that is over in seconds."""
    short = {"steps": 3, "decay_steps": 3, "rays": 1024, "largest_side": 64, "held_out": 2}
    return PRESETS["smoke"] | describe(scene) | short | changes


def manager_of(scene, kind="noise", rate=0.5, only_right=False):
    from nerfstudio.data.datamanagers.base_datamanager import VanillaDataManagerConfig

    manager = VanillaDataManagerConfig(train_num_rays_per_batch=256)
    read_into(manager, scene, describe(scene)["layout"], 40)
    photos = corrupted_photos(manager, kind, rate, seed=0, only_right=only_right)
    return photos, manager.setup(device="cpu")


# The data


@pytest.mark.parametrize("scene", [FOX, LEGO], ids=["fox", "lego"])
def test_training_photos_are_corrupted_and_those_for_evaluation_are_clean(scene):
    photos, manager = manager_of(scene)
    clean = manager.dataset_type(manager.train_dataparser_outputs, manager.config.camera_res_scale_factor)
    given, true = manager.train_dataset[0], clean[0]["image"]
    wrong = given["corrupted"][..., 0]
    assert float(wrong.float().mean()) == pytest.approx(0.5, abs=0.07)
    assert torch.equal(given["image"][~wrong], true[~wrong])
    assert (given["image"] - true).abs().amax(-1)[wrong].min() > 0
    assert torch.equal(given["clean"], true)
    assert right_fraction(photos) == pytest.approx(0.5, abs=0.02)
    assert "corrupted" not in manager.eval_dataset[0]
    trained = {path.name for path in manager.train_dataset.image_filenames}
    held_out = manager.eval_dataset.image_filenames
    assert scene == LEGO or not trained & {path.name for path in held_out}
    assert max(given["image"].shape[:2]) == 40


def test_rays_come_with_the_truth_of_their_own_pixel():
    photos, manager = manager_of(FOX)
    _, batch = manager.next_train(0)
    seen = {int(camera) for camera in batch["indices"][:, 0]}
    whole = {camera: photos[camera] for camera in list(seen)[:5]}
    rays = zip(batch["indices"].tolist(), batch["image"], batch["corrupted"], strict=True)
    for (camera, y, x), colour, wrong in rays:
        if camera in whole:
            assert torch.equal(whole[camera]["image"][y, x], colour)
            assert torch.equal(whole[camera]["corrupted"][y, x], wrong)


def test_right_rays_only_sees_no_wrong_pixel():
    _, manager = manager_of(FOX, only_right=True)
    for step in range(3):
        assert not manager.next_train(step)[1]["corrupted"].any()


def test_a_folder_that_is_no_scene_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"neither transforms\.json nor transforms_train\.json"):
        describe(tmp_path)
    with pytest.raises(ValueError, match="data is missing"):
        describe(None)


# Training


@pytest.mark.parametrize("name", METHODS)
def test_every_method_trains(name):
    outcome = train(METHODS[name], FOX, 0.5, 0, settings())
    metrics = outcome.metrics
    assert 5 < metrics["psnr"] < 30
    assert math.isfinite(metrics["ssim"])
    assert metrics["right_pixels"] == pytest.approx(0.5, abs=0.02)
    assert metrics["precision"] == (1.0 if name == "right-rays-only" else pytest.approx(0.5, abs=0.15))
    assert math.isnan(metrics["estimated_fraction"]) == (METHODS[name].rule not in ("adaptive", "both"))


def test_a_training_depends_on_its_seed_alone():
    first = train(METHODS["robust"], FOX, 0.5, 1, settings())
    torch.manual_seed(99)
    again = train(METHODS["robust"], FOX, 0.5, 1, settings())
    other = train(METHODS["robust"], FOX, 0.5, 2, settings())
    assert first.metrics == again.metrics
    assert first.metrics != other.metrics


@pytest.mark.parametrize("scene", [FOX, LEGO], ids=["fox", "lego"])
def test_a_kept_model_renders_what_it_rendered(scene):
    known = settings(scene)
    kept = train(METHODS["adam"], scene, 0.5, 0, known).kept
    model = restored(kept, known)
    loss = float(probe_loss(model, kept, "given"))
    assert loss > float(probe_loss(model, kept, "clean")) > 0
    for name in kept:
        if name.startswith("model.field."):
            kept[name] = kept[name] + 0.01
    assert float(probe_loss(restored(kept, known), kept, "given")) != loss


def test_an_option_that_the_model_lacks_is_named():
    with pytest.raises(ValueError, match="model option 'nope' is unknown"):
        train(METHODS["adam"], FOX, 0.5, 0, settings(model={"nope": 1}))


@pytest.mark.slow
def test_the_smoke_preset_shows_that_robust_training_is_better_and_draws_the_figures(tmp_path):
    command = ["reproduce", "scene", "--preset", "smoke", "--data", FOX, "--out", tmp_path, "--jobs", 1]
    done = subprocess.run(
        [sys.executable, "-m", "inlier.cli", *map(str, command)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    psnr = pd.read_parquet(tmp_path / "results.parquet").set_index("method")["psnr"]
    assert psnr["robust"] - psnr["adam"] >= 1.5
    assert json.loads((tmp_path / "results.json").read_text())["meta"]["settings"]["scene"] == "fox"
    names = {path.name for path in tmp_path.glob("*.png")}
    assert {"psnr.png", "ssim.png", "kept_rays.png", "views.png", "landscape.png"} <= names
    assert all(name in done.stdout for name in names)
