"""The plots of the report: the distribution of losses, weights with the kernel, scale and fraction."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from inlier.fraction import LossMixture
from inlier.report._findings import Findings
from inlier.report._svg import Axis, Plot, number

__all__ = ["Drawing", "draw"]

BINS = 56
CURVE_POINTS = 240
MAX_DOTS = 400  # Samples drawn in the plot of weights.
MAX_CURVES = 24  # Groups whose kernel curve is drawn.
MAX_MARKED = 40  # A history of at most this many points has a dot at each.


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
    return [
        _histogram(findings, axis, losses, probability),
        _weights(findings, axis, losses, weights),
        *_history(findings),
    ]


def _loss_axis(losses: Tensor) -> Axis | None:
    """Return the axis of losses, without the smallest two in a thousand, which may be tiny."""
    drawn = losses[losses.isfinite() & (losses > 0)]
    if not len(drawn):
        return None
    rank = max(int(0.002 * len(drawn)), 1)
    low, high = float(drawn.kthvalue(rank).values), float(drawn.max())
    middle = (math.log10(high) + math.log10(low)) / 2
    half = max(0.51 * (math.log10(high) - math.log10(low)), 0.5)
    # Within the range of float64, about 1e-308 to 1e308.
    return Axis(10.0 ** max(middle - half, -300), 10.0 ** min(middle + half, 300), "loss", log=True)


def _histogram(findings: Findings, axis: Axis | None, losses: Tensor, probability: Tensor) -> Drawing:
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
    title = f"Histogram of {int(positive.sum()):,} losses"
    plot = Plot("losses", title, axis, Axis(0, 1.08 * max(count), f"{unit} per bin", integer=True))
    for k in range(BINS):
        if not count[k]:
            continue
        left, right = 10 ** (low + k * width), 10 ** (low + (k + 1) * width)
        hint = f"loss {number(left)} to {number(right)}: {count[k]:,} {unit}"
        hint += f", {number(count[k] - inliers[k])} of them expected to be outliers"
        plot.bar(left, right, 0, inliers[k], "bar inliers", hint)
        plot.bar(left, right, inliers[k], count[k], "bar outliers", hint)
    legend = [("swatch inliers", "expected inliers"), ("swatch outliers", "expected outliers")]
    estimate = findings.estimate
    if isinstance(estimate, LossMixture) and estimate.inliers is not None:
        x = torch.logspace(low, low + BINS * width, CURVE_POINTS, dtype=torch.float64)
        per_bin = float(positive.sum()) * width * math.log(10) * x
        curves = [(density * per_bin).tolist() for density in estimate.density(x)]
        note = f"{note} {findings.density_note}".strip()
        plot.line(zip(x.tolist(), curves[0], strict=True), "inliers")
        legend.append(("stroke inliers", "fitted density of inliers"))
        if estimate.outliers is not None:
            plot.line(zip(x.tolist(), curves[1], strict=True), "outliers")
            legend.append(("stroke outliers", "fitted density of outliers"))
    return Drawing("losses", heading, legend, str(plot), note)


def _not_drawn(losses: Tensor, unit: str) -> str:
    """Return which losses a logarithmic axis cannot show."""
    zero = int((losses <= 0).sum())
    bad = int((~losses.isfinite()).sum())
    parts = [f"{zero:,} {unit} with a loss of 0"] if zero else []
    parts += [f"{bad:,} {unit} without a finite loss"] if bad else []
    return f"Not drawn: {' and '.join(parts)}." if parts else ""


def _weights(findings: Findings, axis: Axis | None, losses: Tensor, weights: Tensor) -> Drawing:
    heading = "Weight by loss"
    if axis is None:
        return Drawing("weights", heading, [], "", "")
    plot = Plot("weights", "Weight of each sample over its loss", axis, Axis(0, 1.05, "weight"))
    drawn = torch.nonzero((losses >= axis.low) & (losses <= axis.high) & weights.isfinite()).flatten()
    drawn = drawn[losses[drawn].argsort()]
    if len(drawn) > MAX_DOTS:
        drawn = drawn[torch.linspace(0, len(drawn) - 1, MAX_DOTS).long()]
    for kind, chosen in (
        ("dot inliers", drawn[weights[drawn] >= 0.5]),
        ("dot outliers", drawn[weights[drawn] < 0.5]),
    ):
        plot.dots(list(zip(losses[chosen].tolist(), weights[chosen].tolist(), strict=True)), kind)
    legend = [("dotted inliers", "weight of at least ½"), ("dotted outliers", "weight below ½")]
    scales = [c for c in findings.group_scales or [findings.scale] if not math.isnan(c)]
    if findings.kernel is None:
        plot.mark(findings.scale, f"weight ½ at {number(findings.scale)}")
        return Drawing("weights", heading, legend, str(plot), "")
    several = len(scales) > 1
    x = torch.logspace(math.log10(axis.low), math.log10(axis.high), CURVE_POINTS, dtype=torch.float64)
    for scale in scales[:MAX_CURVES]:
        curve = findings.kernel.weight(x, scale).tolist()
        plot.line(zip(x.tolist(), curve, strict=True), "kernel thin" if several else "kernel")
    if len(scales) == 1:
        plot.mark(findings.scale, f"c = {number(findings.scale)}")
    kernel = "kernel, one curve for each group" if several else "kernel σ′ at scale c"
    note = (
        "" if len(scales) <= MAX_CURVES else f"The curves of the first {MAX_CURVES} of {len(scales)} groups."
    )
    return Drawing("weights", heading, [("stroke kernel", kernel), *legend], str(plot), note)


def _history(findings: Findings) -> list[Drawing]:
    """Return the plots by iteration: of the scale, if there is a kernel, and of the fraction."""
    drawings, history = [], findings.history
    courses = [("fraction", "Inlier fraction by iteration", "inliers", [(x, zeta) for x, _, zeta in history])]
    if findings.kernel is not None:
        courses.insert(0, ("scale", "Scale c by iteration", "kernel", [(x, c) for x, c, _ in history]))
    for name, heading, kind, values in courses:
        points = [(float(x), float(y)) for x, y in values if math.isfinite(y) and (name != "scale" or y > 0)]
        if not points:
            continue
        first, last = float(min(x for x, _ in values)), float(max(x for x, _ in values))
        single = first == last
        axis = Axis(first - 0.5 if single else first, last + single / 2, "iteration", integer=True)
        plot = Plot(name, heading, axis, _history_axis(name, [y for _, y in points]))
        plot.line(points, kind)
        if len(points) <= MAX_MARKED:
            plot.dots(points, f"dot solid {kind}")
        end = points[-1][1]
        note = f"{f'{100 * end:.3g} %' if name == 'fraction' else number(end)} at the end."
        if len(points) < len(history):
            note += " Infinite where the line is missing: every loss had weight 1."
        drawings.append(Drawing(name, heading, [], str(plot), note))
    return drawings


def _history_axis(name: str, values: list[float]) -> Axis:
    """Return the vertical axis of a history: fractions from 0 to 1, scales with some margin."""
    if name == "fraction":
        return Axis(0, 1.05, "inlier fraction", percent=True)
    low, high = min(values), max(values)
    if high / low > 8:
        return Axis(low / 1.2, high * 1.2, "scale c", log=True)
    return Axis(0, 1.15 * high, "scale c")
