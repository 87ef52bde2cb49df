"""The plots of the report: losses with their groups, weights with the kernel, scale and fraction."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from inlier.report.findings import Findings
from inlier.report.svg import Axis, Plot, number

__all__ = ["Drawing", "draw"]

BINS = 56
CURVE = 240  # Places at which a smooth curve is drawn.
DOTS = 400  # Samples shown as dots in the plot of weights.
CURVES = 24  # Groups whose kernel curve is drawn.


@dataclass(frozen=True)
class Drawing:
    """A plot with the words around it.

    Args:
        name: A short word, unique on the page.
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
        findings: What is shown.
        losses: The loss of every sample, float64.
        probability: The probability of every sample, float64.
        weights: The weight of every sample, float64.
    """
    axis = _loss_axis(losses)
    return [
        _histogram(findings, axis, losses, probability),
        _weights(findings, axis, losses, weights),
        *_course(findings.history),
    ]


def _loss_axis(losses: Tensor) -> Axis | None:
    """The axis of losses: all but the smallest few of a thousand, which may be extremely small."""
    drawn = losses[losses.isfinite() & (losses > 0)]
    if not len(drawn):
        return None
    place = max(int(0.002 * len(drawn)), 1)
    low, high = float(drawn.kthvalue(place).values), float(drawn.max())
    middle = (math.log10(high) + math.log10(low)) / 2
    half = max(0.51 * (math.log10(high) - math.log10(low)), 0.5)
    # Float64 ends near 1e-308 and 1e308.
    return Axis(10.0 ** max(middle - half, -300), 10.0 ** min(middle + half, 300), "loss", log=True)


def _histogram(findings: Findings, axis: Axis | None, losses: Tensor, probability: Tensor) -> Drawing:
    heading, unit = "How the losses are spread", findings.unit
    positive = losses.isfinite() & (losses > 0)
    note = _left_out(losses, unit)
    if axis is None:
        return Drawing(
            "losses", heading, [], "", f"There is no positive, finite loss to draw. {note}".strip()
        )
    low, width = math.log10(axis.low), (math.log10(axis.high) - math.log10(axis.low)) / BINS
    place = ((losses[positive].log10() - low) / width).long().clamp(0, BINS - 1)
    belief = probability[positive].nan_to_num(nan=0.0).clamp(0, 1)
    right = torch.zeros(BINS, dtype=torch.float64).index_add_(0, place, belief).tolist()
    count = place.bincount(minlength=BINS).tolist()
    top = max(count)
    title = f"Histogram of {int(positive.sum()):,} losses"
    plot = Plot("losses", title, axis, Axis(0, 1.08 * top, f"{unit} in a bin", whole=True))
    for k in range(BINS):
        if not count[k]:
            continue
        left, right_end = 10 ** (low + k * width), 10 ** (low + (k + 1) * width)
        hint = f"loss {number(left)} to {number(right_end)}: {count[k]:,} {unit}"
        hint += f", {number(count[k] - right[k])} of them believed wrong"
        plot.bar(left, right_end, 0, right[k], "bar inliers", hint)
        plot.bar(left, right_end, right[k], count[k], "bar outliers", hint)
    legend = [("swatch inliers", "believed right"), ("swatch outliers", "believed wrong")]
    fit = findings.fit
    if fit is not None and fit.inliers is not None:
        x = torch.logspace(low, low + BINS * width, CURVE, dtype=torch.float64)
        per_bin = float(positive.sum()) * width * math.log(10) * x
        laws = [(density * per_bin).tolist() for density in fit.density(x)]
        plot.line(zip(x.tolist(), laws[0], strict=True), "inliers")
        legend.append(("stroke inliers", "fitted law of right ones"))
        if fit.outliers is not None:
            plot.line(zip(x.tolist(), laws[1], strict=True), "outliers")
            legend.append(("stroke outliers", "fitted law of wrong ones"))
    return Drawing("losses", heading, legend, str(plot), note)


def _left_out(losses: Tensor, unit: str) -> str:
    """Say which losses a logarithmic axis cannot show."""
    zero = int((losses <= 0).sum())
    bad = int((~losses.isfinite()).sum())
    parts = [f"{zero:,} {unit} with a loss of 0"] if zero else []
    parts += [f"{bad:,} {unit} without a finite loss"] if bad else []
    return f"Not drawn: {' and '.join(parts)}." if parts else ""


def _weights(findings: Findings, axis: Axis | None, losses: Tensor, weights: Tensor) -> Drawing:
    heading = "What weight a loss gets"
    if axis is None:
        return Drawing("weights", heading, [], "", "")
    plot = Plot("weights", "Weight of a sample over its loss", axis, Axis(0, 1.05, "weight"))
    shown = torch.nonzero((losses >= axis.low) & (losses <= axis.high) & weights.isfinite()).flatten()
    shown = shown[losses[shown].argsort()]
    if len(shown) > DOTS:
        shown = shown[torch.linspace(0, len(shown) - 1, DOTS).long()]
    for kind, chosen in (
        ("dot inliers", shown[weights[shown] >= 0.5]),
        ("dot outliers", shown[weights[shown] < 0.5]),
    ):
        plot.dots(list(zip(losses[chosen].tolist(), weights[chosen].tolist(), strict=True)), kind)
    x = torch.logspace(math.log10(axis.low), math.log10(axis.high), CURVE, dtype=torch.float64)
    scales = [c for c in findings.group_scales or [findings.scale] if not math.isnan(c)]
    several = len(scales) > 1
    for scale in scales[:CURVES]:
        curve = findings.kernel.weight(x, scale).tolist()
        plot.line(zip(x.tolist(), curve, strict=True), "kernel thin" if several else "kernel")
    if not several:
        plot.mark(findings.scale, f"c = {number(findings.scale)}")
    legend = [
        ("stroke kernel", "kernel, one curve for each group" if several else "kernel σ′ at scale c"),
        ("dotted inliers", "weight of at least ½"),
        ("dotted outliers", "weight below ½"),
    ]
    note = "" if len(scales) <= CURVES else f"The curves of the first {CURVES} of {len(scales)} groups."
    return Drawing("weights", heading, legend, str(plot), note)


def _course(history: Sequence[tuple[int, float, float]]) -> list[Drawing]:
    """How scale and fraction moved."""
    drawings = []
    for name, heading, kind, values in (
        ("scale", "How the scale c moved", "kernel", [(x, scale) for x, scale, _ in history]),
        ("fraction", "How the inlier fraction moved", "inliers", [(x, zeta) for x, _, zeta in history]),
    ):
        points = [(float(x), float(y)) for x, y in values if math.isfinite(y) and (name != "scale" or y > 0)]
        if not points:
            why = (
                "It was infinite throughout: every loss had weight 1." if history else "No rounds were kept."
            )
            drawings.append(Drawing(name, heading, [], "", why))
            continue
        first, last = float(min(x for x, _ in values)), float(max(x for x, _ in values))
        across = Axis(
            first - 0.5 if first == last else first, last + (first == last) / 2, "iteration", whole=True
        )
        plot = Plot(name, heading, across, _upright(name, [y for _, y in points]))
        plot.line(points, kind)
        if len(points) <= 40:
            plot.dots(points, f"dot solid {kind}")
        end = points[-1][1]
        now = f"{100 * end:.3g} %" if name == "fraction" else number(end)
        note = f"{now} at the end."
        if len(points) < len(history):
            note += " Infinite where the line is missing: every loss had weight 1."
        drawings.append(Drawing(name, heading, [], str(plot), note))
    return drawings


def _upright(name: str, values: list[float]) -> Axis:
    """The vertical axis of a course: fractions from 0 to 1, scales with some room around them."""
    if name == "fraction":
        return Axis(0, 1.05, "inlier fraction", percent=True)
    low, high = min(values), max(values)
    if high / low > 8:
        return Axis(low / 1.2, high * 1.2, "scale c", log=True)
    return Axis(0, 1.15 * high, "scale c")
