"""Small image files and datasets, for tests."""

from __future__ import annotations

import io
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from PIL import Image

from inlier._vision.images import Images

CIFAR_CLASSES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]


def png(pixels) -> bytes:
    """The bytes of a PNG file of uint8 pixels, [height, width, 3]."""
    buffer = io.BytesIO()
    Image.fromarray(np.asarray(pixels, dtype=np.uint8)).save(buffer, "PNG")
    return buffer.getvalue()


def write_parquet(path, images, labels, names=None):
    """A Parquet file in the Hugging Face layout; images are bytes or None."""
    struct = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    column = pa.array([{"bytes": content, "path": None} for content in images], struct)
    table = pa.table({"img": column, "label": pa.array(labels)})
    if names is not None:
        features = {"img": {"_type": "Image"}, "label": {"names": list(names), "_type": "ClassLabel"}}
        table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    pq.write_table(table, path)
    return path


def tiny_cifar(folder, train=96, test=40, seed=0):
    """A folder like that of CIFAR-10 and CIFAR-10N with few images, whose brightness tells their class."""
    random = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    for split, count in (("train", train), ("test", test)):
        labels = random.integers(0, 10, count)
        labels[:10] = range(10)
        images = [png(random.integers(0, 30, (32, 32, 3)) + 22 * label) for label in labels]
        write_parquet(folder / f"{split}.parquet", images, labels.tolist(), CIFAR_CLASSES)
        if split == "train":
            given = np.where(random.random(count) < 0.4, (labels + 1) % 10, labels).astype(np.int8)
            columns = ("aggre_label", "worse_label", "random_label1", "random_label2", "random_label3")
            pq.write_table(
                pa.table({"clean_label": labels.astype(np.int8)} | dict.fromkeys(columns, given)),
                folder / "cifar10n.parquet",
            )
    return folder


def tiny_images(samples=32, classes=4, seed=0) -> Images:
    """Noise whose brightness tells the class."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(samples) % classes
    pixels = torch.randint(0, 60, (samples, 3, 32, 32), generator=generator)
    pixels += (labels * 190 // classes).view(-1, 1, 1, 1)
    return Images(pixels.to(torch.uint8), labels, tuple("abcdefghij"[:classes]))
