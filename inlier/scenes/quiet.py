"""Nerfstudio without its messages."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["quiet"]


@contextmanager
def quiet() -> Iterator[None]:
    """Let nerfstudio, its bars and its warnings say nothing while this lasts."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import rich
        from nerfstudio.utils.rich_utils import CONSOLE

        # Its own console, and the one that its bars are drawn on.
        consoles = (CONSOLE, rich.get_console())
        before = [console.quiet for console in consoles]
        for console in consoles:
            console.quiet = True
        try:
            yield
        finally:
            for console, was_quiet in zip(consoles, before, strict=True):
                console.quiet = was_quiet
