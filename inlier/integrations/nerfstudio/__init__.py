"""nerfstudio: the methods ``robust-nerfacto`` and ``robust-nerfacto-tiny`` of ``ns-train``.

nerfstudio loads the methods of all plugins at each start, and one that raises would stop the others too. So this
module imports nothing by itself, and a method that cannot be loaded is a sentence with the reason, which nerfstudio
prints before it goes on without.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from typing import Any

__all__ = ["Unavailable"]

SUPPORTED = "1.1."
"""How the supported versions of nerfstudio begin."""

_METHODS = {
    "robust_nerfacto_method": ("robust_nerfacto", "Nerfacto with weights for outlier pixels."),
    "robust_nerfacto_tiny_method": (
        "robust_nerfacto_tiny",
        "Robust Nerfacto, small: for a CPU or a first try.",
    ),
}
"""The entry points: the function that makes the configuration, and what ``ns-train --help`` says."""


class Unavailable:
    """In place of a method: why there is none, in one line.

    Args:
        reason: Why.

    Example:
        >>> print(Unavailable("nerfstudio 0.3 is too old"))
        inlier's methods, nerfstudio 0.3 is too old,
    """

    def __init__(self, reason: str) -> None:
        self.reason = reason

    def __str__(self) -> str:
        return f"inlier's methods, {self.reason},"


def _method(name: str) -> Any:
    function, description = _METHODS[name]
    try:
        installed = version("nerfstudio")
        if not installed.startswith(SUPPORTED):
            return Unavailable(f"which need nerfstudio {SUPPORTED}x where {installed} is installed")
        types = import_module("nerfstudio.plugins.types")
        configs = import_module("inlier.integrations.nerfstudio._configs")
        return types.MethodSpecification(getattr(configs, function)(), description)
    except Exception as error:  # Whatever it is, the methods of others must go on.
        first = (str(error).splitlines() or [""])[0]
        return Unavailable(f"which failed to load ({type(error).__name__}: {first})")


def __getattr__(name: str) -> Any:
    if name in _METHODS:
        return _method(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
