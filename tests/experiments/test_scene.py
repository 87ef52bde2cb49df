"""The scene experiment, as far as it needs no nerfstudio: presets and methods."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from inlier.experiments.datasets.corruption import CORRUPTIONS
from inlier.experiments.scene.experiment import PRESETS
from inlier.experiments.scene.figures import LABELS
from inlier.experiments.scene.training import METHODS
from inlier.experiments.sweep import Experiment, plan


def named(folder):
    if folder is None:
        raise ValueError("data is missing")
    return {"scene": folder.name}


def test_rows_of_another_scene_are_other_rows():
    experiment = Experiment(
        "any", "", ("a",), {"cpu": {"rates": [0.5], "seeds": 1}}, "x", print, describe_data=named
    )
    fox, lego = (plan(experiment, data=Path(name)).rows[0] for name in ("fox", "lego"))
    assert fox.settings == {"scene": "fox"}
    assert fox != lego
    with pytest.raises(ValueError, match="data is missing"):
        plan(experiment)


def test_every_preset_has_all_settings():
    for preset in PRESETS.values():
        assert set(preset) - {"methods", "model"} == set(PRESETS["cpu"]) - {"methods", "model"}
        assert preset["corruption"] in CORRUPTIONS
        assert set(preset.get("methods", [])) <= set(METHODS)
    assert set(LABELS) == set(METHODS)


def test_published_results_have_the_names_of_the_code():
    frame = pd.read_csv(Path(__file__).parents[2] / "docs" / "experiments" / "results" / "scene.csv")
    assert set(frame["method"]) <= set(METHODS)
    assert set(frame["corruption"]) == set(CORRUPTIONS)
