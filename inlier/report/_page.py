"""Writes the report: one self-contained HTML file that makes no network request."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from inlier._files import write_whole
from inlier.report._findings import Findings, Suspect
from inlier.report._plots import draw
from inlier.report._template import fill, read
from inlier.report._training import findings_of
from inlier.report._wording import headline, percent, short_number, verdict

if TYPE_CHECKING:
    from inlier.nn import Robust, RobustCrossEntropy

__all__ = ["render", "write"]

MAX_CELL_LENGTH = 1000
"""Longer cells are cut."""

MAX_COLUMNS = 200
"""Columns of values that are kept."""

MAX_PAIRS = 10
"""Pairs of given and suggested labels that are shown."""

FIRST_CELLS = 20
"""Suspect cells that are shown before the reader asks for more."""

LONG_FACT = 24
"""Facts of more characters have a line of their own."""

LISTED_WITHOUT_SCRIPT = 30
"""Suspects that are listed where scripts are disabled."""


def write(path: str | Path, source: Findings | Robust | RobustCrossEntropy, **details: Any) -> Path:
    """Write the report: how much of the data looks wrong, how certain that is, and which samples to inspect.

    The file is self-contained: it loads nothing, and all texts in it are escaped.

    Args:
        path: The HTML file; an existing one is replaced once the new one is complete.
        source: The findings; or a :class:`~inlier.Robust` or :class:`~inlier.RobustCrossEntropy` that was
            called with ``index``.
        **details: For a training, the arguments of :func:`inlier.report.findings_of`: ``title``, ``most``
            (200 suspects), ``images``, ``labels``, ``suggested``, ``class_names``, ``values``.

    Returns:
        The path.

    Raises:
        FileNotFoundError: If the folder does not exist.
        ModuleNotFoundError: If Jinja2, Matplotlib or Pillow is missing; the extra ``report`` brings them.

    Example:
        >>> import tempfile, torch, inlier, inlier.report
        >>> robust = inlier.Robust(warmup=0, update_every=1)
        >>> for _ in range(3):
        ...     loss = robust(torch.rand(50), torch.arange(50))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = inlier.report.write(Path(folder, "report.html"), robust, title="My images")
        ...     path.read_text().startswith("<!DOCTYPE html>")
        True
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(
            f"path = {str(path)!r}: folder {str(path.parent)!r} does not exist; create it first"
        )
    if not isinstance(source, Findings):
        source = findings_of(source, **details)
    elif details:
        raise TypeError(f"{sorted(details)} apply to a training: set the fields of the Findings instead")
    # A lone surrogate, which a table may hold, cannot be encoded.
    write_whole(path, render(source).encode("utf-8", "replace"))
    return path


def render(findings: Findings) -> str:
    """Return the report as HTML text."""
    losses, probability = _numbers(findings.losses), _numbers(findings.inlier_probability)
    weights = probability if findings.weights is None else _numbers(findings.weights)
    if not len(losses) == len(probability) == len(weights):
        raise ValueError(
            f"losses, inlier_probability and weights have {len(losses)}, {len(probability)} and "
            f"{len(weights)} entries: pass one of each for every sample"
        )
    scored = int((~losses.isnan()).sum()) if findings.total is None else findings.total
    estimate, doubtful = findings.estimate, findings.doubtful
    if doubtful is None:
        doubtful = int((probability < 0.5).sum())
    # Only labels can be given and suggested: large errors of a regression may be its tails.
    unlikely = doubtful if findings.confusion else 0
    return fill(
        read("inlier.report", "report.html"),
        read("inlier.report", "report.css"),
        read("inlier.report", "report.js"),
        findings=findings,
        headline=headline(estimate, scored, findings.unit, findings.named, unlikely),
        verdict=verdict(estimate),
        # The bar of shares is a headline too: it is not drawn for an estimate that is not trusted.
        wrong=min(max(1 - estimate.value, 0.0), 1.0) if scored and estimate.trusted else None,
        facts=_facts(findings, losses, doubtful, scored),
        drawings=draw(findings, losses, probability, weights),
        confusion=[
            (_short(given), _short(label), f"{count:,}")
            for given, label, count in findings.confusion[:MAX_PAIRS]
        ],
        brief=[(s, short_number(s.inlier_probability)) for s in findings.suspects[:LISTED_WITHOUT_SCRIPT]],
        first_cells=FIRST_CELLS,
        data=_embedded(_table(findings)),
    )


