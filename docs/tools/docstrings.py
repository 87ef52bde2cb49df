"""Make the docstrings of the package, as they are written for reading in code, render well on the site."""

from __future__ import annotations

import re
from typing import Any

import griffe

ROLE = re.compile(r":(?:attr|class|data|func|meth|mod):`~?([\w.]+)`")
SECTION = re.compile(r"^( *)Example:$", re.MULTILINE)
REFERENCE = re.compile(r"^( *)(References?): (?=\S)", re.MULTILINE)


def rendered(text: str) -> str:
    """Return a docstring with roles as code, examples as a section and its reference in bold."""
    text = SECTION.sub(r"\1Examples:", ROLE.sub(r"`\1`", text))
    return REFERENCE.sub(r"\1**\2.** ", text)


class Docstrings(griffe.Extension):
    """Change the docstring of each object before mkdocstrings reads it."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Change the docstring of one object, in place."""
        if obj.docstring is not None:
            obj.docstring.value = rendered(obj.docstring.value)
