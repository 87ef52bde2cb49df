"""Fitting an estimator with weights, and the error of each sample under that fit.

- :class:`LeastSquares`: ordinary and ridge regression by weighted normal equations, without an estimator; the error of
  a sample had it been left out follows from its leverage;
- :class:`InSample`: the errors of the training samples, informative where a model cannot memorise them;
- :class:`OutOfFold`: each sample under a fit that has not seen it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import clone
from sklearn.utils import _safe_indexing

from inlier.sklearn._introspection import weight_arguments

Array = npt.NDArray[Any]
Predict = Callable[[Any, Any], Array]
"""From a fitted estimator and X to predictions."""
Reweight = Callable[[Array, Array], Array]
"""From row numbers and their predictions to weights."""

BLOCK = 1024
"""Rows multiplied at a time: they stay in cache, and are too few for BLAS to wake its threads."""


@dataclass(frozen=True)
class Fit:
    """A weighted fit.

    Args:
        predictions: Of each sample.
        leverage: How far a sample's weight draws its own prediction, 0 to 1, per unit of weight; 0 out of fold.
        coefficients: Of a linear fit by normal equations.
    """

    predictions: Array
    leverage: Array | float = 0.0
    coefficients: Array | None = None


class LeastSquares:
    """Weighted least squares with an optional ridge penalty, by its normal equations.

    Args:
        x: Inputs, [n, k].
        y: Targets, [n].
        penalty: The ridge penalty.
        intercept: Whether an intercept is fitted too.
        center: What is subtracted from the inputs; their mean, unless these are a part of the rows.

    Example:
        >>> x = np.arange(6.0)[:, None]
        >>> fit = LeastSquares(x, 2 * x[:, 0]).fit(np.ones(6))
        >>> fit.predictions.round(6)
        array([ 0.,  2.,  4.,  6.,  8., 10.])
    """

    def __init__(
        self,
        x: Array,
        y: Array,
        penalty: float = 0.0,
        intercept: bool = True,
        center: Array | None = None,
    ) -> None:
        self.y, self.penalty, self.intercept = y, penalty, intercept
        self.inputs, self.unknowns = x.shape[1], x.shape[1] + intercept
        # Inputs, ones for the intercept, and targets in one table: every moment comes from one product. Normal
        # equations square the condition number: centred columns of deviation 1 keep it small.
        self.table = np.ones((len(x), self.unknowns + 1))
        middle = 0.0 if not intercept else x.mean(0) if center is None else center
        np.subtract(x, middle, out=self.table[:, : self.inputs])
        self.table[:, -1] = y

    @property
    def x(self) -> Array:
        """Inputs, [n, unknowns], centred, with a column of ones if an intercept is fitted."""
        return self.table[:, : self.unknowns]

    @classmethod
    def of(cls, estimator: Any, x: Array, y: Array, center: Array | None = None) -> LeastSquares:
        """Return the normal equations of an ordinary or ridge regression."""
        return cls(x, y, getattr(estimator, "alpha", 0.0), estimator.fit_intercept, center)

    def rows(self, chosen: Array) -> LeastSquares:
        """Return the same problem on some rows."""
        part = object.__new__(LeastSquares)
        part.__dict__ |= self.__dict__
        part.table, part.y = self.table[chosen], self.y[chosen]
        return part

    def fit(self, weights: Array, leverage: bool = True) -> Fit:
        """Fit with these weights."""
        coefficients, root = solve_moments(self.moments(weights), self.inputs, self.penalty)
        spread = self._product(root) if leverage else None
        return Fit(
            self.predict(coefficients),
            0.0 if spread is None else np.einsum("ij,ij->i", spread, spread),
            coefficients,
        )

    def predict(self, coefficients: Array) -> Array:
        """Return the predictions of given coefficients."""
        return self._product(coefficients[:, None])[:, 0]

    def _product(self, matrix: Array) -> Array:
        found = np.empty((len(self.y), matrix.shape[1]))
        for block in _blocks(len(found)):
            np.matmul(self.table[block, : self.unknowns], matrix, out=found[block])
        return found

    def moments(self, weights: Array) -> Array:
        """Return the weighted sums of all products of two columns of the table; those of parts of the rows add up."""
        table, used = self.table, np.flatnonzero(weights)
        if len(used) < len(weights) / 4:
            table, weights = table[used], weights[used]
        total = np.zeros((table.shape[1], table.shape[1]))
        for block in _blocks(len(table)):
            total += table[block].T @ (table[block] * weights[block, None])
        return total


def solve_moments(moments: Array, inputs: int, penalty: float) -> tuple[Array, Array]:
    """Return the coefficients of a least-squares problem, and a root of the inverse of its gram matrix.

    Args:
        moments: What :meth:`LeastSquares.moments` returned.
        inputs: The number of inputs, which the penalty is for.
        penalty: The ridge penalty.
    """
    gram, right = moments[:-1, :-1].copy(), moments[:-1, -1]
    gram[np.arange(inputs), np.arange(inputs)] += penalty
    unit = np.sqrt(np.maximum(gram.diagonal(), 1e-300))
    values, vectors = np.linalg.eigh(gram / np.outer(unit, unit))
    kept = values > 1e-12 * max(values[-1], 1e-300)  # Columns that repeat others, or rows that are too few.
    root = vectors[:, kept] / np.sqrt(values[kept]) / unit[:, None]
    return root @ (root.T @ right), root


def _blocks(size: int) -> Iterator[slice]:
    for first in range(0, size, BLOCK):
        yield slice(first, first + BLOCK)


class InSample:
    """The predictions for the samples that were fitted.

    Args:
        estimator: The estimator.
        x: Inputs.
        y: Targets.
        predict: From a fitted estimator and X to predictions.
    """

    def __init__(self, estimator: Any, x: Any, y: Array, predict: Predict) -> None:
        self.estimator, self.x, self.y, self.predictor = estimator, x, y, predict

    leaves_out = False
    """Whether samples without weight are left out of a fit: learners may take far longer with weights."""

    def with_estimator(self, estimator: Any) -> Self:
        """Return the same with another estimator, which samples without weight are left out of."""
        other = copy.copy(self)
        other.estimator, other.leaves_out = estimator, True
        return other

    def fit(self, weights: Array) -> Fit:
        """Fit with these weights."""
        return Fit(self.predictor(self._fitted(weights), self.x))

    def _fitted(self, weights: Array, rows: Array | None = None) -> Any:
        x, y = self.x, self.y
        if self.leaves_out:
            rows = np.arange(len(y)) if rows is None else rows
            rows = rows[weights[rows] > 0]
        if rows is not None:
            x, y, weights = _safe_indexing(x, rows), y[rows], weights[rows]
        model = clone(self.estimator)
        return model.fit(x, y, **weight_arguments(model, weights))


class OutOfFold(InSample):
    """Predictions of each sample by a fit that has not seen it.

    Args:
        estimator: The estimator.
        x: Inputs.
        y: Targets.
        predict: From a fitted estimator and X to predictions.
        folds: Pairs of training and test rows; the test rows partition the samples.
    """

    def __init__(
        self, estimator: Any, x: Any, y: Array, predict: Predict, folds: list[tuple[Array, Array]]
    ) -> None:
        super().__init__(estimator, x, y, predict)
        self.folds = folds
        tested = np.concatenate([test for _, test in folds])
        if len(tested) != len(y) or len(np.unique(tested)) != len(y):
            raise ValueError("cv must test each sample exactly once: choose a splitter that partitions them")

    def fit(self, weights: Array) -> Fit:
        """Fit once for each fold with these weights."""
        parts = []
        for train, test in self.folds:
            # In a tiny table all weights of a fold may be 0: an unweighted fit is better than none.
            usable = weights if weights[train].any() else np.ones_like(weights)
            model = self._fitted(usable, train)
            parts.append((test, self.predictor(model, _safe_indexing(self.x, test))))
        return Fit(_joined(parts, len(self.y)))

    def nested(self, weights: Array) -> list[tuple[Array, Array]]:
        """Return for each fold the other rows, and their predictions by fits which have not seen that fold either.

        For each pair of folds a fit without both predicts both. Weights that come from these predictions know nothing
        of the fold, so that :meth:`fit_reweighted` can be compared with an unweighted fit.
        """
        tests = [test for _, test in self.folds]
        seen: list[list[tuple[Array, Array]]] = [[] for _ in tests]
        for a in range(len(tests)):
            for b in range(a):
                others = np.concatenate(
                    [test for c, test in enumerate(tests) if c not in (a, b)] or [tests[b]]
                )
                model = self._fitted(weights, np.sort(others))
                for one, other in ((a, b), (b, a)):
                    seen[one].append(
                        (tests[other], self.predictor(model, _safe_indexing(self.x, tests[other])))
                    )
        return [
            (np.concatenate([rows for rows, _ in known]), np.concatenate([part for _, part in known]))
            for known in seen
        ]

    def fit_reweighted(self, weights: Array, known: list[tuple[Array, Array]], reweight: Reweight) -> Fit:
        """Fit once for each fold, with weights from predictions that have not seen it.

        Args:
            weights: The user's weights.
            known: What :meth:`nested` returned.
            reweight: From row numbers and their predictions to further weights.
        """
        parts = []
        for (_, test), (rows, predictions) in zip(self.folds, known, strict=True):
            further = np.zeros(len(self.y))
            further[rows] = reweight(rows, predictions)
            model = self._fitted(weights * further, np.sort(rows))
            parts.append((test, self.predictor(model, _safe_indexing(self.x, test))))
        return Fit(_joined(parts, len(self.y)))


def _joined(parts: list[tuple[Array, Array]], size: int) -> Array:
    """Put the predictions of all folds together."""
    predictions = np.empty((size, *parts[0][1].shape[1:]), dtype=parts[0][1].dtype)
    for test, part in parts:
        predictions[test] = part
    return predictions
