"""``inlier fit`` and ``inlier predict``: a robust model, a ranking of suspects and a report, without code.

- ``tables``: reading CSV and Parquet, and refusing what is no table;
- ``columns``: what each column is (a number, a category, a date), and what the target asks for;
- ``transformers``, ``pipeline``: the scikit-learn pipeline that prepares columns, and its model;
- ``models``: the pipeline in a file, without pickle;
- ``heldout``: the error of the robust and the plain model on rows that neither has seen;
- ``suspects``: the ranking of rows, and where each of them is unusual;
- ``outputs``: folders and files that are written whole or not at all;
- ``pictures``: reading class folders and Parquet files of pictures, and setting aside what is none;
- ``networks``: the trained network in files;
- ``common``: what a fit of a table and of pictures share;
- ``run``, ``predict``: the two commands for tables; ``images``, ``predict_images``: those for pictures.
"""

from __future__ import annotations

__all__ = ["InputError", "is_interrupt", "shown"]

WIDEST = 60
"""So many characters of a user's text are quoted in a message."""


class InputError(ValueError):
    """Data or arguments that cannot be used, and what to do about it, in one line."""


def is_interrupt(error: BaseException | None) -> bool:
    """Whether Ctrl-C is behind an error: NumPy turns one that falls into its reading of buffers into another.

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


def shown(text: object) -> str:
    """Return a user's text for a message: quoted, on one line, not too long.

    Example:
        >>> print(shown("two\\nlines"), shown("x" * 100)[-8:])
        'two\\nlines' xxxxx...
    """
    quoted = repr(str(text))
    return quoted if len(quoted) <= WIDEST else quoted[: WIDEST - 3] + "..."
