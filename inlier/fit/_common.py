"""What the fits of tables and of images share: settings, progress, and how the estimate is reported."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Protocol

from inlier._errors import InputError
from inlier.fraction import FractionEstimate
from inlier.report._wording import headline, verdict

__all__ = ["FitSummary", "Progress", "check_settings", "describe_estimate", "no_progress", "record_estimate"]


class Progress(Protocol):
    """A display of progress."""

    def __call__(self, step: str, share: float = 1.0) -> None:
        """Show the step that begins, and advance by this share of one of the announced steps."""


def no_progress(step: str, share: float = 1.0) -> None:
    """Show nothing."""


@dataclass(frozen=True)
class FitSummary:
    """What a fit prints and records.

    Args:
        notes: Lines about the data: the task, the columns, the pipeline, what was skipped.
        summary: The result, line by line, each a heading and a text.
        record: The content of ``run.json``.
    """

    notes: list[str]
    summary: list[tuple[str, str]]
    record: dict[str, Any]


def check_settings(inlier_fraction: float | Literal["auto"], seed: int) -> None:
    """Raise for an invalid inlier fraction or seed."""
    if inlier_fraction != "auto" and not 0 < inlier_fraction <= 1:
        raise InputError(
            f"inlier fraction {inlier_fraction:g} is not in (0, 1]; choose auto, or such a number"
        )
    if not 0 <= seed < 2**32:
        raise InputError(f"seed {seed} is out of range; choose 0 to {2**32 - 1}")


def describe_estimate(
    estimate: FractionEstimate, samples: int, unit: str, named: int = 0, unlikely: int = 0
) -> list[tuple[str, str]]:
    """Return the lines of the summary about the inlier fraction: the headline of the report, and the number.

    Args:
        estimate: The estimate that was used.
        samples: How many samples were scored.
        unit: What they are called, in the plural.
        named: How many have a target that is wrong by itself.
        unlikely: How many have a label with an inlier probability below 1/2.

    Example:
        >>> describe_estimate(FractionEstimate(0.4, reason="Only 12 losses."), 12, "rows")[0]
        ('result', 'Cannot tell how many of 12 rows are wrong. Only 12 losses.')
    """
    number = f"{estimate.value:.3f}"
    if estimate.standard_error >= 0.0005:
        number += f" ± {estimate.standard_error:.3f}"
    status = verdict(estimate)
    number += {"trusted": "", "untrusted": ", not trusted", "given": ", given"}[status.status]
    return [
        ("result", f"{headline(estimate, samples, unit, named, unlikely)}. {status.reason}".strip()),
        ("inlier fraction", number),
    ]


def record_estimate(estimate: FractionEstimate, given: bool) -> dict[str, Any]:
    """Return the entries of ``run.json`` about the inlier fraction.

    Args:
        estimate: The estimate that was used.
        given: Whether the user gave it.
    """
    return {
        "inlier_fraction": float(estimate.value),
        "standard_error": float(estimate.standard_error),
        "trusted": bool(estimate.trusted),
        "reason": estimate.reason,
        "inlier_fraction_given": given,
    }
