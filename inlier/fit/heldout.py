"""The error of the robust and the plain model on rows that neither has seen, and that may be wrong too.

Of the held-out rows only the share zeta can be believed, as many as the robust fit of the others believes.

- regression: the zeta / 2 quantile of ``|y - prediction|``, which is the median absolute error of the zeta n
  rows that a model predicts best. No row further out moves it;
- classification: the share of wrong predictions among the zeta n rows with the smallest
  ``min(f_robust, f_plain)``, f the log loss. A row is left out only if neither model believes its label, so
  that neither is favoured.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from sklearn.pipeline import Pipeline

from inlier.fit.columns import Array
from inlier.fit.pipeline import Recipe, learn, learn_plain
from inlier.sklearn.classifier import log_loss, probabilities

SHARE = 0.2
"""Of the rows is held out."""


@dataclass(frozen=True)
class HeldOut:
    """How both models do on held-out rows.

    Args:
        measure: What the error is, in words.
        robust: The error of the robust model.
        plain: That of the plain model.
        rows: The number of held-out rows.
    """

    measure: str
    robust: float
    plain: float
    rows: int


def compare(recipe: Recipe, frame: pd.DataFrame, y: Array) -> HeldOut | None:
    """Fit both models to a part of the rows, and measure them on the others.

    Args:
        recipe: What is fitted.
        frame: The columns.
        y: The target.

    Returns:
        The errors; None if there are too few rows of each class to hold any out.
    """
    test = held_out(y, recipe)
    if not test.any():
        return None
    train = np.flatnonzero(~test)
    kept, y_train = frame.iloc[train], y[train]
    learned = learn(recipe, kept, y_train)
    zeta = float(learned.robust.inlier_fraction_)
    prepare, robust = learned.pipeline.named_steps["prepare"], learned.pipeline
    del learned  # Its losses and weights are of no more use, and large.
    plain = learn_plain(recipe, prepare, kept, y_train)
    return measure(recipe, robust, plain, frame.iloc[np.flatnonzero(test)], y[test], zeta)


def held_out(y: Array, recipe: Recipe) -> Array:
    """Return which rows are held out: a random fifth of them, of each class for classification.

    Example:
        >>> import numpy as np
        >>> recipe = Recipe([], "classification", "linear", "auto", 0)
        >>> y = np.array(["a"] * 50 + ["b"] * 2)
        >>> test = held_out(y, recipe)
        >>> int(test[:50].sum()), int(test[50:].sum())
        (10, 0)
    """
    generator = np.random.default_rng(recipe.seed)
    groups = np.zeros(len(y), dtype=int)
    if recipe.task == "classification":
        groups = np.unique(y.astype(str), return_inverse=True)[1]
    test = np.zeros(len(y), dtype=bool)
    for group in range(groups.max() + 1):
        members = generator.permutation(np.flatnonzero(groups == group))
        test[members[: round(SHARE * len(members))]] = True
    return test


def measure(
    recipe: Recipe, robust: Pipeline, plain: Pipeline, frame: pd.DataFrame, y: Array, zeta: float
) -> HeldOut:
    """Return the errors of two fitted pipelines on rows of which a share zeta can be believed."""
    n = len(y)
    of = f"{n:,} rows" if zeta >= 1 else f"the most believable {zeta:.0%} of {n:,} rows"
    if recipe.task == "regression":
        first, second = (
            float(np.quantile(np.abs(y - model.predict(frame)), zeta / 2)) for model in (robust, plain)
        )
        return HeldOut(f"median absolute error, {of}", first, second, n)
    classes = np.unique(y.astype(str))
    wrong, losses = [], []
    for model in (robust, plain):
        every = np.union1d(classes, model.classes_.astype(str)).astype(object)
        probability = probabilities(model, frame, every)
        losses.append(log_loss(np.searchsorted(every.astype(str), y.astype(str)), probability))
        wrong.append(every[probability.argmax(1)] != y)
    believed = np.argsort(np.minimum(*losses), kind="stable")[: max(round(zeta * n), 1)]
    first, second = (float(part[believed].mean()) for part in wrong)
    return HeldOut(f"share of wrong classes, {of}", first, second, n)
