"""The plots of the report: the distribution of losses, weights with the kernel, scale and fraction."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from inlier.fraction import LossMixture
from inlier.report._charts import COLOURS, AxisSpec, add_mark, chart_style, new_axes, to_svg
from inlier.report._findings import Findings
from inlier.report._wording import short_number

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Drawing", "draw"]

BINS = 56
CURVE_POINTS = 240
MAX_DOTS = 400  # Samples drawn in the plot of weights.
MAX_CURVES = 24  # Groups whose kernel curve is drawn.
MAX_MARKED = 40  # A history of at most this many points has a dot at each.
DOTS: dict[str, Any] = {"markersize": 4.8, "markeredgewidth": 0}


@dataclass(frozen=True)
class Drawing:
    """A plot with its heading, legend and note.

    Args:
        name: A short identifier, unique on the page.
        heading: What it shows.
        legend: (class, words) of each kind of mark.
        svg: The plot, or an empty string if there is nothing to draw.
        note: A sentence under it.
    """

    name: str
    heading: str
    legend: Sequence[tuple[str, str]]
    svg: str
    note: str


def draw(findings: Findings, losses: Tensor, probability: Tensor, weights: Tensor) -> list[Drawing]:
    """Return all plots of a report.

    Args:
        findings: The content of the report.
        losses: The loss of every sample, float64.
        probability: The inlier probability of every sample, float64.
        weights: The weight of every sample, float64.
    """
    axis = _loss_axis(losses)
    with chart_style():
        return [
            _histogram(findings, axis, losses, probability),
            _weights(findings, axis, losses, weights),
            *_history(findings),
        ]


def _loss_axis(losses: Tensor) -> AxisSpec | None:
    """Return the axis of losses, without the smallest two in a thousand, which may be tiny."""
    drawn = losses[losses.isfinite() & (losses > 0)]
    if not len(drawn):
        return None
    rank = max(int(0.002 * len(drawn)), 1)
    low, high = float(drawn.kthvalue(rank).values), float(drawn.max())
    middle = (math.log10(high) + math.log10(low)) / 2
    half = max(0.51 * (math.log10(high) - math.log10(low)), 0.5)
    # Within the range of float64, about 1e-308 to 1e308.
    return AxisSpec(10.0 ** max(middle - half, -300), 10.0 ** min(middle + half, 300), "loss", log=True)


def _histogram(findings: Findings, axis: AxisSpec | None, losses: Tensor, probability: Tensor) -> Drawing:
    heading, unit = "Distribution of losses", findings.unit
    positive = losses.isfinite() & (losses > 0)
    note = _not_drawn(losses, unit)
    if axis is None:
        return Drawing(
            "losses", heading, [], "", f"There is no positive, finite loss to draw. {note}".strip()
        )
    low, width = math.log10(axis.low), (math.log10(axis.high) - math.log10(axis.low)) / BINS
    bins = ((losses[positive].log10() - low) / width).long().clamp(0, BINS - 1)
    weight = probability[positive].nan_to_num(nan=0.0).clamp(0, 1)
    inliers = torch.zeros(BINS, dtype=torch.float64).index_add_(0, bins, weight).tolist()
    count = bins.bincount(minlength=BINS).tolist()
    high = 1.08 * max(count)
    axes = new_axes(axis, AxisSpec(0, high, f"{unit} per bin", integer=True))
    edges = [10 ** (low + k * width) for k in range(BINS + 1)]
    hints = {}
    for k, (left, right) in enumerate(pairwise(edges)):
        if not count[k]:
            continue
        hints[f"bin-{k}"] = (
            f"loss {short_number(left)} to {short_number(right)}: {count[k]:,} {unit}, "
            f"{short_number(count[k] - inliers[k])} of them expected to be outliers"
        )
        for kind, bottom, top in (("right", 0.0, inliers[k]), ("wrong", inliers[k], count[k])):
            bar = axes.bar(left, top - bottom, 0.93 * (right - left), bottom, align="edge")[0]
            bar.set(color=COLOURS[f"{kind}-fill"], linewidth=0, gid=f"bin-{k}")
    legend = [("swatch inliers", "expected inliers"), ("swatch outliers", "expected outliers")]
    estimate = findings.estimate
    if isinstance(estimate, LossMixture) and estimate.inliers is not None:
        x = torch.logspace(low, low + BINS * width, CURVE_POINTS, dtype=torch.float64)
        per_bin = float(positive.sum()) * width * math.log(10) * x
        densities = estimate.density(x)
        note = f"{note} {findings.density_note}".strip()
        _line(axes, x, densities[0] * per_bin, "right")
        legend.append(("stroke inliers", "fitted density of inliers"))
        if estimate.outliers is not None:
            _line(axes, x, densities[1] * per_bin, "wrong")
            legend.append(("stroke outliers", "fitted density of outliers"))
    mode = count.index(max(count))
    svg = to_svg(
        axes,
        "losses",
        f"Histogram of {int(positive.sum()):,} losses",
        f"Losses from {short_number(float(losses[positive].min()))} to "
        f"{short_number(float(losses[positive].max()))}, most of them around {short_number(edges[mode])}; "
        f"{short_number(sum(count) - sum(inliers))} {unit} are expected to be outliers.",
        hints,
    )
    return Drawing("losses", heading, legend, svg, note)


def _line(axes: Axes, x: Tensor | Sequence[float], y: Tensor, colour: str, **style: Any) -> None:
    """Add a line, which ends a little above the axes where it is higher."""
    high = axes.get_ylim()[1]
    axes.plot(x, y.clamp(max=1.02 * high), color=COLOURS[colour], **style)


def _not_drawn(losses: Tensor, unit: str) -> str:
    """Return which losses a logarithmic axis cannot show."""
    zero = int((losses <= 0).sum())
    bad = int((~losses.isfinite()).sum())
    parts = [f"{zero:,} {unit} with a loss of 0"] if zero else []
    parts += [f"{bad:,} {unit} without a finite loss"] if bad else []
    return f"Not drawn: {' and '.join(parts)}." if parts else ""


def _weights(findings: Findings, axis: AxisSpec | None, losses: Tensor, weights: Tensor) -> Drawing:
    heading = "Weight by loss"
    if axis is None:
        return Drawing("weights", heading, [], "", "")
    axes = new_axes(axis, AxisSpec(0, 1.05, "weight"))
    drawn = torch.nonzero((losses >= axis.low) & (losses <= axis.high) & weights.isfinite()).flatten()
    doubted = f"{int((weights < 0.5).sum()):,} of {len(weights):,} {findings.unit} have a weight below ½."
    drawn = drawn[losses[drawn].argsort()]
    if len(drawn) > MAX_DOTS:
        drawn = drawn[torch.linspace(0, len(drawn) - 1, MAX_DOTS).long()]
    for colour, chosen in (
        ("right", drawn[weights[drawn] >= 0.5]),
        ("wrong", drawn[weights[drawn] < 0.5]),
    ):
        axes.plot(losses[chosen], weights[chosen], "o", color=COLOURS[colour], alpha=0.5, **DOTS)
    legend = [("dotted inliers", "weight of at least ½"), ("dotted outliers", "weight below ½")]
    scales = [c for c in findings.group_scales or [findings.scale] if not math.isnan(c)]
    note = ""
    if findings.kernel is None:
        add_mark(axes, findings.scale, f"weight ½ at {short_number(findings.scale)}")
    else:
        several = len(scales) > 1
        style = {"linewidth": 1.2, "alpha": 0.75} if several else {}
        x = torch.logspace(math.log10(axis.low), math.log10(axis.high), CURVE_POINTS, dtype=torch.float64)
        for scale in scales[:MAX_CURVES]:
            _line(axes, x, findings.kernel.weight(x, scale), "kernel", **style)
        if len(scales) == 1:
            add_mark(axes, findings.scale, f"c = {short_number(findings.scale)}")
        kernel = "kernel, one curve for each group" if several else "kernel σ′ at scale c"
        legend.insert(0, ("stroke kernel", kernel))
        if len(scales) > MAX_CURVES:
            note = f"The curves of the first {MAX_CURVES} of {len(scales)} groups."
    svg = to_svg(axes, "weights", "Weight of each sample over its loss", doubted, {})
    return Drawing("weights", heading, legend, svg, note)


def _history(findings: Findings) -> list[Drawing]:
    """Return the plots by iteration: of the scale, if there is a kernel, and of the fraction."""
    drawings, history = [], findings.history
    courses = [("fraction", "Inlier fraction by iteration", "right", [(x, zeta) for x, _, zeta in history])]
    if findings.kernel is not None:
        courses.insert(0, ("scale", "Scale c by iteration", "kernel", [(x, c) for x, c, _ in history]))
    for name, heading, colour, values in courses:
        points = [(float(x), float(y)) for x, y in values if math.isfinite(y) and (name != "scale" or y > 0)]
        if not points:
            continue
        first, last = float(min(x for x, _ in values)), float(max(x for x, _ in values))
        single = first == last
        axis = AxisSpec(first - 0.5 if single else first, last + single / 2, "iteration", integer=True)
        axes = new_axes(axis, _history_axis(name, [y for _, y in points]))
        dots = DOTS | {"marker": "o" if len(points) <= MAX_MARKED else ""}
        x, y = zip(*points, strict=True)
        axes.plot(x, y, color=COLOURS[colour], **dots)
        end = points[-1][1]
        note = f"{f'{100 * end:.3g} %' if name == 'fraction' else short_number(end)} at the end."
        svg = to_svg(axes, name, heading, note, {})
        if len(points) < len(history):
            note += " Infinite where the line is missing: every loss had weight 1."
        drawings.append(Drawing(name, heading, [], svg, note))
    return drawings


def _history_axis(name: str, values: list[float]) -> AxisSpec:
    """Return the vertical axis of a history: fractions from 0 to 1, scales with some margin."""
    if name == "fraction":
        return AxisSpec(0, 1.05, "inlier fraction", percent=True)
    low, high = min(values), max(values)
    if high / low > 8:
        return AxisSpec(low / 1.2, high * 1.2, "scale c", log=True)
    return AxisSpec(0, 1.15 * high, "scale c")
