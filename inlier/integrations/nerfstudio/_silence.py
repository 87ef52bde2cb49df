"""Silence the messages of nerfstudio."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["quiet"]


@contextmanager
def quiet() -> Iterator[None]:
    """Silence nerfstudio, its progress bars and its warnings within the context."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import rich
        from nerfstudio.utils.rich_utils import CONSOLE

        # Its own console, and that of its progress bars.
        consoles = (CONSOLE, rich.get_console())
        before = [console.quiet for console in consoles]
        for console in consoles:
            console.quiet = True
        try:
            yield
        finally:
            for console, was_quiet in zip(consoles, before, strict=True):
                console.quiet = was_quiet
