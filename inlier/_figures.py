"""Reproducible figures of a metric over the outlier rate, one line per method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib
from matplotlib.figure import Figure

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""The palette of Okabe and Ito, for any colour vision; without their yellow, which is too pale on white."""
MARKERS = "osD^vPX<>*dp"
DASHES = ("-", "--", ":", "-.")


def style(number: int) -> dict[str, Any]:
    """Return colour, marker and dashes of the line with this number; the first 28 are all different."""
    return {
        "color": COLOURS[number % len(COLOURS)],
        "linestyle": DASHES[number // len(COLOURS) % len(DASHES)],
        "marker": MARKERS[number % len(MARKERS)],
    }


def curves(
    axes: Axes,
    frame: pd.DataFrame,
    metric: str,
    *,
    methods: Sequence[str] | None = None,
    labels: Mapping[str, str] | None = None,
    log: bool = False,
) -> None:
    """Draw the mean of a metric over the outlier rate, with bars of one standard deviation over the seeds.

    Args:
        axes: The axes; legend and labels are left to the caller.
        frame: Columns ``method``, ``rate``, ``seed`` and the metric. Values that are not finite are left out.
        metric: The column to draw.
        methods: All methods in order, so that each keeps its style if others are missing from the frame; by
            default those of the frame.
        labels: Names of methods in the legend, if other than their own.
        log: Whether the axis is logarithmic.
    """
    methods = list(methods or dict.fromkeys(frame["method"]))
    shown = [method for method in methods if method in set(frame["method"])]
    rates = sorted(set(frame["rate"]))
    gap = min((b - a for a, b in pairwise(rates)), default=0.1)
    for position, method in enumerate(shown):
        values = frame.loc[frame["method"] == method, ["rate", metric]]
        values = values[values[metric].abs() < float("inf")]
        groups = values.groupby("rate")[metric]
        mean, spread = groups.mean(), groups.std().fillna(0.0)
        # Shifted within a quarter of the gap, so that error bars of equal methods do not overlap.
        shift = gap / 4 * ((position + 0.5) / len(shown) - 0.5)
        axes.errorbar(
            mean.index + shift,
            mean,
            yerr=spread,
            label=(labels or {}).get(method, method),
            markersize=4.5,
            linewidth=1.4,
            capsize=2,
            elinewidth=0.9,
            **style(methods.index(method)),
        )
    if log:
        axes.set_yscale("log", nonpositive="clip")
    axes.grid(True, color="0.9", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def curve_plot(
    frame: pd.DataFrame,
    metric: str,
    path_stem: Path,
    *,
    methods: Sequence[str] | None = None,
    labels: Mapping[str, str] | None = None,
    log: bool = False,
    title: str = "",
    xlabel: str = "outlier rate",
    ylabel: str = "",
) -> list[Path]:
    """Draw a metric over the outlier rate into a PNG and an SVG file; see :func:`curves`.

    Args:
        frame: Columns ``method``, ``rate``, ``seed`` and the metric.
        metric: The column to draw.
        path_stem: The path without its suffix.
        methods: All methods in order, shown or not.
        labels: Names of methods in the legend.
        log: Whether the axis is logarithmic.
        title: The title.
        xlabel: Label of the x-axis.
        ylabel: Label of the y-axis; the name of the metric by default.

    Returns:
        The paths of the two files.
    """
    count = frame["method"].nunique()
    outside = count > 6
    figure = Figure(figsize=(8.2 if outside else 6.4, max(4.2, 0.24 * count)), layout="constrained")
    axes = figure.subplots()
    curves(axes, frame, metric, methods=methods, labels=labels, log=log)
    axes.set(title=title, xlabel=xlabel, ylabel=ylabel or metric)
    if outside:
        axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False, fontsize="small")
    else:
        axes.legend(frameon=False)
    return save_figure(figure, path_stem)


def save_figure(figure: Figure, path_stem: Path, suffixes: Sequence[str] = (".png", ".svg")) -> list[Path]:
    """Save a figure reproducibly, the same bytes each time, and return the paths.

    Args:
        figure: The figure.
        path_stem: The path without its suffix; a dot in it is no suffix.
        suffixes: The formats.
    """
    paths = [path_stem.with_name(path_stem.name + suffix) for suffix in suffixes]
    # By default SVG files have the date and random ids.
    with matplotlib.rc_context({"svg.hashsalt": "inlier"}):
        for path in paths:
            metadata = {"Date": None} if path.suffix == ".svg" else None
            figure.savefig(path, dpi=200, metadata=metadata)
    return paths
