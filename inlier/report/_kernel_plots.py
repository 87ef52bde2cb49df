"""The kernels at a glance: a table for the terminal, and a figure of value, weight and outlier process."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from matplotlib.figure import Figure
from rich.table import Table
from rich.text import Text

from inlier import kernels
from inlier._figures import save_figure, style
from inlier.kernels import Kernel

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NOTES: dict[str, tuple[str, str, str]] = {
    "truncated": ("min(r, 1)", "1 if r <= 1 else 0", "hard trimming (Adaptive TL)"),
    "geman-mcclure": ("r / (1 + r)", "(1 + r)^-2", "any loss; the default (Adaptive GM)"),
    "welsch-leclerc": ("1 - e^-r", "e^-r", "squared residuals, many gross outliers"),
    "cauchy-lorentzian": ("ln(1 + r)", "1 / (1 + r)", "squared residuals, heavy tails"),
    "charbonnier": ("2·(sqrt(1 + r) - 1)", "(1 + r)^(-1/2)", "squared residuals, as their absolute value"),
    "barron": (
        "2·b/alpha·((1 + r/b)^(alpha/2) - 1)",
        "(1 + r/b)^(-b/2)",
        "one number to tune from L1 to Welsch",
    ),
    "huber": ("r if r <= 1 else 2·sqrt(r) - 1", "min(1, r^(-1/2))", "squared residuals, few outliers"),
    "tukey": ("(1 - (1 - min(r, 1))^3) / 3", "(1 - min(r, 1))^2", "squared residuals, outliers to exactly 0"),
    "mean-error": ("z", "e^-r", "cross-entropy, symmetric label noise"),
    "generalized-cross-entropy": ("(1 - e^(-q·r)) / q", "e^(-q·r)", "cross-entropy, faster than mean error"),
    "symmetric-cross-entropy": (
        "(r + A·z) / (1 + A)",
        "(1 + A·e^-r) / (1 + A)",
        "cross-entropy, few noisy labels",
    ),
    "reverse-cross-entropy": ("z", "e^-r", "cross-entropy; the same as mean-error"),
    "taylor-cross-entropy": (
        "sum(z^m / m for m = 1..t)",
        "1 - z^t",
        "cross-entropy, between it and mean error",
    ),
    "asymmetric-generalized-cross-entropy": (
        "((a + 1)^q - (a + e^-r)^q) / (q·(a + 1)^(q - 1))",
        "e^-r·((a + e^-r) / (a + 1))^(q - 1)",
        "cross-entropy, where most labels are clean",
    ),
    "asymmetric-unhinged": (
        "((a - e^-r)^p - (a - 1)^p) / (p·(a - 1)^(p - 1))",
        "e^-r·((a - e^-r) / (a - 1))^(p - 1)",
        "cross-entropy, where most labels are clean",
    ),
    "asymmetric-exponential": (
        "a·(e^(z/a) - 1)",
        "e^(z/a - r)",
        "cross-entropy, where most labels are clean",
    ),
}
"""Value, weight and purpose by name; a test evaluates each formula beside its kernel."""

WIDE = 206
"""Terminal columns that the whole table needs."""

FAMILIES = {
    "inlier.kernels._estimation": "from robust estimation",
    "inlier.kernels._noisy_labels": "from learning with noisy labels",
}


def parameters(kernel: Kernel) -> dict[str, float]:
    """Return the shape parameters of a kernel by name."""
    return (
        {field.name: getattr(kernel, field.name) for field in fields(kernel)} if is_dataclass(kernel) else {}
    )


def kernel_table(width: int = WIDE) -> Table:
    """Return the table of all registered kernels.

    Args:
        width: The width of the terminal; below :data:`WIDE`, three columns are folded into the others.
    """
    wide = width >= WIDE
    table = Table(
        title="Robust loss kernels at c = 1; at scale c the loss is c·sigma(r / c)",
        caption="z = 1 - e^-r, for cross-entropy the probability not given to the label; b = 2 - alpha; "
        "floor: the weight of an infinite loss",
        show_lines=not wide,
    )
    columns = ("name", "sigma(r)", "weight", "made for", "floor", "parameters")
    for column in columns if wide else ("name", "sigma(r), weight", "floor"):
        table.add_column(column, overflow="fold")
    for name in kernels.names():
        kernel = kernels.get(name)
        value, weight, purpose = NOTES.get(name, ("", "", (type(kernel).__doc__ or "").partition("\n")[0]))
        shape = ", ".join(f"{key} = {number:g}" for key, number in parameters(kernel).items())
        floor = f"{kernel.weight_floor:g}"
        bold = Text(name, "bold")
        if wide:
            table.add_row(bold, *map(Text, (value, weight, purpose, floor, shape)))
        else:
            first = Text("\n").join([bold, Text(purpose, "dim"), *([Text(shape)] if shape else [])])
            table.add_row(first, Text(f"{value}\n{weight}"), floor)
    return table


def plot_kernels(path: Path) -> None:
    """Draw value, weight and outlier process of all kernels at c = 1, a row of panels for each family.

    Args:
        path: The file, ``.png`` or ``.svg``.
    """
    families: dict[str, list[Kernel]] = defaultdict(list)
    for name in kernels.names():
        kernel = kernels.get(name)
        families[FAMILIES.get(type(kernel).__module__, "custom")].append(kernel)
    figure = Figure(figsize=(12.5, 3.9 * len(families)), layout="constrained")
    parts = figure.subfigures(len(families), 1, squeeze=False)[:, 0]
    for part, (family, members) in zip(parts, families.items(), strict=True):
        part.suptitle(f"Kernels {family}", fontweight="bold")
        value, weight, process = part.subplots(1, 3)
        for number, kernel in enumerate(members):
            _lines(kernel, number, value, weight, process)
        value.set(ylabel="σ(r)", ylim=(0, 3.2), title="value: the robust loss")
        weight.set(ylabel="σ′(r)", ylim=(-0.03, 1.05), title="weight: its slope")
        process.set(
            xlabel="weight u", ylabel="Φ(u)", ylim=(-0.05, 2.2), title="outlier process: the penalty of u"
        )
        for axes in (value, weight):
            axes.set(xlabel="loss r, at c = 1", xlim=(0, 5))
        for axes in (value, weight, process):
            axes.grid(True, color="0.9", linewidth=0.7)
            axes.spines[["top", "right"]].set_visible(False)
        process.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False, fontsize="small")
    save_figure(figure, path.with_suffix(""), [path.suffix])


def _lines(kernel: Kernel, number: int, value: Axes, weight: Axes, process: Axes) -> None:
    r = torch.linspace(0, 5, 501, dtype=torch.float64)
    u = torch.linspace(0, 1, 401, dtype=torch.float64)[1:]
    u = u[u >= kernel.weight_floor]
    # Some kernels are the same function: markers at different positions keep both visible.
    line = style(number) | {"linewidth": 1.5, "markersize": 4.5, "label": kernel.name}
    value.plot(r, kernel(r), markevery=(9 * number, 72), **line)
    weight.plot(r, kernel.weight(r), markevery=(9 * number, 72), **line)
    process.plot(u, kernel.outlier_process(u), markevery=(6 * number, 56), **line)
