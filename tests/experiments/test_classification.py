"""The classification experiment: every method trains and resumes, alone and on two processes."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import torch
from safetensors.torch import save_file

from inlier._errors import InputError
from inlier._vision.training import Task, TrainingConfig, train
from inlier.experiments.classification.experiment import (
    PRESETS,
    average_precision,
    compute,
    given_labels,
    make_rows,
)
from inlier.experiments.classification.features import features
from inlier.experiments.classification.methods import METHODS
from inlier.experiments.datasets import cifar
from inlier.experiments.sweep import Folders, Row, load, plan
from inlier.fit._image_encoders import ALEXNET_FILE, ImageEncoder, _AlexNet
from tests.vision.image_files import tiny_cifar, tiny_images

ROOT = Path(__file__).parents[2]
DATA = ROOT.parent / "shared" / "data" / "cifar10"
CONFIG = TrainingConfig("compact", epochs=3, batch_size=16, step_size=0.02, schedule="cosine")
SCORING = {"adaptive-t-gm", "adaptive-t-gm-auto", "inlier", "inlier-given", "trimmed", "elr"}
"""The methods with an outlier score."""


@pytest.fixture(scope="module")
def tiny_folder(tmp_path_factory):
    return tiny_cifar(tmp_path_factory.mktemp("cifar"))


@pytest.fixture
def data(tiny_folder, tmp_path_factory, monkeypatch):
    monkeypatch.setenv("INLIER_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
    return tiny_folder


# Methods


@pytest.mark.parametrize("name", METHODS)
def test_every_method_trains_and_a_stopped_training_resumes_to_the_same_state(name, tmp_path):
    images, checkpoint = tiny_images(), tmp_path / "folder" / "a.pt"
    whole = train(METHODS[name], images, images, 0.8, CONFIG, seed=3)
    half = train(METHODS[name], images, images, 0.8, CONFIG, 3, checkpoint, stop_after=1)
    assert list(half.train_accuracy) == [1]
    assert [path.name for path in checkpoint.parent.iterdir()] == ["a.pt"]
    rest = train(METHODS[name], images, images, 0.8, CONFIG, 3, checkpoint)
    assert list(whole.test_accuracy) == list(whole.train_accuracy) == [1, 2, 3]
    assert all(0 <= value <= 100 for value in whole.test_accuracy.values())
    assert all(bool(p.isfinite().all()) for p in whole.networks.parameters())
    assert len(whole.networks) == (2 if name == "co-teaching" else 1)
    assert (rest.test_accuracy, rest.train_accuracy) == (whole.test_accuracy, whole.train_accuracy)
    for part in ("networks", "method"):
        expected = getattr(whole, part).state_dict()
        found = getattr(rest, part).state_dict()
        assert expected.keys() == found.keys()
        for key, value in expected.items():
            assert torch.equal(value.nan_to_num(-1), found[key].nan_to_num(-1)), key
    score = whole.method.outlier_score(images.labels)
    if name in SCORING:
        assert score.shape == (32,)
        assert bool(score.isfinite().all())
    else:
        assert score is None


def test_methods_that_are_given_the_fraction_keep_it():
    config = replace(CONFIG, batch_size=4)  # 24 steps: more than the first update needs.
    for name in ("adaptive-tl", "adaptive-t-gm"):
        result = train(METHODS[name], tiny_images(), None, 0.75, config, seed=0)
        assert result.method.estimated_fraction == pytest.approx(0.75)
    assert math.isnan(METHODS["sgd"](Task(32, 4, 0.75, 3, 8)).estimated_fraction)


def test_trimming_keeps_a_little_less_than_the_clean_labels_after_its_warm_up():
    method = METHODS["trimmed"](Task(100, 4, 0.75, epochs=6, steps=5))
    method.start_epoch(0)
    assert method.kept.all()
    losses = torch.linspace(0.1, 4, 100)
    # The cross-entropy of class 0 is then `losses`.
    logits = torch.stack([-torch.expm1(losses).log(), torch.zeros(100)], 1)
    method([logits], torch.zeros(100, dtype=torch.int64), torch.arange(100))
    method.start_epoch(1)
    assert torch.equal(method.kept, torch.arange(100) < 70)


@pytest.mark.slow
def test_some_steps_of_the_preset_paper():
    config = TrainingConfig(**PRESETS["paper"]["training"])
    assert config == TrainingConfig("dla-34", 500, 128, 1e-3, "fixed", 0.9, 5e-4, True)
    images = tiny_images(130, 10)  # The last two of which join the first batch.
    result = train(METHODS["adaptive-gm"], images, images.first(10), 0.8, config, seed=0, stop_after=2)
    assert list(result.train_accuracy) == [1, 2]
    assert all(bool(p.isfinite().all()) for p in result.networks.parameters())


# The experiment


def test_average_precision_ranks_by_score():
    noisy = torch.tensor([True, False, True, False])
    assert average_precision(torch.tensor([4.0, 2.0, 3.0, 1.0]), noisy) == 1.0
    assert average_precision(torch.tensor([1.0, 4.0, 2.0, 3.0]), noisy) == pytest.approx((1 / 3 + 2 / 4) / 2)
    # A sample without a score ranks last.
    assert average_precision(torch.tensor([math.nan, 2.0, 3.0, 1.0]), noisy) == pytest.approx((1 + 2 / 4) / 2)


def test_preset_cpu_augmented_differs_from_cpu_by_crops_and_flips():
    rows, augmented = (
        plan(load("classification"), preset, ["sgd"]).rows for preset in ("cpu", "cpu-augmented")
    )
    assert len(rows) == len(augmented)
    for row, other in zip(rows, augmented, strict=True):
        assert other.settings["training"] == row.settings["training"] | {"augment": True}


def alexnet_weights(folder):
    """Random weights of AlexNet's convolutions, where the preset looks for them."""
    torch.manual_seed(0)
    save_file(_AlexNet().state_dict(), folder / ALEXNET_FILE)


