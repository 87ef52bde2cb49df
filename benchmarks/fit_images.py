"""`inlier fit` on CIFAR-10N `worse` by the features of a pretrained AlexNet, beside the same model without weights.

    python -m benchmarks.fit_images --data DIR --encoder DIR [--images 10000]
    python -m benchmarks.fit_images --data DIR --encoder DIR --sizes    # both models behind an encoder, by size
    python -m benchmarks.fit_images --data DIR --encoder DIR --seeds 5   # the head behind an encoder, by seed
    python -m benchmarks.fit_images --data DIR --encoder DIR --speed    # processor time of each step, one thread

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
import torch
from sklearn.metrics import average_precision_score

from inlier.fit._columns import Column
from inlier.fit._heads import train_head
from inlier.fit._image_data import read_labelled
from inlier.fit._image_encoders import ImageEncoder, load_image_encoder
from inlier.fit._image_fit import ImageFitOptions, fit_images
from inlier.fit._pipeline import ModelSpec, fit_robust

SIZES = (150, 500, 1000, 2000, 4000, 10_000)


def compare_models(data: Path, encoder: ImageEncoder) -> None:
    """Print accuracy and average precision of the linear model and the head: symmetric noise, and human labels."""
    train, test = (
        pq.read_table(data / f"{name}.parquet").slice(0, rows)
        for name, rows in (("train", max(SIZES)), ("test", 2000))
    )
    human = pq.read_table(data / "cifar10n.parquet").slice(0, max(SIZES))
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder, name) for name in ("train.parquet", "test.parquet")]
        for table, path in zip((train, test), paths, strict=True):
            pq.write_table(table, path)
        learn, unseen = (read_labelled(path, size=encoder.size).images for path in paths)
    x, x_test = encoder.encode(learn.pixels), encoder.encode(unseen.pixels)
    truth, y_test, classes = learn.labels.numpy(), unseen.labels.numpy(), len(learn.class_names)
    given = {"CIFAR-10N worse": human["worse_label"].to_numpy().astype(np.int64)}
    for seed in (0, 1):
        random = np.random.default_rng(seed)
        wrong = random.random(len(truth)) < 0.1
        given[f"10 % symmetric, seed {seed}"] = np.where(
            wrong, (truth + random.integers(1, classes, len(truth))) % classes, truth
        )
    column = Column("image", "embedding", width=x.shape[1])
    spec = ModelSpec([column], "classification", "linear", "auto", 0)
    for size in SIZES:
        for noise, labels in given.items():
            wrong, labels = (labels != truth)[:size], labels[:size]
            fit = fit_robust(spec, pd.DataFrame(x[:size], columns=column.outputs), labels)
            head, criterion = train_head(
                torch.from_numpy(x[:size]), torch.from_numpy(labels), learn.class_names, "auto", 0
            )
            predicted = fit.pipeline.predict(pd.DataFrame(x_test, columns=column.outputs))
            found = {
                "linear": (predicted, fit.estimator.inlier_probability_, fit.estimator.losses_),
                "head": (head.probabilities(x_test).argmax(1), criterion.inlier_probability().numpy(), 0.0),
            }
            for name, (predicted, probability, loss) in found.items():
                # As suspects are ranked: by inlier probability, equal ones by loss.
                rank = np.lexsort((np.broadcast_to(loss, len(wrong)), -probability)).argsort()
                precision = average_precision_score(wrong, rank)
                accuracy = (predicted == y_test).mean()
                print(f"{size} images, {noise}, {name}: accuracy {accuracy:.3f}, average precision {precision:.3f}",
                      flush=True)  # fmt: skip


def compare_seeds(data: Path, encoder: ImageEncoder, images: int, seeds: int) -> None:
    """Print what the weights gain on CIFAR-10N `worse` with several seeds of the head, on 4,000 test images."""
    human = pq.read_table(data / "cifar10n.parquet").slice(0, images)
    given = torch.from_numpy(human["worse_label"].to_numpy().astype(np.int64))
    wrong = human["worse_label"].to_numpy() != human["clean_label"].to_numpy()
    with tempfile.TemporaryDirectory() as folder:
        parts = []
        for name, rows in (("train", images), ("test", 4000)):
            path = Path(folder, f"{name}.parquet")
            pq.write_table(pq.read_table(data / f"{name}.parquet").slice(0, rows), path)
            parts.append(read_labelled(path, size=encoder.size).images)
    x, x_test = (encoder.encode(part.pixels) for part in parts)
    y_test = parts[1].labels.numpy()
    rows = []
    for seed in range(seeds):
        accuracy = []
        for fraction in ("auto", 1.0):
            head, criterion = train_head(torch.from_numpy(x), given, parts[0].class_names, fraction, seed)
            accuracy.append(100 * (head.probabilities(x_test).argmax(1) == y_test).mean())
            if fraction == "auto":
                precision = average_precision_score(wrong, -criterion.inlier_probability().numpy())
                estimate = criterion.fraction_estimate
        rows.append([*accuracy, accuracy[0] - accuracy[1], precision])
        print(f"seed {seed}: accuracy {accuracy[0]:.2f}, unweighted {accuracy[1]:.2f}, average precision "
              f"{precision:.4f}, estimate {estimate.value:.3f}, trusted {estimate.trusted}", flush=True)  # fmt: skip
    middle, spread = np.mean(rows, 0), np.std(rows, 0, ddof=1)
    words = ", ".join(
        f"{name} {m:.3f} ± {s:.3f}"
        for name, m, s in zip(
            ("accuracy", "unweighted", "gain", "average precision"), middle, spread, strict=True
        )
    )
    print(f"mean and standard deviation of {seeds} seeds: {words}", flush=True)


def time_steps(data: Path, encoder: str) -> None:
    """Print the processor time of each step of a fit, for two numbers of images and for the difference."""
    torch.set_num_threads(1)
    found: list[dict[str, float]] = []
    for images in (10_000, 20_000):
        steps: dict[str, float] = {}
        last = ["start", time.process_time()]

        def progress(step: str, share: float = 1.0, steps: dict = steps, last: list = last) -> None:
            now = time.process_time()
            steps[last[0]] = steps.get(last[0], 0.0) + now - last[1]
            last[:] = [step, now]

        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "train.parquet")
            pq.write_table(pq.read_table(data / "train.parquet").slice(0, images), path)
            last[1] = time.process_time()
            fit_images(ImageFitOptions(path, Path(folder, "out"), encoder=encoder), progress)
            progress("end")
        found.append(steps)
    difference = {name: found[1].get(name, 0.0) - spent for name, spent in found[0].items()}
    for name, steps in (("10,000 images", found[0]), ("10,000 more", difference)):
        beyond = sum(spent for step, spent in steps.items() if step != "encoding")
        words = ", ".join(f"{step} {spent:.1f} s" for step, spent in steps.items())
        print(f"{name}: {words}; beyond the encoder {10_000 / beyond:.0f} a second", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--encoder", required=True)
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--sizes", action="store_true")
    parser.add_argument("--seeds", type=int, default=0)
    parser.add_argument("--speed", action="store_true")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    if arguments.speed:
        time_steps(arguments.data, arguments.encoder)
        return
    encoder = load_image_encoder(arguments.encoder)
    if arguments.seeds:
        compare_seeds(arguments.data, encoder, arguments.images, arguments.seeds)
        return
    if arguments.sizes:
        compare_models(arguments.data, encoder)
        return
    human = pq.read_table(arguments.data / "cifar10n.parquet").slice(0, arguments.images)
    train = pq.read_table(arguments.data / "train.parquet").slice(0, arguments.images)
    test = pq.read_table(arguments.data / "test.parquet").slice(0, 2000)
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
        learn, unseen = (read_labelled(path, size=encoder.size) for path in (data, new))
    score = np.empty(len(wrong))
    score[ranked] = np.arange(len(wrong))[::-1]
    names = np.asarray(unseen.images.class_names, dtype=object)
    truth = names[unseen.images.labels.numpy()]
    vectors = [torch.from_numpy(encoder.encode(part.images.pixels)) for part in (learn, unseen)]
    head, _ = train_head(vectors[0], learn.images.labels, learn.images.class_names, 1.0, seed=0)
    with torch.inference_mode():
        plain = names[head(vectors[1]).argmax(1).numpy()]
    print(f"accuracy: robust {(robust == truth).mean():.4f}, unweighted {(plain == truth).mean():.4f}")
    print(f"average precision of {wrong.sum():,} noisy labels: {average_precision_score(wrong, score):.4f}")


if __name__ == "__main__":
    main()
