"""Small pictures in the layouts that the package reads, for tests."""

from __future__ import annotations

import io
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

COLOURS = {"blue": (40, 60, 220), "green": (40, 200, 60), "red": (220, 50, 40)}


def png(pixels, form="PNG") -> bytes:
    """The bytes of a picture file of uint8 pixels, (height, width, 3)."""
    buffer = io.BytesIO()
    Image.fromarray(np.asarray(pixels, dtype=np.uint8)).save(buffer, form)
    return buffer.getvalue()


def blot(colour, seed, height=32, width=32) -> np.ndarray:
    """A disc or a square of a colour at a random place, on noise."""
    random = np.random.default_rng(seed)
    pixels = random.integers(0, 120, (height, width, 3))
    y, x = np.mgrid[:height, :width]
    cy, cx = random.uniform(0.35, 0.65, 2) * (height, width)
    radius = random.uniform(0.2, 0.35) * min(height, width)
    disc = (y - cy) ** 2 + (x - cx) ** 2 < radius**2
    square = np.maximum(abs(y - cy), abs(x - cx)) < radius
    pixels[disc if seed % 2 else square] = colour
    return pixels.astype(np.uint8)


def write_parquet(path, pictures, labels, names=None, column="img"):
    """A Parquet file in the Hugging Face layout: pictures are bytes or None."""
    table = pa.table(
        {
            column: pa.array(
                [{"bytes": p, "path": None} for p in pictures],
                pa.struct([("bytes", pa.binary()), ("path", pa.string())]),
            ),
            "label": pa.array(labels),
        }
    )
    if names is not None:
        features = {column: {"_type": "Image"}, "label": {"names": list(names), "_type": "ClassLabel"}}
        table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    pq.write_table(table, path)
    return path


def tiny_cifar(folder, train=96, test=40, seed=0):
    """A folder like CIFAR-10's with few pictures, whose classes can be told by their brightness."""
    random = np.random.default_rng(seed)
    names = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
    folder.mkdir(parents=True, exist_ok=True)
    for split, count in (("train", train), ("test", test)):
        labels = random.integers(0, 10, count)
        labels[:10] = range(10)
        pictures = [png(random.integers(0, 30, (32, 32, 3)) + 22 * label) for label in labels]
        write_parquet(folder / f"{split}.parquet", pictures, labels.tolist(), names)
        if split == "train":
            given = np.where(random.random(count) < 0.4, (labels + 1) % 10, labels).astype(np.int8)
            columns = ("aggre_label", "worse_label", "random_label1", "random_label2", "random_label3")
            pq.write_table(
                pa.table({"clean_label": labels.astype(np.int8)} | dict.fromkeys(columns, given)),
                folder / "cifar10n.parquet",
            )
    return folder
