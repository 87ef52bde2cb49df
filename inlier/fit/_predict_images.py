"""``inlier predict`` for images: applies a network of ``inlier fit`` to others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from inlier._vision.training import predict
from inlier.fit._columns import Column
from inlier.fit._encoders import is_image_encoder
from inlier.fit._heads import Head, load_head
from inlier.fit._image_data import join_reasons, read_unlabelled
from inlier.fit._image_encoders import load_image_encoder
from inlier.fit._models import MODEL_FILE, load_pipeline
from inlier.fit._networks import load_network
from inlier.fit._outputs import write_table
from inlier.fit._record import ImageRun

__all__ = ["predict_images"]


def predict_images(folder: Path, data: Path, out: Path, run: ImageRun) -> tuple[int, str]:
    """Predict the class of each image, and write the predictions.

    Args:
        folder: The output of ``inlier fit``.
        data: A folder, an image, or a Parquet file.
        out: The file to write.
        run: The record of the fit.

    Returns:
        How many images were predicted; and which were not, and why, on one line.

    Raises:
        InputError: If the network or the images cannot be used; nothing is written then.
    """
    if run.encoder is None:
        trained = load_network(folder)
        data_set, classes = read_unlabelled(data, trained.size), trained.classes
        each = predict(trained.network, data_set.images).softmax(1).numpy()
    else:
        is_image_encoder(run.encoder)
        model = load_head(folder) if run.head else load_pipeline(folder / MODEL_FILE)
        encoder = load_image_encoder(run.encoder)
        data_set = read_unlabelled(data, encoder.size)
        vectors = encoder.encode(data_set.images.pixels)
        if isinstance(model, Head):
            each, classes = model.probabilities(vectors), model.classes
        else:
            names = Column("image", "embedding", width=vectors.shape[1]).outputs
            each, classes = model.predict_proba(pd.DataFrame(vectors, columns=names)), tuple(model.classes_)
    prediction = np.asarray(classes, dtype=object)[each.argmax(1)]
    table = {data_set.kind: data_set.names, "prediction": prediction, "probability": each.max(1)}
    write_table(pa.table(table), out)
    return len(data_set.names), join_reasons(data_set.skipped)
