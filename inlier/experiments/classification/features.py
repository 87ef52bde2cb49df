"""Features of CIFAR-10 by a pretrained encoder, for the preset ``features``: made once, then cached."""

from __future__ import annotations

import functools
import hashlib
import os
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from inlier._errors import InputError
from inlier._vision.images import Images, cache_folder
from inlier.experiments.datasets import cifar
from inlier.fit._image_encoders import ALEXNET_FILE, ImageEncoder, load_image_encoder

__all__ = ["features"]

BLOCK = 1000
"""Images that are enlarged at a time."""


@functools.cache
def features(folder: Path | None) -> tuple[Images, Images]:
    """Return the training and test images of CIFAR-10 as standardized features of AlexNet.

    Args:
        folder: Of the data; it also holds the weights, ``alexnet_features.safetensors``.
    """
    if folder is None or not (folder / ALEXNET_FILE).exists():
        raise InputError(
            f"preset features needs {ALEXNET_FILE} in the folder of the data: name it with --data"
        )
    encoder, (train, test) = load_image_encoder(str(folder)), cifar.cifar10(folder)
    x, x_test = (_cached(encoder, images.pixels, folder / ALEXNET_FILE) for images in (train, test))
    mean, spread = x.mean(0), x.std(0) + 1e-6
    return replace(train, pixels=(x - mean) / spread), replace(test, pixels=(x_test - mean) / spread)


def _cached(encoder: ImageEncoder, pixels: Tensor, weights: Path) -> Tensor:
    """Return the features, from the cache if these images were encoded with these weights before."""
    from safetensors.torch import load_file, save_file

    state = weights.stat()
    mark = hashlib.sha256(f"{encoder.name} {state.st_size} {state.st_mtime_ns}".encode())
    mark.update(pixels.numpy().tobytes())
    path = cache_folder() / f"features-{mark.hexdigest()[:16]}.safetensors"
    if not path.exists():
        made = torch.cat([_encoded(encoder, part) for part in torch.split(pixels, BLOCK)])
        path.parent.mkdir(parents=True, exist_ok=True)
        # Written aside and renamed, so that several processes may do this at once.
        aside = path.with_suffix(f".{os.getpid()}.part")
        save_file({"features": made.half()}, aside)
        aside.replace(path)
    return load_file(path)["features"].float()


def _encoded(encoder: ImageEncoder, pixels: Tensor) -> Tensor:
    size = encoder.size, encoder.size
    enlarged = interpolate(pixels.float(), size, mode="bilinear", antialias=True)
    return torch.from_numpy(encoder.encode(enlarged.round().to(torch.uint8)))
