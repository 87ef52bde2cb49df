"""Running commands in this process: importing what they need takes longer than most of them run."""

from __future__ import annotations

import contextlib
import io
import json
import sys
from types import SimpleNamespace

from inlier import cli


def run(*arguments):
    """Run a command; return its exit code and what it printed."""
    out, error, old = io.StringIO(), io.StringIO(), sys.argv
    sys.argv = ["inlier", *map(str, arguments)]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
            cli.main()
    except SystemExit as end:
        return SimpleNamespace(code=end.code or 0, out=out.getvalue(), error=error.getvalue())
    finally:
        sys.argv = old
    raise AssertionError("main always exits")


def succeed(*arguments):
    """Run a command that succeeds; return what it printed."""
    result = run(*arguments)
    assert result.code == 0, result.error
    return result.out


def refused(*arguments):
    """Run a command that is refused in one line; return the line."""
    result = run(*arguments)
    assert result.code == 2, (result.code, result.out, result.error)
    assert result.out == ""
    (line,) = result.error.splitlines()
    assert line.startswith("inlier: ")
    return line


def record_of(folder):
    """The content of run.json in an output folder."""
    return json.loads((folder / "run.json").read_text())


def summary_of(printed):
    """The summary that a fit printed, by heading."""
    lines = [line for line in printed.splitlines() if line[16:17] == " " and line[17:18].strip()]
    return {line[:16].strip(): line[17:] for line in lines}
