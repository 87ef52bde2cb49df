"""Small generated problems of which a known part is wrong."""

import numpy as np


def line(samples=400, outliers=0.3, shift=10.0, dimension=3, seed=0):
    """A linear problem whose first samples are shifted: inputs, targets, which are outliers, coefficients."""
    rng = np.random.default_rng(seed)
    x, w = rng.normal(size=(samples, dimension)), rng.normal(size=dimension)
    bad = np.arange(samples) < outliers * samples
    return x, x @ w + 0.1 * rng.normal(size=samples) + shift * bad, bad, w


def two_classes(samples=400, noise=0.2, seed=0):
    """Two classes, the labels of the first samples flipped: inputs, labels, clean labels, which are noisy."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(samples, 3))
    clean = (x[:, 0] + 0.3 * x[:, 1] > 0).astype(int)
    bad = np.arange(samples) < noise * samples
    return x, np.where(bad, 1 - clean, clean), clean, bad
