"""Images and labels in memory: decoded once, kept as bytes."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

__all__ = ["Images", "cache_folder", "decode", "read_parquet"]

CACHE_VERSION = 1


@dataclass(frozen=True)
class Images:
    """Images of one size with their labels.

    Args:
        pixels: uint8, [n, 3, height, width].
        labels: int64, [n].
        class_names: What the labels 0, 1, ... are called.
    """

    pixels: Tensor
    labels: Tensor
    class_names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def classes(self) -> int:
        """The number of classes."""
        return len(self.class_names)

    def first(self, count: int | None) -> Images:
        """Return the first images; all if ``count`` is None."""
        return replace(self, pixels=self.pixels[:count], labels=self.labels[:count])


def cache_folder() -> Path:
    """Return where decoded images are kept: ``INLIER_CACHE``, or ``inlier`` in the user's cache folder."""
    given = os.environ.get("INLIER_CACHE")
    if given:
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "inlier"


def decode(content: bytes, size: int | None = None) -> np.ndarray[Any, Any]:
    """Return a picture as uint8, [3, height, width]; raise ``ValueError`` for what is no picture.

    Args:
        content: A picture file (PNG, JPEG, ...).
        size: Cut to a square from the middle and scaled to this many pixels; None leaves it as it is.

    Example:
        >>> decode(b"not a picture")
        Traceback (most recent call last):
        ValueError: not a picture that can be read
    """
    from PIL import Image, ImageOps, UnidentifiedImageError

    try:
        with Image.open(io.BytesIO(content)) as picture:
            rgb = picture.convert("RGB")
    except (UnidentifiedImageError, Image.DecompressionBombError, OSError, SyntaxError, ValueError) as error:
        raise ValueError("not a picture that can be read") from error
    if size is not None and rgb.size != (size, size):
        rgb = ImageOps.fit(rgb, (size, size), Image.Resampling.LANCZOS)
    return np.ascontiguousarray(np.asarray(rgb).transpose(2, 0, 1))


def read_parquet(path: Path, rows: int | None = None) -> Images:
    """Return the images of a Parquet file in the Hugging Face layout, columns ``img`` and ``label``.

    They are decoded the first time and kept in :func:`cache_folder`; a file that changes is decoded anew.

    Args:
        path: The file; class names are those of its metadata, if any.
        rows: Take this many rows from the front; None for all.
    """
    from safetensors.torch import load_file, save_file

    path = path.resolve()
    state = path.stat()
    mark = f"{CACHE_VERSION} {path} {state.st_size} {state.st_mtime_ns}"
    kept = cache_folder() / f"{path.stem}-{hashlib.sha256(mark.encode()).hexdigest()[:16]}.safetensors"
    names = _class_names(path)
    if kept.exists():
        tensors = load_file(kept)
    else:
        tensors = _decode_parquet(path)
        kept.parent.mkdir(parents=True, exist_ok=True)
        # Written aside and renamed, so that several processes may do this at once.
        part = kept.with_suffix(f".{os.getpid()}.part")
        save_file(tensors, part)
        part.replace(kept)
    labels = tensors["labels"]
    classes = int(labels.max()) + 1 if len(labels) else 0
    names = names or tuple(str(number) for number in range(classes))
    return Images(tensors["pixels"], labels, names).first(rows)


def _decode_parquet(path: Path) -> dict[str, Tensor]:
    from datasets import Image, disable_progress_bars, load_dataset

    disable_progress_bars()

    data = load_dataset("parquet", data_files=str(path), split="train", keep_in_memory=True)
    if not {"img", "label"} <= set(data.column_names):
        raise ValueError(
            f"{path.name} has the columns {', '.join(data.column_names)}: needed are img and label"
        )
    data = data.cast_column("img", Image(decode=False))
    pixels = [decode(row["bytes"]) for row in data["img"]]
    shapes = {picture.shape for picture in pixels}
    if len(shapes) > 1:
        raise ValueError(f"{path.name} holds pictures of {len(shapes)} sizes: scale them to one size first")
    return {
        "pixels": torch.from_numpy(np.stack(pixels)).contiguous(),
        "labels": torch.tensor(data["label"], dtype=torch.int64),
    }


def _class_names(path: Path) -> tuple[str, ...]:
    """Return the class names in a file's Hugging Face metadata; none if there are none."""
    import json

    import pyarrow.parquet as pq

    metadata = pq.read_schema(path).metadata or {}
    features: Any = json.loads(metadata.get(b"huggingface", b"{}")).get("info", {}).get("features", {})
    found: Sequence[str] = (features.get("label") or {}).get("names") or ()
    return tuple(found)
