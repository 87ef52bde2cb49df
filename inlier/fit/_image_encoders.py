"""Pretrained encoders of images: to vectors, by weights that the user names.

Weights in files are read as safetensors only, and no code that comes with them runs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from inlier._errors import InputError, quoted
from inlier.fit._columns import Array

__all__ = ["ALEXNET_FILE", "TIMM", "ImageEncoder", "load_image_encoder"]

TIMM = "timm:"
TIMM_WEIGHTS = "model.safetensors"
"""The weights in a folder of timm, beside config.json."""
ALEXNET_FILE = "alexnet_features.safetensors"
ALEXNET_SIZE = 96
"""Images are scaled to this many pixels for AlexNet."""
BATCH = 64
MEAN, SPREAD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Of the images that AlexNet was trained on."""
LAYERS = (
    (3, 64, 11, 4, 2),
    (64, 192, 5, 1, 2),
    (192, 384, 3, 1, 1),
    (384, 256, 3, 1, 1),
    (256, 256, 3, 1, 1),
)
"""Channels, size, step and margin of AlexNet's convolutions."""
KEYS = (0, 3, 6, 8, 10)
"""Their places in torchvision's network."""
POOLED = (1, 3, 4)
"""The convolutions whose outputs, averaged to 2 x 2, are the vector of an image."""


@dataclass(frozen=True)
class ImageEncoder:
    """A network that makes a vector of an image.

    Args:
        spec: How the user names it, with any path made absolute.
        name: What the output calls it.
        network: From images [n, 3, size, size] to vectors.
        size: The side of the images that it takes.
        mean: Of the images that it was trained on, for each colour.
        spread: Their standard deviation.
    """

    spec: str
    name: str
    network: nn.Module
    size: int
    mean: tuple[float, ...] = MEAN
    spread: tuple[float, ...] = SPREAD

    def encode(self, pixels: Tensor, progress: Callable[[float], None] = lambda share: None) -> Array:
        """Return a vector for each image.

        Args:
            pixels: uint8, [n, 3, size, size].
            progress: Called after each batch with its share.
        """
        mean, spread = (torch.tensor(values)[:, None, None] for values in (self.mean, self.spread))
        vectors = []
        with torch.inference_mode():
            for start in range(0, len(pixels), BATCH):
                images = (pixels[start : start + BATCH].float() / 255 - mean) / spread
                vectors.append(self.network(images))
                progress(len(images) / len(pixels))
        return np.asarray(torch.cat(vectors).numpy(), dtype=np.float32)


def load_image_encoder(spec: str) -> ImageEncoder:
    """Return an encoder of images.

    Args:
        spec: A folder with the weights of AlexNet; or ``timm:`` with the name of a network, with a name and a file of
            its weights (``timm:resnet18=weights.safetensors``), or with a folder that holds ``config.json`` and
            ``model.safetensors``.

    Raises:
        InputError: If timm is missing, it does not know the network, or the weights are not those of the network.
    """
    return _timm(spec.removeprefix(TIMM)) if spec.startswith(TIMM) else _alexnet(Path(spec))


def _timm(name: str) -> ImageEncoder:
    try:
        import timm
        from timm.data import resolve_data_config
    except ModuleNotFoundError:
        raise InputError(
            f'encoder {quoted(TIMM + name)} needs one more package: pip install "inlier[timm]"'
        ) from None
    architecture, _, file = name.partition("=")
    if Path(architecture).is_dir():
        file = str(Path(architecture, TIMM_WEIGHTS))
        architecture = name = f"local-dir:{Path(architecture).resolve()}"
    elif file:
        name = f"{architecture}={Path(file).resolve()}"
    try:
        # Its own loader would also read pickles from a folder: weights in files are loaded here.
        network = timm.create_model(architecture, pretrained=not file, num_classes=0)
    except Exception as error:  # Its errors have no common type.
        raise InputError(f"encoder {quoted(TIMM + name)} cannot be loaded: {quoted(error)}") from None
    config = resolve_data_config(model=network)
    if file:
        _load_weights(network, Path(file), str(network.pretrained_cfg.get("classifier") or ""))
    kind = type(network).__name__
    words = f"{kind} of timm, {network.num_features:,} numbers an image"
    spec = TIMM + name.removeprefix("local-dir:")
    return ImageEncoder(
        spec, words, network.eval(), config["input_size"][-1], tuple(config["mean"]), tuple(config["std"])
    )


def _load_weights(network: nn.Module, path: Path, head: str = "") -> None:
    """Load weights; those of the head, which an encoder has none of, may be there too."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        if not path.is_file():  # A pipe would wait for a writer.
            raise OSError
        weights = load_file(path)
        network.load_state_dict(
            {key: value for key, value in weights.items() if not head or not key.startswith(f"{head}.")}
        )
    except (OSError, RuntimeError, SafetensorError):
        raise InputError(
            f"{quoted(path)} does not hold the weights of {type(network).__name__.strip('_')} as safetensors"
        ) from None


class _AlexNet(nn.Module):
    """The convolutions of AlexNet: 2, 4 and 5, averaged to 2 x 2."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.ModuleDict(
            {
                str(key): nn.Conv2d(inputs, outputs, size, step, margin)
                for key, (inputs, outputs, size, step, margin) in zip(KEYS, LAYERS, strict=True)
            }
        )

    def forward(self, x: Tensor) -> Tensor:
        pooled = []
        for place, layer in enumerate(self.features.values()):
            if place in (1, 2):
                x = nn.functional.max_pool2d(x, 3, 2)
            x = layer(x).relu()
            if place in POOLED:
                pooled.append(nn.functional.adaptive_avg_pool2d(x, 2).flatten(1))
        return torch.cat(pooled, 1)


def _alexnet(folder: Path) -> ImageEncoder:
    network = _AlexNet().eval()
    _load_weights(network, folder / ALEXNET_FILE)
    return ImageEncoder(str(folder.resolve()), "AlexNet, 2,816 numbers an image", network, ALEXNET_SIZE)
