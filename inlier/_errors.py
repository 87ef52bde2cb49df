"""Errors that a user can act on, and how their messages quote what the user wrote."""

from __future__ import annotations

__all__ = ["InputError", "is_interrupt", "quoted"]

MAX_QUOTED = 60
"""Longest quotation of a user's text in a message, in characters."""


class InputError(ValueError):
    """Data or arguments that cannot be used: what is wrong and how to fix it, in one line."""


def is_interrupt(error: BaseException | None) -> bool:
    """Return whether Ctrl-C caused an error: NumPy, or an import in C, turns one that hits it into another type.

    Example:
        >>> try:
        ...     raise ValueError("not a valid buffer format") from KeyboardInterrupt()
        ... except ValueError as error:
        ...     is_interrupt(error), is_interrupt(ValueError("another"))
        (True, False)
    """
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__
    return error is not None


def quoted(text: object) -> str:
    """Return a user's text for a message: in quotes, on one line, shortened.

    Example:
        >>> print(quoted("two\\nlines"), quoted("x" * 100)[-8:])
        'two\\nlines' xxxxx...
    """
    text = repr(str(text))
    return text if len(text) <= MAX_QUOTED else text[: MAX_QUOTED - 3] + "..."
