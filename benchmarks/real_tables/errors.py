"""Errors planted in the targets of training rows, at a given rate.

Regression: ``permuted`` (targets exchanged among the chosen rows), ``times ten`` (a slip of the decimal point),
``sign flipped``, ``shifted`` (one sensor of several: three standard deviations of the target are added).
Classification: ``even`` (another class, all equally likely), ``similar`` (the class with the nearest centroid).
"""

from __future__ import annotations

import numpy as np

REGRESSION = ("permuted", "times ten", "sign flipped", "shifted")
CLASSIFICATION = ("even", "similar")


def plant(kind: str, rate: float, x: np.ndarray, y: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the targets with errors, and which of them differ.

    Args:
        kind: The kind of error, or "clean".
        rate: The part of the rows that is chosen.
        x: The inputs.
        y: The targets.
        seed: The seed.
    """
    rng = np.random.default_rng(seed)
    chosen = rng.permutation(len(y))[: round(rate * len(y))]
    noisy = y.copy()
    if kind == "permuted":
        noisy[chosen] = y[rng.permutation(chosen)]
    elif kind == "times ten":
        noisy[chosen] = 10 * y[chosen]
    elif kind == "sign flipped":
        noisy[chosen] = -y[chosen]
    elif kind == "shifted":
        noisy[chosen] = y[chosen] + 3 * y.std()
    elif kind == "even":
        classes = y.max() + 1
        noisy[chosen] = (y[chosen] + rng.integers(1, classes, size=len(chosen))) % classes
    elif kind == "similar":
        centroids = np.array([x[y == label].mean(0) for label in range(y.max() + 1)])
        distance = ((centroids[:, None] - centroids) ** 2).sum(2)
        np.fill_diagonal(distance, np.inf)
        noisy[chosen] = distance.argmin(1)[y[chosen]]
    elif kind != "clean":
        raise ValueError(f"kind = {kind!r}: choose from {('clean', *REGRESSION, *CLASSIFICATION)}")
    return noisy, noisy != y
