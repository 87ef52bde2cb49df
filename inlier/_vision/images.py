"""Images and labels in memory: decoded once, kept as bytes."""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

__all__ = ["Images", "cache_folder", "class_names", "decode", "read_parquet", "rows_of"]

CACHE_VERSION = 1


@dataclass(frozen=True)
class Images:
    """Images of one size with their labels.

    Args:
        pixels: uint8, [n, 3, height, width]; or the features of an encoder, float32, [n, d].
        labels: int64, [n].
        class_names: The names of the classes 0, 1, ...
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
    """Return where decoded images are cached: ``INLIER_CACHE``, or ``inlier`` in the user's cache folder."""
    given = os.environ.get("INLIER_CACHE")
    if given:
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "inlier"


def decode(content: bytes, size: int | None = None, enlarge: bool = True) -> np.ndarray[Any, Any]:
    """Return an image as uint8, [3, height, width]; raise ``ValueError`` for anything else.

    Args:
        content: An image file (PNG, JPEG, ...).
        size: Turn it upright, crop the central square and resize that to this many pixels; None leaves it
            unchanged.
        enlarge: Whether to resize a smaller square too.

    Example:
        >>> decode(b"no image")
        Traceback (most recent call last):
        ValueError: not an image that can be read
    """
    from PIL import Image, ImageOps, UnidentifiedImageError

    try:
        with Image.open(io.BytesIO(content)) as image:
            # Cameras write how they were held beside the pixels.
            upright = image if size is None else ImageOps.exif_transpose(image)
            rgb = _as_rgb(upright)
    except (UnidentifiedImageError, Image.DecompressionBombError, OSError, SyntaxError, ValueError) as error:
        raise ValueError("not an image that can be read") from error
    side = size if enlarge or size is None else min(size, *rgb.size)
    if side is not None and rgb.size != (side, side):
        rgb = ImageOps.fit(rgb, (side, side), Image.Resampling.LANCZOS)
    return np.ascontiguousarray(np.asarray(rgb).transpose(2, 0, 1))


def _as_rgb(image: Any) -> Any:
    """Return an image in RGB, where Pillow's own conversion loses it.

    Pixels of more than 8 bits would all be white: they are stretched from the smallest to the largest. What is
    transparent would have any colour, mostly black: it is white.

    Example:
        >>> import numpy as np
        >>> from PIL import Image
        >>> scan = Image.fromarray(np.array([[1000, 2000, 3000]], dtype=np.uint16))
        >>> np.asarray(_as_rgb(scan))[0, :, 0].tolist()
        [0, 127, 255]
        >>> _as_rgb(Image.new("RGBA", (1, 1), (0, 0, 0, 0))).getpixel((0, 0))
        (255, 255, 255)
    """
    from PIL import Image

    if image.mode.startswith(("I", "F")):
        pixels = np.nan_to_num(np.asarray(image, dtype=np.float64), posinf=0.0, neginf=0.0)
        low, high = pixels.min(), pixels.max()
        return Image.fromarray((255 * (pixels - low) / max(high - low, 1e-12)).astype(np.uint8)).convert(
            "RGB"
        )
    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        layer = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", layer.size, "white"), layer).convert("RGB")
    return image.convert("RGB")


def read_parquet(path: Path, rows: int | None = None) -> Images:
    """Return the images of a Parquet file in the Hugging Face layout, columns ``img`` and ``label``.

    Decoded once and cached in :func:`cache_folder`; a file that changes is decoded again.

    Args:
        path: The file; class names are those of its metadata, if any.
        rows: Only the first so many rows; None for all.
    """
    from safetensors.torch import load_file, save_file

    path = path.resolve()
    state = path.stat()
    mark = f"{CACHE_VERSION} {path} {state.st_size} {state.st_mtime_ns}"
    cached = cache_folder() / f"{path.stem}-{hashlib.sha256(mark.encode()).hexdigest()[:16]}.safetensors"
    names = class_names(path)
    if cached.exists():
        tensors = load_file(cached)
    else:
        tensors = _decode_parquet(path)
        cached.parent.mkdir(parents=True, exist_ok=True)
        # Written aside and renamed, so that several processes may do this at once.
        part = cached.with_suffix(f".{os.getpid()}.part")
        save_file(tensors, part)
        part.replace(cached)
    labels = tensors["labels"]
    classes = int(labels.max()) + 1 if len(labels) else 0
    names = names or tuple(str(number) for number in range(classes))
    return Images(tensors["pixels"], labels, names).first(rows)


def rows_of(
    path: Path, image: str = "img", label: str | None = "label"
) -> Iterator[tuple[bytes | None, Any]]:
    """Yield the image file and the label of each row of a Parquet file, read in blocks.

    Args:
        path: The file.
        image: The column of images: bytes, or structures with ``bytes``, as in the Hugging Face layout.
        label: The column of labels; None, or one that is not there, gives labels of None.
    """
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        wanted = [name for name in (image, label) if name in file.schema_arrow.names]
        for block in file.iter_batches(1000, columns=wanted):
            images = block.column(image).to_pylist()
            labels = block.column(label).to_pylist() if label in wanted else [None] * len(images)
            for content, given in zip(images, labels, strict=True):
                yield content["bytes"] if isinstance(content, dict) else content, given


def _decode_parquet(path: Path) -> dict[str, Tensor]:
    import pyarrow.parquet as pq

    columns = pq.read_schema(path).names
    if not {"img", "label"} <= set(columns):
        raise ValueError(f"{path.name} has the columns {', '.join(columns)}: it needs img and label")
    pixels, labels = [], []
    for row, (content, label) in enumerate(rows_of(path)):
        try:
            pixels.append(decode(content or b""))
        except ValueError as error:
            raise ValueError(f"row {row} of {path.name} (the first is 0) holds {error}") from error
        labels.append(label)
    shapes = {image.shape for image in pixels}
    if len(shapes) != 1:
        raise ValueError(
            f"{path.name} holds images of {len(shapes)} sizes: resize them to one size first"
            if shapes
            else f"{path.name} has no rows"
        )
    return {
        "pixels": torch.from_numpy(np.stack(pixels)).contiguous(),
        "labels": torch.tensor(labels, dtype=torch.int64),
    }


def class_names(path: Path, label: str = "label") -> tuple[str, ...]:
    """Return the class names in a Parquet file's Hugging Face metadata; none if there are none.

    Args:
        path: The file.
        label: The column of labels.
    """
    import pyarrow.parquet as pq

    text = (pq.read_schema(path).metadata or {}).get(b"huggingface", b"{}")
    try:
        return tuple(map(str, json.loads(text)["info"]["features"][label]["names"]))
    except (ValueError, KeyError, TypeError):
        return ()
