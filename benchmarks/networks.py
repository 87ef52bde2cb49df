"""`Robust()` in place of `losses.mean()` in the training of a small network, on real tables: does it harm clean ones?

    python -m benchmarks.networks            # development tables
    python -m benchmarks.networks --half report

The regression tables of benchmarks/real_tables with at least 300 rows for training. A network with two hidden layers of
64, Adam at 1e-3, batches of 64, `--steps` steps, inputs standardized, targets by their median and interquartile range.
Squared errors by their mean, by `Robust()` and by `Robust()` with a dataset index; and the Huber loss. Clean, and with
30 % of the targets times ten or shifted by three deviations. RMSE on clean held-out rows, divided by that of the mean.
`--caution` is what part of an estimate counts that is not trusted, and `--errors` how many standard errors above it are
acted on if it is uncertain (`CAUTION`, `ERRORS` of inlier/nn/_window.py). Results are kept in `.bench/networks.jsonl`,
so an interrupted run resumes; the table is printed at the end.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path

import numpy as np
import torch
from torch import nn

import inlier
from benchmarks.real_tables import catalogue, errors
from benchmarks.real_tables.prepare import split
from inlier.nn import _window

FEWEST, BATCH = 300, 64
KINDS = (("clean", 0.0), ("times ten", 0.3), ("shifted", 0.3))
METHODS = ("mean", "huber", "robust", "robust, index")


def train(
    method: str, x: np.ndarray, y: np.ndarray, steps: int, seed: int
) -> tuple[nn.Module, inlier.Robust | None]:
    """Return a trained network, and the robust loss if there is one."""
    torch.manual_seed(seed)
    inputs, targets = torch.from_numpy(x).float(), torch.from_numpy(y).float()
    network = nn.Sequential(
        nn.Linear(x.shape[1], 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1), nn.Flatten(0)
    )
    optimizer = torch.optim.Adam(network.parameters(), 1e-3)
    robust = inlier.Robust() if method.startswith("robust") else None
    step = 0
    while step < steps:
        for index in torch.randperm(len(targets)).split(BATCH):
            error = network(inputs[index]) - targets[index]
            if method == "huber":
                loss = nn.functional.huber_loss(error, torch.zeros_like(error))
            elif robust is None:
                loss = error.square().mean()
            else:
                loss = robust(error.square(), index if "index" in method else None)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
    return network, robust


def measure(source: catalogue.Source, kind: str, rate: float, method: str, steps: int, seed: int) -> dict:
    """Return what a method makes of a table; nothing if it has too few rows."""
    data = split(source, classes=False, seed=seed)
    if len(data.y) < FEWEST:
        return {}
    y, is_wrong = errors.plant(kind, rate, data.x, data.y, seed)
    center, width = np.median(y), np.subtract(*np.percentile(y, [75, 25])) or y.std()
    network, robust = train(method, data.x, (y - center) / width, steps, seed)
    with torch.no_grad():
        predicted = network(torch.from_numpy(data.x_test).float()).double().numpy() * width + center
    found: dict = {"rmse": math.sqrt(np.mean((predicted - data.y_test) ** 2)), "right": 1 - is_wrong.mean()}
    if robust is not None:
        estimate = robust.fraction_estimate
        found |= {"estimate": estimate.value, "trusted": estimate.trusted, "reason": estimate.reason}
    return found


def table(rows: list[dict]) -> str:
    """Return geometric means of ratios to the mean of squared errors, harm, and claims, by kind and method."""
    lines = [
        "| errors | loss | tables | RMSE / mean | worse by > 2 % | by > 5 % | claims > 5 % wrong | trusted |",
        "|---" * 8 + "|",
    ]
    known = {(row["table"], row["kind"], row["method"]): row for row in rows if "rmse" in row}
    for kind, _ in KINDS:
        for method in METHODS[1:]:
            mine = [row for (_, k, m), row in known.items() if (k, m) == (kind, method)]
            ratios = [row["rmse"] / known[row["table"], kind, "mean"]["rmse"] for row in mine]
            if ratios:
                claims = [row for row in mine if row.get("estimate", 1.0) < 0.95]
                worse = (sum(ratio > limit for ratio in ratios) for limit in (1.02, 1.05))
                numbers = [len(ratios), f"{np.exp(np.mean(np.log(ratios))):.3f}", *worse, len(claims)]
                numbers.append(sum(row["trusted"] for row in claims))
                lines.append(f"| {kind} | {method} | " + " | ".join(map(str, numbers)) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--half", choices=("development", "report"), default="development")
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--caution", type=float, default=_window.CAUTION)
    parser.add_argument("--errors", type=float, default=_window.ERRORS)
    parser.add_argument("--results", type=Path, default=Path(".bench/networks.jsonl"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    path = options.results
    path.parent.mkdir(exist_ok=True)
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    _window.CAUTION, _window.ERRORS = options.caution, options.errors
    chosen = ("half", "steps", "seed", "caution", "errors")
    common = {name: getattr(options, name) for name in chosen}
    rows = [row for row in rows if common.items() <= row.items()]
    done = {(row["table"], row["kind"], row["method"]) for row in rows}
    sources = [source for source in catalogue.REGRESSION if catalogue.half(source.name) == options.half]
    for kind, rate in KINDS:
        for source in sources:
            for method in METHODS:
                if (source.name, kind, method) not in done:
                    row = common | {"table": source.name, "kind": kind, "method": method}
                    row |= measure(source, kind, rate, method, options.steps, options.seed)
                    rows.append(row)
                    with path.open("a") as file:
                        file.write(json.dumps(row) + "\n")
    print(table(rows))


if __name__ == "__main__":
    main()
