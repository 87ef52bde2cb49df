"""Cells of the inputs that do not fit the rest of their row: each column is predicted from the others.

A column of repeated values is predicted by its pairs with every other such column. Let a row have the value v
where other rows with the same value a in column k mostly have b. Its evidence against v is

    e_k = log((n_k(a, b) + 1) / (n_k(a, v) + 1)),

n_k counting the other rows. Column k counts with the share w_k of what it could explain and does: the rows
whose value it predicts, beyond the most frequent value alone. The score is the sum of w_k e_k; so a rare value that
no column explains is not suspect for being rare. A wrong cell is at odds with most columns; a right cell only
with the wrong one. A text that is spelled like a far more frequent one has the logarithm of their ratio as
evidence against it. A column of continuous numbers is predicted by the robust linear model; its score is
z^2 / 2 - log n, z the error of one of n cells in units of a standard deviation: the smallest under which half of the
cells, and nine tenths of them, are where Gaussian errors would be. So a tenth of the cells with large errors is a tail,
which a model that fits some rows better than others has too: it is ranked, and no claim.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

import numpy as np
import pandas as pd
import pyarrow as pa

from inlier._errors import InputError
from inlier.fit._columns import Array, Column
from inlier.fit._pipeline import ModelSpec, fit_robust
from inlier.fit._targets import MORE_FREQUENT, SHORTEST

__all__ = ["CLAIMED", "ScoredCell", "score_cells"]

REPEATED = 5
"""Values that occur so often on average make a column discrete."""
GAUSSIAN_SQUARES = {0.5: 0.4549, 0.9: 2.7055}
"""Quantiles of a squared standard Gaussian variable."""
MAX_SCORE = 30.0
CLAIMED = 3.0
"""Cells with a higher score are called suspect, the others only ranked: ``benchmarks.fit_cells --thresholds``."""
MAX_CELLS = 100_000
MAX_SPELLINGS = 200
"""Frequent values that rare ones are compared with."""
ALIKE = 0.8
"""Share of letters that two spellings of one value have in common."""


@dataclass(frozen=True)
class ScoredCell:
    """A cell that does not fit the rest of its row.

    Args:
        position: The row, from 0.
        column: The name of the column.
        expected: What the other columns suggest.
        score: The evidence against the cell, a logarithm of odds.
    """

    position: int
    column: str
    expected: str
    score: float


def score_cells(
    frame: pd.DataFrame,
    texts: pa.Table,
    columns: Sequence[Column],
    seed: int = 0,
    progress: Callable[[str], None] = lambda name: None,
) -> list[ScoredCell]:
    """Return the cells with evidence against them, most suspect first.

    Args:
        frame: The columns, as the pipeline takes them.
        texts: The same rows and columns, as they are in the file.
        columns: Their types.
        seed: The seed of all randomness.
        progress: Called with the name of each column.

    Example:
        >>> import pandas as pd, pyarrow as pa
        >>> cells = {"city": ["Bonn"] * 20 + ["Köln"] * 20, "zip": [53] * 20 + [50] * 19 + [53]}
        >>> frame = pd.DataFrame(cells).astype({"zip": float})
        >>> kinds = [Column("city", "text"), Column("zip", "number")]
        >>> cell = score_cells(frame, pa.table(cells), kinds)[0]
        >>> cell.position, cell.column, cell.expected
        (39, 'city', 'Bonn')
    """
    used = [column for column in columns if column.kind != "embedding"]
    codes: dict[str, Array] = {}
    names: dict[str, list[str]] = {}
    for column in used:
        values = pd.Series(texts[column.name].to_pylist(), dtype=object).map(
            lambda cell: "" if cell is None else str(cell).strip()
        )
        place, distinct = pd.factorize(values)
        if len(distinct) <= max(len(values) / REPEATED, 2):
            codes[column.name], names[column.name] = place, list(distinct)
    found: list[ScoredCell] = []
    for column in used:
        progress(column.name)
        if column.name in codes:
            found += _discrete(column.name, codes, names[column.name])
        elif column.kind in ("number", "duration"):
            found += _continuous(frame, column, used, seed)
    found.sort(key=lambda cell: -cell.score)
    return found[:MAX_CELLS]


def _discrete(name: str, codes: dict[str, Array], values: list[str]) -> list[ScoredCell]:
    """Return the cells of a column of repeated values that its pairs with other columns speak against."""
    own = codes[name]
    rows, width = len(own), len(values)
    usual = own == np.bincount(own).argmax()
    score = np.zeros(rows)
    votes: dict[int, dict[int, float]] = {}

    def count(evidence: Array, expected: Array) -> None:
        np.add(score, evidence, out=score)
        for position in np.flatnonzero(evidence > 0):
            choice = votes.setdefault(int(position), {})
            choice[int(expected[position])] = choice.get(int(expected[position]), 0.0) + float(
                evidence[position]
            )

    count(*_spelling(own, values))
    for other, codes_of_other in codes.items():
        if other == name:
            continue
        pair = codes_of_other.astype(np.int64) * width + own
        pairs, place, counts = np.unique(pair, return_inverse=True, return_counts=True)
        same = counts[place] - 1  # Other rows with this pair.
        best, second = _two_best(pairs // width, pairs % width, counts)
        first_value, first_count = (part[codes_of_other] for part in best)
        second_value, second_count = (part[codes_of_other] for part in second)
        # The most frequent other value among the other rows with the same value of the other column.
        mine = first_value == own
        alternative = np.where(mine, second_value, first_value)
        strength = np.where(mine, second_count, first_count)
        hits = (np.where(mine, first_count - 1, -1) >= strength) & (same > 0)
        shared = np.bincount(codes_of_other)[codes_of_other] > 1
        if not shared.any() or usual[shared].all():
            continue
        base = usual[shared].mean()
        weight = (hits[shared].mean() - base) / (1 - base)
        if weight > 0:
            count(weight * np.log((strength + 1) / (same + 1)), alternative)
    return [
        ScoredCell(
            int(position), name, values[max(choices, key=lambda code: choices[code])], float(score[position])
        )
        for position in np.flatnonzero(score > 0)
        for choices in [votes[int(position)]]
    ]


def _spelling(own: Array, values: list[str]) -> tuple[Array, Array]:
    """Return the evidence that each cell is a misspelled one of a far more frequent value, and that value."""
    counts = np.bincount(own, minlength=len(values))
    evidence, expected = np.zeros(len(values)), np.arange(len(values))
    frequent = [int(code) for code in np.argsort(-counts)[:MAX_SPELLINGS]]
    for code, value in enumerate(values):
        if len(value) < SHORTEST:
            continue
        for other in frequent:
            if counts[other] < MORE_FREQUENT * counts[code]:
                break
            if _alike(value, values[other]):
                evidence[code], expected[code] = np.log(counts[other] / counts[code]), other
                break
    return evidence[own], expected[own]


def _alike(a: str, b: str) -> bool:
    """Return whether two texts differ in few letters, and in no digit."""
    digits = [[character for character in text if character.isdigit()] for text in (a, b)]
    if digits[0] != digits[1] or abs(len(a) - len(b)) > 2:
        return False
    return SequenceMatcher(None, a, b, autojunk=False).ratio() >= ALIKE


def _two_best(groups: Array, values: Array, counts: Array) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """Return the most and the second most frequent value of each group, with their counts; 0 if there is none."""
    order = np.lexsort((-counts, groups))
    groups, values, counts = groups[order], values[order], counts[order]
    start = np.flatnonzero(np.r_[True, groups[1:] != groups[:-1]])
    size = int(groups.max()) + 1
    first_value, first_count = np.full(size, -1), np.zeros(size)
    second_value, second_count = np.full(size, -1), np.zeros(size)
    first_value[groups[start]], first_count[groups[start]] = values[start], counts[start]
    after = start + 1
    after = after[after < len(groups)]
    after = after[groups[after] == groups[after - 1]]
    second_value[groups[after]], second_count[groups[after]] = values[after], counts[after]
    return (first_value, first_count), (second_value, second_count)


def _continuous(
    frame: pd.DataFrame, column: Column, columns: Sequence[Column], seed: int
) -> list[ScoredCell]:
    """Return the cells of a column of numbers that are outliers of the robust linear model of the others."""
    known = np.flatnonzero(frame[column.name].notna().to_numpy())
    others = [other for other in columns if other.name != column.name]
    values = frame[column.name].to_numpy()[known]
    if not others or len(known) < 20 or np.ptp(values) == 0:
        return []
    part = frame[[other.name for other in others]].iloc[known].reset_index(drop=True)
    try:
        fit = fit_robust(ModelSpec(others, "regression", "linear", "auto", seed), part, values)
    except InputError:
        return []
    losses = np.asarray(fit.estimator.losses_)
    variance = max(float(np.quantile(losses, share)) / square for share, square in GAUSSIAN_SQUARES.items())
    if variance <= 0:
        return []
    expected = fit.pipeline.predict(part)
    # Beyond what the largest of so many Gaussian errors would be.
    score = np.minimum(losses / variance / 2 - np.log(len(losses)), MAX_SCORE)
    return [
        ScoredCell(int(known[place]), column.name, f"{expected[place]:.6g}", float(score[place]))
        for place in np.flatnonzero(score > 0)
    ]
