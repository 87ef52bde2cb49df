"""Small plots as SVG: axes, bars, lines and dots, coloured by the classes of the page's style sheet.

There is no colour here, so that one drawing works in light and dark mode and in print.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape

__all__ = ["Axis", "Plot", "number"]

WIDTH, HEIGHT = 480.0, 270.0
LEFT, RIGHT, TOP, BOTTOM = 58.0, 14.0, 26.0, 44.0


def number(value: float) -> str:
    """Return a number with at most four digits, as a power of ten where it is very large or small.

    Example:
        >>> number(1234567), number(0.25), number(2e-7), number(float("inf"))
        ('1.23 × 10⁶', '0.25', '2 × 10⁻⁷', '∞')
    """
    if not math.isfinite(value):
        return "–" if math.isnan(value) else "∞" if value > 0 else "−∞"
    if value == 0 or 1e-3 <= abs(value) < 1e5:
        digits = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
        return digits.replace("-", "−")
    mantissa, _, exponent = f"{value:.2e}".partition("e")
    mantissa = mantissa.rstrip("0").rstrip(".").replace("-", "−")
    power = str(int(exponent)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"10{power}" if mantissa == "1" else f"{mantissa} × 10{power}"


@dataclass(frozen=True)
class Axis:
    """A range of values, linear or logarithmic, with its label.

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

    def position(self, value: float) -> float:
        """Return the position of a value, from 0 at the low end to 1 at the high end."""
        if self.log:
            return (math.log(value) - math.log(self.low)) / (math.log(self.high) - math.log(self.low))
        return (value - self.low) / (self.high - self.low)

    def ticks(self) -> list[float]:
        """Return about five round values within the range."""
        if not self.log:
            step = max(_round_step((self.high - self.low) / 5.5), float(self.integer))
            first = math.ceil(self.low / step - 1e-9)
            return [step * k for k in range(first, math.floor(self.high / step + 1e-9) + 1)]
        low, high = math.log10(self.low), math.log10(self.high)
        powers = [10.0**k for k in range(math.ceil(low - 1e-9), math.floor(high + 1e-9) + 1)]
        if len(powers) < 3:
            powers = [m * 10.0**k for k in range(math.floor(low), math.ceil(high)) for m in (1, 2, 5)]
            powers = [x for x in powers if self.low <= x * (1 + 1e-9) and x <= self.high * (1 + 1e-9)]
        return powers[:: math.ceil(len(powers) / 6)]

    def text(self, tick: float) -> str:
        """Return a tick as text."""
        return f"{100 * tick:.3g} %" if self.percent else number(tick)


def _round_step(step: float) -> float:
    power = 10.0 ** math.floor(math.log10(step))
    return power * next(m for m in (1, 2, 5, 10) if m * power >= step * (1 - 1e-9))


@dataclass
class Plot:
    """One plot, to which marks are added in order; ``str(plot)`` is its SVG element.

    Args:
        name: A short identifier, unique on the page.
        title: What it shows, for screen readers.
        x: The horizontal axis.
        y: The vertical axis.

    Example:
        >>> plot = Plot("a", "A line", Axis(1, 100, "loss", log=True), Axis(0, 1, "weight"))
        >>> plot.line([(1.0, 1.0), (10.0, 0.5), (100.0, 0.1)], "kernel")
        >>> str(plot).startswith("<svg"), str(plot).endswith("</svg>")
        (True, True)
    """

    name: str
    title: str
    x: Axis
    y: Axis
    marks: list[str] = field(default_factory=list)

    def bar(self, low: float, high: float, bottom: float, top: float, kind: str, hint: str) -> None:
        """Add a bar from ``low`` to ``high``, with a tooltip."""
        left, right = self._x(low), self._x(high)
        y, below = self._y(top), self._y(bottom)
        self.marks.append(
            f'<rect class="{kind}" x="{left + 0.4:.2f}" y="{y:.2f}" '
            f'width="{max(right - left - 0.8, 0.5):.2f}" height="{max(below - y, 0):.2f}">'
            f"<title>{escape(hint)}</title></rect>"
        )

    def line(self, points: Iterable[tuple[float, float]], kind: str) -> None:
        """Add a line, interrupted where a point is not finite."""
        path, pen = [], "M"
        for x, y in points:
            if not (math.isfinite(x) and math.isfinite(y)):
                pen = "M"
                continue
            path.append(f"{pen}{self._x(x):.2f} {self._y(y):.2f}")
            pen = "L"
        self.marks.append(f'<path class="line {kind}" d="{"".join(path)}"/>')

    def dots(self, points: Sequence[tuple[float, float]], kind: str, radius: float = 2.4) -> None:
        """Add dots."""
        self.marks += [
            f'<circle class="{kind}" cx="{self._x(x):.2f}" cy="{self._y(y):.2f}" r="{radius}"/>'
            for x, y in points
        ]

    def mark(self, x: float, text: str) -> None:
        """Add a dashed vertical line with a text at its top."""
        if not self.x.low <= x <= self.x.high:
            return
        left = self._x(x)
        anchor, shift = ("end", -5) if self.x.position(x) > 0.8 else ("start", 5)
        self.marks.append(
            f'<path class="line mark" d="M{left:.2f} {TOP}V{HEIGHT - BOTTOM}"/>'
            f'<text class="marked" x="{left + shift:.2f}" y="{TOP - 6}" '
            f'text-anchor="{anchor}">{escape(text)}</text>'
        )

    def _x(self, value: float) -> float:
        return LEFT + _clip(self.x.position(value)) * (WIDTH - LEFT - RIGHT)

    def _y(self, value: float) -> float:
        return HEIGHT - BOTTOM - _clip(self.y.position(value)) * (HEIGHT - TOP - BOTTOM)

    def _axes(self) -> str:
        parts = []
        base, end = HEIGHT - BOTTOM, WIDTH - RIGHT
        for tick in self.y.ticks():
            y = self._y(tick)
            parts.append(
                f'<path class="grid" d="M{LEFT} {y:.2f}H{end}"/><text x="{LEFT - 8}" y="{y:.2f}" dy="0.34em" '
                f'text-anchor="end">{self.y.text(tick)}</text>'
            )
        for tick in self.x.ticks():
            x = self._x(tick)
            parts.append(
                f'<path class="tick" d="M{x:.2f} {base}v4"/><text x="{x:.2f}" y="{base + 18}" '
                f'text-anchor="middle">{self.x.text(tick)}</text>'
            )
        parts.append(f'<path class="axis" d="M{LEFT} {base}H{end}"/>')
        parts.append(
            f'<text class="label" x="{end}" y="{HEIGHT - 6}" text-anchor="end">{escape(self.x.label)}</text>'
        )
        parts.append(f'<text class="label" x="2" y="12">{escape(self.y.label)}</text>')
        return "".join(parts)

    def __str__(self) -> str:
        title = f'<title id="{self.name}-title">{escape(self.title)}</title>'
        return (
            f'<svg viewBox="0 0 {WIDTH:g} {HEIGHT:g}" role="img" aria-labelledby="{self.name}-title" '
            f'class="plot">{title}{self._axes()}{"".join(self.marks)}</svg>'
        )


def _clip(position: float) -> float:
    """Return a position just outside the plot for one further out, so that curves leave it and return."""
    return min(max(position, 0.0), 1.02)
