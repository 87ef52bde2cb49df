"""The sweep: a finished row is never lost and never computed again, whatever is killed in between."""

from __future__ import annotations

import io
import json
import math
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from joblib.externals.loky import get_reusable_executor

from inlier._figures import COLOURS, curve_plot, style
from inlier._files import write_whole
from inlier.experiments.sweep import Row, SweepError, load, plan
from inlier.experiments.sweep._engines import KILLED
from inlier.experiments.sweep._journal import Journal, Record
from inlier.experiments.sweep._results import Results, cells, frame_of, write_readme, write_results
from inlier.experiments.sweep._sweep import Sweep
from tests.experiments.tiny_experiment import BATCHED, EXPERIMENT, ONE_BAD, THREADS

ROOT = Path(__file__).parents[2]


def record(seed=0, error=1.0, **settings):
    return Record(Row("sgd", 0.2, seed, settings), {"error": error}, None, 0.5)


def journal(path):
    return Journal(path / "rows.jsonl", "tiny")


def log_of(path):
    return Counter(line.split()[0] for line in path.read_text().splitlines()) if path.exists() else Counter()


@pytest.fixture
def log(tmp_path, monkeypatch):
    # Workers live on after a sweep for the next one, with the environment of the first.
    get_reusable_executor().shutdown(kill_workers=True)
    path = tmp_path / "log"
    monkeypatch.setenv("TINY_LOG", str(path))
    return path


# Rows


def test_key_is_the_same_in_every_process_and_for_every_order_of_settings():
    # The number itself, so that no release forgets the rows of the one before.
    assert Row("sgd", 0.2, 0, {"steps": 10, "regime": "printed"}).key == "a55efbd1031618ef376a"
    assert Row("sgd", 0.2, 0, {"regime": "printed", "steps": 10}) == Row(
        "sgd", 0.2, 0, {"steps": 10, "regime": "printed"}
    )


@pytest.mark.parametrize(
    "other", [("gm", 0.2, 0, {}), ("sgd", 0.3, 0, {}), ("sgd", 0.2, 1, {}), ("sgd", 0.2, 0, {"n": 1})]
)
def test_key_tells_all_four_apart(other):
    assert Row(*other).key != Row("sgd", 0.2, 0, {}).key


def test_rounding_of_a_rate_makes_no_new_row():
    assert Row("sgd", 0.1 + 0.2, 0, {}) == Row("sgd", 0.3, 0, {})


# Journal


def test_journal_gives_back_what_was_appended(tmp_path):
    records = [
        record(0),
        record(1, math.inf),
        record(2, math.nan),
        Record(Row("sgd", 0.2, 3, {}), None, "why", 0.1),
    ]
    with journal(tmp_path) as opened:
        opened.append(records)
    with journal(tmp_path) as opened:
        got = list(opened.records.values())
    assert [r.row for r in got] == [r.row for r in records]
    assert repr([r.metrics for r in got]) == repr([r.metrics for r in records])  # NaN is not equal to NaN
    assert [r.error for r in got] == [None, None, None, "why"]


