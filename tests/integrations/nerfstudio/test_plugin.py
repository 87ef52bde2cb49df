"""The methods of ``ns-train``: what they weight, remember, save and print; real nerfstudio, real images."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest
import torch

pytest.importorskip("nerfstudio", reason="needs nerfstudio; make test-scene installs it")

import tyro
from nerfstudio.engine.trainer import Trainer
from nerfstudio.plugins.types import MethodSpecification

import inlier.integrations.nerfstudio as plugin
from inlier.integrations.nerfstudio import _robust_nerf as robust_nerf
from inlier.integrations.nerfstudio._configs import robust_nerfacto, robust_nerfacto_tiny
from inlier.integrations.nerfstudio._model import MOST_PIXELS, RobustNerfactoModelConfig

FOX = Path(__file__).parents[4] / "shared" / "data" / "fox"
needs_fox = pytest.mark.skipif(not FOX.is_dir(), reason=f"needs the scene in {FOX}")


def tiny(folder, steps=4, rays=256, **model):
    config = robust_nerfacto_tiny()
    config.data = config.pipeline.datamanager.data = FOX
    config.output_dir, config.timestamp = folder, "now"
    config.max_num_iterations, config.steps_per_eval_image = steps, 10_000
    manager = config.pipeline.datamanager
    manager.camera_res_scale_factor, manager.train_num_rays_per_batch = 0.25, rays
    for name, value in model.items():
        assert hasattr(config.pipeline.model, name)
        setattr(config.pipeline.model, name, value)
    return config


def trainer_of(config):
    torch.manual_seed(0)
    trainer = Trainer(config)
    trainer.setup()
    return trainer


def one_step(pipeline):
    """Return what a training step gives: losses, metrics and the batch."""
    batches = []
    draw = pipeline.datamanager.next_train
    pipeline.datamanager.next_train = lambda step: batches.append(draw(step)) or batches[-1]
    pipeline.train()
    _, losses, metrics = pipeline.get_train_loss_dict(0)
    pipeline.datamanager.next_train = draw
    return losses, metrics, batches[0][1]


def test_both_methods_are_registered_for_ns_train():
    methods = entry_points(group="nerfstudio.method_configs")
    for name in ("robust-nerfacto", "robust-nerfacto-tiny"):
        (method,) = (method for method in methods if method.name == name)
        specification = method.load()
        assert isinstance(specification, MethodSpecification)
        assert specification.config.method_name == name


def test_configurations_are_new_at_each_call():
    first = robust_nerfacto()
    first.pipeline.model.rule = "none"
    assert robust_nerfacto().pipeline.model.rule == "adaptive"


def test_an_unsupported_version_is_one_line_and_no_error(monkeypatch):
    monkeypatch.setattr(plugin, "SUPPORTED", "7.3.")
    said = str(plugin.robust_nerfacto_method)
    assert "need nerfstudio 7.3.x where 1.1." in said
    assert "\n" not in said


def test_the_plugin_imports_neither_torch_nor_nerfstudio_by_itself():
    code = "import sys, inlier.integrations.nerfstudio; print({'torch', 'nerfstudio'} & set(sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "set()"


def test_options_are_flags():
    flags = {"rule": "both", "kernel": "tukey", "inlier-fraction": "0.6", "hold": "3", "robust-warmup": "9"}
    words = [word for name, value in flags.items() for word in (f"--{name}", value)]
    config = tyro.cli(
        tyro.conf.FlagConversionOff[RobustNerfactoModelConfig], args=[*words, "--null-correction", "False"]
    )
    assert (config.rule, config.kernel, config.inlier_fraction, config.hold) == ("both", "tukey", 0.6, 3)
    assert config.null_correction is False


@pytest.mark.slow
def test_a_broken_plugin_leaves_the_methods_of_others(tmp_path):
    shim = (Path(__file__).parent / "shim" / "sitecustomize.py").read_text()
    (tmp_path / "sitecustomize.py").write_text(
        shim
        + """

