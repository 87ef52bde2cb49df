"""Numbers, dates, durations and yes/no as people write them: from texts to values.

Each function takes the distinct texts of a column and returns one value for each, NaN or NaT for a text that
it cannot read. How a whole column is read (the decimal mark, the order of day and month, the century of
two-digit years) is decided from all of its texts, and then applied to each.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

SPACES = " \u00a0\u2007\u2009\u202f"
CURRENCIES = (
    r"[$€£¥₹₽₩₺₪₫฿]|(?:US|CA|AU|NZ|HK|R)\$|Rs\.?|Fr\.|kr\.?|USD|EUR|GBP|JPY|CHF|CNY|INR|CAD|AUD|NZD|HKD|SGD|SEK|NOK|DKK"
    "|PLN|CZK|HUF|RON|TRY|RUB|UAH|BRL|MXN|ZAR|KRW|THB|ILS|AED"
)
CURRENCY_CODES = {"$": "USD", "US$": "USD", "€": "EUR", "£": "GBP", "₹": "INR", "Rs": "INR", "₽": "RUB", "₩": "KRW",
                  "₺": "TRY", "₪": "ILS", "฿": "THB", "CA$": "CAD", "AU$": "AUD", "NZ$": "NZD", "HK$": "HKD",
                  "R$": "BRL"}  # fmt: skip
"""The codes of currencies that have a sign of their own; that of the dollar is taken for the American one."""
NUMBER = re.compile(
    rf"""(?:~|≈|ca\.?\s|(?P<limit>[<>≤≥]))?\s*(?P<bracket>\()?\s*(?P<sign>[-+−–]?)\s*(?P<prefix>{CURRENCIES})?\s*(?P<inner>[-+−–]?)
    (?P<core>\d[\d.,'’_{SPACES}]*|[.,]\d+)(?:[eE](?P<exponent>[-+]?\d{{1,3}})(?![\d.]))?
    (?P<after>-)?\s*(?P<unit>{CURRENCIES}|[^\W\d_][^\s\d()]*|[%‰°"′″][^\s\d()]*)?\s*(?(bracket)\))
    (?P<remark>[\s,;(/]\D*)?""",
    re.VERBOSE,
)
MARKS = {
    decimal: re.compile(
        rf"""(?P<whole>0|[1-9]\d*|[1-9]\d{{0,2}}(?P<mark>[{re.escape(other)}'’_{SPACES}])(?:\d{{2,3}}(?P=mark))*\d{{3}}|)
        (?:{re.escape(decimal)}(?P<part>\d*))?""",
        re.VERBOSE,
    )
    for decimal, other in ((".", ","), (",", "."))
}
"""By decimal mark: digits without leading zeros, in groups or not (groups of two are Indian), and decimals."""
WIDE = str.maketrans(
    "０１２３４５６７８９．，－＋％￥٠١٢٣٤٥٦٧٨٩٫٬٪۰۱۲۳۴۵۶۷۸۹", "0123456789.,-+%¥0123456789.,%0123456789"
)
"""Characters of full width, as in East Asian texts, and Arabic and Persian digits."""
MULTIPLES = {"k": 1e3, "K": 1e3, "M": 1e6, "mn": 1e6, "Mio": 1e6, "bn": 1e9, "B": 1e9, "Mrd": 1e9}

MONTHS = tuple(
    tuple(names.split())
    for names in (
        "january januar januari janvier enero gennaio janeiro",
        "february februar februari février fevrier febrero febbraio fevereiro",
        "march märz mrz maart mars marzo março marco",
        "april avril abril aprile",
        "may mai mei mayo maggio maio",
        "june juni juin junio giugno junho",
        "july juli juillet julio luglio julho",
        "august août aout agosto augustus",
        "september septembre septiembre settembre setembro",
        "october oktober octobre octubre ottobre outubro",
        "november novembre noviembre novembro",
        "december dezember décembre decembre diciembre dicembre dezembro",
    )
)
"""Each month in seven languages."""
QUARTERS = {"q1": 1, "q2": 4, "q3": 7, "q4": 10}
DATE = re.compile(
    r"""(?:[^\W\d_]{3,9}\.?,?\s+)??
    (?:(?P<y>\d{4})(?P<ymark>[-/.\s])(?P<m>\d{1,2})(?P=ymark)(?P<d>\d{1,2})
      |(?P<a>\d{1,2})(?P<mark>[-/.])(?P<b>\d{1,2})(?P=mark)(?P<c>\d{4}|\d{2})
      |(?P<nd>\d{1,2})(?:st|nd|rd|th|\.)?(?:\s+de)?[-\s/]*(?P<nm>[^\W\d_]{3,10})\.?(?:\s+de)?[-,\s/]*(?P<ny>\d{4}|\d{2})
      |(?P<om>[^\W\d_]{3,10})\.?\s*(?P<od>\d{1,2})(?:st|nd|rd|th)?,?\s+(?P<oy>\d{4})
      |(?P<cy>(?:19|20)\d{2})(?P<cm>\d{2})(?P<cd>\d{2})
      |(?P<py>\d{4})(?:-(?P<pm>\d{2})|[-\s]?(?P<pq>q[1-4]))
      |(?P<qm>[^\W\d_]{3,10}|q[1-4])\.?(?:\s+de)?(?:[-,\s/]+(?P<qy>\d{4})|[-'’](?P<qs>\d{2})))
    (?:(?:t|:|,?\s+)(?P<hour>\d{1,2}):?(?P<minute>\d{2})(?::?(?P<second>\d{2})(?:[.,](?P<fraction>\d{1,9}))?)?
      \s*(?P<half>[ap]\.?m\.?)?)?
    \s*(?P<zone>z|utc|gmt|[+-]\d{2}:?\d{2})?""",
    re.VERBOSE,
)
CLOCK = re.compile(r"(-?)(\d{1,3}):([0-5]\d)(?::([0-5]\d)(?:[.,](\d{1,6}))?)?(?:\s*([ap])\.?m\.?)?")
SECONDS = {"w": 604800.0, "d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0}
AMOUNT = (
    r"(\d+(?:[.,]\d+)?)\s*(w(?:ee)?ks?|d(?:ays?)?|h(?:(?:ou)?rs?)?|m(?:in(?:ute)?s?)?|s(?:ec(?:ond)?s?)?)\.?"
)
DURATION = re.compile(rf"(?:p\s*t?)?(?:{AMOUNT}[\s,t]*(?:and\s+)?)+")
YES = {"yes": "no", "y": "n", "true": "false", "t": "f", "on": "off", "ja": "nein", "oui": "non", "sí": "no"}
SENTINEL_WORDS = frozenset(
    (
        *("unknown", "unk", "n/a", "na", "n.a.", "none", "null", "nil", "nan", "missing", "empty", "tbd"),
        *("?", "-", "--", "---", ".", "..", "…", "#n/a", "#value!", "#ref!", "#div/0!", "#num!", "#name?"),
        *("not available", "not applicable", "not known", "not given", "no data", "unbekannt", "k.a."),
    )
)
"""Words that stand for a missing number, date or answer."""
SENTINEL_NUMBERS = (-9.0, -99.0, -999.0, -9999.0, -99999.0, 99.0, 999.0, 9999.0, 99999.0, 999999.0)
MIN_SENTINELS = 3
"""A number that stands for "missing" occurs at least this often."""


@dataclass(frozen=True)
class WrittenNumber:
    """The parts of a number as it is written.

    Args:
        sign: 1 or -1.
        core: The digits with their marks.
        exponent: The power of ten.
        unit: Currency or unit, as written, without a full stop.
        remark: What follows; or the sign in front that makes it a limit, like ``<``.
    """

    sign: int
    core: str
    exponent: int
    unit: str
    remark: str

    @property
    def phrase(self) -> str:
        """Unit and remark as a unit of several words, like "sq ft"."""
        return f"{self.unit} {self.remark}".replace(".", "").casefold()

    def value(self, decimal: str) -> float:
        """Return the number for a decimal mark; NaN if the digits do not fit it."""
        match = MARKS[decimal].fullmatch(self.core)
        if match is None or not (match["whole"] or match["part"]):
            return math.nan
        whole = "".join(character for character in match["whole"] if character.isdecimal())
        return self.sign * float(f"{whole or 0}.{match['part'] or 0}e{self.exponent}")


def split_number(text: str) -> WrittenNumber | None:
    """Return the parts of a number as people write it; None for anything else.

    Example:
        >>> split_number("$1,234.50"), split_number("(12 %)").sign
        (WrittenNumber(sign=1, core='1,234.50', exponent=0, unit='$', remark=''), -1)
        >>> split_number("12.0 oz. Silo Can").remark, split_number("B12")
        ('Silo Can', None)
        >>> split_number("<0.5").remark, split_number("~20").core
        ('<', '20')
    """
    match = NUMBER.fullmatch(text.translate(WIDE).strip())
    if match is None:
        return None
    core = match["core"].rstrip(SPACES + "_'’")
    if core[-1] in ",." and match["unit"] is None:
        core = core[:-1]
    minus = sum(match[part] in ("-", "−", "–") for part in ("sign", "inner", "after"))
    negative = minus % 2 == 1 or match["bracket"] is not None
    unit = (match["prefix"] or "") + (match["unit"] or "")
    remark = match["limit"] or (match["remark"] or "").strip(" ,;()")
    return WrittenNumber(-1 if negative else 1, core, int(match["exponent"] or 0), unit.rstrip(".,"), remark)


def decimal_mark(numbers: Sequence[WrittenNumber | None], counts: Array) -> Literal[".", ","]:
    """Return the decimal mark under which most cells are numbers; the point where both fit equally well.

    Example:
        >>> import numpy as np
        >>> pairs = ("1,234", "15,000"), ("1,234", "0,5"), ("1.234.567", "2.500"), ("3.125", "2.500")
        >>> [decimal_mark([split_number(text) for text in pair], np.ones(2)) for pair in pairs]
        ['.', ',', ',', '.']
    """
    read = {
        decimal: sum(
            count
            for number, count in zip(numbers, counts, strict=True)
            if number is not None and not math.isnan(number.value(decimal))
        )
        for decimal in MARKS
    }
    return "," if read[","] > read["."] else "."


def unit_factor(unit: str, main: str) -> float:
    """Return the number of main units in a unit; NaN if there is none.

    A number without a unit is taken to be in the main one. Whether 5 % stands for 5 or for 0.05 in a column of
    bare numbers depends on these: :func:`percent_factor`.

    Example:
        >>> unit_factor("g", "kg"), unit_factor("OZ", "ounce"), unit_factor("k", ""), unit_factor("m", "kg")
        (0.001, 1.0, 1000.0, nan)
        >>> unit_factor("EUR", "€"), unit_factor("$k", "$"), unit_factor("€", "$")
        (1.0, 1000.0, nan)
    """
    same = {unit.casefold(), main.casefold()}
    if not unit or len(same) == 1:
        return 1.0
    (money, multiple), (main_money, main_multiple) = _split_money(unit), _split_money(main)
    if money == main_money and multiple is not None and main_multiple is not None:
        return multiple / main_multiple
    if not main or "%" in same:
        return math.nan
    import pint

    registry: Any = pint.application_registry
    for spelling in (lambda text: text, str.casefold):
        try:
            factor = registry.Quantity(1.0, spelling(unit)).to(spelling(main)).magnitude
        except Exception:  # Pint raises many kinds of errors for units that it does not know.
            continue
        return float(factor) if math.isfinite(factor) else math.nan
    return math.nan


def _split_money(unit: str) -> tuple[str, float | None]:
    """Return the code of a currency, empty if there is none, and what stands beside it as a factor; None if it is none.

    Example:
        >>> _split_money("$k"), _split_money("Mio€"), _split_money("kg")
        (('USD', 1000.0), ('EUR', 1000000.0), ('', None))
    """
    for match in (re.match(CURRENCIES, unit), re.search(f"(?:{CURRENCIES})$", unit)):
        if match is not None:
            sign = match[0].rstrip(".")
            rest = unit[: match.start()] + unit[match.end() :]
            return CURRENCY_CODES.get(sign, sign), MULTIPLES.get(rest) if rest else 1.0
    return "", MULTIPLES.get(unit) if unit else 1.0


def is_currency(unit: str) -> bool:
    """Return whether a unit is a currency, perhaps in thousands.

    Example:
        >>> is_currency("€"), is_currency("$k"), is_currency("kg")
        (True, True, False)
    """
    money, multiple = _split_money(unit)
    return bool(money) and multiple is not None


def percent_factor(percents: Array, others: Array) -> float:
    """Return what one per cent is in a column of mostly bare numbers: 0.01, or 1 if the sign is a stray one.

    Example:
        >>> import numpy as np
        >>> percent_factor(np.array([5.0, 7.0]), np.array([0.06])), percent_factor(np.array([0.05]), np.array([0.06]))
        (0.01, 1.0)
    """
    middle, usual = np.median(np.abs(percents)), np.median(np.abs(others))
    if not middle > 0 or not usual > 0:
        return 1.0
    return min((1.0, 0.01), key=lambda factor: abs(math.log(factor * middle / usual)))


def sentinel_numbers(values: Array) -> list[float]:
    """Return the numbers of a column that stand for "missing": -999 and the like.

    Such a number is repeated, and is either the only negative one, or farther from all others than these are
    from each other.

    Example:
        >>> import numpy as np
        >>> sentinel_numbers(np.array([12.0, 15.0, 20.0, -999.0, -999.0, -999.0, 18.0]))
        [-999.0]
        >>> sentinel_numbers(np.array([-999.0, -999.0, -999.0, -998.0, 4.0]))
        []
    """
    present = values[np.isfinite(values)]
    found: list[float] = []
    for candidate in SENTINEL_NUMBERS:
        equal = present == candidate
        others = present[~equal]
        if equal.sum() < MIN_SENTINELS or not len(others):
            continue
        low, high = float(others.min()), float(others.max())
        alone = candidate < 0 <= low
        far = max(low - candidate, candidate - high) > high - low > 0
        if alone or far:
            found.append(candidate)
    return found


def yes_or_no(text: str) -> tuple[float, str]:
    """Return 1 or 0 for yes or no in several languages, and the language by its word for yes.

    Example:
        >>> yes_or_no(" Yes"), yes_or_no("f"), yes_or_no("perhaps")
        ((1.0, 'yes'), (0.0, 't'), (nan, ''))
    """
    word = text.strip().casefold()
    if word in YES:
        return 1.0, word
    for yes, no in YES.items():
        if word == no:
            return 0.0, yes
    return math.nan, ""


def duration(text: str) -> float:
    """Return a duration or a time of day in seconds; NaN for anything else.

    Example:
        >>> duration("1:30:05"), duration("1:30 pm"), duration("1 day, 3 hours"), duration("PT45M"), duration("x")
        (5405.0, 48600.0, 97200.0, 2700.0, nan)
    """
    text = text.strip().casefold()
    clock = CLOCK.fullmatch(text)
    if clock:
        sign, hours, minutes, seconds, fraction, half = clock.groups(default="0")
        hour = int(hours) if half == "0" else int(hours) % 12 + 12 * (half == "p")
        total = 3600 * hour + 60 * int(minutes) + int(seconds) + float(f"0.{fraction}")
        return -total if sign == "-" else total
    if not DURATION.fullmatch(text):
        return math.nan
    amounts = re.findall(AMOUNT, text)
    return sum(float(amount.replace(",", ".")) * SECONDS[unit[0]] for amount, unit in amounts)


@dataclass(frozen=True)
class WrittenDate:
    """The parts of a date as it is written: two numbers of which either may be the month are not decided yet.

    Args:
        year: The year; below 100 if two digits were written.
        month, day: In this order, or unknown if ``either``.
        either: Whether the two may be swapped.
        seconds: Seconds since midnight, less the offset of a time zone.
    """

    year: int
    month: int
    day: int
    either: bool
    seconds: float

    def value(self, month_first: bool, century: int) -> np.datetime64:
        """Return the time; NaT if there is no such day."""
        month, day = self.month, self.day
        if self.either and not month_first and day <= 12:
            month, day = day, month
        if month > 12 and self.either:
            month, day = day, month
        year = self.year if self.year >= 100 else century + (self.year - century) % 100
        try:
            moment = datetime(year, month, day) + timedelta(seconds=self.seconds)
        except (ValueError, OverflowError):
            return np.datetime64("NaT", "us")
        return np.datetime64(moment, "us")


def split_date(text: str, year_first: bool = False) -> WrittenDate | None:
    """Return the parts of a date as people write it; None for anything else.

    Args:
        text: A text.
        year_first: Whether three numbers of two digits begin with the year.

    Example:
        >>> split_date("07/11/24")
        WrittenDate(year=24, month=7, day=11, either=True, seconds=0.0)
        >>> split_date("31 Dec 2020 6:30 pm"), split_date("next week")
        (WrittenDate(year=2020, month=12, day=31, either=False, seconds=66600.0), None)
        >>> split_date("2 de março de 2021").month, split_date("Q3 2021").month, split_date("24-11-07", True).day
        (3, 7, 7)
    """
    match = DATE.fullmatch(text.strip().casefold())
    if match is None:
        return None
    either = False
    if match["y"]:
        year, month, day = match["y"], match["m"], match["d"]
    elif match["cy"]:
        year, month, day = match["cy"], match["cm"], match["cd"]
    elif match["py"]:
        year, month, day = match["py"], match["pm"] or str(QUARTERS[match["pq"]]), "1"
    elif match["a"] and year_first and match["mark"] != "." and len(match["c"]) == 2:
        year, month, day = match["a"], match["b"], match["c"]
    elif match["a"]:
        # A day and a month with full stops between are always in this order.
        either = match["mark"] != "."
        year, month, day = match["c"], *((match["a"], match["b"]) if either else (match["b"], match["a"]))
    else:
        name = match["nm"] or match["om"] or match["qm"]
        number = QUARTERS.get(name) or next(
            (k for k, names in enumerate(MONTHS, 1) if any(n.startswith(name) for n in names)), None
        )
        if number is None:
            return None
        year, month = match["ny"] or match["oy"] or match["qy"] or match["qs"], str(number)
        day = match["nd"] or match["od"] or "1"
    hour, half = int(match["hour"] or 0), match["half"]
    if half:
        hour = hour % 12 + (12 if half.startswith("p") else 0)
    seconds = 3600 * hour + 60 * int(match["minute"] or 0) + int(match["second"] or 0)
    zone = match["zone"] or ""
    if zone[:1] in ("+", "-"):
        offset = 3600 * int(zone[1:3]) + 60 * int(zone[-2:])
        seconds -= offset if zone[0] == "+" else -offset
    if hour > 24 or max(int(month), int(day)) > 31:
        return None
    fraction = float(f"0.{match['fraction'] or 0}")
    return WrittenDate(int(year), int(month), int(day), either, seconds + fraction)


def is_year_first(texts: Sequence[str]) -> bool:
    """Return whether dates of three numbers of two digits begin with the year: 24-11-07.

    They do if more of them are dates so. Where both orders fit, they do if the last number runs from the first to the
    last days of a month and takes more values than the first: years that run from 03 to 28 are rare.

    Example:
        >>> is_year_first(["24-11-07", "24-11-28", "25-01-02"]), is_year_first(["07-11-24", "28-11-24", "02-01-25"])
        (True, False)
    """
    matches = [DATE.fullmatch(text.strip().casefold()) for text in texts]
    parts = np.array(
        [
            [int(match[name]) for name in "abc"]
            for match in matches
            if match is not None and match["a"] and len(match["c"]) == 2 and match["mark"] != "."
        ]
    ).reshape(-1, 3)
    if not len(parts):
        return False
    first, middle, last = parts.T
    as_year_first = ((middle <= 12) & (last >= 1) & (last <= 31)).sum()
    as_year_last = ((np.minimum(first, middle) <= 12) & (np.maximum(first, middle) <= 31)).sum()
    if as_year_first != as_year_last:
        return bool(as_year_first > as_year_last)
    spans_a_month = last.min() <= 3 and last.max() >= 28
    return bool(spans_a_month and len(np.unique(first)) < len(np.unique(last)))


def month_first(dates: Sequence[WrittenDate | None], counts: Array) -> bool:
    """Return whether 1/2/2020 is in January, which the days beyond the twelfth tell; True if there are none.

    Example:
        >>> import numpy as np
        >>> month_first([split_date("1/2/2020"), split_date("31/1/2020")], np.ones(2))
        False
    """
    votes = sum(
        count * ((date.day > 12) - (date.month > 12))
        for date, count in zip(dates, counts, strict=True)
        if date is not None and date.either
    )
    return bool(votes >= 0)


def century_of(dates: Sequence[WrittenDate | None], latest: int | None = None) -> int:
    """Return the first year of the hundred years that two-digit years stand for.

    These are the hundred years in which the dates lie closest together, and the last such before a limit.

    Args:
        dates: Dates, also such with four-digit years.
        latest: The last year that a date may be in; by default ten years from now.

    Example:
        >>> written = [[split_date(f"1/1/{year}") for year in years] for years in (("98", "05"), ("45", "71", "99"))]
        >>> [century_of(dates, latest=2036) for dates in written]
        [1998, 1945]
    """
    limit = latest or datetime.now(UTC).year + 10
    short = sorted({date.year for date in dates if date is not None and date.year < 100})
    if not short:
        return limit - 99
    gaps = [(short[k] - short[k - 1] - 1) % 100 + 1 for k in range(len(short))]
    first = short[int(np.argmax(gaps))]
    span = max((year - first) % 100 for year in short)
    start = limit - limit % 100 + first
    while start + span > limit:
        start -= 100
    return start
