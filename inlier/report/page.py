"""Writes the report: one HTML file that needs nothing else, and asks the network for nothing."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from inlier.files import write_whole
from inlier.report.findings import Findings, Suspect
from inlier.report.plots import draw
from inlier.report.svg import number
from inlier.report.template import fill, read
from inlier.report.training import findings_of
from inlier.report.words import headline, percent, trust

if TYPE_CHECKING:
    from inlier.robust import Robust

__all__ = ["render", "write"]

LONGEST = 1000
"""Characters of a cell that are shown; the rest of a longer one is left out."""

MOST_COLUMNS = 200
"""Columns of which a suspect's values are shown."""

WITHOUT_SCRIPT = 30
"""Suspects that are listed where scripts are switched off."""


def write(path: str | Path, source: Findings | Robust, **about: Any) -> Path:
    """Write the report: what looks wrong in the data, how sure that is, and which samples to look at.

    The file holds everything it shows. It loads nothing, and all texts in it are escaped.

    Args:
        path: Where to write the HTML file; a file that is there is replaced once the new one is whole.
        source: The findings, or a `Robust` that was called with ``index``.
        **about: For a `Robust`, what :func:`inlier.report.findings_of` takes: ``title``, ``most`` (200
            suspects), ``images``, ``labels``, ``suggested``, ``class_names``, ``values``.

    Returns:
        The path.

    Raises:
        FileNotFoundError: If the folder does not exist.
        ModuleNotFoundError: If Jinja2 or Pillow is missing; the extra ``report`` brings both.

    Example:
        >>> import tempfile, torch, inlier, inlier.report
        >>> robust = inlier.Robust(warmup=0, update_every=1)
        >>> for _ in range(3):
        ...     loss = robust(torch.rand(50), torch.arange(50))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = inlier.report.write(Path(folder, "report.html"), robust, title="My photos")
        ...     path.read_text().startswith("<!DOCTYPE html>")
        True
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(
            f"path = {str(path)!r}: there is no folder {str(path.parent)!r}; make it first"
        )
    if not isinstance(source, Findings):
        source = findings_of(source, **about)
    elif about:
        raise TypeError(f"{sorted(about)} go with a Robust: put what is to be shown into the Findings")
    # Half a surrogate pair, which a table may hold, has no bytes.
    write_whole(path, render(source).encode("utf-8", "replace"))
    return path


def render(findings: Findings) -> str:
    """Return the report as HTML text."""
    losses, probability = _numbers(findings.losses), _numbers(findings.inlier_probability)
    weights = probability if findings.weights is None else _numbers(findings.weights)
    if not len(losses) == len(probability) == len(weights):
        raise ValueError(
            f"losses, inlier_probability and weights have {len(losses)}, {len(probability)} and "
            f"{len(weights)} entries: give one of each for every sample"
        )
    samples = int((~losses.isnan()).sum())
    return fill(
        read("inlier.report", "report.html"),
        read("inlier.report", "report.css"),
        read("inlier.report", "report.js"),
        findings=findings,
        headline=headline(findings, samples),
        wrong=min(max(1 - findings.inlier_fraction, 0.0), 1.0) if samples else 0.0,
        trust=trust(findings),
        facts=_facts(findings, losses, samples),
        drawings=draw(findings, losses, probability, weights),
        brief=[(s, number(s.inlier_probability)) for s in findings.suspects[:WITHOUT_SCRIPT]],
        data=_embedded(_table(findings.suspects)),
    )


def _numbers(values: Any) -> Tensor:
    return torch.as_tensor(values).detach().double().cpu().reshape(-1)


def _facts(findings: Findings, losses: Tensor, samples: int) -> list[tuple[str, str]]:
    unit = findings.unit.capitalize()
    several = len(findings.group_scales) > 1
    facts = [
        (f"{unit} judged", f"{samples:,}"),
        ("Inlier fraction ζ", percent(findings.inlier_fraction)),
        ("Suspects listed", f"{len(findings.suspects):,}"),
        ("Kernel", str(findings.kernel)),
    ]
    if not several:
        facts.append(("Scale c", number(findings.scale)))
    infinite = int(losses.isinf().sum())
    if infinite:
        facts.append(("Infinite losses", f"{infinite:,}"))
    return [*facts, *findings.facts.items()]


def _table(suspects: Sequence[Suspect]) -> dict[str, Any]:
    """The suspects for the page's script: cells in the order of the columns, as short as can be."""
    columns = list(dict.fromkeys(name for suspect in suspects for name in suspect.values))
    shown = columns[:MOST_COLUMNS]
    return {
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
                "image": "" if suspect.image is None else base64.b64encode(suspect.image).decode(),
            }
            for suspect in suspects
        ],
    }


def _cells(suspect: Suspect, columns: Iterable[str]) -> list[str | None]:
    return [_short(suspect.values[name]) if name in suspect.values else None for name in columns]


def _short(text: str) -> str:
    text = str(text)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}… ({len(text):,} characters)"


def _json_number(value: float) -> float | str | None:
    """JSON has neither NaN nor infinity: None and a word stand for them."""
    value = float(value)
    return value if math.isfinite(value) else None if math.isnan(value) else f"{'-' if value < 0 else ''}inf"


def _embedded(data: Any) -> Any:
    """JSON that cannot end the script element it stands in: no ``<``, ``>`` or ``&`` is left in it."""
    from markupsafe import Markup

    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)
