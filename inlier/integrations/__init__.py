"""Robust in the idiom of other frameworks: each module needs its framework, as the extra of its name.

Accelerate needs no module: ``accelerator.register_for_checkpointing(robust)`` and
``robust.metrics(together=True)`` are all there is to it.
"""

from __future__ import annotations

from importlib import import_module

__all__ = ["need"]


def need(framework: str, extra: str) -> None:
    """Raise an error that names the extra to install if a framework is missing.

    Example:
        >>> need("torch", "nothing")
        >>> need("no_such_framework", "nothing")
        Traceback (most recent call last):
        ImportError: inlier.integrations.nothing needs no_such_framework: pip install "inlier[nothing]"
    """
    try:
        import_module(framework)
    except ImportError as error:
        raise ImportError(
            f'inlier.integrations.{extra} needs {framework}: pip install "inlier[{extra}]"', name=framework
        ) from error
