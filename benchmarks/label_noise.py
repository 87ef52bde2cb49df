"""AdaptiveClassifier beside cleanlab: `python benchmarks/label_noise.py [--quick]`.

A part of the training labels is replaced by labels drawn from all classes, the true one among them, so the
part that is wrong is smaller than the rate; that part is printed too. Each method has the same base
estimator and the same number of fits: AdaptiveClassifier two rounds of 5 folds and a last fit,
CleanLearning 10 folds and a last fit, 11 each; plain training has one. Measured are accuracy on a clean
test set and the average precision of ranking the training samples by how wrong their labels look. Without
cleanlab it is left out, and named in the notes.
"""

from __future__ import annotations

import argparse
import json
import warnings
from typing import Any

import numpy as np
import torch
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_digits, load_wine, make_classification
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from inlier.sklearn import AdaptiveClassifier

RATES = [tenth / 10 for tenth in range(7)]
FOLDS, ROUNDS = 5, 2

Table = tuple[np.ndarray, np.ndarray]


def tabular() -> Table:
    """20,000 rows for training and 8,571 for testing, generated: no such set comes with scikit-learn."""
    return make_classification(
        28_571, 20, n_informative=12, n_redundant=4, n_clusters_per_class=3, flip_y=0.0, random_state=0
    )


SETS: dict[str, tuple[Any, Any]] = {
    "wine": (lambda: load_wine(return_X_y=True), LogisticRegression(max_iter=300)),
    "breast cancer": (lambda: load_breast_cancer(return_X_y=True), LogisticRegression(max_iter=300)),
    "digits": (lambda: load_digits(return_X_y=True), LogisticRegression(max_iter=300)),
    "generated": (tabular, HistGradientBoostingClassifier(max_iter=20, random_state=0)),
}
"""How each set is loaded, and the base estimator of every method on it."""


def corrupt(y: np.ndarray, rate: float, rng: np.random.Generator) -> np.ndarray:
    """Replace a part of the labels by labels drawn from all classes."""
    noisy = y.copy()
    chosen = rng.permutation(len(y))[: round(rate * len(y))]
    noisy[chosen] = rng.integers(y.max() + 1, size=len(chosen))
    return noisy


def adaptive(base: Any, x: np.ndarray, y: np.ndarray, seed: int) -> tuple[Any, np.ndarray]:
    model = AdaptiveClassifier(clone(base), cv=FOLDS, max_iter=ROUNDS, random_state=seed).fit(x, y)
    return model, model.losses_


def adaptive_default(base: Any, x: np.ndarray, y: np.ndarray, seed: int) -> tuple[Any, np.ndarray]:
    model = AdaptiveClassifier(clone(base), random_state=seed).fit(x, y)
    return model, model.losses_


def plain(base: Any, x: np.ndarray, y: np.ndarray, seed: int) -> tuple[Any, np.ndarray]:
    model = clone(base).fit(x, y)
    return model, 1 - model.predict_proba(x)[np.arange(len(y)), y]


def clean_learning(base: Any, x: np.ndarray, y: np.ndarray, seed: int) -> tuple[Any, np.ndarray]:
    from cleanlab.classification import CleanLearning

    model = CleanLearning(clone(base), cv_n_folds=FOLDS * ROUNDS, seed=seed, verbose=False).fit(x, y)
    return model, 1 - model.get_label_issues()["label_quality"].to_numpy()


def label_issues(base: Any, x: np.ndarray, y: np.ndarray, seed: int) -> tuple[Any, np.ndarray]:
    """find_label_issues on the same out-of-fold probabilities; what it names is left out of the last fit."""
    from cleanlab.filter import find_label_issues
    from cleanlab.rank import get_label_quality_scores
    from sklearn.model_selection import StratifiedKFold, cross_val_predict

    folds = StratifiedKFold(FOLDS * ROUNDS, shuffle=True, random_state=seed)
    probability = cross_val_predict(clone(base), x, y, cv=folds, method="predict_proba")
    issues = find_label_issues(y, probability, n_jobs=1)
    return clone(base).fit(x[~issues], y[~issues]), 1 - get_label_quality_scores(y, probability)


