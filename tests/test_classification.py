"""The classification experiment: every method trains, stops and goes on, alone and on two processes."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import torch

from inlier.experiments import Places, Row, load, plan
from inlier.experiments.classification import PRESETS, average_precision, compute, given_labels, rows
from inlier.experiments.classification_methods import METHODS, RIVALS
from inlier.vision import cifar, training
from inlier.vision.images import Images
from inlier.vision.training import Course, train
from tests.pictures import tiny_cifar

ROOT = Path(__file__).parent.parent
DATA = ROOT.parent / "shared" / "data" / "cifar10"
COURSE = Course("compact", epochs=2, batch=16, step_size=0.02)
BELIEFS = {"adaptive-t-gm", "adaptive-t-gm-auto", "robust", "robust-told", "trimmed", "elr"}
"""The methods that can say which labels they doubt."""


def tiny(samples=48, classes=4, seed=0) -> Images:
    """Noise whose brightness tells the class."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(samples) % classes
    pixels = torch.randint(0, 60, (samples, 3, 32, 32), generator=generator)
    pixels += (labels * 190 // classes).view(-1, 1, 1, 1)
    return Images(pixels.to(torch.uint8), labels, tuple("abcdefghij"[:classes]))


@pytest.fixture
def data(tmp_path, monkeypatch):
    monkeypatch.setenv("INLIER_CACHE", str(tmp_path / "cache"))
    return tiny_cifar(tmp_path / "data")


# One training


@pytest.mark.parametrize("name", METHODS)
def test_every_method_trains(name):
    images = tiny()
    watched = []
    outcome = train(METHODS[name], images, images, 0.9, COURSE, seed=0, watch=watched.append)
    assert watched == [1, 2]
    assert list(outcome.test) == list(outcome.fitted) == [1, 2]
    assert all(0 <= value <= 100 for value in (*outcome.test.values(), *outcome.fitted.values()))
    assert len(outcome.networks) == (2 if name == "co-teaching" else 1)
    assert all(bool(p.isfinite().all()) for p in outcome.networks.parameters())
    suspicion = outcome.method.suspicion(images.labels)
    if name in BELIEFS:
        assert suspicion.shape == (48,)
        assert bool(suspicion.isfinite().all())
    else:
        assert suspicion is None


def test_plain_training_learns_and_its_course_depends_on_the_seed_alone():
    images = tiny()
    course = replace(COURSE, epochs=6, evaluate_every=3, augment=False)
    torch.manual_seed(1)
    first = train(METHODS["sgd"], images, images, 1.0, course, seed=0)
    torch.manual_seed(2)
    again = train(METHODS["sgd"], images, images, 1.0, course, seed=0)
    other = train(METHODS["sgd"], images, images, 1.0, course, seed=1)
    assert list(first.test) == [3, 6]
    assert first.fitted[6] > max(first.fitted[1], 60)
    for name, value in first.networks.state_dict().items():
        assert torch.equal(value, again.networks.state_dict()[name])
    assert first.fitted != other.fitted


@pytest.mark.parametrize("name", ["sgd", "robust", "trimmed", "co-teaching", "elr", "adaptive-t-gm"])
def test_a_training_that_was_stopped_goes_on_to_the_same_weights(name, tmp_path):
    images = tiny()
    course = replace(COURSE, epochs=4, schedule="cosine")
    checkpoint = tmp_path / "kept" / "a.pt"
    whole = train(METHODS[name], images, images, 0.8, course, seed=3)
    half = train(METHODS[name], images, images, 0.8, course, 3, checkpoint, stop_after=2)
    assert list(half.fitted) == [1, 2]
    assert [path.name for path in checkpoint.parent.iterdir()] == ["a.pt"]
    rest = train(METHODS[name], images, images, 0.8, course, 3, checkpoint)
    assert (rest.test, rest.fitted) == (whole.test, whole.fitted)
    for part in ("networks", "method"):
        expected = getattr(whole, part).state_dict()
        found = getattr(rest, part).state_dict()
        assert expected.keys() == found.keys()
        for key, value in expected.items():
            assert torch.equal(value.nan_to_num(-1), found[key].nan_to_num(-1)), key


def test_a_checkpoint_of_another_training_is_refused(tmp_path):
    images = tiny()
    train(METHODS["sgd"], images, None, 1.0, COURSE, 0, tmp_path / "a.pt", stop_after=1)
    with pytest.raises(ValueError, match=r"a\.pt is of another training"):
        train(METHODS["sgd"], images, None, 1.0, COURSE, 1, tmp_path / "a.pt")


def test_checkpoints_come_by_the_clock(tmp_path, monkeypatch):
    train(METHODS["sgd"], tiny(), None, 1.0, COURSE, 0, tmp_path / "a.pt")
    assert not list(tmp_path.iterdir())
    monkeypatch.setattr(training, "CHECKPOINT_EVERY", 0.0)
    train(METHODS["sgd"], tiny(), None, 1.0, COURSE, 0, tmp_path / "a.pt")
    assert [path.name for path in tmp_path.iterdir()] == ["a.pt"]


def test_adaptive_methods_that_are_told_the_fraction_keep_it():
    course = replace(COURSE, batch=8, epochs=4)  # 24 steps: one more than the first update needs.
    for name in ("adaptive-tl", "adaptive-gm", "adaptive-t-gm"):
        outcome = train(METHODS[name], tiny(), None, 0.75, course, seed=0)
        assert outcome.method.estimated_fraction == pytest.approx(0.75)
    assert math.isnan(train(METHODS["sgd"], tiny(), None, 0.75, COURSE, 0).method.estimated_fraction)


def test_trimming_keeps_a_little_less_than_the_right_labels_after_its_warm_up():
    method = METHODS["trimmed"](training.Task(100, 4, 0.75, epochs=6, steps=5))
    method.start_epoch(0)
    assert method.kept.all()
    losses = torch.linspace(0.1, 4, 100)
    logits = torch.stack(
        [-torch.expm1(losses).log(), torch.zeros(100)], 1
    )  # Cross-entropy of class 0: losses.
    method([logits], torch.zeros(100, dtype=torch.int64), torch.arange(100))
    method.start_epoch(1)
    assert torch.equal(method.kept, torch.arange(100) < 70)


@pytest.mark.slow
def test_some_steps_of_the_preset_paper():
    course = Course(**PRESETS["paper"]["course"])
    assert course == Course("dla-34", 500, 128, 1e-3, "fixed", 0.9, 5e-4, True)
    images = tiny(130, 10)  # The last of which joins the first batch.
    outcome = train(METHODS["adaptive-gm"], images, images.first(10), 0.8, course, seed=0, stop_after=2)
    assert list(outcome.fitted) == [1, 2]
    assert sum(p.numel() for p in outcome.networks.parameters()) == 16_291_386
    assert all(bool(p.isfinite().all()) for p in outcome.networks.parameters())


# The experiment


def test_average_precision_is_that_of_looking_at_the_most_suspicious_first():
    wrong = torch.tensor([True, False, True, False])
    assert average_precision(torch.tensor([4.0, 2.0, 3.0, 1.0]), wrong) == 1.0
    assert average_precision(torch.tensor([1.0, 4.0, 2.0, 3.0]), wrong) == pytest.approx((1 / 3 + 2 / 4) / 2)
    # A sample that was never judged is looked at last.
    assert average_precision(torch.tensor([math.nan, 2.0, 3.0, 1.0]), wrong) == pytest.approx((1 + 2 / 4) / 2)


@pytest.mark.parametrize("preset", PRESETS)
def test_the_plan_has_drawn_and_human_labels(preset):
    wanted = plan(load("classification"), preset)
    assert wanted.methods == tuple(METHODS)
    assert set(RIVALS) < set(METHODS)
    noises = {row.settings["noise"] for row in wanted.rows}
    assert noises == {"symmetric", *PRESETS[preset]["human_labels"]}
    for row in wanted.rows:
        Course(**row.settings["course"])


def test_preset_cpu_tries_three_seeds_where_it_matters_and_one_elsewhere():
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


def test_preset_cpu_seeds_tries_all_seeds_everywhere_and_goes_on_from_rows_of_cpu():
    some, everywhere = (plan(load("classification"), preset, ["sgd"]).rows for preset in ("cpu", "cpu-seeds"))
    assert set(Counter((row.settings["noise"], row.rate) for row in everywhere).values()) == {3}
    assert {row.key for row in some} < {row.key for row in everywhere}


def test_how_many_seeds_does_not_change_a_row():
    settings = {key: value for key, value in PRESETS["cpu"].items() if key not in ("rates", "seeds")}
    one = rows(["sgd"], [0.4], 1, settings)
    assert set(one) <= set(rows(["sgd"], [0.4], 3, settings))


@pytest.mark.parametrize(
    ("noise", "wrong"), [("symmetric", None), ("pair-flip", 38), ("worse", None), ("aggre", None)]
)
def test_given_labels_are_those_that_the_row_names(data, noise, wrong):
    images, _ = cifar.cifar10(data)
    row = Row("sgd", 0.4, 0, {"noise": noise, "true_class_included": True})
    given = given_labels(images, row, data)
    assert given.shape == images.labels.shape
    found = int((given != images.labels).sum())
    assert 0 < found < 60
    assert wrong is None or found == wrong


def test_a_row_goes_on_from_its_checkpoint_which_goes_with_it(data, tmp_path):
    (row,) = [row for row in plan(load("classification"), "smoke", ["sgd"]).rows if row.rate == 0.4]
    places = Places(tmp_path / "checkpoints", data)
    ((_, expected),) = compute([row], places)
    clean, test = cifar.cifar10(data)
    given = given_labels(clean, row)
    course = Course(**row.settings["course"])
    checkpoint = places.checkpoints / f"{row.key}.pt"
    train(METHODS["sgd"], replace(clean, labels=given), test, 1.0, course, 0, checkpoint, stop_after=1)
    assert checkpoint.exists()
    ((_, found),) = compute([row], places)
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
    places = ["--data", str(data), "--out", str(out)]
    return subprocess.run(
        [sys.executable, *(launch if processes > 1 else []), "-m", "inlier.cli", *arguments, *places],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )


@pytest.mark.slow
def test_the_command_line_at_preset_smoke(data, tmp_path):
    out = tmp_path / "out"
    result = reproduce(data, out, "sgd,robust")
    assert result.returncode == 0, result.stderr
    frame = pd.read_parquet(out / "results.parquet")
    assert set(frame["method"]) == {"sgd", "robust"}
    assert len(frame) == 4
    assert frame["accuracy"].between(0, 100).all()
    assert frame[frame["method"] == "robust"]["average_precision"].between(0, 1).all()
    for name in ("accuracy.png", "wrong_labels.png", "epochs.svg", "README.md"):
        assert (out / name).stat().st_size > 0
    assert not list(out.glob("checkpoints/*"))


@pytest.mark.slow
def test_data_that_are_missing_are_named_in_one_line(tmp_path):
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
def test_a_failure_on_two_processes_ends_both_with_its_reason(data, tmp_path):
    (data / "train.parquet").write_bytes(b"broken")
    result = reproduce(data, tmp_path / "out", "sgd", processes=2)
    assert result.returncode != 0
    assert "inlier: sgd at rate 0.4:" in result.stderr


@pytest.mark.slow
@pytest.mark.skipif(not torch.distributed.is_gloo_available(), reason="needs gloo")
def test_two_processes_hold_the_same_weights_and_beliefs(tmp_path):
    """Batch normalisation sees half a batch on each, so weights differ from those of one process, not from
    each other."""
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
    for name in ("robust", "trimmed", "elr"):
        for key, value in first[name]["parameters"].items():
            assert torch.equal(value, second[name]["parameters"][key]), (name, key)
        assert torch.equal(first[name]["suspicion"], second[name]["suspicion"])
        assert bool(first[name]["suspicion"].isfinite().all())
        assert first[name]["fitted"] == second[name]["fitted"]
        assert max(first[name]["fitted"].values()) <= 100


TWO_PROCESSES = """
import sys, torch, torch.distributed as dist
from inlier.experiments.classification_methods import METHODS
from inlier.vision.training import train
from tests.test_classification import COURSE, tiny

folder, rank = sys.argv[1], int(sys.argv[2])
torch.set_num_threads(1)
dist.init_process_group("gloo", f"file://{folder}/meet", rank=rank, world_size=2)
found, images = {}, tiny(49)
for name in ("robust", "trimmed", "elr"):
    outcome = train(METHODS[name], images, images, 0.8, COURSE, 0, None)
    found[name] = {
        "parameters": {k: p.detach() for k, p in outcome.networks.named_parameters()},
        "suspicion": outcome.method.suspicion(images.labels),
        "fitted": outcome.fitted,
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
    assert "wrong" in result.stdout