@given(st.data())
def test_journal_cut_anywhere_keeps_all_whole_lines_and_can_be_written_on(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("cut")
    with journal(path) as opened:
        opened.append([record(seed, text="ä\n") for seed in range(3)])
    content = (path / "rows.jsonl").read_bytes()
    cut = data.draw(st.integers(0, len(content)))
    (path / "rows.jsonl").write_bytes(content[:cut])
    with journal(path) as opened:
        assert [r.row.seed for r in opened.records.values()] == list(range(content[:cut].count(b"\n")))
        opened.append([record(9)])
    with journal(path) as opened:
        assert [r.row.seed for r in opened.records.values()] == [*range(content[:cut].count(b"\n")), 9]


def test_corrupt_line_costs_one_row(tmp_path):
    with journal(tmp_path) as opened:
        opened.append([record(0), record(1), record(2)])
    lines = (tmp_path / "rows.jsonl").read_bytes().splitlines()
    (tmp_path / "rows.jsonl").write_bytes(
        b"\n".join([lines[0], b"\0\0{", b"[]", b'{"experiment": "tiny"}', lines[2], b""])
    )
    with journal(tmp_path) as opened:
        assert [r.row.seed for r in opened.records.values()] == [0, 2]


def test_first_finished_record_of_a_row_stays_and_a_failed_one_gives_way(tmp_path):
    failed = replace(record(), metrics=None, error="why")
    with journal(tmp_path) as opened:
        opened.append([failed, record(error=1.0), record(error=2.0), failed])
    assert len((tmp_path / "rows.jsonl").read_text().splitlines()) == 2
    # Two copies of a journal, one after the other, as someone might join them.
    (tmp_path / "rows.jsonl").write_bytes((tmp_path / "rows.jsonl").read_bytes() * 2)
    with journal(tmp_path) as opened:
        assert [r.metrics for r in opened.records.values()] == [{"error": 1.0}]


def test_two_experiments_may_share_a_folder(tmp_path):
    with journal(tmp_path) as opened:
        opened.append([record(0)])
    with Journal(tmp_path / "rows.jsonl", "other") as opened:
        assert not opened.records


def test_second_run_in_the_same_folder_is_refused(tmp_path):
    with journal(tmp_path), pytest.raises(SweepError, match="another run is writing"), journal(tmp_path):
        pass


def test_write_whole_leaves_the_old_file_where_writing_fails(tmp_path):
    write_whole(tmp_path / "a", b"old")
    with pytest.raises(TypeError):
        write_whole(tmp_path / "a", "no bytes")
    assert (tmp_path / "a").read_bytes() == b"old"


# Sweep


@pytest.mark.parametrize(("experiment", "jobs"), [(EXPERIMENT, 1), (BATCHED, 1), (BATCHED, 2)])
def test_sweep_computes_each_row_once_and_never_again(tmp_path, log, experiment, jobs):
    rows = plan(experiment, "cpu").rows
    for _ in range(2):
        sweep = Sweep(experiment, rows, tmp_path)
        sweep.run(jobs)
        assert [r.row for r in sweep.done] == rows
        assert [r.metrics["error"] for r in sweep.done] == [row.rate + row.seed for row in rows]
        assert not sweep.failed
        assert log_of(log) == Counter(row.key for row in rows)
        here = {r.metrics["pid"] for r in sweep.done} == {os.getpid()}
        assert here == (jobs == 1)


@pytest.mark.slow
def test_workers_use_one_thread_each(tmp_path):
    sweep = Sweep(THREADS, plan(THREADS, "cpu").rows, tmp_path)
    sweep.run(jobs=2)
    assert {r.metrics["threads"] for r in sweep.done} == {1}
    assert os.getpid() not in {r.metrics["pid"] for r in sweep.done}


def test_changed_settings_are_new_rows_and_the_old_ones_stay(tmp_path, log):
    fast = plan(EXPERIMENT, "cpu").rows
    Sweep(EXPERIMENT, fast, tmp_path).run()
    changed = [replace(row, settings={"seconds": 0.001}) for row in fast]
    sweep = Sweep(EXPERIMENT, changed, tmp_path)
    sweep.run()
    assert len(sweep.done) == len(changed)
    Sweep(EXPERIMENT, fast, tmp_path).run()
    assert set(log_of(log).values()) == {1}
    assert len(log_of(log)) == 2 * len(fast)


@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_failed_row_is_recorded_and_retried_and_the_rest_goes_on(tmp_path, log, jobs, monkeypatch):
    rows = plan(EXPERIMENT, "cpu", methods=["raises", "steady"], seeds=1).rows
    sweep = Sweep(EXPERIMENT, rows, tmp_path)
    sweep.run(jobs)
    assert [r.row.method for r in sweep.done] == ["steady"] * 3
    assert [r.row.method for r in sweep.failed] == ["raises"] * 3
    assert sweep.failed[0].error.startswith("ValueError: this row is bad (tiny_experiment.py, line ")
    monkeypatch.setenv("TINY_MENDED", "1")
    sweep = Sweep(EXPERIMENT, rows, tmp_path)
    sweep.run()
    assert len(sweep.done) == 6
    assert not sweep.failed
    assert Counter(log_of(log).values()) == {1: 3, 2: 3}


def test_one_bad_row_of_a_unit_fails_alone(tmp_path):
    sweep = Sweep(ONE_BAD, plan(ONE_BAD, "cpu").rows, tmp_path)
    sweep.run()
    assert {r.row.seed for r in sweep.done} == {0}
    assert {(r.row.seed, r.error) for r in sweep.failed} == {(1, "ZeroDivisionError: no")}


def test_row_that_compute_forgets_has_failed_and_one_it_makes_up_fails_the_unit(tmp_path):
    rows = plan(BATCHED, "cpu", methods=["steady"]).rows
    forgets = replace(BATCHED, compute=lambda rows: [(row, {"error": 0.0}) for row in rows[1:]])
    sweep = Sweep(forgets, rows, tmp_path)
    sweep.run()
    assert [r.row for r in sweep.failed] == [rows[0], rows[5]]
    twice = replace(BATCHED, compute=lambda rows: [(rows[0], {"error": 0.0})] * 2)
    sweep = Sweep(twice, rows, tmp_path / "twice")
    sweep.run()
    assert [r.row for r in sweep.done] == [rows[0], rows[5]]
    assert "a second time" in sweep.failed[0].error


def test_batches_that_lose_a_row_are_refused(tmp_path):
    loses = replace(BATCHED, batches=lambda rows, jobs: [list(rows[1:])])
    with pytest.raises(ValueError, match="5 rows for 6"):
        Sweep(loses, plan(loses, "cpu", methods=["steady"]).rows, tmp_path).run()


def test_row_that_kills_its_worker_fails_and_all_others_are_done(tmp_path):
    rows = plan(EXPERIMENT, "cpu", methods=["dies", "steady", "other"], rates=[0, 0.5]).rows
    rows = [row for row in rows if row.method != "dies" or (row.rate, row.seed) == (0, 0)]
    sweep = Sweep(EXPERIMENT, rows, tmp_path)
    sweep.run(jobs=2)
    assert [(r.row.method, r.error) for r in sweep.failed] == [("dies", KILLED)]
    assert len(sweep.done) == 8


def test_progress_is_reported_as_rows_end(tmp_path):
    seen = []
    rows = plan(EXPERIMENT, "cpu").rows
    Sweep(EXPERIMENT, rows, tmp_path).run(
        on_progress=lambda sweep: seen.append((len(sweep.done), sweep.running))
    )
    assert seen == [*((done, 1) for done in range(12)), (12, 0)]


# Killing


def start(out, log, jobs):
    command = [sys.executable, "-m", "tests.experiments.tiny_experiment", str(out), str(jobs)]
    environment = os.environ | {"TINY_LOG": str(log), "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(command, env=environment, cwd=ROOT, start_new_session=True)


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_for(condition, seconds=60.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.005)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")
@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2])
def test_kill_9_at_any_moment_loses_only_rows_in_flight(tmp_path, jobs):
    out, log = tmp_path / "out", tmp_path / "log"
    rows = plan(EXPERIMENT, "paper").rows
    moments = random.Random(jobs)
    broken: list[str] = []
    over = threading.Event()

    def read_all_the_time():
        while not over.wait(0.01):
            try:
                if (out / "results.json").exists():
                    json.loads((out / "results.json").read_text())
                if (out / "results.parquet").exists():
                    # In one piece: pandas opens a path twice, and may get one half of each of two files.
                    pd.read_parquet(io.BytesIO((out / "results.parquet").read_bytes()))
            except Exception as error:  # the test asserts below that there was none
                broken.append(repr(error))

    reader = threading.Thread(target=read_all_the_time)
    reader.start()
    kills = 0
    kept: dict[str, int] = {}
    try:
        for _ in range(3):
            before = sum(log_of(log).values())
            process = start(out, log, jobs)
            # A quick machine may have done all rows before the last kill; then the process just ends.
            wait_for(lambda: sum(log_of(log).values()) > before or process.poll() is not None)  # noqa: B023
            time.sleep(moments.uniform(0.1, 0.4))
            process.kill()
            kills += process.wait() == -signal.SIGKILL
            with Journal(out / "rows.jsonl", "tiny") as journal:
                kept |= {key: log_of(log)[key] for key in journal.records}
            pids = {int(line.split()[1]) for line in log.read_text().splitlines() if len(line.split()) == 2}
            wait_for(lambda: not any(map(is_alive, pids)), 5)  # noqa: B023
        assert start(out, log, jobs).wait() == 0
    finally:
        over.set()
        reader.join()
    assert not broken
    assert kills >= 1
    taken = log_of(log)
    assert set(taken) == {row.key for row in rows}
    assert len(kept) > 3
    assert kept == {key: taken[key] for key in kept}, "a row that was in the journal was computed again"
    if jobs == 1:
        assert sum(taken.values()) <= len(rows) + kills
    table = pd.read_parquet(out / "results.parquet")
    assert list(table.columns) == ["method", "rate", "seed", "error", "pid"]
    assert sorted(zip(table.method, table.rate, table.seed, strict=True)) == sorted(
        (r.method, r.rate, r.seed) for r in rows
    )
    assert (table.error == table.rate + table.seed).all()


