"""Clean data that a model cannot quite represent, by the number of rows: `python -m benchmarks.misfits`.

What a line or trees cannot follow makes errors of many sizes, and of enough rows the difference from any distribution
is significant. Shown are the fraction of inliers that is claimed, whether it is trusted, and the RMSE per that of the
estimator alone, by how many rows decide (SUBSAMPLE in ``inlier.sklearn._robust``, 2,500 in use).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import LinearRegression
from sklearn.metrics import root_mean_squared_error

from inlier.sklearn import AdaptiveRegressor, _robust

Array = np.ndarray
Target = Callable[[Array, np.random.Generator], Array]

TARGETS: dict[str, tuple[Any, Target]] = {
    "linear, a product": (LinearRegression(), lambda x, rng: x[:, 0] + x[:, 1] * x[:, 2]),
    "linear, an exponential": (LinearRegression(), lambda x, rng: np.exp(0.8 * x[:, 0]) + x[:, 1]),
    "linear, a square": (LinearRegression(), lambda x, rng: x[:, 0] ** 2 + x[:, 1]),
    "linear, noise that grows": (
        LinearRegression(),
        lambda x, rng: x[:, 0] + np.exp(x[:, 1]) * rng.normal(size=len(x)),
    ),
    "boosting, a product": (
        HistGradientBoostingRegressor(random_state=0),
        lambda x, rng: x[:, :3].sum(1) + 2 * np.sin(2 * x[:, 3]) + x[:, 4] * x[:, 5],
    ),
}


def trial(base: Any, target: Target, rows: int) -> str:
    """Return what is claimed of clean rows, and what it costs."""
    rng = np.random.default_rng((1, rows))
    x, x_test = rng.normal(size=(rows, 6)), rng.normal(size=(20_000, 6))
    y, y_test = target(x, rng) + 0.3 * rng.normal(size=rows), target(x_test, rng)
    robust, alone = AdaptiveRegressor(base, random_state=0).fit(x, y), clone(base).fit(x, y)
    ours, plain = (root_mean_squared_error(y_test, model.predict(x_test)) for model in (robust, alone))
    estimate = robust.fraction_estimate_
    return f"{estimate.value:.2f}{'' if estimate.trusted else '?'}, {ours / plain:.3f}"


def main() -> None:
    sizes = (2000, 14_000, 60_000)
    print("| data | decided on | " + " | ".join(f"{rows:,} rows" for rows in sizes) + " |")
    print("|---" * (2 + len(sizes)) + "|")
    for name, (base, target) in TARGETS.items():
        for decisive in (2500, 15_000, 10**9):
            _robust.SUBSAMPLE = decisive
            found = [trial(base, target, rows) for rows in sizes]
            print(f"| {name} | {min(decisive, max(sizes)):,} | " + " | ".join(found) + " |", flush=True)


if __name__ == "__main__":
    main()
