"""Run the cells that are not in the file of results yet, each result a line of JSON."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import (
    average_precision_score,
    balanced_accuracy_score,
    log_loss,
    mean_absolute_error,
    roc_auc_score,
    root_mean_squared_error,
)

from benchmarks.real_tables import catalogue, errors
from benchmarks.real_tables.methods import BASES, Fitted, methods
from benchmarks.real_tables.prepare import Split, split

RATES = (0.1, 0.3)
QUICK_TABLES = 6


@dataclass(frozen=True)
class Cell:
    """One table with one kind of planted errors, and one base model."""

    source: catalogue.Source
    classes: bool
    base: str
    kind: str = "clean"
    rate: float = 0.0

    def key(self, method: str) -> dict[str, Any]:
        """What names a result."""
        return {
            "half": catalogue.half(self.source.name),
            "task": "classification" if self.classes else "regression",
            "table": self.source.name,
            "base": self.base,
            "kind": self.kind,
            "rate": self.rate,
            "method": method,
        }


def cells(half: catalogue.Half, task: str | None, base: str | None, quick: bool) -> Iterator[Cell]:
    """Yield the cells of one half."""
    for classes, sources in ((False, catalogue.REGRESSION), (True, catalogue.CLASSIFICATION)):
        if task == ("regression" if classes else "classification"):
            continue
        kinds = errors.CLASSIFICATION if classes else errors.REGRESSION
        planted = [(kind, rate) for rate in RATES for kind in kinds]
        chosen = [source for source in sources if catalogue.half(source.name) == half]
        for source in chosen[: QUICK_TABLES if quick else None]:
            for name in BASES:
                if base in (None, name):
                    yield from (Cell(source, classes, name, *each) for each in [("clean", 0.0), *planted])


def run(found: Path, todo: list[Cell], again: str | None = None, skip: Sequence[str] = ()) -> None:
    """Fill in what is missing from a file of results.

    Args:
        found: The file, a line of JSON a result.
        todo: The cells.
        again: A method whose results are measured anew.
        skip: Methods that are left out.
    """
    from rich.progress import track

    known = read(found)
    if again is not None:
        wanted = {_name(cell.key(again)) for cell in todo}
        known = [row for row in known if _name(row) not in wanted]
        found.parent.mkdir(parents=True, exist_ok=True)
        found.write_text("".join(json.dumps(row) + "\n" for row in known))
    done = {_name(row) for row in known}
    found.parent.mkdir(parents=True, exist_ok=True)
    last: tuple[str, Split] | None = None
    with warnings.catch_warnings(), found.open("a") as file:
        warnings.simplefilter("ignore")
        for cell in track(todo, "tables"):
            missing = [
                name
                for name in methods(cell.base, cell.classes)
                if name not in skip and _name(cell.key(name)) not in done
            ]
            if not missing:
                continue
            if last is None or last[0] != cell.source.name:
                last = cell.source.name, split(cell.source, cell.classes)
            for name in missing:
                file.write(json.dumps(cell.key(name) | measure(cell, name, last[1])) + "\n")
                file.flush()


def read(found: Path) -> list[dict[str, Any]]:
    """Return all results of a file."""
    return [json.loads(line) for line in found.read_text().splitlines()] if found.exists() else []


def _name(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[key] for key in ("table", "base", "kind", "rate", "method"))


def measure(cell: Cell, method: str, data: Split) -> dict[str, Any]:
    """Fit one method to one cell; return its numbers, none if it cannot be fitted."""
    y, bad = errors.plant(cell.kind, cell.rate, data.x, data.y, seed=1)
    fitted = methods(cell.base, cell.classes)[method](cell.base, cell.classes, data.x, y)
    if fitted is None:
        return {}
    result = {"seconds": fitted.seconds, "truth": float(1 - bad.mean()), **(fitted.claim or {})}
    if fitted.suspicion is not None and bad.any():
        result["average_precision"] = float(average_precision_score(bad, fitted.suspicion))
    return result | (_class_scores if cell.classes else _errors)(fitted, data)


def _errors(fitted: Fitted, data: Split) -> dict[str, float]:
    prediction = fitted.model.predict(data.x_test)
    return {
        "rmse": float(root_mean_squared_error(data.y_test, prediction)),
        "mae": float(mean_absolute_error(data.y_test, prediction)),
    }


def _class_scores(fitted: Fitted, data: Split) -> dict[str, float]:
    labels = np.arange(data.y.max() + 1)
    probability = np.zeros((len(data.y_test), len(labels)))
    probability[:, np.asarray(fitted.model.classes_, dtype=int)] = fitted.model.predict_proba(data.x_test)
    predicted = probability.argmax(1)
    score = probability[:, 1] if len(labels) == 2 else probability
    return {
        "accuracy": float((predicted == data.y_test).mean()),
        "balanced_accuracy": float(balanced_accuracy_score(data.y_test, predicted)),
        "auc": float(roc_auc_score(data.y_test, score, multi_class="ovr", labels=labels)),
        "log_loss": float(log_loss(data.y_test, np.clip(probability, 1e-6, 1), labels=labels)),
    }
