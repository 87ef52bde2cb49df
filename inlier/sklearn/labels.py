"""Right and wrong labels, told apart by class probabilities.

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


def right_posterior(number: Array, probability: Array, fraction: float, mixed: bool) -> Array:
    """Return each label's probability of being right.

    Of K classes, a label is the true class with probability zeta, else any other one, each with probability
    ``eps = (1 - zeta) / (K - 1)``. With the true class probabilities p and the label y, by Bayes' rule

        P(right | x, y) = zeta p_y / (zeta p_y + eps (1 - p_y)).

    A sample between two classes keeps most of its weight, whatever its loss: it is hard, not wrong.

    Args:
        number: The class number of each label, [n].
        probability: Class probabilities, [n, classes].
        fraction: zeta.
        mixed: Whether the probabilities are those of labels, wrong ones included: q = eps + (zeta - eps) p,
            which is then solved for p.

    Returns:
        Probabilities, [n].

    Example:
        >>> import numpy as np
        >>> probability = np.array([[0.5, 0.5], [0.99, 0.01]])
        >>> right_posterior(np.array([1, 1]), probability, 0.9, mixed=False).round(2)
        array([0.9 , 0.08])
    """
    eps = (1 - fraction) / max(probability.shape[1] - 1, 1)
    if mixed and fraction > eps:
        probability = np.maximum(probability - eps, 0.0)
        # Where all are below eps, nothing is known of a sample, and all classes are as likely.
        probability = np.where(probability.sum(1, keepdims=True) > 0, probability, 1.0)
        probability = probability / probability.sum(1, keepdims=True)
    own = probability[np.arange(len(number)), number].astype(np.float64)
    right = fraction * own
    return np.asarray(right / np.maximum(right + eps * (1 - own), 1e-300))
