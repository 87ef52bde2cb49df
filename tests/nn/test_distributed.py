"""Robust on several real processes (gloo, file rendezvous) against one process on the joined batches."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time

import pytest
import torch

from tests.nn import worker

pytestmark = pytest.mark.skipif(not torch.distributed.is_gloo_available(), reason="needs gloo")


def start(job: dict, tmp_path) -> list[subprocess.Popen]:
    job |= {"rendezvous": f"file://{tmp_path}/rendezvous", "out": str(tmp_path)}
    return [
        subprocess.Popen(
            [sys.executable, "-m", "tests.nn.worker", json.dumps(job), str(rank)],
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(job["processes"])
    ]


def finish(processes: list[subprocess.Popen], timeout: float = 120) -> list[str]:
    return [process.communicate(timeout=timeout)[1] for process in processes]


def records_of(task: dict, tmp_path) -> list[dict]:
    errors = finish(started := start(task, tmp_path))
    assert all(process.returncode == 0 for process in started), errors
    return [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(task["processes"])]


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


def numbers(nested) -> list[float]:
    """All numbers of nested lists, in order."""
    return [x for part in nested for x in numbers(part)] if isinstance(nested, list) else [nested]


@pytest.mark.parametrize(
    ("processes", "index", "groups", "robust"),
    [
        # Each case starts processes that import torch: two of them are enough for every change, all for CI.
        (2, False, False, {}),
        (2, True, True, {"inlier_fraction": 0.7}),
        pytest.param(2, True, False, {}, marks=pytest.mark.slow),
        pytest.param(
            2, False, True, {"inlier_fraction": 0.7, "divide_by": "weights"}, marks=pytest.mark.slow
        ),
        pytest.param(2, True, False, {"inlier_fraction": 0.7, "hold": 5}, marks=pytest.mark.slow),
        pytest.param(2, True, False, {"sharded": True}, id="FSDP2", marks=pytest.mark.slow),
        pytest.param(4, True, False, {"divide_by": "weights"}, marks=pytest.mark.slow),
        pytest.param(
            4, False, False, {"inlier_fraction": 0.7, "kernel": "truncated"}, marks=pytest.mark.slow
        ),
    ],
)
def test_many_processes_are_one_process_on_the_joined_batch(tmp_path, processes, index, groups, robust):
    task = job(processes, index, groups, **robust)
    records = records_of(task, tmp_path)
    assert_agree(records, worker.run(task, None))
    # One collective a step; one more when a batch is larger than all since the last update.
    assert set(records[0]["collectives"]) <= {1, 2}
    assert records[0]["collectives"].count(1) > 30


def assert_agree(records: list[dict], alone: dict) -> None:
    """Processes agree to the bit, uneven and empty batches included, and with one process to rounding."""
    for record in records[1:]:
        for key in ("scale", "fraction", "weight", "probability"):
            assert record.get(key) == records[0].get(key)
    for key in ("scale", "fraction", "weight", "probability"):
        expected = pytest.approx(numbers(alone.get(key, [])), rel=1e-3, abs=1e-5)
        assert numbers(records[0].get(key, [])) == expected
    # The mean of the ranks' losses is the loss on the joined batch.
    losses = [sum(step) / len(records) for step in zip(*(record["loss"] for record in records), strict=True)]
    assert losses == pytest.approx(alone["loss"], rel=1e-3, abs=1e-5)


@pytest.mark.parametrize("index", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_class_labels_on_many_processes_are_those_of_one(tmp_path, index):
    task = job(2, index, False) | {"labels": True}
    task["robust"] = {"update_every": 4, "window": 500, "warmup": 8}
    assert_agree(records_of(task, tmp_path), worker.run(task, None))


@pytest.mark.slow
def test_gradients_accumulated_under_no_sync_are_those_of_one(tmp_path):
    task = job(2, True, False) | {"no_sync": True}
    one, two = records_of(task, tmp_path)
    for key in ("scale", "fraction", "weight", "probability"):
        assert one[key] == two[key]
    alone = worker.run(task, None)
    assert numbers(one["weight"]) == pytest.approx(numbers(alone["weight"]), rel=1e-3, abs=1e-5)


@pytest.mark.parametrize(
    ("saved_by", "resumed_by", "labels"),
    [
        (2, 1, False),
        pytest.param(1, 3, False, marks=pytest.mark.slow),
        pytest.param(2, 1, True, marks=pytest.mark.slow),
    ],
)
def test_a_checkpoint_of_one_process_resumes_on_any_number(tmp_path, saved_by, resumed_by, labels):
    """Saved in the middle of a period, with counts that no update has seen yet."""
    task = job(saved_by, True, False) | {"save": 30, "labels": labels, "batches_for": 4}
    if labels:
        task["robust"] = {"update_every": 4, "window": 500}
    (tmp_path / "saved").mkdir()
    (tmp_path / "resumed").mkdir()
    whole = records_of(task, tmp_path / "saved")[0]
    task |= {"processes": resumed_by, "save": None, "resume": str(tmp_path / "saved" / "checkpoint.pt")}
    resumed = records_of(task, tmp_path / "resumed")[0]
    for key in ("scale", "fraction"):
        assert numbers(resumed[key]) == pytest.approx(numbers(whole[key][30:]), rel=1e-4, abs=1e-6)
    assert resumed["probability"] == pytest.approx(whole["probability"], rel=1e-3, abs=1e-5)


@pytest.mark.parametrize(
    ("misuse", "at"),
    [
        ("no index", 0),
        pytest.param("no index", 2, marks=pytest.mark.slow),
        pytest.param("refused", 0, marks=pytest.mark.slow),
        ("refused", 2),
        pytest.param("negative index", 2, marks=pytest.mark.slow),
    ],
)
def test_one_process_called_otherwise_ends_all_with_clear_words(tmp_path, misuse, at):
    one, two = records_of({"processes": 2, "misuse": misuse, "at": at}, tmp_path)
    assert one["seconds"] < 20
    assert two["seconds"] < 20
    words = {
        "no index": r"RuntimeError: processes \[0\] gave an index"
        if at == 0
        else "process 1 refused this call",
        "refused": "RuntimeError: process 1 refused this call",
        "negative index": "RuntimeError: process 1 refused this call",
    }
    assert re.search(words[misuse], one["said"]), one["said"]
    own = {"no index": "index", "refused": "index has shape", "negative index": "index holds -3"}
    assert own[misuse] in two["said"]


@pytest.mark.slow
def test_a_process_that_runs_out_of_batches_inside_join_is_told_within_seconds(tmp_path):
    one, _ = records_of({"processes": 2, "misuse": "join", "at": -1}, tmp_path)
    assert "as many batches as the others" in one["said"]
    assert one["seconds"] < 40


def test_messages_shrink_after_a_large_batch_and_are_32_bits_wide(tmp_path):
    sizes = records_of({"processes": 2, "sizes": [8] * 8 + [500] + [8] * 12}, tmp_path)[0]["sizes"]
    small, large = sizes[6], max(sizes)
    assert large >= 4 * 2 * 500
    assert sizes[-1] == small <= 4 * (4 + 2 * 8)


@pytest.mark.slow
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


@pytest.mark.slow
def test_when_one_process_dies_the_others_end_with_an_error(tmp_path):
    task = job(2, True, False) | {"die": [1, 10]}
    begun = time.monotonic()
    processes = start(task, tmp_path)
    errors = finish(processes, timeout=100)
    assert processes[1].returncode == 1
    assert processes[0].returncode not in (0, None)
    assert "gloo" in errors[0].lower() or "connection" in errors[0].lower()
    assert time.monotonic() - begun < 100
