"""The findings of a training: what a `Robust` that knows its samples by number has to say."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from inlier.fraction import fit_inliers
from inlier.report.findings import Findings, Suspect
from inlier.report.pictures import thumbnail
from inlier.report.words import number
from inlier.suspects import suspect_columns
from inlier.window import UNSEEN

if TYPE_CHECKING:
    from inlier.robust import Robust

__all__ = ["findings_of"]


def findings_of(
    robust: Robust,
    *,
    title: str = "Training data",
    most: int = 200,
    images: Any = None,
    labels: Any = None,
    suggested: Any = None,
    class_names: Sequence[str] | None = None,
    values: Any = None,
) -> Findings:
    """Return what a `Robust` with an index memory found, ready for :func:`inlier.report.write`.

    A suspect is a sample whose inlier probability is below one half.

    Args:
        robust: A `Robust` that was called with ``index``.
        title: The heading of the report.
        most: How many suspects are listed at most.
        images: A picture of each sample by its number: a tensor or array (N, C, H, W), (N, H, W, C) or
            (N, H, W), or a sequence of such, of Pillow images or of paths.
        labels: The label each sample came with: class numbers or anything else.
        suggested: The label that the model believes in, likewise: the argmax of its logits, say.
        class_names: The names of the classes, by number.
        values: Further columns: a mapping or data frame of column names to one value a sample.

    Returns:
        The findings.

    Raises:
        RuntimeError: If no sample is known by number.
        ValueError: If an argument has fewer entries than there are samples.

    Example:
        >>> import torch, inlier
        >>> _ = torch.manual_seed(0)
        >>> robust = inlier.Robust(inlier_fraction=0.9, warmup=0, update_every=1)
        >>> losses = torch.cat([torch.rand(90), 50 + torch.rand(10)])
        >>> for _ in range(3):
        ...     loss = robust(losses, torch.arange(100))
        >>> findings = findings_of(robust, labels=[1] * 100, class_names=["cat", "dog"])
        >>> len(findings.suspects), findings.suspects[0].given
        (10, 'dog')
    """
    probability = robust.inlier_probability().double().cpu()
    losses = robust.memory.means.double().cpu().clamp(min=0)
    for name, given in (("images", images), ("labels", labels), ("suggested", suggested)):
        _check_length(name, given, len(losses))
    table = _columns(values)
    for name, column in table.items():
        _check_length(f"values[{name!r}]", column, len(losses))
    judged = ~losses.isnan()
    scales, fractions = (x.double().cpu() for x in (robust.window.scales, robust.window.fractions))
    groups = robust.memory.groups[: len(losses)].long().cpu() if len(scales) > 1 else None
    facts = (
        {}
        if bool(judged.all())
        else {"Never judged": f"{int((~judged).sum()):,} samples: not seen, or without a finite loss"}
    )
    if groups is not None:
        facts["Groups"] = f"{len(scales):,}, each with a scale and an inlier fraction of its own"
    rows = [row for row in suspect_columns(robust)["row"] if probability[row] < 0.5]
    if len(rows) > most:
        facts["Suspects in all"] = f"{len(rows):,}"
    suspects = [
        Suspect(
            row,
            float(probability[row]),
            float(losses[row]),
            _label(labels, row, class_names),
            _label(suggested, row, class_names),
            {name: _text(column[row]) for name, column in table.items()},
            image=None if images is None else thumbnail(images[row]),
        )
        for row in rows[:most]
    ]
    scale = float(scales[0]) if groups is None else math.nan
    return Findings(
        title,
        losses,
        probability,
        robust.kernel,
        math.inf if scale >= UNSEEN else scale,
        float(fractions[0] if groups is None else fractions[groups[judged]].mean()),
        fit_inliers(losses[judged]) if bool(judged.any()) else None,
        list(robust.history),
        suspects,
        facts,
        unit="samples",
        group_scales=[] if groups is None else [math.inf if c >= UNSEEN else c for c in scales.tolist()],
    )


def _check_length(name: str, given: Any, samples: int) -> None:
    if given is not None and len(given) < samples:
        raise ValueError(
            f"{name} has {len(given)} entries for {samples} samples: give one for each, by number"
        )


def _columns(values: Any) -> dict[str, Any]:
    """Return the columns of a mapping or data frame, each to be read by position."""
    names = [] if values is None else list(getattr(values, "columns", values))
    columns = {str(name): values[name] for name in names}
    # A column of a pandas data frame would be read by its labels.
    return {name: c.to_numpy() if hasattr(c, "to_numpy") else c for name, c in columns.items()}


def _label(labels: Any, row: int, class_names: Sequence[str] | None) -> str:
    if labels is None:
        return ""
    label = labels[row]
    label = label.item() if hasattr(label, "item") else label
    if class_names is not None and isinstance(label, int) and 0 <= label < len(class_names):
        return str(class_names[label])
    return _text(label)


def _text(value: Any) -> str:
    value = value.item() if hasattr(value, "item") and getattr(value, "ndim", 0) == 0 else value
    return number(value) if isinstance(value, float) else str(value)