def test_preset_features_trains_a_head_on_an_encoder(data, tmp_path, monkeypatch):
    rows = plan(load("classification"), "features", ["sgd", "inlier"], [0.0]).rows
    with pytest.raises(InputError, match=r"alexnet_features\.safetensors"):
        list(compute(rows[:1], Folders(tmp_path / "checkpoints", data)))
    folder = tmp_path / "data"
    shutil.copytree(data, folder)
    alexnet_weights(folder)
    found = {(row.method, row.rate): metrics for row, metrics in compute(rows, Folders(tmp_path, folder))}
    # Brightness tells the class, and random convolutions see it.
    assert all(metrics["accuracy"] > 20 for metrics in found.values())
    assert found["inlier", 0.0]["accuracy"] == found["sgd", 0.0]["accuracy"]
    # A second time nothing is encoded.
    monkeypatch.setattr(ImageEncoder, "encode", None)
    features.cache_clear()
    train_set, test_set = features(folder)
    assert train_set.pixels.shape == (96, 2816)
    assert test_set.pixels.shape == (40, 2816)


@pytest.mark.parametrize("preset", PRESETS)
def test_the_plan_has_synthetic_and_human_labels(preset):
    wanted = plan(load("classification"), preset)
    assert wanted.methods == tuple(METHODS)
    noises = {row.settings["noise"] for row in wanted.rows}
    assert noises == {"symmetric", *PRESETS[preset]["human_labels"]}
    for row in wanted.rows:
        TrainingConfig(**row.settings["training"])


def test_preset_cpu_runs_three_seeds_at_two_rates_and_one_elsewhere():
    chosen = Counter(
        (row.settings["noise"], row.rate) for row in plan(load("classification"), "cpu", ["sgd"]).rows
    )
    assert chosen == {
        ("symmetric", 0.0): 1,
        ("symmetric", 0.2): 1,
        ("symmetric", 0.4): 3,
        ("symmetric", 0.6): 1,
        ("symmetric", 0.8): 3,
        ("worse", cifar.HUMAN_RATES["worse"]): 1,
    }


