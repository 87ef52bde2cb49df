"""``inlier reproduce scene``: corrupted images, clean evaluation, every method, figures; real nerfstudio."""

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

from inlier.experiments.scene.data import clean_fraction, configure_data, corrupt_images, describe
from inlier.experiments.scene.experiment import PRESETS
from inlier.experiments.scene.training import (
    METHODS,
    _configuration,
    probe_loss,
    restore_model,
    train_scene,
)

DATA = Path(__file__).parents[4] / "shared" / "data"
FOX, LEGO = DATA / "fox", DATA / "lego100"
pytestmark = pytest.mark.skipif(not FOX.is_dir(), reason=f"needs the scenes fox and lego100 in {DATA}")


def settings(scene=FOX, **changes):
    """Settings of the preset smoke, for a training of seconds."""
    short = {"steps": 3, "decay_steps": 3, "rays": 1024, "largest_side": 64, "held_out": 2}
    return PRESETS["smoke"] | describe(scene) | short | changes


def manager_of(scene, kind="noise", rate=0.5, only_clean=False):
    from nerfstudio.data.datamanagers.base_datamanager import VanillaDataManagerConfig

    manager = VanillaDataManagerConfig(train_num_rays_per_batch=256)
    configure_data(manager, scene, describe(scene)["layout"], 40)
    images = corrupt_images(manager, kind, rate, seed=0, only_clean=only_clean)
    return images, manager.setup(device="cpu")


# The data


@pytest.mark.parametrize("scene", [FOX, LEGO], ids=["fox", "lego"])
def test_training_images_are_corrupted_and_those_for_evaluation_are_clean(scene):
    images, manager = manager_of(scene)
    clean = manager.dataset_type(manager.train_dataparser_outputs, manager.config.camera_res_scale_factor)
    given, true = manager.train_dataset[0], clean[0]["image"]
    corrupted = given["corrupted"][..., 0]
    assert float(corrupted.float().mean()) == pytest.approx(0.5, abs=0.07)
    assert torch.equal(given["image"][~corrupted], true[~corrupted])
    assert (given["image"] - true).abs().amax(-1)[corrupted].min() > 0
    assert torch.equal(given["clean"], true)
    assert clean_fraction(images) == pytest.approx(0.5, abs=0.02)
    assert "corrupted" not in manager.eval_dataset[0]
    trained = {path.name for path in manager.train_dataset.image_filenames}
    held_out = manager.eval_dataset.image_filenames
    assert scene == LEGO or not trained & {path.name for path in held_out}
    assert max(given["image"].shape[:2]) == 40


def test_rays_come_with_the_mask_of_their_own_pixel():
    images, manager = manager_of(FOX)
    _, batch = manager.next_train(0)
    seen = {int(camera) for camera in batch["indices"][:, 0]}
    whole = {camera: images[camera] for camera in list(seen)[:5]}
    rays = zip(batch["indices"].tolist(), batch["image"], batch["corrupted"], strict=True)
    for (camera, y, x), colour, corrupted in rays:
        if camera in whole:
            assert torch.equal(whole[camera]["image"][y, x], colour)
            assert torch.equal(whole[camera]["corrupted"][y, x], corrupted)


def test_the_oracle_sees_no_corrupted_pixel():
    _, manager = manager_of(FOX, only_clean=True)
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
    result = train_scene(METHODS[name], FOX, 0.5, 0, settings())
    metrics = result.metrics
    assert 5 < metrics["psnr"] < 30
    assert math.isfinite(metrics["ssim"])
    assert metrics["clean_pixels"] == pytest.approx(0.5, abs=0.02)
    assert metrics["precision"] == (1.0 if name == "clean-rays-only" else pytest.approx(0.5, abs=0.15))
    assert math.isnan(metrics["estimated_fraction"]) == (METHODS[name].rule not in ("adaptive", "both"))


@pytest.mark.parametrize(("name", "is_given"), [("robust", False), ("adaptive-tl", True)])
def test_the_papers_methods_are_those_of_the_paper(name, is_given):
    config, clean = _configuration(METHODS[name], FOX, 0.5, 0, settings())
    model = config.pipeline.model
    papers, ours = (clean, False, "samples"), ("auto", True, "weights")
    options = model.inlier_fraction, model.null_correction, model.divide_by
    assert options == (papers if is_given else ours)


def test_a_training_depends_on_its_seed_alone():
    first = train_scene(METHODS["robust"], FOX, 0.5, 1, settings())
    torch.manual_seed(99)
    again = train_scene(METHODS["robust"], FOX, 0.5, 1, settings())
    other = train_scene(METHODS["robust"], FOX, 0.5, 2, settings())
    assert first.metrics == again.metrics
    assert first.metrics != other.metrics


@pytest.mark.parametrize("scene", [FOX, LEGO], ids=["fox", "lego"])
def test_a_restored_model_renders_what_it_rendered(scene):
    known = settings(scene)
    artifacts = train_scene(METHODS["adam"], scene, 0.5, 0, known).artifacts
    model = restore_model(artifacts, known)
    loss = float(probe_loss(model, artifacts, "given"))
    assert loss > float(probe_loss(model, artifacts, "clean")) > 0
    for name in artifacts:
        if name.startswith("model.field."):
            artifacts[name] = artifacts[name] + 0.01
    assert float(probe_loss(restore_model(artifacts, known), artifacts, "given")) != loss


def test_an_option_that_the_model_lacks_is_named():
    with pytest.raises(ValueError, match="model option 'nope' is unknown"):
        train_scene(METHODS["adam"], FOX, 0.5, 0, settings(model={"nope": 1}))


@pytest.mark.slow
@pytest.mark.timeout(1800)
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
    assert {"psnr.png", "ssim.png", "weights.png", "views.png", "landscape.png"} <= names
    assert all(name in done.stdout for name in names)
