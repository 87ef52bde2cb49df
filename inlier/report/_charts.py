"""Matplotlib figures as SVG for the page: colours by its CSS variables, texts as text, no style attributes.

Matplotlib takes only real colours, so each variable of the style sheet has a placeholder, which the SVG text has
replaced; one drawing then works in light and dark mode and on paper. The page's content security policy forbids
style attributes, which become presentation attributes.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from inlier.report._wording import short_number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

__all__ = ["COLOURS", "AxisSpec", "add_mark", "chart_style", "new_axes", "to_svg"]

WIDTH, HEIGHT = 480, 270
LEFT, RIGHT, TOP, BOTTOM = 58, 14, 26, 44
MAX_TICKS = 6

VARIABLES = ("soft", "grid", "right", "right-fill", "wrong", "wrong-fill", "kernel")
COLOURS = {name: f"#0000{place:02x}" for place, name in enumerate(VARIABLES, 1)}
"""The placeholder of each variable of the style sheet."""

VALUES = {colour: f"var(--{name})" for name, colour in COLOURS.items()}
UNUSED = ("clip-path", "style", "transform")
"""Attributes that are dropped: all is drawn within the axes, upright, and without inline style."""


@dataclass(frozen=True)
class AxisSpec:
    """A range of values with its label.

    Args:
        low: The smallest value drawn, above 0 if logarithmic.
        high: The largest value drawn.
        label: What the axis shows.
        log: Whether it is logarithmic.
        percent: Whether ticks are written as percent.
        integer: Whether all ticks are integers.
    """

    low: float
    high: float
    label: str
    log: bool = False
    percent: bool = False
    integer: bool = False

    @property
    def scale(self) -> str:
        """The name of the scale in Matplotlib."""
        return "log" if self.log else "linear"


@contextmanager
def chart_style() -> Iterator[None]:
    """Set Matplotlib's parameters while charts are made.

    Raises:
        ModuleNotFoundError: If Matplotlib is missing; the extra ``report`` brings it.
    """
    try:
        import matplotlib.style
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            'the report needs Matplotlib: pip install "inlier[report]"', name=error.name
        ) from None
    soft, grid = COLOURS["soft"], COLOURS["grid"]
    parameters: dict[str, Any] = {
        "axes.axisbelow": True,
        "axes.edgecolor": soft,
        "axes.labelcolor": soft,
        "axes.spines.left": False,
        "axes.spines.right": False,
        "axes.spines.top": False,
        "axes.titlecolor": soft,
        "axes.titlesize": 12,
        "figure.dpi": 72,
        "font.size": 12,
        "grid.color": grid,
        "lines.linewidth": 2.2,
        "lines.solid_capstyle": "round",
        "svg.fonttype": "none",
        "text.color": soft,
        "text.parse_math": False,
        "xtick.color": soft,
        "ytick.color": soft,
        "ytick.left": False,
    }
    with matplotlib.style.context(parameters, after_reset=True):
        yield


def new_axes(x: AxisSpec, y: AxisSpec) -> Axes:
    """Return the axes of a new figure, with the label of y above its axis."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH / 72, HEIGHT / 72))
    width, height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    axes = figure.add_axes((LEFT / WIDTH, BOTTOM / HEIGHT, width / WIDTH, height / HEIGHT))
    axes.set(xscale=x.scale, xlim=(x.low, x.high), yscale=y.scale, ylim=(y.low, y.high))
    axes.set_xlabel(x.label, loc="right")
    figure.text(2 / WIDTH, 1 - 12 / HEIGHT, y.label)
    axes.grid(axis="y")
    for axis, spec in ((axes.xaxis, x), (axes.yaxis, y)):
        _set_ticks(axis, spec)
    return axes


