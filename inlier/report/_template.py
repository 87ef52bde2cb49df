"""Self-contained pages: templates of the package with their style and script embedded."""

from __future__ import annotations

import base64
import hashlib
from importlib import resources
from typing import Any

__all__ = ["fill", "read"]


def read(package: str, name: str) -> str:
    """Return the text of a file in the folder ``files`` of a package."""
    return (resources.files(package) / "files" / name).read_text("utf-8")


def fill(template: str, style: str, script: str = "", **values: Any) -> str:
    """Return a rendered template; all values are escaped.

    The template gets ``style`` and ``script`` too, and ``style_hash`` and ``script_hash``, with which its
    content security policy admits exactly these texts.

    Args:
        template: A Jinja2 template.
        style: CSS.
        script: JavaScript.
        **values: The other variables of the template; a missing one is an error.

    Raises:
        ModuleNotFoundError: If Jinja2 is missing; the extra ``report`` brings it.

    Example:
        >>> fill("<b>{{ word }}</b>", style="", word="<i>")
        '<b>&lt;i&gt;</b>'
    """
    try:
        import jinja2
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            'the report needs Jinja2: pip install "inlier[report]"', name=error.name
        ) from None
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string(template).render(
        style=style, script=script, style_hash=_hash(style), script_hash=_hash(script), **values
    )


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
