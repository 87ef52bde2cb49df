"""Robust losses in other frameworks: each module needs its framework, which the extra of the same name installs.

Accelerate needs no module: call ``accelerator.register_for_checkpointing(robust)``, and log
``robust.metrics(distributed=True)``.
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
