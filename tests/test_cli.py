"""The command line in real processes: output, exit codes, Ctrl-C."""

from __future__ import annotations

import io
import json
import math
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest
from rich.console import Console

import inlier
from inlier import kernels
from inlier.report._kernel_plots import NOTES, WIDE, kernel_table, parameters, plot_kernels
from tests.fit.commands import refused

ROOT = Path(__file__).parent.parent
TINY = "tests.experiments.tiny_experiment:EXPERIMENT"
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "120", "TERM": "xterm", "NO_COLOR": "1"}


def run(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "-m", "inlier.cli", *map(str, arguments)],
        env=ENVIRONMENT | environment, cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip


def run_without(module, *arguments):
    """Run a command where a module is not installed."""
    code = f"import sys; sys.modules[{module!r}] = None; sys.argv[1:] = {list(map(str, arguments))}\n"
    code += "from inlier.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code], env=ENVIRONMENT, cwd=ROOT, capture_output=True, text=True, check=False
    )


def one_line(process, code):
    assert process.returncode == code, process.stderr
    assert process.stdout == ""
    assert process.stderr.endswith("\n")
    (line,) = process.stderr.splitlines()
    assert line.startswith("inlier: ")
    return line


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["reproduce", "nope"], "experiment 'nope' is unknown; choose from classification, regression,"),
        (["reproduce", "nope.nope:X"], "there is no module 'nope'"),
        (["reproduce", TINY, "--preset", "nope"], "preset 'nope' is unknown; choose from paper, cpu, smoke"),
        (
            ["reproduce", TINY, "--methods", "steady,nope"],
            "method 'nope' is unknown; choose from steady, other",
        ),
        (["reproduce", TINY, "--rates", "0,1"], "rate 1 is not an outlier rate; choose from 0 <= rate < 1"),
        (["reproduce", TINY, "--rates", "-0.1"], "rate -0.1 is not an outlier rate"),
        (["reproduce", TINY, "--rates", "nan"], "rate nan is not an outlier rate"),
        (["reproduce", TINY, "--rates", "0,x"], "rates '0,x' are not numbers; write them like 0,0.2,0.4"),
        (["reproduce", TINY, "--seeds", "0"], "seeds 0 is not a number of trials; choose 1 or more"),
        (["reproduce", TINY, "--jobs", "0"], "jobs 0 is too few; choose 1 or more"),
        (["reproduce", TINY, "--jobs", "x"], "--jobs"),
        (["reproduce", TINY, "--backend", "nope"], "backend 'nope' is unknown; choose from loky, dask, ray"),
        (["reproduce"], "NAME"),
        (["reproduce", TINY, "--nope"], "--nope"),
        (["nope"], "No such command 'nope'"),
        (
            ["kernels", "--plot", "a.pdf"],
            "plot 'a.pdf' is not a figure; choose a name that ends in .png or .svg",
        ),
        (["kernels", "--plot", "no/such/a.png"], "folder 'no/such' does not exist; create it first"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else "",
)
def test_a_usage_error_is_one_line_and_exit_code_2(arguments, message):
    assert message in refused(*arguments)


def test_a_usage_error_of_a_real_process():
    assert "No such command 'nope'" in one_line(run("nope"), 2)


@pytest.mark.parametrize(
    ("module", "arguments", "extra"),
    [
        ("typer", ["kernels"], "inlier[cli]"),
        ("matplotlib", ["kernels"], "inlier[cli]"),
        ("distributed", ["reproduce", TINY, "--backend", "dask"], "inlier[dask]"),
        ("ray", ["reproduce", TINY, "--backend", "ray"], "inlier[ray]"),
    ],
)
def test_missing_package_is_one_line_naming_the_extra(module, arguments, extra, tmp_path):
    more = ["--out", tmp_path] if "reproduce" in arguments else []
    line = one_line(run_without(module, *arguments, *more), 1)
    assert f'needs {module}, which is not installed: pip install "{extra}"' in line


