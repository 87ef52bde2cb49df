"""The paper's scenes (section 6.3, figures 1, 4, 5 and 6): ``inlier reproduce scene --data FOLDER``.

Nerfacto learns a scene from images with corrupted pixels, and is evaluated on clean held-out images. Each row
is one training. Methods with the inlier fraction as prior knowledge are given that of the very images they
train on.

Besides the paper's noise in single pixels there are the presets ``cpu-object`` (an object that moves through
some of the images) and ``cpu-exposure`` (some images exposed wrongly), where the rate is that of such images.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from inlier.experiments.scene.data import describe
from inlier.experiments.scene.figures import artifact_file, figures, has_artifacts
from inlier.experiments.scene.training import METHODS, train_scene
from inlier.experiments.sweep import Experiment, Folders, Row

__all__ = ["EXPERIMENT"]

CPU: dict[str, Any] = {
    "rates": [0.0, 0.2, 0.5, 0.8, 0.9],
    "seeds": 1,
    "version": 3,
    "corruption": "noise",
    "size": "tiny",
    "steps": 2500,
    "rays": 1024,
    "step_size": 1e-2,
    "last_step_size": 1e-3,
    "decay_steps": 2500,
    "hold": 50,
    "gradient_limit": 1e-2,
    "largest_side": 160,
    "held_out": 7,
}
PRESETS: dict[str, dict[str, Any]] = {
    # Section 6.3 to the letter; a GPU.
    "paper": {
        "rates": [tenth / 10 for tenth in range(10)],
        "seeds": 5,
        "version": 3,
        "corruption": "noise",
        "size": "stock",
        "steps": 30_000,
        "rays": 4096,
        "step_size": 1e-3,
        "last_step_size": 1e-4,
        "decay_steps": 200_000,
        "hold": 100,
        "gradient_limit": 1e-2,
        "largest_side": None,
        "held_out": None,
    },
    "cpu": CPU,
    "cpu-object": CPU | {"rates": [0.0, 0.3, 0.6], "corruption": "object"},
    "cpu-exposure": CPU | {"rates": [0.0, 0.2, 0.4], "corruption": "exposure"},
    "smoke": CPU
    | {
        "rates": [0.5],
        "methods": ["adam", "robust"],
        "steps": 300,
        "decay_steps": 300,
        "held_out": 4,
        "model": {"robust_warmup": 100},
    },
}


def compute(rows: Sequence[Row], folders: Folders) -> Iterator[tuple[Row, Mapping[str, float] | Exception]]:
    """Train each row, and save what the figures need."""
    from safetensors.torch import save_file

    scene = folders.data or Path()
    for row in rows:
        result = train_scene(METHODS[row.method], scene, row.rate, row.seed, row.settings)
        if has_artifacts(row):
            path = artifact_file(row, folders.checkpoints.parent)
            path.parent.mkdir(parents=True, exist_ok=True)
            save_file(result.artifacts, path)
        yield row, result.metrics


EXPERIMENT = Experiment(
    name="scene",
    description="Nerfacto on images with corrupted pixels",
    methods=tuple(METHODS),
    presets=PRESETS,
    metric="psnr",
    compute=compute,
    figures=figures,
    needs_folders=True,
    describe_data=describe,
)
