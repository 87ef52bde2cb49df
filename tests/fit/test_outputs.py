"""What `inlier fit` writes is complete or not there at all, and nothing else is touched."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from inlier import cli
from inlier.fit import _models as models
from tests.fit.commands import record_of, refused, run, succeed
from tests.fit.tables import houses, line

ROOT = Path(__file__).parents[2]


def test_an_output_is_never_overwritten_unasked(line_fit, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "thesis.txt").write_text("ten years of work")
    assert "is not empty" in refused(*line_fit)
    assert "is not empty" in refused(*line_fit, "--overwrite")
    assert [path.name for path in out.iterdir()] == ["thesis.txt"]
    (out / "thesis.txt").unlink()
    succeed(*line_fit)  # An empty folder may be filled.
    before = (out / "run.json").read_bytes()
    assert "add --overwrite" in refused(*line_fit)
    (out / "thesis.txt").write_text("again")
    assert "also holds 'thesis.txt'" in refused(*line_fit, "--overwrite")
    (out / "thesis.txt").unlink()
    assert (out / "run.json").read_bytes() == before
    succeed(*line_fit, "--overwrite", "--seed", 1)
    assert record_of(out)["seed"] == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["line.csv", "out"]
    data = tmp_path / "line.csv"
    assert "is a file" in refused("fit", data, "--target", "y", "--out", data, "--overwrite")


def test_a_failure_while_writing_keeps_the_earlier_output(line_fit, tmp_path, monkeypatch):
    out = tmp_path / "out"
    succeed(*line_fit)
    before = {path.name: path.read_bytes() for path in out.iterdir()}

    def disk_full(pipeline, path):
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(models, "save_pipeline", disk_full)
    result = run(*line_fit, "--seed", 2, "--overwrite")
    assert result.code == 1
    assert "No space left on device" in result.error
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["line.csv", "out"]


@pytest.mark.slow
def test_ctrl_c_leaves_nothing_behind(tmp_path):
    frame, _ = houses(60_000)
    frame.to_csv(tmp_path / "houses.csv", index=False)
    command = [sys.executable, "-m", "inlier.cli", "fit", str(tmp_path / "houses.csv"), "--target", "price"]
    command += ["--model", "boosting", "--out", str(tmp_path / "deep" / "out")]
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        # Where the tests run in the background, Ctrl-C is ignored, and children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and "libarrow" not in Path(f"/proc/{process.pid}/maps").read_text():
        time.sleep(0.1)
    time.sleep(8)
    os.kill(process.pid, signal.SIGINT)
    out, error = process.communicate(timeout=60)
    assert process.returncode == 130, (out, error)
    assert error.splitlines() == ["inlier: stopped; nothing was written"]
    assert [path.name for path in tmp_path.iterdir()] == ["houses.csv"]


@pytest.mark.parametrize(
    "error", [ValueError("not a valid buffer format"), ImportError("initialization failed")]
)
def test_ctrl_c_that_c_code_has_turned_into_another_error_is_still_ctrl_c(
    error, tmp_path, monkeypatch, capsys
):
    line().to_csv(tmp_path / "line.csv", index=False)

    def interrupted(*_, **__):
        raise error from KeyboardInterrupt()

    monkeypatch.setattr("inlier.sklearn.AdaptiveRegressor.fit", interrupted)
    arguments = ["fit", str(tmp_path / "line.csv"), "--target", "y", "--out", str(tmp_path / "out")]
    monkeypatch.setattr(sys, "argv", ["inlier", *arguments])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 130
    assert capsys.readouterr().err == "inlier: stopped; nothing was written\n"
    assert [path.name for path in tmp_path.iterdir()] == ["line.csv"]