def test_preset_cpu_seeds_runs_all_seeds_everywhere_and_shares_the_rows_of_cpu():
    some, everywhere = (plan(load("classification"), preset, ["sgd"]).rows for preset in ("cpu", "cpu-seeds"))
    assert set(Counter((row.settings["noise"], row.rate) for row in everywhere).values()) == {3}
    assert {row.key for row in some} < {row.key for row in everywhere}


def test_the_number_of_seeds_does_not_change_a_row():
    settings = {key: value for key, value in PRESETS["cpu"].items() if key not in ("rates", "seeds")}
    one = make_rows(["sgd"], [0.4], 1, settings)
    assert set(one) <= set(make_rows(["sgd"], [0.4], 3, settings))


@pytest.mark.parametrize(
    ("noise", "count"), [("symmetric", None), ("pair-flip", 38), ("worse", None), ("aggre", None)]
)
def test_given_labels_are_those_that_the_row_names(data, noise, count):
    images, _ = cifar.cifar10(data)
    row = Row("sgd", 0.4, 0, {"noise": noise, "true_class_included": True})
    given = given_labels(images, row, data)
    assert given.shape == images.labels.shape
    found = int((given != images.labels).sum())
    assert 0 < found < 60
    assert count is None or found == count


def test_a_row_resumes_from_its_checkpoint_and_removes_it(data, tmp_path):
    (row,) = [row for row in plan(load("classification"), "smoke", ["sgd"]).rows if row.rate == 0.4]
    folders = Folders(tmp_path / "checkpoints", data)
    ((_, expected),) = compute([row], folders)
    clean, test = cifar.cifar10(data)
    given = given_labels(clean, row)
    config = TrainingConfig(**row.settings["training"])
    checkpoint = folders.checkpoints / f"{row.key}.pt"
    train(METHODS["sgd"], replace(clean, labels=given), test, 1.0, config, 0, checkpoint, stop_after=1)
    assert checkpoint.exists()
    ((_, found),) = compute([row], folders)
    assert {k: v for k, v in found.items() if v == v} == {k: v for k, v in expected.items() if v == v}
    assert not checkpoint.exists()


def reproduce(data, out, methods, processes=1):
    """Run the command line at preset smoke, in one process or as torchrun does."""
    launch = [
        "-m",
        "torch.distributed.run",
        f"--nproc-per-node={processes}",
        "--rdzv-backend=c10d",
        "--rdzv-endpoint=localhost:0",
    ]
    arguments = ["reproduce", "classification", "--preset", "smoke", "--methods", methods, "--jobs", "1"]
    folders = ["--data", str(data), "--out", str(out)]
    return subprocess.run(
        [sys.executable, *(launch if processes > 1 else []), "-m", "inlier.cli", *arguments, *folders],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )


@pytest.mark.slow
def test_the_command_line_at_preset_smoke(data, tmp_path):
    out = tmp_path / "out"
    result = reproduce(data, out, "sgd,inlier")
    assert result.returncode == 0, result.stderr
    frame = pd.read_parquet(out / "results.parquet")
    assert set(frame["method"]) == {"sgd", "inlier"}
    assert len(frame) == 4
    assert frame["accuracy"].between(0, 100).all()
    assert frame[frame["method"] == "inlier"]["average_precision"].between(0, 1).all()
    for name in ("accuracy.png", "noisy_labels.png", "epochs.svg", "README.md"):
        assert (out / name).stat().st_size > 0
    assert not list(out.glob("checkpoints/*"))


@pytest.mark.slow
def test_missing_data_is_named_in_one_line(tmp_path):
    result = reproduce(tmp_path, tmp_path / "out", "sgd")
    assert result.returncode == 1
    assert "train.parquet" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.slow
