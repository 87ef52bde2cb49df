"""Write the table of docs/kernels.md and its images: `python docs/tools/kernels.py`."""

from __future__ import annotations

import re
from pathlib import Path

import torch

from inlier import kernels
from inlier.kernels import Kernel
from inlier.report._kernel_plots import FAMILIES, NOTES, parameters

DOCS = Path(__file__).parents[1]
WIDTH, HEIGHT, MOST = 120, 60, 5.0


def drawing(kernel: Kernel) -> str:
    """Return an SVG of the weight (filled) and the value (line) of a kernel for losses of 0 to 5 at c = 1."""
    r = torch.linspace(0, MOST, 101, dtype=torch.float64)
    x = (r / MOST * WIDTH).tolist()
    weight = (HEIGHT * (1 - kernel.weight(r))).tolist()
    # A value of 2.5 reaches the top: that of the identity would leave the image halfway.
    value = (HEIGHT * (1 - kernel(r) / 2.5)).tolist()
    area = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, weight, strict=True))
    line = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, value, strict=True) if b >= 0)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
        f'viewBox="-2 -2 {WIDTH + 4} {HEIGHT + 4}">'
        f'<polygon points="0,{HEIGHT} {area} {WIDTH},{HEIGHT}" fill="#2a78b8" fill-opacity="0.3"/>'
        f'<polyline points="{area}" fill="none" stroke="#2a78b8" stroke-width="1.5"/>'
        f'<polyline points="{line}" fill="none" stroke="#d9822b" stroke-width="1.5" stroke-dasharray="4 2"/>'
        f'<path d="M0 0V{HEIGHT}H{WIDTH}" fill="none" stroke="#888888" stroke-width="1"/></svg>\n'
    )


def table(family: str) -> str:
    """Return the Markdown table of the kernels of a family."""
    lines = ["| kernel | | made for | value sigma(r), weight sigma'(r) |", "|---|---|---|---|"]
    for name in kernels.names():
        kernel = kernels.get(name)
        if FAMILIES.get(type(kernel).__module__) != family:
            continue
        value, weight, purpose = NOTES[name]
        shape = "".join(f"<br>{key} = {number:g}" for key, number in parameters(kernel).items())
        floor = f"<br>floor {kernel.weight_floor:g}" if kernel.weight_floor else ""
        image = f"![{name}](img/kernels/{name}.svg)"
        lines.append(f"| `{name}`{shape}{floor} | {image} | {purpose} | `{value}`<br>`{weight}` |")
    return "\n".join(lines) + "\n"


def page(text: str) -> str:
    """Return the page with its tables rewritten."""
    for family in FAMILIES.values():
        mark = re.escape(f"<!-- {family} -->\n")
        tables = f"\n{table(family)}\n"
        text = re.sub(rf"(?<={mark}).*?(?=<!-- end -->)", lambda _, new=tables: new, text, flags=re.DOTALL)
    return text


def main() -> None:
    """Write the page and the images."""
    for name in kernels.names():
        (DOCS / "img" / "kernels" / f"{name}.svg").write_text(drawing(kernels.get(name)))
    path = DOCS / "kernels.md"
    path.write_text(page(path.read_text()))


if __name__ == "__main__":
    main()
