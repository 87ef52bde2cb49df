"""What a fit of a table and a fit of pictures share: their settings, and what they tell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Protocol

from inlier.fit import InputError

__all__ = ["Outcome", "Say", "check_settings", "silent"]


class Say(Protocol):
    """Told what happens next."""

    def __call__(self, step: str, share: float = 1.0) -> None:
        """Show a step, which is this share of one of the steps that were promised."""


def silent(step: str, share: float = 1.0) -> None:
    """Show nothing."""


@dataclass(frozen=True)
class Outcome:
    """What came out.

    Args:
        notes: Lines on what was made of the data: the task, the columns, the pipeline; what was left out.
        summary: Some lines, each a heading and its text.
        record: What is in ``run.json``.
    """

    notes: list[str]
    summary: list[tuple[str, str]]
    record: dict[str, Any]


def check_settings(inlier_fraction: float | Literal["auto"], seed: int) -> None:
    """Raise for a fraction or a seed that is none."""
    if inlier_fraction != "auto" and not 0 < inlier_fraction <= 1:
        raise InputError(
            f"inlier fraction {inlier_fraction:g} is no fraction; choose auto, or 0 < fraction <= 1"
        )
    if not 0 <= seed < 2**32:
        raise InputError(f"seed {seed} is out of range; choose 0 to {2**32 - 1}")
