"""What the commands share: the console, a progress bar, errors of one line, and how options are read."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NoReturn

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from inlier.fit._common import Progress

__all__ = [
    "exit_unwritten",
    "exit_with",
    "open_console",
    "parse_fraction",
    "parse_names",
    "parse_numbers",
    "progress_bar",
]


def open_console() -> Console:
    """Return the console that tables and progress are printed to."""
    from rich.console import Console

    # A file or a pipe has no width: use one that fits whole tables.
    return Console() if sys.stdout.isatty() else Console(width=206)


@contextmanager
def progress_bar(steps: int) -> Iterator[Progress]:
    """Show a progress bar of this many steps on a terminal; yield the function that advances it."""
    console = open_console()
    if not console.is_terminal:
        from inlier.fit._common import no_progress

        yield no_progress
        return
    from rich import progress as rich

    text = rich.TextColumn("{task.description}")
    columns = rich.SpinnerColumn(), rich.BarColumn(), text, rich.TimeElapsedColumn()
    with rich.Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=steps, completed=-1)
        yield lambda step, share=1.0: bar.update(task, advance=share, description=step)


def exit_unwritten(error: BaseException, out: Path | None, left: str = "nothing was written") -> NoReturn:
    """Exit with one line on why a command wrote nothing; re-raise an error that the user did not cause."""
    from inlier._errors import InputError, is_interrupt

    if is_interrupt(error):
        exit_with(f"stopped; {left}", 130)
    if isinstance(error, InputError):
        exit_with(str(error), 2)
    if isinstance(error, OSError):
        exit_with(f"out {str(out)!r} cannot be written: {error.strerror or error}", 1)
    raise error


def exit_with(message: str, code: int) -> NoReturn:
    """Print one line to the standard error and exit."""
    typer.echo(f"inlier: {message}", err=True)
    raise typer.Exit(code)


def parse_fraction(text: str) -> float | Literal["auto"]:
    """Return an inlier fraction."""
    from inlier._errors import InputError

    if text == "auto":
        return "auto"
    try:
        return float(text)
    except ValueError:
        raise InputError(f"inlier fraction {text!r} is not a number; choose auto, or one like 0.8") from None


def parse_names(text: str | None) -> list[str] | None:
    """Return names that are separated by commas."""
    return None if text is None else [part.strip() for part in text.split(",") if part.strip()]


def parse_numbers(text: str | None) -> list[float] | None:
    """Return numbers that are separated by commas."""
    try:
        return None if text is None else [float(part) for part in parse_names(text) or []]
    except ValueError:
        raise ValueError(f"rates {text!r} are not numbers; write them like 0,0.2,0.4") from None
