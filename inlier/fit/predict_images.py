"""``inlier predict`` for pictures: what a network of ``inlier fit`` says of others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from inlier.fit.networks import load
from inlier.fit.outputs import write_table
from inlier.fit.pictures import listed, read_unlabelled
from inlier.vision.training import predict

__all__ = ["predict_pictures"]


def predict_pictures(folder: Path, data: Path, out: Path) -> tuple[int, str]:
    """Predict the class of pictures, and write the predictions.

    Args:
        folder: The output of ``inlier fit``.
        data: A folder, a picture, or a Parquet file.
        out: The file to write.

    Returns:
        How many pictures were predicted, and which were not, and why, on one line.

    Raises:
        InputError: If the network or the pictures cannot be used; nothing is written then.
    """
    trained = load(folder)
    pictures = read_unlabelled(data, trained.size)
    probability, best = predict(trained.network, pictures.images).softmax(1).max(1)
    table = {
        pictures.kind: pictures.names,
        "prediction": np.asarray(trained.classes, dtype=object)[best.numpy()],
        "probability": probability.numpy(),
    }
    write_table(pa.table(table), out)
    return len(pictures.names), listed(pictures.skipped)