@pytest.mark.skipif(not torch.distributed.is_gloo_available(), reason="needs gloo")
def test_two_processes_compute_each_row_once_and_end(data, tmp_path):
    out = tmp_path / "out"
    result = reproduce(data, out, "sgd,trimmed", processes=2)
    assert result.returncode == 0, result.stderr
    journal = (out / "rows.jsonl").read_text()
    frame = pd.read_parquet(out / "results.parquet")
    assert Counter(frame["method"]) == {"sgd": 2, "trimmed": 2}
    assert result.stdout.count("results:") == 1  # The second process prints nothing.
    again = reproduce(data, out, "sgd,trimmed", processes=2)  # There is nothing left to do.
    assert again.returncode == 0, again.stderr
    assert again.stdout.count("results:") == 1
    assert (out / "rows.jsonl").read_text() == journal
    records = [json.loads(line) for line in journal.splitlines()]
    assert len(records) == 4
    assert len({(record["method"], record["rate"], record["seed"]) for record in records}) == 4


@pytest.mark.slow
@pytest.mark.skipif(not torch.distributed.is_gloo_available(), reason="needs gloo")
def test_a_failure_on_two_processes_ends_both_with_its_reason(tmp_path):
    for name in ("train.parquet", "test.parquet"):
        (tmp_path / name).write_bytes(b"broken")
    result = reproduce(tmp_path, tmp_path / "out", "sgd", processes=2)
    assert result.returncode != 0
    assert "inlier: sgd at rate 0.4:" in result.stderr


@pytest.mark.slow
@pytest.mark.skipif(not torch.distributed.is_gloo_available(), reason="needs gloo")
def test_two_processes_have_the_same_weights_and_scores(tmp_path):
    """Batch normalization sees half a batch on each, so weights differ from those of one process only."""
    script = tmp_path / "two.py"
    script.write_text(TWO_PROCESSES)
    started = [
        subprocess.Popen(
            [sys.executable, str(script), str(tmp_path), str(rank)],
            cwd=ROOT,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        )
        for rank in range(2)
    ]
    errors = [process.communicate(timeout=200)[1] for process in started]
    assert all(process.returncode == 0 for process in started), errors
    first, second = (torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in range(2))
    for name in ("inlier", "trimmed", "elr"):
        for key, value in first[name]["parameters"].items():
            assert torch.equal(value, second[name]["parameters"][key]), (name, key)
        assert torch.equal(first[name]["score"], second[name]["score"])
        assert bool(first[name]["score"].isfinite().all())
        assert first[name]["train_accuracy"] == second[name]["train_accuracy"]
        assert max(first[name]["train_accuracy"].values()) <= 100


TWO_PROCESSES = """
import sys, torch, torch.distributed as dist
from inlier.experiments.classification.methods import METHODS
from inlier._vision.training import train
from tests.experiments.test_classification import CONFIG
from tests.vision.image_files import tiny_images

folder, rank = sys.argv[1], int(sys.argv[2])
torch.set_num_threads(1)
dist.init_process_group("gloo", f"file://{folder}/rendezvous", rank=rank, world_size=2)
found, images = {}, tiny_images(49)
for name in ("inlier", "trimmed", "elr"):
    result = train(METHODS[name], images, images, 0.8, CONFIG, 0, None)
    found[name] = {
        "parameters": {k: p.detach() for k, p in result.networks.named_parameters()},
        "score": result.method.outlier_score(images.labels),
        "train_accuracy": result.train_accuracy,
    }
torch.save(found, f"{folder}/{rank}.pt")
dist.destroy_process_group()
"""


@pytest.mark.slow
@pytest.mark.skipif(not DATA.is_dir(), reason=f"needs CIFAR-10 in {DATA}")
def test_the_example_on_cifar10n_runs(tmp_path):
    assert len((ROOT / "examples" / "cifar10n.py").read_text().splitlines()) < 60
    result = subprocess.run(
        [sys.executable, "examples/cifar10n.py", "--data", str(DATA), "--epochs", "2", "--images", "512"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert result.returncode == 0, result.stderr
    assert "test accuracy" in result.stdout


def test_published_results_have_the_names_of_the_code():
    frame = pd.read_csv(ROOT / "docs" / "experiments" / "results" / "classification.csv")
    assert "inlier" in set(frame["method"]) <= set(METHODS)
    assert set(frame["noise"]) <= {"symmetric", *cifar.HUMAN_LABELS}
