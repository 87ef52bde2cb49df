"""A trained image network in two files: its weights as safetensors, and what it is as JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from inlier.fit import InputError, shown
from inlier.vision import networks

__all__ = ["Trained", "load", "save"]

WEIGHTS, ABOUT = "model.safetensors", "model.json"


@dataclass(frozen=True)
class Trained:
    """A network, and what it needs to be used.

    Args:
        network: The network.
        name: One of :func:`inlier.vision.networks.names`.
        size: Its pictures are squares of so many pixels.
        classes: The names of its classes.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> save(Trained(networks.get("compact", 2), "compact", 32, ("cat", "dog")), folder)
        >>> load(folder).classes
        ('cat', 'dog')
    """

    network: nn.Module
    name: str
    size: int
    classes: tuple[str, ...]


def save(trained: Trained, folder: Path) -> None:
    """Write a network into a folder."""
    from safetensors.torch import save as written

    weights = {name: value.cpu().contiguous() for name, value in trained.network.state_dict().items()}
    (folder / WEIGHTS).write_bytes(written(weights))
    about = {"network": trained.name, "size": trained.size, "classes": list(trained.classes)}
    (folder / ABOUT).write_text(json.dumps(about, indent=2) + "\n", "utf-8")


def load(folder: Path) -> Trained:
    """Read a network from a folder.

    Raises:
        InputError: If a file is missing, broken, or the two do not fit together.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        about = json.loads((folder / ABOUT).read_text("utf-8"))
        classes = tuple(map(str, about["classes"]))
        name, size = str(about["network"]), int(about["size"])
        if not 8 <= size <= 1024:
            raise ValueError
        network = networks.get(name, len(classes))
        network.load_state_dict(load_file(folder / WEIGHTS))
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError):
        raise InputError(
            f"{shown(folder)} holds no network of inlier fit ({WEIGHTS}, {ABOUT}), or a broken one"
        ) from None
    return Trained(network, name, size, classes)