def _set_ticks(axis: Axis, spec: AxisSpec) -> None:
    """Set about five round ticks, written as the rest of the page writes numbers."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

    decades = math.log10(spec.high / spec.low) if spec.log else 0
    axis.set_major_locator(
        LogLocator(subs=(1, 2, 5) if decades < 2 else (1,), numticks=MAX_TICKS)
        if spec.log
        else MaxNLocator(MAX_TICKS, integer=spec.integer, steps=[1, 2, 5, 10])
    )
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(
        FuncFormatter(lambda x, _: f"{100 * x:.3g} %" if spec.percent else short_number(x))
    )


def add_mark(axes: Axes, x: float, text: str) -> None:
    """Add a dashed vertical line with a text at its top, on the side with more room, if it lies within the axes."""
    low, high = axes.get_xlim()
    if not low <= x <= high:
        return
    colour = COLOURS["kernel"]
    axes.axvline(x, color=colour, linewidth=1, linestyle=(0, (3, 4)))
    left = axes.get_xaxis_transform().transform((x, 0))[0] <= axes.bbox.x0 + 0.5 * axes.bbox.width
    axes.annotate(
        text,
        (x, 1),
        (5 if left else -5, 6),
        xycoords=("data", "axes fraction"),
        textcoords="offset points",
        ha="left" if left else "right",
        color=colour,
        annotation_clip=False,
    )


def to_svg(axes: Axes, name: str, title: str, description: str, hints: Mapping[str, str]) -> str:
    """Return the figure of axes as an SVG element, the same text each time.

    Args:
        axes: The axes, from :func:`new_axes`.
        name: A short identifier, unique on the page.
        title: What it shows, for screen readers.
        description: What there is to see, for screen readers.
        hints: The tooltip of each artist that has this ``gid``.

    Example:
        >>> with chart_style():
        ...     axes = new_axes(AxisSpec(1, 100, "loss", log=True), AxisSpec(0, 1, "weight"))
        ...     _ = axes.plot([1, 10, 100], [1, 0.5, 0.1], color=COLOURS["kernel"], gid="line")
        ...     svg = to_svg(axes, "weights", "Weight by loss", "It falls.", {"line": "the kernel"})
        >>> 'stroke="var(--kernel)"' in svg, "<title>the kernel</title>" in svg, "style" in svg
        (True, True, False)
    """
    import matplotlib
    import numpy
    from matplotlib.figure import Figure

    assert isinstance(axes.figure, Figure)
    file = io.StringIO()
    # Ids that no other chart of the page has. Beyond losses of 1e300, the next tick is infinite.
    with matplotlib.rc_context({"svg.hashsalt": name}), numpy.errstate(over="ignore"):
        axes.figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
    text = file.getvalue().replace('xmlns="http://www.w3.org/2000/svg"', "").replace("xlink:href", "href")
    root = ElementTree.fromstring(text)
    body = root.find("g")
    assert body is not None
    used = {element.get("href", "")[1:] for element in root.iter("use")}
    for element in body.iter():
        _simplify(element, used, hints)
    svg = ElementTree.Element(
        "svg",
        {
            "class": "plot",
            "viewBox": root.attrib["viewBox"],
            "role": "img",
            "aria-labelledby": f"{name}-title",
            "aria-describedby": f"{name}-description",
            "stroke-linejoin": "round",
        },
    )
    ElementTree.SubElement(svg, "title", id=f"{name}-title").text = title
    ElementTree.SubElement(svg, "desc", id=f"{name}-description").text = description
    svg.append(body)
    return ElementTree.tostring(svg, "unicode")


def _simplify(element: ElementTree.Element, used: set[str], hints: Mapping[str, str]) -> None:
    """Write the style of an element as attributes, colours as variables, and coordinates with two decimals."""
    attributes = element.attrib
    styles = {child.get("style") for child in element if child.tag == "use"}
    if len(styles) == 1:  # Dots that all look alike: said once, by their group.
        attributes["style"] = styles.pop() or ""
        for child in element:
            del child.attrib["style"]
    for declaration in filter(None, attributes.get("style", "").split("; ")):
        key, _, value = declaration.partition(": ")
        if not key.startswith("font"):  # The page has a font of its own.
            attributes[key] = VALUES.get(value, value)
    for key in UNUSED:
        attributes.pop(key, None)
    for key in {"d", "x", "y"} & attributes.keys():
        coordinates = re.sub(r"-?\d+\.\d+", lambda number: f"{float(number[0]):.2f}", attributes[key])
        attributes[key] = re.sub(r"\s*([A-Za-z])\s*", r"\1", coordinates).strip()
    identifier = attributes.get("id", "")
    if identifier not in used:
        attributes.pop("id", None)
    if element.tag not in ("text", "title"):
        element.text = None
    element.tail = None
    if identifier in hints:
        title = ElementTree.Element("title")
        title.text = hints[identifier]
        element.insert(0, title)