# Results


@pytest.fixture
def results(tmp_path):
    asked = plan(EXPERIMENT, "cpu", methods=["steady", "raises"])
    sweep = Sweep(EXPERIMENT, asked.rows, tmp_path)
    sweep.run()
    return Results.of(sweep, asked, "inlier reproduce tiny", 3.0)


def test_results_for_machines(results, tmp_path):
    done = [*results.done, Record(Row("steady", 0.75, 0, {}), {"error": math.inf, "late": 2.0}, None, 0.0)]
    write_results(replace(results, done=done), tmp_path)
    table = pd.read_parquet(tmp_path / "results.parquet")
    assert list(table.columns) == ["method", "rate", "seed", "error", "pid", "late"]
    assert table.error.iloc[-1] == math.inf
    content = json.loads((tmp_path / "results.json").read_text(), parse_constant=pytest.fail)
    assert content["rows"][0]["late"] is None
    assert content["rows"][-1] == {
        "method": "steady", "rate": 0.75, "seed": 0, "error": None,  "pid": None, "late": 2.0,
    }  # fmt: skip
    assert len(content["failed"]) == 6
    meta = content["meta"]
    assert meta["command"] == "inlier reproduce tiny"
    assert meta["settings"] == {"seconds": 0.0}
    assert meta["seeds"] == [0, 1]
    assert set(meta["versions"]) == {"python", "inlier", "torch", "numpy"}


