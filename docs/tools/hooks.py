"""What the site needs beyond its pages: the examples, which live outside of docs/, as one page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).parents[2] / "examples"
LINK = re.compile(r"\]\((?:\.\./)+examples/(\w+)\.py\)")


def on_page_markdown(markdown: str, page: Any, **kwargs: Any) -> str:
    """Lead links to examples to their page, and put the code of all examples on it."""
    up = "../" * page.file.src_uri.count("/")
    markdown = LINK.sub(lambda link: f"]({up}examples.md#{link[1]})", markdown)
    if page.file.src_uri == "examples.md":
        code = (
            f"\n## examples/{example.name} {{ #{example.stem} }}\n\n```python\n{example.read_text()}```\n"
            for example in sorted(EXAMPLES.glob("*.py"))
        )
        markdown += "\n".join(code)
    return markdown
