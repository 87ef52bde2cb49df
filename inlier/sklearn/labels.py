"""The fraction of right labels, from class probabilities.

Losses of wrong labels and of hard samples overlap; the probabilities of the other classes tell them apart.

Reference: C. G. Northcutt, L. Jiang, I. L. Chuang (2021), Confident Learning: Estimating Uncertainty in
Dataset Labels.
"""

from __future__ import annotations

import numpy as np

from inlier.sklearn.learners import Array


def right_fraction(number: Array, probability: Array, repeats: Array) -> float:
    """Return the fraction of samples whose label is not confidently another.

    Class k is a confident guess for a sample if its probability reaches the mean that samples labelled k
    give to k. A label is doubted if the most probable of the confident classes is another one.

    Args:
        number: The class number of each label, [n].
        probability: Class probabilities, [n, classes].
        repeats: How many samples each stands for, [n].

    Returns:
        The fraction, above 0.

    Example:
        >>> import numpy as np
        >>> probability = np.array([[0.9, 0.1], [0.8, 0.2], [0.1, 0.9], [0.95, 0.05]])
        >>> right_fraction(np.array([0, 0, 1, 1]), probability, np.ones(4))
        0.75
    """
    labels = np.eye(probability.shape[1])[number] * repeats[:, None]
    total = labels.sum(0)
    needed = np.where(total > 0, (labels * probability).sum(0) / np.maximum(total, 1e-300), np.inf)
    confident = np.where(probability >= needed, probability, -1.0)
    doubted = (confident.max(1) > 0) & (confident.argmax(1) != number)
    return float(max(1 - repeats @ doubted / repeats.sum(), 1 / len(number)))
