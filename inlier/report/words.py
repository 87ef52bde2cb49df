"""What the report says in sentences."""

from __future__ import annotations

import math

from inlier.report.findings import Findings

__all__ = ["headline", "number", "percent", "trust"]


def percent(share: float) -> str:
    """Return a share as percent, with one digit more where it is near 0 or 100.

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
    digits = 1 if 0 < share < 0.0995 or 0.9005 < share < 1 else 0
    return f"{100 * share:.{digits}f}".removesuffix(".0") + " %"


def number(value: float) -> str:
    """Return a number with six digits, and without an exponent up to a billion.

    Example:
        >>> number(4842790.0), number(0.1234567), number(6.02e23)
        ('4842790', '0.123457', '6.02e+23')
    """
    return f"{value:.0f}" if 1e6 <= abs(value) < 1e9 else f"{value:.6g}"


def headline(findings: Findings, samples: int) -> str:
    """Return the answer in one sentence.

    Args:
        findings: What was found.
        samples: How many samples were judged.
    """
    unit = findings.unit
    if samples == 0:
        return f"No {unit} were judged"
    wrong = 1 - findings.inlier_fraction
    if wrong <= 0:
        return f"None of the {samples:,} {unit} look wrong" if samples > 1 else "Nothing looks wrong"
    share = percent(wrong)
    about = share[0].upper() + share[1:] if not share[0].isdigit() else f"About {share}"
    return f"{about} of {samples:,} {unit} look{'s' if wrong < 0.0005 else ''} wrong"


def trust(findings: Findings) -> tuple[str, str, str]:
    """Return whether the estimate deserves trust: a class for the style sheet, a verdict, and why."""
    fit, fraction = findings.fit, findings.inlier_fraction
    if fit is None:
        return (
            "unknown",
            "Not checked",
            "No groups were fitted to the losses, so this page cannot tell how far to trust the fraction.",
        )
    why = fit.reason
    if fit.trusted and fit.standard_error > 0:
        why += f" The standard error of the fraction is {100 * fit.standard_error:.2g} points."
    if abs(fit.inlier_fraction - fraction) > 0.02:
        why += (
            f" The losses shown here speak for {percent(fit.inlier_fraction)} right; "
            f"{percent(fraction)} was in force."
        )
    if fit.trusted and abs(fit.inlier_fraction - fraction) <= 0.05:
        return "trusted", "The estimate can be trusted", why
    return "doubted", "Treat the estimate with caution", why
