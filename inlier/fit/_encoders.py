"""Pretrained encoders: texts and images to vectors, from weights that the user names.

Weights are read as safetensors only, and no code that comes with them runs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from inlier._errors import InputError, quoted
from inlier.fit._columns import Array

__all__ = ["IMAGE_SIZE", "encode_images", "encode_texts", "is_image_encoder"]

SENTENCES = "sentence-transformers:"
ALEXNET_FILE = "alexnet_features.safetensors"
IMAGE_SIZE = 96
"""Images are scaled to this many pixels for AlexNet."""
BATCH = 64
MEAN, SPREAD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Of the images that it was trained on."""
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


def is_image_encoder(spec: str) -> bool:
    """Return whether an encoder is for images; raise if it is none at all.

    Example:
        >>> is_image_encoder("sentence-transformers:all-MiniLM-L6-v2")
        False
    """
    if spec.startswith(SENTENCES):
        return False
    if not (Path(spec) / ALEXNET_FILE).is_file():
        raise InputError(
            f"encoder {quoted(spec)} is unknown; choose {SENTENCES}NAME_OR_FOLDER for texts, or a folder with "
            f"{ALEXNET_FILE} for images"
        )
    return True


def encode_texts(spec: str, texts: Sequence[str]) -> Array:
    """Return a vector of length one for each text.

    Args:
        spec: ``sentence-transformers:`` with a name on the Hugging Face hub, or a folder.
        texts: The texts.

    Raises:
        InputError: If the package is missing, or there is no such encoder.
    """
    try:
        from sentence_transformers import SentenceTransformer
    except ModuleNotFoundError:
        raise InputError(
            f'encoder {quoted(spec)} needs one more package: pip install "inlier[texts]"'
        ) from None
    name = spec.removeprefix(SENTENCES)
    local = Path(name).exists()
    try:
        if local:
            os.environ.setdefault("HF_HUB_OFFLINE", "1")
        encoder = SentenceTransformer(
            name, device="cpu", trust_remote_code=False, local_files_only=local,
            model_kwargs={"use_safetensors": True},
        )  # fmt: skip
    except Exception as error:  # Its errors have no common type.
        raise InputError(f"encoder {quoted(spec)} cannot be loaded: {quoted(error)}") from None
    vectors = encoder.encode(
        list(texts),
        batch_size=BATCH,
        show_progress_bar=False,
        normalize_embeddings=True,
        convert_to_numpy=True,
    )
    return np.asarray(vectors, dtype=np.float32)


def encode_images(spec: str, pixels: Tensor, progress: Callable[[float], None] = lambda share: None) -> Array:
    """Return a vector for each image: AlexNet's convolutions 2, 4 and 5, averaged to 2 x 2.

    Args:
        spec: A folder with the weights.
        pixels: uint8, [n, 3, height, width].
        progress: Called with the share that is done.

    Raises:
        InputError: If the weights are broken.
    """
    network = _alexnet(Path(spec) / ALEXNET_FILE)
    mean, spread = (torch.tensor(values)[:, None, None] for values in (MEAN, SPREAD))
    vectors = []
    with torch.inference_mode():
        for start in range(0, len(pixels), BATCH):
            images = (pixels[start : start + BATCH].float() / 255 - mean) / spread
            vectors.append(network(images))
            progress(min(start + BATCH, len(pixels)) / len(pixels))
    return np.asarray(torch.cat(vectors).numpy(), dtype=np.float32)


class _AlexNet(nn.Module):
    """The convolutions of AlexNet."""

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


def _alexnet(path: Path) -> Any:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    network = _AlexNet()
    try:
        network.load_state_dict(load_file(path))
    except (OSError, RuntimeError, SafetensorError):
        raise InputError(f"{quoted(path)} does not hold the weights of AlexNet") from None
    return network.eval()
