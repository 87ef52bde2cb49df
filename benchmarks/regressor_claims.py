"""When "no errors found" is claimed of a regression: `python -m benchmarks.regressor_claims [--half report] [--quick]`.

Where outliers are neither proven nor plainly worse than one distribution, a claim is made only if slips in 5 % of the
targets (ten times too large, the other sign, shifted by three standard deviations) would have given evidence above
NOTICED (``inlier.sklearn._power``). Shown for several values are the parts of tables about which it is claimed that no
errors were found, or less than about 10 %: of those without planted errors, where that is right, and of those with.
Exchanged targets are hard to see in tables that are hard to predict, at any value.

The tables are real ones (:mod:`benchmarks.real_tables`), with linear models, and generated ones whose errors are
Gaussian, heavy-tailed, skewed or multiplicative, with 300 to 3,000 rows.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.real_tables import catalogue, errors
from benchmarks.real_tables.prepare import split
from inlier.sklearn import AdaptiveRegressor, _regressor
from inlier.sklearn._power import PLANTED, is_undecided, slip_evidence

RATES = (0.05, 0.1, 0.3)
LEVELS = {np.inf: "no claim", 6.0: "6", 4.0: "4", 2.5: "2.5", -np.inf: "always a claim"}


def generated(seed: int) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Yield name, inputs and targets of regressions without errors."""
    rng = np.random.default_rng(seed)
    for n in (300, 1000, 3000):
        x = rng.normal(size=(n, 6))
        mean, noise = x @ rng.normal(size=6), rng.normal(size=n)
        yield "Gaussian", x, mean + noise
        yield "Student, 3 degrees", x, mean + rng.standard_t(3, size=n)
        yield "exponential", x, mean + rng.exponential(2, size=n)
        yield "log-normal, 30 %", x, (8 + mean / 2) * np.exp(0.3 * noise)
        yield "log-linear, 30 %", x, np.exp(12 + 0.3 * mean + 0.3 * noise)
        yield "log-linear, 60 %", x, np.exp(8 + 0.5 * mean + 0.6 * noise)
        uniform = rng.uniform(size=(n, 5))
        yield "prices, 20 %", uniform, (20 + uniform @ [100, 50, 0, 0, 0]) * np.exp(0.2 * noise)


def tables(half: str, quick: bool) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Yield source, inputs and targets of each table."""
    chosen = [source for source in catalogue.REGRESSION if catalogue.half(source.name) == half]
    for source in chosen[:: 6 if quick else 1]:
        data = split(source, False, 0)
        yield "real", data.x, data.y
    for seed in (0,) if quick else (0, 1) if half == "development" else (2, 3):
        yield from (("generated", x, y) for _, x, y in generated(seed))


def examined(x: np.ndarray, y: np.ndarray) -> dict[str, Any]:
    """Return what a fit says, and the evidence that slips would have given."""
    original, found = _regressor.find_weights, []

    def watched(*arguments: Any) -> Any:
        found.append(original(*arguments))
        return found[-1]

    _regressor.find_weights = watched
    try:
        AdaptiveRegressor(random_state=0).fit(x, y)
    finally:
        _regressor.find_weights = original
    if not found:
        return {"level": -np.inf, "claims": [False, False]}
    weighting, n = found[0].weighting, float(len(y))
    level = np.inf
    if is_undecided(weighting):
        level = slip_evidence(found[0].errors, y, np.ones(len(y)))
    claims = [_claims(_regressor.estimate_of(weighting, n, noticed)) for noticed in (False, True)]
    return {"level": float(level), "claims": claims}


def _claims(estimate: Any) -> bool:
    """Return whether an estimate claims that there are no errors, or few if any."""
    wrong = 1 - estimate.value
    return bool(estimate.trusted and wrong <= PLANTED and 1.96 * estimate.standard_error >= wrong)


def run(half: str, quick: bool) -> dict[str, list[dict[str, Any]]]:
    """Return what is claimed about each table, clean and with planted errors, by source."""
    cells = [("clean", 0.0), *((kind, rate) for kind in errors.REGRESSION for rate in RATES)]
    rows: dict[str, list[dict[str, Any]]] = {}
    for source, x, y in tables(half, quick):
        for kind, rate in cells:
            found = examined(x, errors.plant(kind, rate, x, y, 1)[0])
            rows.setdefault(source, []).append(found | {"kind": f"{kind} {rate:g}" if rate else kind})
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """Return the parts of tables with a claim, for each value of NOTICED."""
    kinds = list(dict.fromkeys(row["kind"] for row in rows))
    lines = ["| NOTICED | " + " | ".join(kinds) + " |", "|" + "---|" * (len(kinds) + 1)]
    for level, name in LEVELS.items():
        shares = []
        for kind in kinds:
            seen = [row for row in rows if row["kind"] == kind]
            shares.append(np.mean([row["claims"][row["level"] > level] for row in seen]))
        lines.append(f"| {name} | " + " | ".join(f"{share:.2f}" for share in shares) + " |")
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--half", default="development", choices=("development", "report"))
    parser.add_argument("--quick", action="store_true", help="fewer tables")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    for source, rows in run(arguments.half, arguments.quick).items():
        count = sum(row["kind"] == "clean" for row in rows)
        print(f"{count} {source} tables, {arguments.half}: no errors found, or few if any\n\n{table(rows)}\n")


if __name__ == "__main__":
    main()
