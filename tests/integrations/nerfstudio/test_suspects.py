"""``inlier scene suspects``: maps of the pixels of a real training; no Python object is made from its files."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

pytest.importorskip("nerfstudio", reason="needs nerfstudio; make test-scene installs it")

from inlier._errors import InputError
from inlier.cli import app
from inlier.integrations.nerfstudio._configs import robust_nerfacto_tiny
from inlier.integrations.nerfstudio._find_pixels import find
from inlier.integrations.nerfstudio._maps import outlier_map
from inlier.integrations.nerfstudio._silence import quiet

FOX = Path(__file__).parents[4] / "shared" / "data" / "fox"
pytestmark = pytest.mark.skipif(not FOX.is_dir(), reason=f"needs the scene in {FOX}")


def trained(folder, rule="adaptive"):
    """Train a few steps with nerfstudio's own trainer; return its output folder and the model."""
    config = robust_nerfacto_tiny()
    config.data = config.pipeline.datamanager.data = FOX
    config.output_dir, config.max_num_iterations, config.timestamp = folder, 4, "now"
    config.pipeline.model.rule = rule
    config.pipeline.model.robust_warmup = 0
    config.pipeline.datamanager.camera_res_scale_factor = 0.2
    for name in ("steps_per_eval_image", "steps_per_eval_batch", "steps_per_eval_all_images"):
        setattr(config, name, 10**6)
    config.set_experiment_name()
    with quiet():
        config.save_config()
        trainer = config.setup(local_rank=0, world_size=1)
        trainer.setup()
        trainer.train()
    return config.get_base_dir(), trainer.pipeline.model


@pytest.fixture(scope="module")
def training(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("outputs"))


def test_each_training_image_has_the_map_of_its_weights(training, tmp_path):
    output, model = training
    done = subprocess.run(
        [sys.executable, "-m", "inlier.cli", "scene", "suspects", str(output), "--out", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"43 maps in {tmp_path}, shown in {tmp_path / 'index.html'}\n"
    names = sorted(path.name for path in tmp_path.glob("*.png"))
    assert len(names) == 43
    for camera in (0, 42):
        assert (tmp_path / names[camera]).read_bytes() == outlier_map(model.pixel_weights(camera))
    with Image.open(tmp_path / names[0]) as image:
        assert image.size == (27, 48)
        assert 0 < (np.array(image)[..., 1] > 0).mean() < 1
    assert (tmp_path / "index.html").read_text().count("<figure>") == 43


def test_maps_go_beside_the_training_by_default(training):
    output, _ = training
    assert find(output / "config.yml").sheet == output / "suspects" / "index.html"
    shutil.rmtree(output / "suspects")


def test_a_command_that_is_interrupted_does_not_say_that_nothing_was_written(training, tmp_path, monkeypatch):
    def interrupted(weights):
        if list(tmp_path.glob("*.png")):
            raise KeyboardInterrupt
        return outlier_map(weights)

    monkeypatch.setattr("inlier.integrations.nerfstudio._maps.outlier_map", interrupted)
    result = CliRunner().invoke(app, ["scene", "suspects", str(training[0]), "--out", str(tmp_path)])
    assert result.exit_code == 130
    assert "stopped; some maps may have been written, the sheet was not" in result.output
    assert [path.suffix for path in tmp_path.iterdir()] == [".png"]


def test_a_configuration_that_would_run_something_runs_nothing(training, tmp_path):
    output, _ = training
    copy = tmp_path / "scene" / "robust-nerfacto" / "now"
    shutil.copytree(output, copy)
    trap = tmp_path / "trap"
    text = (copy / "config.yml").read_text()
    (copy / "config.yml").write_text(f"{text}trap: !!python/object/apply:os.mkdir [{trap}]\n")
    assert find(copy).images == 43
    assert not trap.exists()


class Trap:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def test_a_checkpoint_that_would_run_something_is_refused(training, tmp_path):
    output, _ = training
    copy = tmp_path / "scene" / "robust-nerfacto" / "now"
    shutil.copytree(output, copy)
    torch.save({"pipeline": {}, "trap": Trap(tmp_path / "trap")}, copy / "nerfstudio_models" / "step-9.ckpt")
    with pytest.raises(InputError, match="cannot be read"):
        find(copy)
    assert not (tmp_path / "trap").exists()


def test_what_is_no_such_output_is_refused_with_the_reason(training, tmp_path):
    with pytest.raises(InputError, match=r"holds no config\.yml"):
        find(tmp_path)
    (tmp_path / "config.yml").write_text("a: [1")
    with pytest.raises(InputError, match="cannot be read"):
        find(tmp_path)
    (tmp_path / "config.yml").write_text("a: 1")
    with pytest.raises(InputError, match="is no configuration of a training"):
        find(tmp_path)
    shutil.copy(training[0] / "config.yml", tmp_path / "config.yml")
    with pytest.raises(InputError, match="holds no checkpoint"):
        find(tmp_path)


def test_a_training_that_remembers_no_pixels_says_so(tmp_path):
    output, _ = trained(tmp_path, rule="none")
    with pytest.raises(InputError, match="remembered no pixels"):
        find(output)