def methods() -> tuple[dict[str, Any], list[str]]:
    found = {"plain": plain, "adaptive": adaptive, "adaptive, default rounds": adaptive_default}
    try:
        import cleanlab  # noqa: F401
    except ImportError:
        return found, ["cleanlab is not installed: it is left out"]
    return {**found, "CleanLearning": clean_learning, "find_label_issues": label_issues}, []


def trial(name: str, data: Table, base: Any, rate: float, seed: int, tried: Any) -> list[dict[str, Any]]:
    """One split of one set at one rate: accuracy and average precision of each method."""
    x, x_test, y, y_test = train_test_split(*data, test_size=0.3, random_state=seed, stratify=data[1])
    scaler = StandardScaler().fit(x)
    x, x_test = scaler.transform(x), scaler.transform(x_test)
    noisy = corrupt(y, rate, np.random.default_rng(seed))
    wrong = noisy != y
    rows = []
    for method, train in tried.items():
        model, suspicion = train(base, x, noisy, seed)
        row = {"set": name, "rate": rate, "wrong": float(wrong.mean()), "method": method, "seed": seed}
        row["accuracy"] = float((model.predict(x_test) == y_test).mean())
        if wrong.any():
            row["average_precision"] = float(average_precision_score(wrong, suspicion))
        if hasattr(model, "inlier_fraction_"):
            row["inlier_fraction"] = float(model.inlier_fraction_)
        rows.append(row)
    return rows


def run(quick: bool = False) -> dict[str, Any]:
    """Measure everything; return all trials as rows, and notes on what was left out."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    tried, notes = methods()
    rows = []
    for name, (load, base) in SETS.items():
        data = load()
        large = len(data[1]) > 1000
        for rate in [0.2, 0.6] if quick else RATES:
            for seed in range(1 if large or quick else 5):
                rows += trial(name, data, base, rate, seed, tried)
    notes.append("the set 'generated' is drawn by make_classification: 20,000 rows for training, 2 classes")
    return {"trials": rows, "notes": notes, "quick": quick}


def pivot(rows: list[dict[str, Any]], value: str) -> str:
    """One line for each set and rate, one column for each method: means over trials; then those over all."""
    names = list(dict.fromkeys(row["method"] for row in rows))
    cells: dict[tuple[str, float], dict[str, list[float]]] = {}
    for row in rows:
        if value in row and row["rate"] > 0:
            cells.setdefault((row["set"], row["rate"]), {}).setdefault(row["method"], []).append(row[value])
    lines = ["| set | rate | " + " | ".join(names) + " |", "|---|---|" + "---|" * len(names)]
    for (name, rate), by_method in cells.items():
        numbers = [f"{np.mean(by_method[method]):.3f}" if method in by_method else "" for method in names]
        lines.append(f"| {name} | {rate} | " + " | ".join(numbers) + " |")
    means = [
        np.mean([np.mean(each[method]) for each in cells.values() if method in each] or [np.nan])
        for method in names
    ]
    lines.append("| mean | | " + " | ".join("" if np.isnan(mean) else f"{mean:.3f}" for mean in means) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two rates and one trial each")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    arguments = parser.parse_args()
    result = run(arguments.quick)
    if arguments.json:
        print(json.dumps(result, indent=1))
        return
    print("Accuracy on clean test labels, rates above 0\n")
    print(pivot(result["trials"], "accuracy"))
    clean = [row for row in result["trials"] if row["rate"] == 0]
    if clean:
        print("\nThe same without noise\n")
        print(pivot([{**row, "rate": 1e-9} for row in clean], "accuracy"))
    print("\nAverage precision of finding wrong labels\n")
    print(pivot(result["trials"], "average_precision"))
    print("\nEstimated fraction of right labels\n")
    print(pivot(result["trials"], "inlier_fraction"))
    print(*result["notes"], sep="\n")


if __name__ == "__main__":
    main()
