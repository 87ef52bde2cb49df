"""The sentences of the report, which the summary of ``inlier fit`` quotes."""

from __future__ import annotations

import math
from dataclasses import dataclass

from inlier.fraction import FractionEstimate, GivenFraction

__all__ = ["Verdict", "headline", "number", "percent", "short_number", "verdict"]

INTERVAL = 1.96
"""Standard errors on both sides of an estimate in its 95 % confidence interval."""


@dataclass(frozen=True)
class Verdict:
    """Whether an estimate can be relied on.

    Args:
        status: ``trusted``, ``untrusted`` or ``given``: a class of the style sheet.
        heading: The same in words.
        reason: Why.
    """

    status: str
    heading: str
    reason: str


def percent(share: float) -> str:
    """Return a fraction in percent, with a decimal where it is near 0 or 100.

    Example:
        >>> percent(0.153), percent(0.003), percent(0.0001), percent(1.0)
        ('15 %', '0.3 %', 'less than 0.1 %', '100 %')
    """
    if math.isnan(share):
        return "an unknown part"
    if 0 < share < 0.0005:
        return "less than 0.1 %"
    if 0.9995 < share < 1:
        return "more than 99.9 %"
    decimals = 1 if 0 < share < 0.0995 or 0.9005 < share < 1 else 0
    return f"{100 * share:.{decimals}f}".removesuffix(".0") + " %"


def number(value: float) -> str:
    """Return a number with six digits, and without an exponent up to a billion.

    Example:
        >>> number(4842790.0), number(0.1234567), number(6.02e23)
        ('4842790', '0.123457', '6.02e+23')
    """
    return f"{value:.0f}" if 1e6 <= abs(value) < 1e9 else f"{value:.6g}"


def short_number(value: float) -> str:
    """Return a number with at most four digits, as a power of ten where it is very large or small.

    Example:
        >>> short_number(1234567), short_number(0.25), short_number(2e-7), short_number(float("inf"))
        ('1.23 × 10⁶', '0.25', '2 × 10⁻⁷', '∞')
    """
    if not math.isfinite(value):
        return "–" if math.isnan(value) else "∞" if value > 0 else "−∞"
    if value == 0 or 1e-3 <= abs(value) < 1e5:
        digits = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
        return digits.replace("-", "−")
    mantissa, _, exponent = f"{value:.2e}".partition("e")
    mantissa = mantissa.rstrip("0").rstrip(".").replace("-", "−")
    power = str(int(exponent)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"10{power}" if mantissa == "1" else f"{mantissa} × 10{power}"


def headline(estimate: FractionEstimate, samples: int, unit: str, named: int = 0, unlikely: int = 0) -> str:
    """Return the result in one sentence; a number only if it is trusted.

    Args:
        estimate: The estimate of the inlier fraction.
        samples: How many samples were scored.
        unit: What they are called, in the plural.
        named: How many have a target that is wrong by itself: a text among numbers, a misspelled class.
        unlikely: How many have a label with an inlier probability below 1/2.

    Example:
        >>> headline(FractionEstimate(0.91, 0.01, True), 1534, "rows")
        'About 9 % (7 to 11 %) of 1,534 rows look wrong'
        >>> headline(FractionEstimate(0.924, 0.009, True), 1534, "rows")
        'About 8 % (6 to 9 %) of 1,534 rows look wrong'
        >>> headline(FractionEstimate(0.894, 0.001, True), 1534, "rows")
        'About 10.6 % (10.4 to 10.8 %) of 1,534 rows look wrong'
        >>> headline(FractionEstimate(0.99, 0.01, True), 1534, "rows")
        'Less than 3 % of 1,534 rows look wrong'
        >>> headline(FractionEstimate(1.0, 0.0, True), 1534, "rows")
        'No errors found in 1,534 rows'
        >>> headline(FractionEstimate(1.0, 0.0, True), 1534, "rows", unlikely=3)
        'Few errors, if any: 3 of 1,534 rows have an unlikely label'
        >>> headline(FractionEstimate(0.44, 0.05, False), 1534, "rows")
        'Cannot tell how many of 1,534 rows are wrong'
        >>> headline(FractionEstimate(1.0, 0.0, True), 1534, "rows", named=27)
        'The targets of 27 rows do not fit their column; no other errors found in 1,534 rows'
    """
    if samples == 0:
        return f"No {unit} were scored"
    wrong = 1 - estimate.value
    if named and not _is_given(estimate) and not (estimate.trusted and wrong > 0):
        which = (
            f"The targets of {named:,} {unit} do not fit their"
            if named > 1
            else "One target does not fit its"
        )
        rest = headline(estimate, samples, unit, 0, unlikely).replace("No errors", "no other errors")
        return f"{which} column; {rest[0].lower()}{rest[1:]}"
    if _is_given(estimate):
        return f"{_capitalized(percent(wrong))} of {samples:,} {unit} were assumed to be wrong, as given"
    if not estimate.trusted or math.isnan(wrong):
        return f"Cannot tell how many of {samples:,} {unit} are wrong"
    if wrong <= 0 and unlikely:
        verb = "have" if unlikely > 1 else "has"
        return f"Few errors, if any: {unlikely:,} of {samples:,} {unit} {verb} an unlikely label"
    if wrong <= 0:
        return f"No errors found in {samples:,} {unit}"
    return f"{_share(wrong, INTERVAL * estimate.standard_error)} of {samples:,} {unit} look wrong"


def verdict(estimate: FractionEstimate) -> Verdict:
    """Return whether an estimate can be relied on, and why.

    Example:
        >>> verdict(FractionEstimate(0.44, 0.05, False, "Only 12 losses."))
        Verdict(status='untrusted', heading='The estimate is not trusted', reason='Only 12 losses.')
    """
    if _is_given(estimate):
        return Verdict("given", "The inlier fraction was given", "It was not estimated from the data.")
    if estimate.trusted:
        return Verdict("trusted", "The estimate is trusted", estimate.reason)
    return Verdict("untrusted", "The estimate is not trusted", estimate.reason)


def _is_given(estimate: FractionEstimate) -> bool:
    return estimate.value > 0 and estimate == GivenFraction(estimate.value).estimate()


def _share(wrong: float, margin: float) -> str:
    """Return a share with its confidence interval, or an upper bound if that includes 0."""
    low, high = wrong - margin, min(wrong + margin, 1.0)
    if low <= 0:
        return f"Less than {percent(max(high, 0.001)).removeprefix('less than ')}"
    share = percent(wrong)
    if not share[0].isdigit():
        return _capitalized(share)
    digits = 1 if margin < 0.01 or low < 0.01 else 0
    ends = f"{100 * low:.{digits}f}", f"{100 * high:.{digits}f}"
    if ends[0] == ends[1]:
        return f"About {share}"
    return f"About {100 * wrong:.{digits}f} % ({ends[0]} to {ends[1]} %)"


def _capitalized(text: str) -> str:
    return text[0].upper() + text[1:]
