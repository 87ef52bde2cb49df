"""The methods: each fits training rows, predicts test rows, and says how suspect each training row is."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import HuberRegressor, LinearRegression, LogisticRegression, RANSACRegressor
from sklearn.model_selection import KFold, StratifiedKFold, cross_val_predict

BASES = ("linear", "boosting")


@dataclass(frozen=True)
class Fitted:
    """A fitted model, the seconds that it took, suspicion of each training row, and what it claims."""

    model: Any
    seconds: float
    suspicion: np.ndarray | None = None
    claim: dict[str, Any] | None = None


def base_model(base: str, classes: bool) -> Any:
    """Return the unfitted model that every method wraps or replaces."""
    if base == "linear":
        return LogisticRegression(max_iter=300) if classes else LinearRegression()
    return (HistGradientBoostingClassifier if classes else HistGradientBoostingRegressor)(random_state=0)


def _timed(model: Any, x: np.ndarray, y: np.ndarray) -> tuple[Any, float]:
    start = time.perf_counter()
    return model.fit(x, y), time.perf_counter() - start


def unweighted(base: str, classes: bool, x: np.ndarray, y: np.ndarray) -> Fitted:
    """The base model; its suspicion is out of fold."""
    model, seconds = _timed(base_model(base, classes), x, y)
    if classes:
        folds = StratifiedKFold(5, shuffle=True, random_state=0)
        probability = cross_val_predict(clone(model), x, y, cv=folds, method="predict_proba")
        return Fitted(model, seconds, 1 - probability[np.arange(len(y)), y])
    prediction = cross_val_predict(clone(model), x, y, cv=KFold(5, shuffle=True, random_state=0))
    return Fitted(model, seconds, np.abs(y - prediction))


def adaptive(base: str, classes: bool, x: np.ndarray, y: np.ndarray) -> Fitted:
    """The estimators of this library."""
    from inlier.sklearn import AdaptiveClassifier, AdaptiveRegressor

    wrapper = AdaptiveClassifier if classes else AdaptiveRegressor
    model, seconds = _timed(wrapper(base_model(base, classes), random_state=0), x, y)
    estimate = model.fraction_estimate_
    claim = {"value": float(estimate.value), "trusted": bool(estimate.trusted), "reason": estimate.reason}
    return Fitted(model, seconds, -model.inlier_probability_, claim)


def clean_learning(base: str, classes: bool, x: np.ndarray, y: np.ndarray) -> Fitted:
    """cleanlab's CleanLearning around the base model."""
    from cleanlab.classification import CleanLearning

    model, seconds = _timed(CleanLearning(base_model(base, True), seed=0, verbose=False), x, y)
    issues = model.get_label_issues()
    model.classes_ = model.clf.classes_
    claim = {"value": float(1 - issues["is_label_issue"].mean())}
    return Fitted(model, seconds, 1 - issues["label_quality"].to_numpy(), claim)


def huber(base: str, classes: bool, x: np.ndarray, y: np.ndarray) -> Fitted:
    """Scikit-learn's Huber regression."""
    return Fitted(*_timed(HuberRegressor(max_iter=1000), x, y))


def ransac(base: str, classes: bool, x: np.ndarray, y: np.ndarray) -> Fitted | None:
    """RANSAC; None where it finds no consensus set, or has fewer rows than columns."""
    try:
        return Fitted(*_timed(RANSACRegressor(random_state=0), x, y))
    except ValueError:
        return None


MM = """
suppressMessages(library(robustbase))
set.seed(0)
table <- as.data.frame(as.matrix(read.table("table.txt")))
fit <- suppressWarnings(lmrob(V1 ~ ., data = table, control = lmrob.control(max.it = 200, k.max = 2000)))
write.table(coef(fit), "coefficients.txt", row.names = FALSE, col.names = FALSE)
"""
"""MM-estimation by the R package robustbase (r-cran-robustbase in Debian), its defaults but for more iterations."""


@dataclass(frozen=True)
class Linear:
    """A linear model of given coefficients, the first of them the intercept."""

    coefficients: np.ndarray

    def predict(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(self.coefficients[0] + x @ self.coefficients[1:])


@cache
def has_lmrob() -> bool:
    """Whether R and its package robustbase are installed."""
    rscript = shutil.which("Rscript")
    return (
        rscript is not None
        and not subprocess.run(
            [rscript, "-e", "library(robustbase)"], capture_output=True, check=False
        ).returncode
    )


def lmrob(base: str, classes: bool, x: np.ndarray, y: np.ndarray) -> Fitted | None:
    """R's lmrob; None where it fails, or takes longer than a minute."""
    with tempfile.TemporaryDirectory() as folder:
        np.savetxt(Path(folder) / "table.txt", np.column_stack((y, x)))
        start = time.perf_counter()
        try:
            subprocess.run(["Rscript", "-e", MM], cwd=folder, capture_output=True, check=True, timeout=60)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
            return None
        coefficients = np.genfromtxt(Path(folder) / "coefficients.txt")
    if len(coefficients) != x.shape[1] + 1:
        return None
    return Fitted(Linear(np.nan_to_num(coefficients)), time.perf_counter() - start)


def absolute_error(base: str, classes: bool, x: np.ndarray, y: np.ndarray) -> Fitted:
    """Boosting of the absolute error."""
    model = base_model(base, False).set_params(loss="absolute_error")
    return Fitted(*_timed(model, x, y))


Method = Callable[[str, bool, np.ndarray, np.ndarray], Fitted | None]


def methods(base: str, classes: bool) -> dict[str, Method]:
    """Return the methods for one base model."""
    if classes:
        return {"unweighted": unweighted, "CleanLearning": clean_learning, "adaptive": adaptive}
    if base == "linear":
        found = {"unweighted": unweighted, "Huber": huber, "RANSAC": ransac, "adaptive": adaptive}
        return found | ({"lmrob": lmrob} if has_lmrob() else {})
    return {"unweighted": unweighted, "absolute error": absolute_error, "adaptive": adaptive}
