"""How each input column is read, and its values for the pipeline: float64, datetime64 or text.

A column whose texts are numbers, dates, durations or yes/no in more than :data:`READABLE` of its cells is read
so; each cell that does not fit is named, and is missing for the model. Any other text stays text.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from inlier._errors import InputError, quoted
from inlier.fit import _written as written
from inlier.fit._arrays import (
    MAX_MAGNITUDE,
    distinct_texts,
    floats,
    is_time,
    plain_numbers,
)
from inlier.fit._arrays import Array as Array
from inlier.fit._arrays import decoded as decoded
from inlier.fit._tables import is_text, is_vector

Kind = Literal["number", "yes/no", "duration", "date", "text", "embedding"]

READABLE = 0.95
"""A column of texts is of a type if more than this share of its cells can be read as that type."""
MANY_TEXTS = 10
"""A word among at most this many distinct numbers may be a category of its own."""
ID_NAME = re.compile(
    r"(.*[ _.-])?(id|uuid|guid|index|row|rownames|row_?number)|.*Id|unnamed: \d+|__index_.*|", re.I
)


@dataclass(frozen=True)
class Column:
    """An input column, and how its texts are read.

    Args:
        name: Its name.
        kind: ``number``, ``yes/no``, ``duration``, ``date``, ``text`` or ``embedding``, a vector in each cell.
        decimal: The decimal mark of numbers.
        unit: The most frequent unit or currency of numbers.
        percent: What one per cent is worth in a column of bare numbers.
        month_first: Whether 1/2/2020 is in January.
        century: The first year of the hundred that two-digit years stand for.
        year_first: Whether three numbers of two digits begin with the year.
        yes: The word for yes.
        missing: Numbers that stand for a missing value.
        width: The length of vectors.
        source: Where vectors come from: the cells, their texts by an encoder, or an ``.npy`` file.
    """

    name: str
    kind: Kind
    decimal: Literal[".", ","] = "."
    unit: str = ""
    percent: float = 1.0
    month_first: bool = True
    century: int = 1950
    year_first: bool = False
    yes: str = "yes"
    missing: tuple[float, ...] = ()
    width: int = 0
    source: Literal["cells", "text", "npy"] = "cells"

    @property
    def outputs(self) -> list[str]:
        """The names of its columns in the frame: a vector has one for each of its numbers."""
        if self.kind != "embedding":
            return [self.name]
        return [f"{self.name}[{place}]" for place in range(self.width)]

    def __str__(self) -> str:
        """Return what is known of it, in words."""
        words: list[str] = [self.kind]
        if self.kind == "embedding":
            words = [f"{'text, ' if self.source == 'text' else ''}embedding of {self.width} numbers"]
        if self.decimal == ",":
            words.append("decimal comma")
        if self.unit:
            words.append(f"unit {self.unit}")
        return ", ".join(words)


@dataclass(frozen=True)
class SuspectCell:
    """A cell that does not fit its column.

    Args:
        position: The row, from 0.
        column: The name of the column.
        value: The cell, as it is in the file.
        reason: What does not fit.
    """

    position: int
    column: str
    value: str
    reason: str


@dataclass(frozen=True)
class Reading:
    """The values of a column, and which of its cells do not fit.

    Args:
        column: How it was read.
        values: float64 with NaN, datetime64 with NaT, or an Arrow array of texts.
        suspects: The cells that do not fit; those that could not be read are missing.
        notes: What else is worth knowing, in words.
    """

    column: Column
    values: Any
    suspects: list[SuspectCell] = field(default_factory=list)
    notes: tuple[str, ...] = ()


def infer_columns(table: pa.Table) -> tuple[list[Reading], dict[str, str]]:
    """Return the columns that can be used, read; and why each of the others cannot.

    Args:
        table: The input columns, without the target.

    Example:
        >>> import pyarrow as pa
        >>> table = pa.table({"size": ["1,250 kg", None, "30 kg"], "one": ["a", "a", "a"]})
        >>> used, unused = infer_columns(table)
        >>> print(used[0].column, used[0].values, unused)
        number, unit kg [1250.   nan   30.] {'one': 'constant'}
    """
    used, unused = [], {}
    for name in table.column_names:
        values = decoded(table[name])
        reason = _reason_not_used(name, values)
        if reason:
            unused[name] = reason
        else:
            used.append(infer_column(name, values))
    return used, unused


def _reason_not_used(name: str, values: Any) -> str:
    """Return why nothing can be learned from a column; an empty string if something can."""
    if pa.types.is_floating(values.type):
        values = pc.if_else(pc.is_nan(values), pa.scalar(None, values.type), values)
    present = len(values) - values.null_count
    if present == 0:
        return "empty"
    if is_vector(values.type):
        return ""
    distinct = pc.count_distinct(values, mode="only_valid").as_py()
    if distinct == 1 and present == len(values):
        return "constant"
    discrete = pa.types.is_integer(values.type) or is_text(values.type)
    if discrete and distinct == len(values) and ID_NAME.fullmatch(name.strip()):
        return "an identifier, different in every row"
    return ""


def infer_column(name: str, values: Any) -> Reading:
    """Return a column, read as the type that most of its cells have.

    Args:
        name: Its name.
        values: An Arrow array, without dictionary encoding and blank texts.
    """
    if is_vector(values.type):
        lengths = pc.list_value_length(values.drop_null())
        return read_column(Column(name, "embedding", width=int(pc.max(lengths).as_py())), values)
    if not is_text(values.type):
        if is_time(values.type) or (pa.types.is_integer(values.type) and _are_dates(floats(values))):
            return read_column(Column(name, "date"), values)
        return _with_sentinels(read_column(Column(name, "number"), values))
    plain = plain_numbers(values)
    if plain is not None:
        if _are_dates(plain):
            return read_column(Column(name, "date"), values)
        return _with_sentinels(Reading(Column(name, "number"), plain))
    texts, codes = distinct_texts(values)
    counts = np.bincount(codes[codes >= 0], minlength=len(texts))
    missing = {text for text in texts if _is_sentinel(text)}
    # Only where a column cannot be read otherwise: each cell that does not fit is named.
    for ignored in (missing, missing | _placeholders(texts, counts)):
        is_ignored = np.array([text in ignored for text in texts], dtype=bool)
        for infer in (_infer_yes_no, _infer_number, _infer_date, _infer_duration):
            column = infer(name, texts, np.where(is_ignored, 0, counts))
            if column is not None:
                reading = _read_texts(column, texts, codes)
                words = [f"{quoted(texts[k])} in {_cells(counts[k])}" for k in np.flatnonzero(is_ignored)]
                reading = replace(
                    reading,
                    suspects=[cell for cell in reading.suspects if cell.value not in ignored],
                    notes=(
                        *_without_unit(column, texts, counts),
                        *((f"{', '.join(words)} taken as missing",) if words else ()),
                    ),
                )
                return _with_sentinels(reading) if column.kind == "number" else reading
    return Reading(Column(name, "text"), values, notes=_unconverted(texts[: MANY_TEXTS**2]))


def mixed_units(texts: Sequence[str]) -> list[str]:
    """Return the units of texts that are numbers in several units, none of which is converted into another.

    Numbers without a unit are in another one where the rest is in a currency; elsewhere they say nothing.

    Example:
        >>> [mixed_units(texts) for texts in (["$5", "€7", "8"], ["5", "8 EUR"], ["1a", "2"], ["$5", "b"])]
        [['', '$', '€'], ['', 'EUR'], [], []]
    """
    numbers = [written.split_number(text) for text in texts]
    read = [number for number in numbers if number is not None and not number.remark]
    units = sorted({number.unit for number in read})
    if not any(map(written.is_currency, units)):
        units = [unit for unit in units if unit]
    return units if 1 < len(units) <= MANY_TEXTS and len(read) > READABLE * len(numbers) else []


def units_in_words(units: Sequence[str]) -> str:
    """Return units in quotes.

    Example:
        >>> units_in_words(["", "€"])
        "none, '€'"
    """
    return ", ".join(quoted(unit) if unit else "none" for unit in units)


def _unconverted(texts: list[str]) -> tuple[str, ...]:
    """Return a note if texts are numbers in units that are not converted into each other, or are these units.

    Example:
        >>> _unconverted(["$5", "€7", "$8"]), _unconverted(["$5", "a word", "€7"])
        (("numbers in several units ('$', '€') are read as text: write them in one",), ())
        >>> _unconverted(["USD", "EUR"])
        ('several currencies: amounts in other columns are compared as if they were in one',)
    """
    if len(texts) > 1 and all(re.fullmatch(written.CURRENCIES, text.strip()) for text in texts):
        return ("several currencies: amounts in other columns are compared as if they were in one",)
    units = mixed_units(texts)
    if not units:
        return ()
    return (f"numbers in several units ({units_in_words(units)}) are read as text: write them in one",)


def _without_unit(column: Column, texts: list[str], counts: Array) -> tuple[str, ...]:
    """Return a note if some numbers of a column with a unit have none.

    Example:
        >>> import numpy as np
        >>> _without_unit(Column("price", "number", unit="$"), ["$5", "7", "$8"], np.ones(3, int))
        ("1 cell without a unit taken to be in '$'",)
    """
    if not column.unit or " " in column.unit:
        return ()
    numbers = [written.split_number(text) for text in texts]
    bare = sum(
        int(count)
        for number, count in zip(numbers, counts, strict=True)
        if number is not None and not number.unit
    )
    return (f"{_cells(bare)} without a unit taken to be in {quoted(column.unit)}",) if bare else ()


def _cells(count: int) -> str:
    return f"{count:,} cell{'s' if count != 1 else ''}"


def _placeholders(texts: list[str], counts: Array) -> set[str]:
    """Return the one word that stands for a missing value, repeated among many texts that all have digits.

    Example:
        >>> import numpy as np
        >>> _placeholders([*map(str, range(20)), "not measured"], np.array([1] * 20 + [5]))
        {'not measured'}
    """
    words = [k for k, text in enumerate(texts) if not any(character.isdigit() for character in text)]
    words = [k for k in words if not _is_sentinel(texts[k])]
    one = len(words) == 1 and counts[words[0]] >= written.MIN_SENTINELS and len(texts) > MANY_TEXTS
    return {texts[words[0]]} if one else set()


def _are_dates(numbers: Array) -> bool:
    """Return whether numbers are dates like 20201231: hardly any other numbers of eight digits are all such."""
    present = numbers[np.isfinite(numbers)]
    year, month, day = present // 10_000, present // 100 % 100, present % 100
    valid = (year >= 1900) & (year < 2100) & (month >= 1) & (month <= 12) & (day >= 1) & (day <= 31)
    return bool(valid.sum() > READABLE * len(present)) and len(np.unique(present)) > 1


def _enough(read: Array, counts: Array) -> bool:
    """Return whether enough cells were read, given which of the distinct texts were."""
    total = counts.sum()
    return bool(total > 0 and counts[read].sum() > READABLE * total)


def _infer_yes_no(name: str, texts: list[str], counts: Array) -> Column | None:
    answers = [written.yes_or_no(text) for text in texts]
    weight: dict[str, int] = {}
    for (value, yes), count in zip(answers, counts, strict=True):
        if value == value:
            weight[yes] = weight.get(yes, 0) + int(count)
    read = np.array([value == value for value, _ in answers], dtype=bool)
    both = {value for value, _ in answers} >= {0.0, 1.0}
    if not (both and _enough(read, counts)):
        return None
    return Column(name, "yes/no", yes=max(weight, key=lambda word: weight[word]))


def _infer_number(name: str, texts: list[str], counts: Array) -> Column | None:
    numbers = [written.split_number(text) for text in texts]
    if not _enough(np.array([number is not None for number in numbers], dtype=bool), counts):
        return None
    decimal = written.decimal_mark(numbers, counts)
    units: Counter[str] = Counter()
    phrases: Counter[str] = Counter()
    for number, count in zip(numbers, counts, strict=True):
        if number is not None:
            units[number.unit] += int(count)
            phrases[number.phrase if number.remark else ""] += int(count)
    unit = max(units, key=lambda text: units[text])
    if counts.sum() - phrases.pop("", 0) > counts.sum() / 2:
        # "12 sq ft" has a unit of two words; "2 rooms near the lake" and the like are texts that begin with a number.
        unit, often = phrases.most_common(1)[0]
        if often <= counts.sum() / 2:
            return None
    percent = 1.0
    if "%" in units and unit == "":
        values = np.array([np.nan if n is None else n.value(decimal) for n in numbers])
        signs = np.array([n is not None and n.unit == "%" for n in numbers])
        present = np.isfinite(values)
        percent = written.percent_factor(values[present & signs], values[present & ~signs])
    column = Column(name, "number", decimal, unit, percent)
    read = np.array([_number(column, number)[0] is not None for number in numbers], dtype=bool)
    return column if _enough(read, counts) else None


def _infer_date(name: str, texts: list[str], counts: Array) -> Column | None:
    year_first = written.is_year_first(texts)
    dates = [written.split_date(text, year_first) for text in texts]
    if not _enough(np.array([date is not None for date in dates], dtype=bool), counts):
        return None
    first = written.month_first(dates, counts)
    century = written.century_of(dates)
    return Column(name, "date", month_first=first, century=century, year_first=year_first)


def _infer_duration(name: str, texts: list[str], counts: Array) -> Column | None:
    read = np.array([written.duration(text) == written.duration(text) for text in texts], dtype=bool)
    return Column(name, "duration") if _enough(read, counts) else None


def _with_sentinels(reading: Reading) -> Reading:
    """Take out numbers like -999 that stand for a missing value."""
    found = written.sentinel_numbers(reading.values)
    if not found:
        return reading
    cells = [f"{number:g} in {int((reading.values == number).sum()):,} cells" for number in found]
    column = Column(**(reading.column.__dict__ | {"missing": tuple(found)}))
    values = np.where(np.isin(reading.values, found), np.nan, reading.values)
    return Reading(column, values, reading.suspects, (*reading.notes, f"{', '.join(cells)} taken as missing"))


def read_column(column: Column, values: Any) -> Reading:
    """Read a column as another table's column of the same name was read.

    Args:
        column: How.
        values: An Arrow array.

    Example:
        >>> import pyarrow as pa
        >>> reading = read_column(Column("size", "number", ","), pa.chunked_array([["1,5", "large"]]))
        >>> reading.values.tolist(), reading.suspects[0].reason
        ([1.5, nan], 'not a number')
    """
    values = decoded(values)
    if column.kind == "embedding":
        return Reading(column, _vectors(column, values))
    if column.kind == "text":
        return Reading(column, values if is_text(values.type) else decoded(values.cast(pa.string())))
    if is_text(values.type):
        plain = plain_numbers(values) if column.kind == "number" else None
        reading = (
            Reading(column, plain) if plain is not None else _read_texts(column, *distinct_texts(values))
        )
    elif column.kind == "date":
        if pa.types.is_integer(values.type):  # Like 20201231.
            return _read_texts(column, *distinct_texts(values.cast(pa.string())))
        if not is_time(values.type):
            return _unreadable(column, values, "datetime64[us]", "not a date")
        times = values.cast(pa.timestamp("us"), safe=False)
        reading = Reading(column, np.asarray(times.to_numpy(), dtype="datetime64[us]"))
    elif is_time(values.type):
        return _unreadable(column, values, np.float64, "a date, not a number")
    else:
        reading = _finite(Reading(column, floats(values)))
    if column.missing:
        kept = np.where(np.isin(reading.values, column.missing), np.nan, reading.values)
        reading = Reading(column, kept, reading.suspects, reading.notes)
    return reading


def _vectors(column: Column, values: Any) -> Array:
    """Return vectors of one length as a matrix; missing ones are zero."""
    if not is_vector(values.type):
        raise InputError(
            f"column {quoted(column.name)} holds {quoted(values.type)} where vectors are expected"
        )
    matrix = np.zeros((len(values), column.width), np.float32)
    present = np.asarray(values.is_valid().to_numpy())
    kept = values.drop_null()
    if pc.any(pc.not_equal(pc.list_value_length(kept), column.width)).as_py():
        raise InputError(f"column {quoted(column.name)} holds vectors of other lengths than {column.width}")
    numbers = np.asarray(pc.list_flatten(kept).cast(pa.float32(), safe=False).to_numpy())
    matrix[present] = np.nan_to_num(numbers, nan=0.0, posinf=0.0, neginf=0.0).reshape(-1, column.width)
    return matrix


def _unreadable(column: Column, values: Any, dtype: Any, reason: str) -> Reading:
    """Return a column of which no cell can be read."""
    suspects = [
        SuspectCell(position, column.name, str(cell), reason)
        for position, cell in enumerate(values.to_pylist())
        if cell is not None
    ]
    return Reading(column, np.full(len(values), "NaT" if dtype != np.float64 else np.nan, dtype), suspects)


def _read_texts(column: Column, texts: list[str], codes: Array) -> Reading:
    """Read each distinct text, and spread the values over the rows."""
    dtype, missing = ("datetime64[us]", "NaT") if column.kind == "date" else (np.float64, np.nan)
    read = np.full(len(texts) + 1, missing, dtype)  # The last is for missing cells, whose code is -1.
    reasons = [""] * (len(texts) + 1)
    for place, text in enumerate(texts):
        if not _is_sentinel(text):
            value, reasons[place] = _read_text(column, text)
            if value is not None:
                read[place] = value
    named = np.flatnonzero(np.array([bool(reason) for reason in reasons])[codes])
    suspects = [
        SuspectCell(int(position), column.name, texts[codes[position]], reasons[codes[position]])
        for position in named
    ]
    return _finite(Reading(column, read[codes], suspects), texts, codes)


def _read_text(column: Column, text: str) -> tuple[Any, str]:
    """Return the value of one text, None if it has none; and what is wrong with it, if anything."""
    if column.kind == "number":
        return _number(column, written.split_number(text))
    if column.kind == "yes/no":
        value, _ = written.yes_or_no(text)
        return (value, "") if value == value else (None, "neither yes nor no")
    if column.kind == "duration":
        value = written.duration(text)
        return (value, "") if value == value else (None, "not a duration")
    date = written.split_date(text, column.year_first)
    moment = None if date is None else date.value(column.month_first, column.century)
    if date is None or moment is None or np.isnat(moment):
        return None, "not a date"
    beyond = date.either and (date.month if column.month_first else date.day) > 12
    return moment, "day and month in another order than in the rest" if beyond else ""


def _number(column: Column, number: written.WrittenNumber | None) -> tuple[float | None, str]:
    if number is None:
        return None, "not a number"
    value = number.value(column.decimal)
    if value != value:
        return None, "digits in other groups than in the rest"
    if number.unit == "%" and column.unit == "":
        return column.percent * value, "a per cent sign, unlike the rest"
    if " " in column.unit and number.phrase == column.unit:
        return value, ""
    factor = written.unit_factor(number.unit, column.unit)
    if factor != factor:
        return None, f"unit {number.unit}, unlike the rest"
    remark = number.remark
    return factor * value, "" if not remark else "a limit" if remark in "<>≤≥" else f"followed by {remark!r}"


def _finite(reading: Reading, texts: list[str] | None = None, codes: Array | None = None) -> Reading:
    """Name infinite and absurdly large numbers, which are missing for the model."""
    values = reading.values
    if values.dtype.kind == "M":
        return reading
    bad = np.abs(values) > MAX_MAGNITUDE
    if not bad.any():
        return reading
    cells = [
        SuspectCell(
            int(position),
            reading.column.name,
            texts[codes[position]] if texts is not None and codes is not None else f"{values[position]:g}",
            "not a finite number, or beyond 1e100",
        )
        for position in np.flatnonzero(bad)
    ]
    return Reading(
        reading.column,
        np.where(bad, np.nan, values),
        sorted_cells([*reading.suspects, *cells]),
        reading.notes,
    )


def sorted_cells(cells: Sequence[SuspectCell]) -> list[SuspectCell]:
    """Return cells by row."""
    return sorted(cells, key=lambda cell: cell.position)


def to_frame(readings: Sequence[Reading], rows: int) -> pd.DataFrame:
    """Return columns as the pipeline takes them: float64, datetime64, or text.

    Args:
        readings: The columns, read.
        rows: The number of rows, which a frame without columns would lose.
    """
    columns: dict[str, Any] = {}
    for reading in readings:
        column = reading.column
        if column.kind == "embedding":
            columns |= dict(zip(column.outputs, reading.values.T, strict=True))
        else:
            columns[column.name] = reading.values.to_pandas() if column.kind == "text" else reading.values
    return pd.DataFrame(columns, index=range(rows))


def _is_sentinel(text: str) -> bool:
    return text.casefold() in written.SENTINEL_WORDS