class Break:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "inlier.integrations.nerfstudio._model":
            raise RuntimeError("broken on purpose")


sys.meta_path.insert(0, Break)
"""
    )
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ["PYTHONPATH"]]),
        "COLUMNS": "200",
    }
    code = "from nerfstudio.scripts.train import entrypoint; entrypoint()"
    command = [sys.executable, "-W", "ignore", "-c", code, "--help"]
    run = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert run.returncode == 0, run.stderr
    assert "RuntimeError: broken on purpose" in " ".join(run.stdout.split())
    assert "nerfacto-big" in run.stdout
    assert "robust-nerfacto-tiny" not in run.stdout


@needs_fox
def test_the_rule_none_is_nerfacto(tmp_path):
    pipeline = trainer_of(tiny(tmp_path, rule="none")).pipeline
    losses, _, _ = one_step(pipeline)
    assert pipeline.model.robust is None
    assert pipeline.model.last_kept is None
    assert set(losses) == {"rgb_loss", "interlevel_loss", "distortion_loss"}


@pytest.fixture(scope="module")
def first_step(tmp_path_factory):
    """A pipeline after its first step; the losses, metrics and batch of that step."""
    pipeline = trainer_of(tiny(tmp_path_factory.mktemp("first"))).pipeline
    return pipeline, *one_step(pipeline)


@needs_fox
def test_before_anything_is_learned_the_loss_is_that_of_nerfacto(first_step):
    pipeline, losses, metrics, batch = first_step
    assert bool((pipeline.model.last_kept == 1).all())
    assert len(batch["indices"]) == len(pipeline.model.last_kept)
    assert float(metrics["kept_fraction"]) == 1
    # With weights 1 the weighted mean squared error is that of all rays.
    torch.testing.assert_close(metrics["psnr_kept"], -10 * losses["rgb_loss"].detach().log10())
    assert {"scale", "inlier_fraction", "psnr_kept", "kept_fraction"} <= set(metrics)


@needs_fox
def test_each_pixel_is_remembered_at_its_place(first_step):
    pipeline, _, _, batch = first_step
    model = pipeline.model
    seen = {tuple(place) for place in batch["indices"].tolist()}
    maps = [model.pixel_weights(camera) for camera in range(model.num_train_data)]
    image = pipeline.datamanager.train_dataset[0]["image"]
    assert maps[0].shape == image.shape[:2]
    known = {(k, *place) for k, weights in enumerate(maps) for place in (~weights.isnan()).nonzero().tolist()}
    assert known == seen


@needs_fox
def test_the_loss_is_divided_by_what_the_weights_add_up_to(tmp_path):
    model = trainer_of(tiny(tmp_path, inlier_fraction=0.25, robust_warmup=0, update_every=1)).pipeline.model
    prediction, target = torch.rand(2, 100, 3)
    errors, seen = (prediction - target).square().mean(-1), []
    # In the first step all weights are 1, whatever the fraction will be.
    for divisor, fraction in (("weights", 1), ("weights", 0.25), ("samples", 1)):
        model.config.divide_by = divisor
        loss, _ = model.colours(prediction, target, None)
        torch.testing.assert_close(loss, (model.last_kept * errors).sum() / (100 * fraction))
        seen.append(float(model.last_kept.mean()))
    assert seen[0] == 1
    assert seen[1] == pytest.approx(0.25, abs=0.01)


@needs_fox
def test_weights_come_from_current_errors(tmp_path):
    pipeline = trainer_of(tiny(tmp_path, inlier_fraction=0.5, robust_warmup=0, update_every=1)).pipeline
    one_step(pipeline)
    robust = pipeline.model.robust
    robust._memory.mean.fill_(1e6)  # Every pixel was an outlier at its last visit.
    one_step(pipeline)
    assert float(robust.last_weights.mean()) > 0.4


@needs_fox
def test_in_evaluation_nothing_is_weighed_or_learned(tmp_path):
    pipeline = trainer_of(tiny(tmp_path)).pipeline
    pipeline.get_eval_loss_dict(0)
    assert pipeline.model.last_kept is None
    assert bool(pipeline.model.robust.inlier_probability().isnan().all())


@needs_fox
def test_robust_nerfs_rule_gets_whole_patches_and_the_threshold_of_the_step_before(tmp_path):
    pipeline = trainer_of(tiny(tmp_path, rule="robustnerf", rays=600)).pipeline
    model = pipeline.model
    _, _, batch = one_step(pipeline)
    assert bool((model.last_kept == 1).all())  # Nothing came before.
    places = batch["indices"].view(2, 16, 16, 3)
    assert bool((places[:, :, 1:, 2] - places[:, :, :-1, 2] == 1).all())
    before = model.colours.error_threshold.clone()
    assert bool(before.isfinite())
    errors = before * 2 * torch.rand(512)
    kept = model.colours._weigh(errors, None)
    assert bool(
        torch.equal(kept.view(2, 16, 16).bool(), robust_nerf.kept_pixels(errors.view(2, 16, 16), before))
    )
    torch.testing.assert_close(model.colours.error_threshold, errors.quantile(0.5))


@needs_fox
def test_both_rules_together_keep_at_least_what_ours_keeps(tmp_path):
    settings = {"inlier_fraction": 0.3, "robust_warmup": 0, "update_every": 1}
    model = (pipeline := trainer_of(tiny(tmp_path, rule="both", rays=512, **settings)).pipeline).model
    for _ in range(2):
        one_step(pipeline)
    ours = model.robust.last_weights
    assert bool((ours < 0.5).any())
    vote = robust_nerf.vote(robust_nerf.as_patches(ours, 16) >= 0.5).flatten()
    torch.testing.assert_close(model.last_kept, torch.maximum(ours, vote.float()))
    assert bool((model.last_kept >= ours).all())


@needs_fox
@pytest.mark.parametrize(("fraction", "last"), [(0.8, "Truncated()"), (0.6, "GemanMcClure()")])
def test_the_kernel_becomes_hard_after_the_warm_up_where_most_pixels_are_inliers(tmp_path, fraction, last):
    pipeline = trainer_of(tiny(tmp_path, robust_warmup=3, update_every=1, inlier_fraction=fraction)).pipeline
    model, seen = pipeline.model, []
    for step in range(5):
        one_step(pipeline)
        seen.append(str(model.robust.kernel))
        model.harden(step)
    assert seen == ["GemanMcClure()"] * 3 + [last] * 2
    assert (set(model.last_kept.tolist()) == {0.0, 1.0}) == (last == "Truncated()")


@needs_fox
def test_images_are_compared_without_their_exposure_once_the_warm_up_is_over(tmp_path):
    pipeline = trainer_of(tiny(tmp_path, robust_warmup=1, image_gains=True)).pipeline
    model = pipeline.model
    one_step(pipeline)
    # All images but one are as bright as the scene; that one is a hundred times as bright.
    model.image_gains.sums[:] = 1.0
    model.image_gains.sums[0, 3] = 100.0
    target, image = torch.full((8, 3), 0.5), torch.tensor([0, 3] * 4)
    corrected = model._exposed_as_usual(target, torch.zeros(8, 3), image)
    torch.testing.assert_close(corrected[:2], torch.tensor([[0.5] * 3, [0.005] * 3]))
    before = model.image_gains.sums.clone()
    losses, _, _ = one_step(pipeline)
    assert bool(losses["rgb_loss"].isfinite())
    assert not torch.equal(model.image_gains.sums, before)
    assert "image_gains.sums" in model.state_dict()


def test_the_model_of_splats_can_be_configured():
    from inlier.integrations.nerfstudio._splats import RobustSplatfactoModel, RobustSplatfactoModelConfig

    assert RobustSplatfactoModelConfig(inlier_fraction=0.8)._target is RobustSplatfactoModel


@needs_fox
def test_a_kernel_that_is_named_stays(tmp_path):
    pipeline = trainer_of(tiny(tmp_path, robust_warmup=1, kernel="tukey")).pipeline
    for step in range(2):
        one_step(pipeline)
        pipeline.model.harden(step)
    assert str(pipeline.model.robust.kernel) == "Tukey()"


@needs_fox
@pytest.mark.parametrize(
    ("rule", "fraction", "kernel"),
    [
        ("adaptive", "auto", "Truncated()"),
        ("adaptive", 0.6, "GemanMcClure()"),
        ("robustnerf", "auto", None),
    ],
)
def test_a_checkpoint_brings_everything_back(tmp_path, monkeypatch, rule, fraction, kernel):
    monkeypatch.setattr("inlier.integrations.nerfstudio._model.HARDEN_EVERY", 5)
    settings = {"rule": rule, "inlier_fraction": fraction, "rays": 512, "update_every": 2, "robust_warmup": 2}
    first = trainer_of(tiny(tmp_path, steps=6, **settings))
    first.train()
    (checkpoint,) = tmp_path.rglob("*.ckpt")
    config = tiny(tmp_path / "again", steps=2, **settings)
    config.load_dir = checkpoint.parent
    second = trainer_of(config)
    before, after = first.pipeline.model.state_dict(), second.pipeline.model.state_dict()
    assert before.keys() == after.keys()
    for name in before:
        torch.testing.assert_close(after[name], before[name], rtol=0, atol=0, equal_nan=True)
    if rule == "adaptive":
        old, new = first.pipeline.model, second.pipeline.model
        assert str(new.robust.kernel) == kernel
        assert torch.equal(new.robust.scale, old.robust.scale)
        assert new.robust.fraction_estimate == old.robust.fraction_estimate
        if fraction == "auto":
            assert new.colours.null_model.estimate() == old.colours.null_model.estimate()
            assert new.colours.null_model.estimate().value < 1
    second.train()
    assert second.step == 7


@needs_fox
def test_a_checkpoint_of_other_image_sizes_loads(tmp_path):
    first = trainer_of(tiny(tmp_path, steps=2))
    first.train()
    (checkpoint,) = tmp_path.rglob("*.ckpt")
    config = tiny(tmp_path / "again")
    config.pipeline.datamanager.camera_res_scale_factor = 0.5
    pipeline = config.pipeline.setup(device="cpu", test_mode="val")
    pipeline.load_pipeline(torch.load(checkpoint)["pipeline"], 2)
    assert torch.equal(pipeline.model.camera_sizes, first.pipeline.model.camera_sizes)
    assert pipeline.model.pixel_weights(3).shape == first.pipeline.model.pixel_weights(3).shape


@needs_fox
def test_too_many_pixels_are_weighted_without_memory(tmp_path, capsys):
    pipeline = trainer_of(tiny(tmp_path)).pipeline
    model = pipeline.model
    model._number_pixels(torch.full((model.num_train_data, 2), MOST_PIXELS))
    assert "too many to remember" in " ".join(capsys.readouterr().out.split())
    one_step(pipeline)
    assert model.pixel_weights(0) is None


@needs_fox
def test_without_the_weights_of_lpips_a_line_says_so(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    pipeline = tiny(tmp_path).pipeline.setup(device="cpu", test_mode="val")
    assert "inlier: LPIPS will be missing" in capsys.readouterr().out
    pipeline.eval()
    metrics, _ = pipeline.get_eval_image_metrics_and_images(0)
    assert metrics["lpips"] != metrics["lpips"]
    assert metrics["psnr"] > 0


@needs_fox
@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_without_a_gpu_a_line_says_what_to_do(tmp_path):
    config = tiny(tmp_path)
    with pytest.raises(SystemExit, match="no GPU was found: train with robust-nerfacto-tiny"):
        config.pipeline.setup(device="cuda:0", test_mode="val")
