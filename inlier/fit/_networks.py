"""A trained image network in two files: its weights as safetensors, its description as JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from inlier._errors import InputError, quoted
from inlier._vision import networks

__all__ = ["TrainedNetwork", "load_network", "save_network"]

WEIGHTS_FILE, DESCRIPTION_FILE = "model.safetensors", "model.json"


@dataclass(frozen=True)
class TrainedNetwork:
    """A network, and what is needed to use it.

    Args:
        network: The network.
        name: One of :func:`inlier._vision.networks.names`.
        size: The side of its square images, in pixels.
        classes: The names of its classes.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> save_network(TrainedNetwork(networks.get("compact", 2), "compact", 32, ("cat", "dog")), folder)
        >>> load_network(folder).classes
        ('cat', 'dog')
    """

    network: nn.Module
    name: str
    size: int
    classes: tuple[str, ...]


def save_network(trained: TrainedNetwork, folder: Path) -> None:
    """Write a network into a folder."""
    from safetensors.torch import save

    weights = {name: value.cpu().contiguous() for name, value in trained.network.state_dict().items()}
    (folder / WEIGHTS_FILE).write_bytes(save(weights))
    description = {"network": trained.name, "size": trained.size, "classes": list(trained.classes)}
    (folder / DESCRIPTION_FILE).write_text(json.dumps(description, indent=2) + "\n", "utf-8")


def load_network(folder: str | Path) -> TrainedNetwork:
    """Read the network that ``inlier fit`` wrote for images.

    Args:
        folder: Its output folder.

    Raises:
        InputError: If a file is missing or broken, or the two do not match.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    folder = Path(folder)
    try:
        if not all((folder / name).is_file() for name in (DESCRIPTION_FILE, WEIGHTS_FILE)):
            raise OSError  # Missing; or a pipe, which would wait for a writer.
        description = json.loads((folder / DESCRIPTION_FILE).read_text("utf-8"))
        classes = tuple(map(str, description["classes"]))
        name, size = str(description["network"]), int(description["size"])
        if not 8 <= size <= 1024:
            raise ValueError
        network = networks.get(name, len(classes))
        network.load_state_dict(load_file(folder / WEIGHTS_FILE))
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError):
        raise InputError(
            f"{quoted(folder)} holds no network of inlier fit ({WEIGHTS_FILE}, {DESCRIPTION_FILE}), or a "
            "broken one"
        ) from None
    return TrainedNetwork(network, name, size, classes)