def _numbers(values: Any) -> Tensor:
    return torch.as_tensor(values).detach().double().cpu().reshape(-1)


def _facts(
    findings: Findings, losses: Tensor, doubtful: int, scored: int
) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return the facts below the headline: short ones side by side, then long ones line by line."""
    estimate = findings.estimate
    fraction = percent(estimate.value)
    if estimate.standard_error >= 0.0005:
        fraction = f"{100 * estimate.value:.1f} ± {100 * estimate.standard_error:.1f} %"
    facts = [
        (f"{findings.unit.capitalize()} scored", f"{scored:,}"),
        ("Inlier fraction ζ", fraction if estimate.trusted else f"{fraction}, not trusted"),
        ("Inlier probability below ½", f"{doubtful:,}"),
        ("Listed below", f"{len(findings.suspects):,}"),
    ]
    if findings.kernel is not None:
        facts.append(("Kernel", str(findings.kernel)))
        if len(findings.group_scales) <= 1:
            facts.append(("Scale c", short_number(findings.scale)))
    infinite = int(losses.isinf().sum())
    if infinite:
        facts.append(("Infinite losses", f"{infinite:,}"))
    facts += findings.facts.items()
    short = [(name, value) for name, value in facts if len(value) <= LONG_FACT]
    long = [(name, value) for name, value in facts if len(value) > LONG_FACT]
    return [("facts", short), *([("lines", long)] if long else [])]


def _table(findings: Findings) -> dict[str, Any]:
    """Return the suspects for the page's script: cells in the order of the columns, without names."""
    suspects = findings.suspects
    columns = list(dict.fromkeys(name for suspect in suspects for name in suspect.values))
    shown = columns[:MAX_COLUMNS]
    return {
        "unit": findings.unit,
        "numbered": "Row" if findings.unit == "rows" else "Index",
        "columns": [_short(name) for name in shown],
        "more": len(columns) - len(shown),
        "suspects": [
            {
                "row": suspect.row,
                "probability": _json_number(suspect.inlier_probability),
                "loss": _json_number(suspect.loss),
                "given": _short(suspect.given),
                "suggested": _short(suspect.suggested),
                "values": _cells(suspect, shown),
                "deviations": [
                    [_short(d.column), _short(d.value), _short(d.usual), _json_number(d.score)]
                    for d in suspect.deviations
                ],
                "numbers": suspect.numbers and [_json_number(value) for value in suspect.numbers],
                "image": "" if suspect.image is None else base64.b64encode(suspect.image).decode(),
            }
            for suspect in suspects
        ],
    }


def _cells(suspect: Suspect, columns: Iterable[str]) -> list[str | None]:
    return [_short(suspect.values[name]) if name in suspect.values else None for name in columns]


def _short(text: str) -> str:
    text = str(text)
    return text if len(text) <= MAX_CELL_LENGTH else f"{text[:MAX_CELL_LENGTH]}… ({len(text):,} characters)"


def _json_number(value: float) -> float | str | None:
    """Return a number for JSON, which has neither NaN (None here) nor infinity ("inf")."""
    value = float(value)
    return value if math.isfinite(value) else None if math.isnan(value) else f"{'-' if value < 0 else ''}inf"


def _embedded(data: Any) -> Any:
    """Return JSON that cannot end the script element around it: without ``<``, ``>`` and ``&``."""
    from markupsafe import Markup

    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)
