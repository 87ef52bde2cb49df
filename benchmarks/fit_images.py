"""`inlier fit` on CIFAR-10N `worse` by the features of a pretrained AlexNet, beside the unweighted model.

    python -m benchmarks.fit_images --data DIR --encoder DIR [--images 10000]

The first holds train.parquet, test.parquet and cifar10n.parquet, the second alexnet_features.safetensors.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from sklearn.metrics import average_precision_score

from inlier.fit._columns import Column
from inlier.fit._encoders import IMAGE_SIZE, encode_images
from inlier.fit._image_data import read_labelled
from inlier.fit._pipeline import ModelSpec, build_vectorizer, fit_unweighted


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--encoder", type=Path, required=True)
    parser.add_argument("--images", type=int, default=10_000)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    human = pq.read_table(arguments.data / "cifar10n.parquet").slice(0, arguments.images)
    train = pq.read_table(arguments.data / "train.parquet").slice(0, arguments.images)
    test = pq.read_table(arguments.data / "test.parquet").slice(0, 5000)
    wrong = human["worse_label"].to_numpy() != human["clean_label"].to_numpy()
    place = train.schema.get_field_index("label")
    train = train.set_column(place, train.schema.field(place), human["worse_label"].cast(pa.int64()))
    with tempfile.TemporaryDirectory() as folder:
        data, new, out = (Path(folder, name) for name in ("train.parquet", "test.parquet", "out"))
        pq.write_table(train, data)
        pq.write_table(test, new)
        command = [sys.executable, "-W", "ignore", "-m", "inlier.cli"]
        start = time.perf_counter()
        subprocess.run([*command, "fit", data, "--encoder", arguments.encoder, "--out", out], check=True)
        print(f"{time.perf_counter() - start:.0f} s", flush=True)
        subprocess.run([*command, "predict", out, new, "--out", Path(folder, "p.csv")], check=True)
        robust = pd.read_csv(Path(folder, "p.csv"))["prediction"].to_numpy()
        ranked = pd.read_parquet(out / "suspects.parquet")["index"].to_numpy()
        learn, judge = (read_labelled(path, size=IMAGE_SIZE) for path in (data, new))
    score = np.empty(len(wrong))
    score[ranked] = np.arange(len(wrong))[::-1]
    names = np.asarray(judge.images.class_names, dtype=object)
    truth = names[judge.images.labels.numpy()]
    frames = []
    for images in (learn.images, judge.images):
        vectors = encode_images(str(arguments.encoder), images.pixels)
        column = Column("image", "embedding", width=vectors.shape[1])
        frames.append(pd.DataFrame(vectors, columns=column.outputs))
    spec = ModelSpec([column], "classification", "linear", "auto", 0)
    vectorizer = build_vectorizer(spec, frames[0]).fit(frames[0])
    plain = fit_unweighted(spec, vectorizer, frames[0], names[learn.images.labels.numpy()]).predict(frames[1])
    print(f"accuracy: robust {(robust == truth).mean():.4f}, unweighted {(plain == truth).mean():.4f}")
    print(f"average precision of {wrong.sum():,} wrong labels: {average_precision_score(wrong, score):.4f}")


if __name__ == "__main__":
    main()
