"""Make the docstrings of the package, as they are written for reading in code, render well on the site."""

from __future__ import annotations

import re
from typing import Any

import griffe

ROLE = re.compile(r":(?:attr|class|data|func|meth|mod):`(~?)\.?([\w.]+)`")
SECTION = re.compile(r"^( *)Example:$", re.MULTILINE)
REFERENCE = re.compile(r"^( *)(References?): (?=\S)", re.MULTILINE)


def link(obj: griffe.Object, name: str, short: bool) -> str:
    """Return a name in the docstring of an object as code, linked if it is in the reference."""
    try:
        path = obj.resolve(name)
    except griffe.NameResolutionError:
        path = name
    shown = name.rpartition(".")[2] if short else name
    return f'<autoref identifier="{path}" optional><code>{shown}</code></autoref>'


def rendered(obj: griffe.Object, text: str) -> str:
    """Return a docstring with roles as links, examples as a section and its reference in bold."""
    text = ROLE.sub(lambda role: link(obj, role[2], bool(role[1])), text)
    return REFERENCE.sub(r"\1**\2.** ", SECTION.sub(r"\1Examples:", text))


class Docstrings(griffe.Extension):
    """Change the docstring of each object before mkdocstrings reads it."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Change the docstring of one object, in place."""
        if obj.docstring is not None:
            obj.docstring.value = rendered(obj, obj.docstring.value)
