"""The tables of a run: harm on clean tables, planted errors beside the baselines, ranking, claims, time."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np

Row = dict[str, Any]
BASELINES = {
    ("regression", "linear"): ("unweighted", "Huber"),
    ("regression", "boosting"): ("unweighted", "absolute error"),
    ("classification", "linear"): ("unweighted", "CleanLearning"),
    ("classification", "boosting"): ("unweighted", "CleanLearning"),
}
ERRORS = ("rmse", "mae", "log_loss")
HARM = {
    "rmse": (0.02, 0.05),
    "log_loss": (0.02, 0.05),
    "auc": (0.005, 0.02),
    "balanced_accuracy": (0.005, 0.02),
}
"""What counts as worse, and as much worse: relative for errors, absolute for scores."""


def loss_of(ours: float, theirs: float, metric: str) -> float:
    """Return how much worse we are: relative for errors, absolute for scores."""
    if metric in ERRORS:
        return ours / max(theirs, 1e-12) - 1
    return theirs - ours


def grouped(rows: list[Row]) -> dict[tuple[str, str], dict[tuple[str, str, float], dict[str, Row]]]:
    """Return results by task and base model, then by cell, then by method."""
    found: dict[Any, Any] = defaultdict(lambda: defaultdict(dict))
    for row in rows:
        cell = row["table"], row["kind"], row["rate"]
        found[row["task"], row["base"]][cell][row["method"]] = row
    return found


def summary(rows: list[Row]) -> str:
    """Return all tables as text."""
    lines = []
    for (task, base), results in sorted(grouped(rows).items()):
        complete = {cell: each for cell, each in results.items() if {"adaptive", "unweighted"} <= set(each)}
        clean = {cell: each for cell, each in complete.items() if cell[1] == "clean"}
        planted = {cell: each for cell, each in complete.items() if cell[1] != "clean"}
        lines += [f"## {task}, {base}: {len(clean)} clean tables, {len(planted)} planted cells", ""]
        lines += [*_clean(clean, task), ""]
        lines += [*_planted(planted, task, BASELINES[task, base]), ""]
        lines += [*_claims(clean, planted), *_others(planted, task), *_ranking(planted), *_time(complete), ""]
    return "\n".join(lines)


def _clean(cells: dict[Any, dict[str, Row]], task: str) -> list[str]:
    lines = ["| clean, worse than unweighted | tables | much worse | worst |", "|---|---|---|---|"]
    for metric in (
        ("rmse", "mae") if task == "regression" else ("log_loss", "auc", "balanced_accuracy", "accuracy")
    ):
        some, much = HARM.get(metric, (0.02, 0.05) if metric == "mae" else (0.005, 0.02))
        losses = {
            cell[0]: loss_of(each["adaptive"][metric], each["unweighted"][metric], metric)
            for cell, each in cells.items()
        }
        worst = sorted(losses, key=losses.__getitem__)[::-1][:3]
        shown = ", ".join(f"{name} {losses[name]:+.3f}" for name in worst if losses[name] > some)
        counts = [sum(loss > limit for loss in losses.values()) for limit in (some, much)]
        lines.append(f"| {metric}, by {some:g} ({much:g}) | {counts[0]} | {counts[1]} | {shown} |")
    return lines


def _planted(cells: dict[Any, dict[str, Row]], task: str, baselines: tuple[str, ...]) -> list[str]:
    metrics = (
        ("rmse", "mae") if task == "regression" else ("accuracy", "log_loss", "auc", "balanced_accuracy")
    )
    lines = [
        "| planted | metric | cells | behind the best baseline by > 2 % | mean / median of what we are worse than "
        + " | than ".join(baselines)
        + " |",
        "|" + "---|" * (4 + len(baselines)),
    ]
    kinds = [*dict.fromkeys(cell[1:] for cell in cells), ("all", "")]
    for metric in metrics:
        for kind in kinds:
            chosen = [
                each
                for cell, each in cells.items()
                if kind[0] in ("all", cell[1]) and kind[1] in ("", cell[2]) and set(baselines) <= set(each)
            ]
            if not chosen:
                continue
            behind, means = 0, []
            for each in chosen:
                behind += min(1, sum(
                    loss_of(each["adaptive"][metric], each[name][metric], metric)
                    > (0.02 if metric in ERRORS else 0.02 * each[name][metric])
                    for name in baselines
                ))  # fmt: skip
            for name in baselines:
                losses = np.array(
                    [loss_of(each["adaptive"][metric], each[name][metric], metric) for each in chosen]
                )
                # Errors are compared by the geometric mean of their ratios: one table must not decide.
                mean = np.exp(np.log1p(losses).mean()) - 1 if metric in ERRORS else losses.mean()
                means.append(f"{mean:+.3f} / {np.median(losses):+.3f}")
            lines.append(
                f"| {kind[0]} {kind[1]} | {metric} | {len(chosen)} | {behind} | " + " | ".join(means) + " |"
            )
    return lines


def _others(cells: dict[Any, dict[str, Row]], task: str) -> list[str]:
    """Beside methods that are no baseline, where they could be fitted."""
    metric = "rmse" if task == "regression" else "log_loss"
    lines = []
    for name in ("RANSAC", "lmrob"):
        ratios = [
            each["adaptive"][metric] / each[name][metric]
            for each in cells.values()
            if metric in each.get(name, {})
        ]
        if ratios:
            lines.append(
                f"{metric} to {name}: geometric mean {np.exp(np.mean(np.log(ratios))):.2f}, median "
                f"{np.median(ratios):.2f}, ahead by 2 % in {np.mean(np.array(ratios) < 0.98):.0%} and behind in "
                f"{np.mean(np.array(ratios) > 1.02):.0%} of {len(ratios)} cells"
            )
    return lines


def _claims(clean: dict[Any, dict[str, Row]], planted: dict[Any, dict[str, Row]]) -> list[str]:
    alarms = {cell[0]: each["adaptive"] for cell, each in clean.items()}
    alarms = {name: row for name, row in alarms.items() if row["trusted"] and row["value"] < 0.95}
    shown = ", ".join(f"{name} ({1 - row['value']:.2f})" for name, row in alarms.items())
    lines = [f"trusted claims of more than 5 % on clean tables: {len(alarms)} {shown}"]
    for kind in dict.fromkeys(cell[1:] for cell in planted):
        rows = [each["adaptive"] for cell, each in planted.items() if cell[1:] == kind]
        trusted = [row for row in rows if row["trusted"] and row["value"] < 0.99]
        error = np.median([abs(row["value"] - row["truth"]) for row in trusted]) if trusted else np.nan
        lines.append(
            f"trusted, {kind[0]} {kind[1]}: {len(trusted)} of {len(rows)}, median error of the fraction {error:.3f}"
        )
    return lines


def _ranking(cells: dict[Any, dict[str, Row]]) -> list[str]:
    lines = []
    for name in ("unweighted", "CleanLearning"):
        pairs = [
            (each["adaptive"]["average_precision"], each[name]["average_precision"], cell)
            for cell, each in cells.items()
            if "average_precision" in each.get(name, {}) and "average_precision" in each["adaptive"]
        ]
        if pairs:
            ours, theirs = np.array([pair[:2] for pair in pairs]).T
            worst = sorted(pairs, key=lambda pair: pair[0] - pair[1])[:3]
            shown = "; ".join(f"{cell} {a:.3f} to {b:.3f}" for a, b, cell in worst)
            lines.append(
                f"average precision {ours.mean():.3f}, {name} out of fold {theirs.mean():.3f}; "
                f"behind by more than 0.02 in {(ours < theirs - 0.02).sum()} of {len(pairs)} cells ({shown})"
            )
    return lines


def _time(cells: dict[Any, dict[str, Row]]) -> list[str]:
    lines = []
    for name in dict.fromkeys(method for each in cells.values() for method in each):
        if name != "adaptive":
            ratios = [
                each["adaptive"]["seconds"] / each[name]["seconds"]
                for each in cells.values()
                if "seconds" in each.get(name, {})
            ]
            lines.append(
                f"time / {name}: median {np.median(ratios):.2f}, 95 % quantile {np.quantile(ratios, 0.95):.2f}"
            )
    return lines
