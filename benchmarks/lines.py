"""How many lines of code the core has, without blank lines, comments and docstrings: `python -m benchmarks.lines`."""

from __future__ import annotations

import ast
import io
import tokenize
from pathlib import Path

CORE = ("kernels", "duality.py", "histogram.py", "scale.py", "fraction", "alternation.py", "nn")

LAYOUT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def lines_of_code(source: str) -> int:
    """Count the lines of a module that hold code."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in LAYOUT:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if is_text and isinstance(node.value.value, str):
            lines.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def main() -> None:
    package, total = Path(__file__).parent.parent / "inlier", 0
    for name in CORE:
        place = package / name
        files = [place] if place.is_file() else sorted(place.glob("*.py"))
        number = sum(lines_of_code(file.read_text()) for file in files)
        total += number
        print(f"{name:16}{number:6,}")
    print(f"{'the core':16}{total:6,}")


if __name__ == "__main__":
    main()
