"""The findings of a training: what a loss that was called with dataset indices knows about its samples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from inlier.nn import Robust, RobustCrossEntropy, suspect_columns
from inlier.nn._window import UNSEEN
from inlier.report._findings import Findings, Suspect
from inlier.report._thumbnails import thumbnail
from inlier.report._wording import number

__all__ = ["findings_of"]


def findings_of(
    criterion: Robust | RobustCrossEntropy,
    *,
    title: str = "Training data",
    most: int = 200,
    images: Any = None,
    labels: Any = None,
    suggested: Any = None,
    class_names: Sequence[str] | None = None,
    values: Any = None,
) -> Findings:
    """Return the findings of a training, ready for :func:`inlier.report.write`.

    A suspect is a sample whose inlier probability is below one half.

    Args:
        criterion: A :class:`~inlier.Robust` or :class:`~inlier.RobustCrossEntropy` that was called with
            ``index``.
        title: The heading of the report.
        most: The maximum number of suspects to list.
        images: An image of each sample, by dataset index: a tensor or array (N, C, H, W), (N, H, W, C) or
            (N, H, W), or a sequence of such, of Pillow images or of paths.
        labels: The given label of each sample: class indices or anything else.
        suggested: The label that the model predicts for each sample, likewise; by default that of
            :meth:`inlier.RobustCrossEntropy.suggested_label`.
        class_names: The names of the classes, by class index.
        values: Further columns: a mapping or data frame of column names to one value per sample.

    Returns:
        The findings.

    Raises:
        RuntimeError: If it was never called with ``index``.
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
    probability = criterion.inlier_probability().double().cpu()
    losses = criterion.sample_losses().double().cpu().clamp(min=0)
    if suggested is None and isinstance(criterion, RobustCrossEntropy):
        suggested = criterion.suggested_label().cpu()
    for name, entries in (("images", images), ("labels", labels), ("suggested", suggested)):
        _check_length(name, entries, len(losses))
    columns = _columns(values)
    for name, column in columns.items():
        _check_length(f"values[{name!r}]", column, len(losses))
    rows = [row for row in suspect_columns(criterion)["row"] if probability[row] < 0.5]
    suspects = [
        Suspect(
            row,
            float(probability[row]),
            float(losses[row]),
            _label(labels, row, class_names),
            _label(suggested, row, class_names),
            {name: _text(column[row]) for name, column in columns.items()},
            image=None if images is None else thumbnail(images[row]),
        )
        for row in rows[:most]
    ]
    scales = [math.inf if c >= UNSEEN else c for c in criterion.scale.double().cpu().reshape(-1).tolist()]
    facts = {}
    unseen = int(losses.isnan().sum())
    if unseen:
        facts["Never scored"] = f"{unseen:,} samples: not seen, or without a finite loss"
    if len(scales) > 1:
        facts["Groups"] = f"{len(scales):,}, each with its own scale"
    return Findings(
        title=title,
        losses=losses,
        inlier_probability=probability,
        estimate=criterion.fraction_estimate,
        kernel=criterion.kernel if isinstance(criterion, Robust) else None,
        scale=scales[0] if len(scales) == 1 else math.nan,
        history=list(criterion.history),
        suspects=suspects,
        facts=facts,
        unit="samples",
        density_note="Bars: the running mean loss of each sample. Curves: fitted to the losses of recent steps.",
        group_scales=scales if len(scales) > 1 else [],
    )


def _check_length(name: str, entries: Any, samples: int) -> None:
    if entries is not None and len(entries) < samples:
        raise ValueError(
            f"{name} has {len(entries)} entries for {samples} samples: pass one for each, by dataset index"
        )


def _columns(values: Any) -> dict[str, Any]:
    """Return the columns of a mapping or data frame, each indexed by position."""
    names = [] if values is None else list(getattr(values, "columns", values))
    columns = {str(name): values[name] for name in names}
    # A column of a pandas data frame would be indexed by its labels.
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
