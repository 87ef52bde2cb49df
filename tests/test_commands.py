"""The commands on the pages exist, and take the arguments that the pages give them."""

from __future__ import annotations

import argparse
import importlib.util
import re
import runpy
import shlex
import sys
from pathlib import Path

import pytest
import typer

from inlier.cli import app

ROOT = Path(__file__).parent.parent
MAKEFILE = (ROOT / "Makefile").read_text()


def commands(text: str) -> list[str]:
    """The commands of a page, in its code blocks and inside of sentences; the first of its output looks like one."""
    text = re.sub(r"\\\n\s*", " ", text)
    lines = [
        line for block in re.findall(r"^```.*?\n(.*?)^```", text, re.S | re.M) for line in block.splitlines()
    ]
    prose = re.sub(r"^```.*?^```", "", text, flags=re.S | re.M)
    lines += re.findall(r"^    (\S.*)$", prose, re.M) + re.findall(r"`([^`]+)`", prose)
    joined = (" ".join(re.split(r"\s+#", line)[0].split()) for line in lines)
    return [
        line for line in joined if re.match(r"([A-Z_]+=\S+ )*(python|make|inlier (?!fraction)) ?\S", line)
    ]


PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
COMMANDS = sorted({command for page in PAGES for command in commands(page.read_text())})


class ParsedError(Exception):
    """Raised in place of running what was asked for."""


def check_module(name: str, arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Parse the arguments of a module as it does itself."""
    found = importlib.util.find_spec(name)
    assert found, f"there is no module {name}"
    if found.submodule_search_locations:
        found = importlib.util.find_spec(f"{name}.__main__")
    source = Path(found.origin).read_text()
    if not re.search(r"ArgumentParser|benchmarks\.tables import .*\bmain\b", source):
        assert not arguments, f"{name} takes no arguments"
        return

    def parse(parser, *args, **kwargs):
        original(parser, *args, **kwargs)
        raise ParsedError

    original = argparse.ArgumentParser.parse_args
    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse)
    monkeypatch.setattr(sys, "argv", [name, *arguments])
    monkeypatch.delitem(sys.modules, name, raising=False)
    with pytest.raises(ParsedError):
        runpy.run_module(name, run_name="__main__")


def check_inlier(arguments: list[str]) -> None:
    """Look up a command and its options."""
    command = typer.main.get_command(app)
    while arguments and hasattr(command, "commands"):
        name, *arguments = arguments
        if name == "COMMAND":
            return
        assert name in command.commands, f"there is no command {name}"
        command = command.commands[name]
    options = {option for parameter in command.params for option in parameter.opts} | {"--help"}
    assert {word for word in arguments if word.startswith("--")} <= options


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_on_a_page_exists_and_takes_its_arguments(command, monkeypatch):
    program, *arguments = shlex.split(re.sub(r"^([A-Z_]+=\S+ )+", "", command))
    if program == "inlier":
        check_inlier(arguments)
    elif program == "make":
        target, *settings = arguments
        assert re.search(rf"^{target}:", MAKEFILE, re.M), f"there is no target {target}"
        for setting in settings:
            assert f"$({setting.split('=')[0]})" in MAKEFILE
    elif arguments[0] == "-m":
        check_module(arguments[1], arguments[2:], monkeypatch)
    else:
        assert (ROOT / arguments[0]).is_file()


@pytest.mark.parametrize(
    "command",
    [
        "inlier fit data.csv --no-such-option",
        "inlier fits data.csv",
        "make bunch",
        "make bench-tables HOLF=report",
        "python -m benchmarks.no_such_module",
        "python -m benchmarks.lines --quick",
        "python -m benchmarks.thresholds --no-such-option",
        "python examples/no_such_file.py",
    ],
)
def test_a_command_that_does_not_exist_is_noticed(command, monkeypatch):
    text = f"Run `{command}` once.\n"
    assert commands(text) == [command]
    with pytest.raises((AssertionError, SystemExit)):
        test_a_command_on_a_page_exists_and_takes_its_arguments(command, monkeypatch)
