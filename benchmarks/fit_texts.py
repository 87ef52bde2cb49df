"""`inlier fit` on texts with planted label errors: how many components, which penalty; and beside cleanlab.

    python -m benchmarks.fit_texts tune --data DIR      # chooses on 15 classes of banking77
    python -m benchmarks.fit_texts tune --data DIR --encoder sentence-transformers:DIR
    python -m benchmarks.fit_texts report --data DIR    # 15 other classes, and all 77, by the command line
    python -m benchmarks.fit_texts report --data DIR --encoder sentence-transformers:DIR

DIR holds banking77's train.csv and test.csv. Errors: a tenth of the labels, to another class at random.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.decomposition import TruncatedSVD
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score
from sklearn.model_selection import cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer, StandardScaler
from skrub import StringEncoder

from inlier.fit._encoders import encode_texts
from inlier.fit._pipeline import ENCODED_TEXT_PENALTY, TEXT_PENALTY
from inlier.sklearn import AdaptiveClassifier

CLASSES = 15
RATE = 0.1


def load(folder: Path, part: str, seed: int):
    """Texts, planted labels, which are wrong, and the test texts of some classes."""
    train, test = pd.read_csv(folder / "train.csv"), pd.read_csv(folder / "test.csv")
    order = np.random.default_rng(77).permutation(np.unique(train["category"]))
    chosen = {"report": order[:CLASSES], "development": order[CLASSES : 2 * CLASSES], "all": order}[part]
    train = train[train["category"].isin(chosen)].reset_index(drop=True)
    test = test[test["category"].isin(chosen)].reset_index(drop=True)
    random = np.random.default_rng(seed)
    labels = train["category"].to_numpy(object).copy()
    wrong = random.random(len(labels)) < RATE
    for row in np.flatnonzero(wrong):
        labels[row] = random.choice([name for name in chosen if name != labels[row]])
    return train["text"], labels, wrong, test


def features(texts, new, components: int, encoder: str | None):
    """The vectors of texts and of new ones, as `inlier fit` makes them."""
    if encoder is None:
        steps = StringEncoder(n_components=components, random_state=0)
        return steps.fit_transform(texts).to_numpy(), steps.transform(new).to_numpy()
    steps = make_pipeline(StandardScaler(), TruncatedSVD(components, random_state=0), Normalizer())
    x = steps.fit_transform(encode_texts(encoder, texts.tolist()))
    return x, steps.transform(encode_texts(encoder, new.tolist()))


def tune(folder: Path, encoder: str | None) -> None:
    for seed in (1, 2):
        texts, labels, wrong, test = load(folder, "development", seed)
        for components in (30, 100, 300):
            x, x_test = features(texts, test["text"], components, encoder)
            for penalty in (1.0, 3.0, 10.0):
                model = AdaptiveClassifier(LogisticRegression(C=penalty, max_iter=300), random_state=0)
                model.fit(x, labels)
                row = {
                    "seed": seed,
                    "components": components,
                    "C": penalty,
                    "accuracy": (model.predict(x_test) == test["category"]).mean(),
                    "average precision": average_precision_score(wrong, model.losses_),
                }
                print(json.dumps({key: round(float(value), 4) for key, value in row.items()}), flush=True)


def report(folder: Path, part: str, encoder: str | None) -> None:
    from cleanlab.filter import find_label_issues
    from cleanlab.rank import get_label_quality_scores

    texts, labels, wrong, test = load(folder, part, seed=0)
    with tempfile.TemporaryDirectory() as place:
        data, new, out = Path(place, "train.csv"), Path(place, "new.csv"), Path(place, "out")
        pd.DataFrame({"text": texts, "category": labels}).to_csv(data, index=False)
        test[["text"]].to_csv(new, index=False)
        start = time.perf_counter()
        command = [sys.executable, "-W", "ignore", "-m", "inlier.cli"]
        options = [] if encoder is None else ["--encoder", encoder]
        subprocess.run([*command, "fit", data, "--target", "category", "--out", out, *options], check=True)
        seconds = time.perf_counter() - start
        subprocess.run([*command, "predict", out, new, "--out", Path(place, "p.csv")], check=True)
        predicted = pd.read_csv(Path(place, "p.csv"))["prediction"]
        ranked = pd.read_parquet(out / "suspects.parquet")["index"].to_numpy()
    score = np.empty(len(labels))
    score[ranked] = np.arange(len(labels))[::-1]
    ours = {
        "accuracy": (predicted == test["category"]).mean(),
        "average precision": average_precision_score(wrong, score),
        "seconds": seconds,
    }
    print(part, "inlier fit", {key: round(float(value), 4) for key, value in ours.items()}, flush=True)

    x, x_test = features(texts, test["text"], min(300, len(labels) // 5), encoder)
    model = LogisticRegression(C=TEXT_PENALTY if encoder is None else ENCODED_TEXT_PENALTY, max_iter=300)
    names, codes = np.unique(labels.astype(str), return_inverse=True)
    probability = cross_val_predict(model, x, codes, cv=5, method="predict_proba")
    kept = ~find_label_issues(codes, probability)
    quality = get_label_quality_scores(codes, probability)
    cleaned = names[model.fit(x[kept], codes[kept]).predict(x_test)]
    plain = names[model.fit(x, codes).predict(x_test)]
    theirs = {
        "accuracy": (cleaned == test["category"]).mean(),
        "average precision": average_precision_score(wrong, -quality),
        "plain accuracy": (plain == test["category"]).mean(),
    }
    print(part, "cleanlab, same features", {k: round(float(v), 4) for k, v in theirs.items()}, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=["tune", "report"])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--encoder")
    parser.add_argument("--part", choices=["report", "all"], action="append", help="15 classes, or all")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    if arguments.action == "tune":
        tune(arguments.data, arguments.encoder)
    else:
        for part in arguments.part or ("report", "all"):
            report(arguments.data, part, arguments.encoder)


if __name__ == "__main__":
    main()