def test_no_row_done_gives_an_empty_table_with_its_columns(results, tmp_path):
    write_results(replace(results, done=[]), tmp_path)
    assert list(pd.read_parquet(tmp_path / "results.parquet").columns) == ["method", "rate", "seed"]


def test_summary_has_mean_and_spread_and_marks_failures(results):
    head, lines = cells(results)
    assert head == ["method", "0", "0.25", "0.5"]
    assert lines == [["steady", "0.5 ± 0.71", "0.75 ± 0.71", "1 ± 0.71"], ["raises", *["2 failed"] * 3]]


def test_readme_says_what_made_it(results, tmp_path):
    (tmp_path / "a.svg").touch()
    write_readme(results, [("a.png", "What it shows"), ("b.png", "And this")], tmp_path)
    text = (tmp_path / "README.md").read_text()
    for part in ("inlier reproduce tiny", "python 3.", "torch ", "seeds 0 to 1", "3.0 s", "0.75 ± 0.71"):
        assert part in text
    assert "![What it shows](a.png)\n\nWhat it shows ([SVG](a.svg))" in text
    assert "And this\n" in text
    assert "- raises: 6, the first at rate 0, seed 0: ValueError: this row is bad" in text


def test_figure_is_twice_the_same_and_survives_odd_values(results, tmp_path):
    frame = frame_of(results.done)
    frame.loc[0, "error"] = math.inf
    first = [path.read_bytes() for path in curve_plot(frame, "error", tmp_path / "v1.0", log=True)]
    assert (tmp_path / "v1.0.png").exists()
    assert first == [path.read_bytes() for path in curve_plot(frame, "error", tmp_path / "again", log=True)]
    assert b"<dc:date>" not in first[1]


def test_no_two_lines_look_the_same():
    looks = [tuple(style(number).items()) for number in range(4 * len(COLOURS))]
    assert len(set(looks)) == len(looks)


# Plans


def test_plan_takes_the_preset_and_what_replaces_parts_of_it():
    whole = plan(EXPERIMENT, "cpu")
    assert whole.methods == ("steady", "other")
    assert len(whole.rows) == 2 * 3 * 2
    assert whole.rows[0].settings == {"seconds": 0.0}
    part = plan(EXPERIMENT, "cpu", methods=["raises"], rates=[0.9, 0.9], seeds=1)
    assert part.rows == [Row("raises", 0.9, 0, {"seconds": 0.0})]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nope", "choose from classification, regression, scene, theory, or your own"),
        ("nope.nope:X", "there is no module 'nope'"),
        ("tests.nope:X", "there is no module 'tests.nope'"),
        ("tests.experiments.tiny_experiment:X", "has no Experiment named 'X'"),
        (
            "tests.experiments.tiny_experiment:NOT_AN_EXPERIMENT",
            "has no Experiment named 'NOT_AN_EXPERIMENT'",
        ),
    ],
)
def test_load_says_what_is_not_there(name, message):
    with pytest.raises(ValueError, match=message):
        load(name)
