"""Rows below a table that add up the others: they are no rows of it."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from inlier.fit._arrays import Array
from inlier.fit._tables import is_text

__all__ = ["count_totals", "is_sum_of_others"]

MOST_TOTALS = 3
"""So many rows at the end may be totals."""
TOTAL = re.compile(
    r"((grand|overall)\s+totals?|sub-?\s?totals?|totals?|sum|summe|gesamt(summe)?|insgesamt|zwischensumme|somme|totale"
    r"|suma|soma|totaal|som|итого|合计|总计|合計)\s*:?\s*(\(.*\)|\d*)\s*:?",
    re.IGNORECASE,
)
"""A word for a total, in several languages, with nothing but a number or a remark in brackets behind it."""
FEWEST, TOLERANCE = 10, 1e-6


def count_totals(cells: pa.Table) -> int:
    """Return how many rows at the end are totals: one of their cells says so, which no cell above it does.

    Example:
        >>> import pyarrow as pa
        >>> table = pa.table({"shop": ["a", "b", "c", "d", "Total:"], "sold": ["1", "2", "3", "4", "10"]})
        >>> count_totals(table), count_totals(table.slice(0, 4))
        (1, 0)
    """
    texts = [column for column in cells.columns if is_text(column.type)]
    last = [column.slice(max(len(column) - MOST_TOTALS, 0)).to_pylist() for column in texts]
    found = 0
    for place in range(1, min(MOST_TOTALS, cells.num_rows) + 1):
        words = [k for k, ends in enumerate(last) if TOTAL.fullmatch((ends[-place] or "").strip())]
        if not any(_is_new(texts[k], place) for k in words):
            break
        found = place
    return found


def _is_new(column: pa.ChunkedArray, place: int) -> bool:
    """Return whether the word so many rows from the end is in none of the rows above the last few."""
    above = column.slice(0, max(len(column) - MOST_TOTALS, 0))
    word = pc.utf8_lower(column[len(column) - place]).as_py()
    return not pc.any(pc.equal(pc.utf8_lower(above), word)).as_py()


def is_sum_of_others(values: Array) -> bool:
    """Return whether the last number is the sum of all others, and larger than each of them.

    Example:
        >>> is_sum_of_others(np.array([1.5] * 20 + [30.0])), is_sum_of_others(np.array([1.5] * 20 + [30.1]))
        (True, False)
    """
    present = values[np.isfinite(values)]
    if len(present) <= FEWEST or not np.isfinite(values[-1]):
        return False
    others, last = present[:-1], float(present[-1])
    return bool(abs(last - others.sum()) <= TOLERANCE * abs(last) and abs(last) > float(np.abs(others).max()))
