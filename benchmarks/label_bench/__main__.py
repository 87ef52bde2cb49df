"""Class labels as people have them: heads on pretrained features or fine-tuning, few epochs, noise of many kinds.

`make bench-labels DATA=DIR`, or `python -m benchmarks.label_bench --data DIR`: development cells (banking77, also
1,500 texts of it, and 2,000 that fine-tune all of MiniLM; CIFAR-10 images 0 to 20,000, and a part of them in which the
rarest class has a fiftieth of the images of the most frequent one). `--report` has those that nothing was chosen on
(CIFAR-10 images 20,000 to 40,000, likewise; fine-tuning on yoruba_newsclass, whose noisy labels are made by rules; seed
10).
Results are kept in `.cache/label_bench`, so an interrupted run resumes; `--only` picks cells, as in
`--only banking77/similar-30/3`. DIR holds `cifar10/`, `text/` and `lpips/alexnet_features.safetensors`.

The average precision of "sgd" is that of the mean margin over the visits of a sample, that of "cleanlab" ranks by
the quality of labels by probabilities of five unweighted fits that have not seen them.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch

from benchmarks.label_bench.data import given_labels, load
from benchmarks.label_bench.features import CACHE
from benchmarks.label_bench.train import fit_head

KINDS = {
    "banking77": ["none", "symmetric-20", "symmetric-40", "symmetric-60", "similar-30", "pairs-40"],
    "cifar": ["none", "symmetric-40", "similar-30", "pairs-40", "aggre", "random1", "worse"],
    "cifar-long": ["none", "symmetric-40", "similar-30", "worse"],
    "banking77-few": ["none", "similar-30"],
    "banking77-texts": ["none", "symmetric-40", "similar-30"],
    "yoruba": ["none", "rules"],
}
EPOCHS = {"banking77-texts": [3, 10], "yoruba": [3, 10]}
HEAD_EPOCHS = [1, 3, 10, 30]
METHODS = ["clean-only", "sgd", "gce", "sce", "elr", "inlier", "inlier-given", "nce-rce", "trimmed"]
MORE = ["co-teaching", "cleanlab", "adaptive-tl", "adaptive-gm", "adaptive-t-gm"]
BATCH = {"cifar": 64}


def cells(report: bool) -> list[tuple[str, str, int]]:
    """Return set, kind of noise and epochs of each cell."""
    development = ["banking77", "cifar", "cifar-long", "banking77-few", "banking77-texts"]
    sets = ["cifar-report", "cifar-report-long", "yoruba"] if report else development
    return [
        (name, kind, epochs)
        for name in sets
        for epochs in EPOCHS.get(name, HEAD_EPOCHS)
        for kind in KINDS[name.replace("-report", "")]
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--only", default="", help="cells to run, comma-separated; each as set/kind/epochs")
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--seeds", default="")
    parser.add_argument("--table", action="store_true", help="print what there is, and run nothing")
    options = parser.parse_args()
    torch.set_num_threads(1)
    path = CACHE / ("report.jsonl" if options.report else "development.jsonl")
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    done = {(row["cell"], row["method"], row["seed"]) for row in rows}
    chosen = [cell for cell in options.only.split(",") if cell]
    seeds = [int(seed) for seed in (options.seeds or ("10" if options.report else "0")).split(",")]
    for name, kind, epochs in [] if options.table else cells(options.report):
        cell = f"{name}/{kind}/{epochs}"
        if chosen and not any(cell == one or cell.startswith(one + "/") for one in chosen):
            continue
        for seed in seeds:
            for method in options.methods.split(","):
                if (cell, method, seed) in done:
                    continue
                split = load(name, options.data)
                given = given_labels(split, kind, seed)
                found = fit_head(split, given, method, epochs, BATCH.get(name.split("-")[0], 32), seed)
                row = {
                    "cell": cell,
                    "method": method,
                    "seed": seed,
                    "clean": float((given == split.y).float().mean()),
                }
                rows.append(row | {name: value for name, value in found.items() if name != "clean"})
                with path.open("a") as file:
                    file.write(json.dumps(rows[-1]) + "\n")
                print(cell, method, seed, {k: round(v, 3) for k, v in found.items()}, flush=True)
    print(table(rows))


def table(rows: list[dict]) -> str:
    """Return accuracies with a column for each method, and what ours estimates."""
    methods = [m for m in METHODS + MORE if any(row["method"] == m for row in rows)]
    lines = ["| cell | clean | " + " | ".join(methods) + " | estimate |", "|---" * (len(methods) + 3) + "|"]
    for cell in dict.fromkeys(row["cell"] for row in rows):
        mine = [row for row in rows if row["cell"] == cell]
        shown = []
        for method in methods:
            found = [row["accuracy"] for row in mine if row["method"] == method]
            shown.append(f"{sum(found) / len(found):.1f}" if found else "")
        ours = [row for row in mine if row["method"] == "inlier"]
        estimate = ", ".join(f"{r['estimate']:.2f}{'' if r['trusted'] else ' (not trusted)'}" for r in ours)
        lines.append(f"| {cell} | {mine[0]['clean']:.2f} | " + " | ".join([*shown, estimate]) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
