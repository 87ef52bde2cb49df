"""What the constants of the classifier decide: `python -m benchmarks.classifier_constants [--quick]`.

On the development half of the real tables (:mod:`benchmarks.real_tables`), logistic regression. PRIOR is the chance
of noise before anything is seen, CAPABLE the part of the clean labels that a classifier must predict before it is asked
(both in ``inlier.sklearn._labels``); each is varied with the other one as it is. A large PRIOR acts on clean tables, a
small one misses noise; likewise CAPABLE, the other way round. Shown are the log-loss on clean held-out labels, relative
to the unweighted fit, false and missed claims.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from benchmarks.regressor_constants import cells
from benchmarks.tables import Section, main
from inlier.sklearn import AdaptiveClassifier, _labels

TRIED = {"PRIOR": (0.03, 0.1, 0.3), "CAPABLE": (0.5, 0.7)}


def settings() -> Iterator[tuple[str, float]]:
    """Yield each constant with each value that is tried."""
    for name, values in TRIED.items():
        yield from ((name, value) for value in values)


def run(quick: bool = False) -> dict[str, Any]:
    """Return what comes out of each cell with each value."""
    warnings.simplefilter("ignore")
    rows = []
    for kind, data, y in cells(True, quick):
        if kind.startswith("similar") and data.y.max() == 1:
            continue  # Of two classes the other one is the most similar.
        base = LogisticRegression(max_iter=300)
        labels = np.arange(data.y.max() + 1)
        unweighted = log_loss(data.y_test, base.fit(data.x, y).predict_proba(data.x_test), labels=labels)
        for name, value in settings():
            original = getattr(_labels, name)
            setattr(_labels, name, value)
            try:
                model = AdaptiveClassifier(base, random_state=0).fit(data.x, y)
            finally:
                setattr(_labels, name, original)
            loss = log_loss(data.y_test, model.predict_proba(data.x_test), labels=labels)
            estimate = model.fraction_estimate_
            rows.append(
                {
                    "constant": name,
                    "tried": value,
                    "kind": kind,
                    "ratio": float(loss / unweighted),
                    "value": float(estimate.value),
                    "trusted": bool(estimate.trusted),
                }
            )
    return {"rows": rows, "notes": []}


def table(rows: list[dict[str, Any]], name: str) -> str:
    """Return harm, gain, false and missed claims for each value of a constant."""
    lines = [
        f"| {name} | clean: worse by > 1 % | by > 2 % | worst | false alarms | said to be clean | planted: log-loss | "
        "worse by > 2 % | proven | said to be clean |",
        "|" + "---|" * 10,
    ]
    for value in TRIED[name]:
        chosen = [row for row in rows if row["constant"] == name and row["tried"] == value]
        clean = [row for row in chosen if row["kind"] == "clean 0"]
        planted = [row for row in chosen if row["kind"] != "clean 0"]
        noisy, sure = (
            [
                sum(row["trusted"] and (row["value"] < 0.95 if claim else row["value"] == 1) for row in part)
                for part in (clean, planted)
            ]
            for claim in (True, False)
        )
        mean = np.exp(np.mean([np.log(row["ratio"]) for row in planted]))
        harm = [sum(row["ratio"] > limit for row in clean) for limit in (1.01, 1.02)]
        behind = sum(row["ratio"] > 1.02 for row in planted)
        lines.append(
            f"| {value:g} | {harm[0]} of {len(clean)} | {harm[1]} | {max(row['ratio'] for row in clean):.3f} | "
            f"{noisy[0]} | {sure[0]} | {mean:.3f} | {behind} of {len(planted)} | {noisy[1]} | {sure[1]} |"
        )
    return "\n".join(lines)


def sections(result: dict[str, Any]) -> list[Section]:
    """The tables of a run."""
    return [(f"Class labels: {name}", table(result["rows"], name)) for name in TRIED]


if __name__ == "__main__":
    main(run, sections)
