"""Robust on several real processes (gloo, file rendezvous) against one process on the joined batches."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest
import torch

from tests import worker

pytestmark = pytest.mark.skipif(not torch.distributed.is_gloo_available(), reason="needs gloo")


def start(job: dict, tmp_path) -> list[subprocess.Popen]:
    job |= {"rendezvous": f"file://{tmp_path}/rendezvous", "out": str(tmp_path)}
    return [
        subprocess.Popen(
            [sys.executable, "-m", "tests.worker", json.dumps(job), str(rank)],
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(job["processes"])
    ]


def finish(processes: list[subprocess.Popen], timeout: float = 120) -> list[str]:
    return [process.communicate(timeout=timeout)[1] for process in processes]


def job(processes: int, index: bool, groups: bool, **robust) -> dict:
    sharded = robust.pop("sharded", False)
    robust = {"warmup": 20, "update_every": 4, "window": 500} | robust
    return {
        "sharded": sharded,
        "processes": processes,
        "samples": 120,
        "steps": 60,
        "index": index,
        "groups": groups,
        "robust": robust,
    }


@pytest.mark.parametrize("logits", [False, True])
def test_held_out_samples_and_the_fraction_of_right_labels_are_those_of_one_process(tmp_path, logits):
    task = job(2, True, True, inlier_fraction=0.7) | {"labels": True, "samples": 300, "steps": 800}
    task["logits"] = logits
    errors = finish(started := start(task, tmp_path))
    assert all(process.returncode == 0 for process in started), errors
    one, two = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2))
    alone = worker.run(task, None)
    for key in ("fraction", "weight", "held_out"):
        assert one[key] == two[key]
        assert numbers(one[key]) == pytest.approx(numbers(alone[key]), rel=1e-3, abs=1e-5)
    # In the first passes all is believed; then the fraction is in force.
    assert min(one["fraction"][20]) == 1.0
    assert one["fraction"][-1] == pytest.approx([0.7] * 3)


def numbers(nested) -> list[float]:
    """All numbers of nested lists, in order."""
    return [x for part in nested for x in numbers(part)] if isinstance(nested, list) else [nested]


@pytest.mark.parametrize(
    ("processes", "index", "groups", "robust"),
    [
        (2, False, False, {}),
        (2, True, False, {}),
        (2, True, True, {"inlier_fraction": 0.7}),
        (2, False, True, {"inlier_fraction": 0.7, "divide_by": "weights"}),
        (2, True, False, {"inlier_fraction": 0.7, "hold": 5}),
        pytest.param(2, True, False, {"sharded": True}, id="FSDP2"),
        (4, True, False, {"divide_by": "weights"}),
        (4, False, False, {"inlier_fraction": 0.7, "kernel": "truncated"}),
    ],
)
def test_many_processes_are_one_process_on_the_joined_batch(tmp_path, processes, index, groups, robust):
    task = job(processes, index, groups, **robust)
    errors = finish(started := start(task, tmp_path))
    assert all(process.returncode == 0 for process in started), errors
    records = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(processes)]
    # To the bit between ranks: scale, fraction, the model's weights and the beliefs.
    for record in records[1:]:
        for key in ("scale", "fraction", "weight", "belief"):
            assert record.get(key) == records[0].get(key)
    # To rounding with one process, uneven and empty batches included.
    alone = worker.run(task, None)
    for key in ("scale", "fraction", "weight", "belief"):
        expected = pytest.approx(numbers(alone.get(key, [])), rel=1e-3, abs=1e-5)
        assert numbers(records[0].get(key, [])) == expected
    # The mean of the ranks' losses is the loss on the joined batch.
    losses = [sum(step) / processes for step in zip(*(record["loss"] for record in records), strict=True)]
    assert losses == pytest.approx(alone["loss"], rel=1e-3, abs=1e-5)
    # One small collective a step, two where the scale is updated; one more when a batch is the largest yet.
    every = task["robust"].get("hold", task["robust"]["update_every"])
    calls = records[0]["collectives"]
    ordinary = [n for step, n in enumerate(calls, 1) if step % every]
    updating = [n for step, n in enumerate(calls, 1) if step % every == 0]
    assert set(ordinary) <= ({1, 2} if index else {1})
    assert set(updating) <= ({2, 3} if index else {2})
    assert sum(n - 1 for n in ordinary) <= 5


def test_all_processes_change_the_kernel_as_one_does(tmp_path):
    task = job(2, index=True, groups=False, inlier_fraction=0.6) | {"truncated_from": 30}
    errors = finish(started := start(task, tmp_path))
    assert all(process.returncode == 0 for process in started), errors
    one, two = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2))
    alone = worker.run(task, None)
    assert one["scale"] == two["scale"]
    assert one["scale"] == pytest.approx(alone["scale"], rel=1e-3)
    # No update of the scale was due between these steps: the change has solved it anew.
    assert alone["scale"][28] == alone["scale"][29] != alone["scale"][30]


def test_when_one_process_dies_the_others_end_with_an_error(tmp_path):
    task = job(2, True, False) | {"die": [1, 10]}
    begun = time.monotonic()
    processes = start(task, tmp_path)
    errors = finish(processes, timeout=100)
    assert processes[1].returncode == 1
    assert processes[0].returncode not in (0, None)
    assert "gloo" in errors[0].lower() or "connection" in errors[0].lower()
    assert time.monotonic() - begun < 100