def test_help_and_version():
    assert run("--version").stdout == f"inlier {inlier.__version__}\n"
    whole = run("--help")
    assert whole.returncode == 0
    assert "reproduce" in whole.stdout
    assert run().stdout.strip() == whole.stdout.strip()
    for command in ("reproduce", "kernels"):
        assert f"Example:  inlier {command}" in run(command, "--help").stdout


def test_help_imports_nothing_heavy():
    # The package is put in place by hand, so that only imports of the command line count.
    code = (
        "import sys, types; package = sys.modules['inlier'] = types.ModuleType('inlier')\n"
        "package.__path__ = ['inlier']; sys.argv[1:] = ['reproduce', '--help']\n"
        "import inlier.cli, inlier.experiments\n"
        "try: inlier.cli.main()\n"
        "finally: print({'torch', 'numpy', 'pandas', 'matplotlib', 'joblib', 'sklearn'} & set(sys.modules))"
    )
    process = subprocess.run(
        [sys.executable, "-c", code], env=ENVIRONMENT, cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert process.stdout.endswith("\nset()\n")


def test_reproduce_writes_all_it_promises(tmp_path):
    out = tmp_path / "deep" / "out"
    process = run(
        "reproduce", TINY, "--out", out, "--rates", "0,0.5", "--seeds", 3, "--methods", "steady", "--jobs", 1
    )
    assert process.returncode == 0, process.stderr
    assert process.stderr == ""
    assert "1 ± 1" in process.stdout
    assert f"figure: {out / 'error.png'}" in process.stdout
    assert {path.name for path in out.iterdir()} == {
        "README.md", "error.png", "error.svg", "results.json", "results.parquet", "rows.jsonl",
    }  # fmt: skip
    table = pd.read_parquet(out / "results.parquet")
    assert list(table.columns[:4]) == ["method", "rate", "seed", "error"]
    assert len(table) == 6
    assert json.loads((out / "results.json").read_text())["meta"]["command"].startswith(
        f"inlier reproduce {TINY}"
    )
    assert f"inlier reproduce {TINY}" in (out / "README.md").read_text()


def test_failed_rows_are_shown_and_end_with_exit_code_1(tmp_path):
    process = run("reproduce", TINY, "--out", tmp_path, "--methods", "steady,raises", "--jobs", 1)
    assert process.returncode == 1
    assert "2 failed" in process.stdout
    assert process.stderr.count("\n") == 1
    assert "6 rows failed (the same command tries them again)" in process.stderr
    assert "ValueError: this row is bad" in process.stderr


def start_to_be_stopped(out, jobs, log):
    """Start a sweep of 24 rows; return its arguments and its process."""
    arguments = ["reproduce", TINY, "--preset", "slow", "--out", str(out), "--jobs", str(jobs)]
    process = subprocess.Popen(
        [sys.executable, "-m", "inlier.cli", *arguments],
        env=ENVIRONMENT | {"TINY_LOG": str(log)}, cwd=ROOT, text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        # Where the tests run in the background, Ctrl-C is ignored, and children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    return arguments, process


def press_ctrl_c(process):
    """Stop a sweep as a terminal does, its workers too; return the only line that it may leave."""
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate()
    assert process.returncode == 130
    assert out == ""
    (line,) = err.splitlines()
    return line


@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_ctrl_c_stops_cleanly_and_the_same_command_resumes(tmp_path, jobs):
    log = tmp_path / "log"
    arguments, process = start_to_be_stopped(tmp_path / "out", jobs, log)
    while not log.exists() or log.read_text().count("\n") < 4:
        time.sleep(0.02)
        assert process.poll() is None
    line = press_ctrl_c(process)
    assert "of 24 rows are done and kept in" in line
    assert line.endswith(f"To resume, run the same command: inlier {' '.join(arguments)}")
    kept = (tmp_path / "out" / "rows.jsonl").read_text().splitlines()
    assert 0 < len(kept) < 24
    assert len(json.loads((tmp_path / "out" / "results.json").read_text())["rows"]) == len(kept)
    assert run(*arguments, TINY_LOG=str(log)).returncode == 0
    assert (tmp_path / "out" / "rows.jsonl").read_text().splitlines()[: len(kept)] == kept
    # Each worker may have finished a row whose result was on its way, and begun another one.
    assert 24 <= log.read_text().count("\n") <= 24 + 2 * jobs


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks for processes in /proc")
def test_ctrl_c_while_the_workers_start_leaves_one_line_too(tmp_path):
    _, process = start_to_be_stopped(tmp_path / "out", 2, tmp_path / "log")

    def workers():
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        return [child for child in children if b"popen_loky" in Path(f"/proc/{child}/cmdline").read_bytes()]

    while len(workers()) < 2:
        time.sleep(0.01)
        assert process.poll() is None
    # They import for a second or so.
    time.sleep(0.1)
    assert "0 of 24 rows are done" in press_ctrl_c(process)


def test_progress_is_shown_on_a_terminal_only(tmp_path):
    parent, child = pty.openpty()
    arguments = ["reproduce", TINY, "--preset", "slow", "--rates", "0", "--methods", "steady", "--jobs", "1"]
    process = subprocess.Popen(
        [sys.executable, "-m", "inlier.cli", *arguments, "--out", str(tmp_path)],
        env=ENVIRONMENT, cwd=ROOT, stdin=child, stdout=child, stderr=child,
    )  # fmt: skip
    os.close(child)
    text = ""
    while True:
        try:
            text += os.read(parent, 4096).decode(errors="replace")
        except OSError:  # The other end is closed.
            break
    os.close(parent)
    assert process.wait() == 0
    assert "2/4 rows" in text
    assert "1 running" in text
    assert "left 0:00:0" in text
    assert "running" not in run(*arguments, "--out", tmp_path).stdout


def test_kernels_are_listed_and_drawn(tmp_path):
    process = run("kernels", "--plot", tmp_path / "kernels.png")
    assert process.returncode == 0, process.stderr
    for name in kernels.names():
        assert f" {name} " in process.stdout
    assert (tmp_path / "kernels.png").read_bytes().startswith(b"\x89PNG")


def test_a_narrow_list_of_kernels_says_the_same(tmp_path):
    texts = []
    for width in (110, WIDE):
        console = Console(width=width, record=True, file=io.StringIO())
        console.print(kernel_table(width))
        texts.append(console.export_text())
    assert max(map(len, texts[0].splitlines())) <= 110
    for name in kernels.names():
        for part in (name, *NOTES[name]):
            assert part in texts[0]
            assert part in texts[1]


def test_a_custom_kernel_is_listed_and_drawn_too(tmp_path):
    @kernels.register("custom-kernel")
    class Own(kernels.CauchyLorentzian):
        """Made for one test."""

    Own.__module__ = "elsewhere"
    try:
        console = Console(width=200, record=True, file=io.StringIO())
        console.print(kernel_table())
        assert "custom-kernel" in (text := console.export_text())
        assert "Made for one test." in text
        plot_kernels(tmp_path / "kernels.svg")
        # Text is drawn as paths, each with a comment that names it.
        drawn = (tmp_path / "kernels.svg").read_text()
        for name in kernels.names():
            assert f"<!-- {name} -->" in drawn
    finally:
        del kernels._base._registry["custom-kernel"]


@pytest.mark.parametrize("name", kernels.names())
@pytest.mark.parametrize("r", [0.25, 1.0, 3.0])
def test_formulas_of_the_list_are_those_of_the_kernels(name, r):
    kernel = kernels.get("barron", alpha=-1.5) if name == "barron" else kernels.get(name)
    names = {
        "e": math.e,
        "ln": math.log,
        "sqrt": math.sqrt,
        "r": r,
        "z": 1 - math.exp(-r),
        **parameters(kernel),
    }
    names["b"] = 2 - names.get("alpha", 0)

    def value(formula):
        formula = formula.replace("^", "**").replace("·", "*").replace("m = 1..t", "m in range(1, t + 1)")
        return eval(formula, names)

    sigma, weight, _ = NOTES[name]
    assert value(sigma) == pytest.approx(kernel(r))
    assert value(weight) == pytest.approx(kernel.weight(r))
