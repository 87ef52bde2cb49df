"""Boosted trees as arrays: what any library of boosting has learned, without that library, in a file without pickle."""

# ruff: noqa: N803 (X is what scikit-learn calls it)

from __future__ import annotations

from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy.special import expit, softmax
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

Array = npt.NDArray[Any]
BLOCK = 4096
"""Rows that walk down the trees at a time: they stay in cache."""


class BoostedTrees(BaseEstimator):  # type: ignore[misc]
    """A sum of decision trees, whose nodes are entries of arrays.

    A row goes left at a node if its value is below the threshold, or if it is missing and the node says so. A leaf is
    its own child.

    Attributes:
        feature_, threshold_, missing_left_, left_, right_, value_: Of each node.
        roots_: The first node of each tree.
        output_: The output that each tree adds to.
        depth_: The most nodes on a way from a root to a leaf, without the leaf.
        baseline_: What the outputs begin with.
    """

    def fit(self, X: Any, y: Any) -> Self:
        """Refuse: scikit-learn expects the method of any estimator."""
        raise NotImplementedError(f"{type(self).__name__} takes over trees that were fitted elsewhere")

    def set_trees(
        self,
        feature: Array,
        threshold: Array,
        missing_left: Array,
        left: Array,
        right: Array,
        value: Array,
        roots: Array,
        output: Array,
        baseline: Array,
        inputs: int,
    ) -> Self:
        """Take over the trees; see the attributes."""
        self.feature_, self.threshold_, self.missing_left_ = feature, threshold, missing_left
        self.left_, self.right_, self.value_ = left, right, value
        self.roots_, self.output_, self.baseline_ = roots, output, baseline
        self.n_features_in_ = inputs
        node, depth = roots, 0
        while len(node := node[left[node] != node]):
            node, depth = np.concatenate((left[node], right[node])), depth + 1
        self.depth_ = depth
        return self

    def raw(self, X: Any) -> Array:
        """Return the sums of the trees, [n, outputs].

        Example:
            >>> one = BoostedRegressor().set_trees(
            ...     feature=np.array([0, 0, 0]),
            ...     threshold=np.array([2.0, 0.0, 0.0]),
            ...     missing_left=np.array([True, False, False]),
            ...     left=np.array([1, 1, 2]),
            ...     right=np.array([2, 1, 2]),
            ...     value=np.array([0.0, -1.0, 1.0]),
            ...     roots=np.array([0]),
            ...     output=np.array([0]),
            ...     baseline=np.array([10.0]),
            ...     inputs=1,
            ... )
            >>> one.predict(np.array([[1.0], [2.0], [np.nan]]))
            array([ 9., 11.,  9.])
        """
        check_is_fitted(self, "roots_")
        x = validate_data(self, X, reset=False, dtype=np.float64, ensure_all_finite="allow-nan")
        total = np.tile(self.baseline_.astype(np.float64), (len(x), 1))
        for first in range(0, len(x), BLOCK):
            part = x[first : first + BLOCK]
            rows, gaps = np.arange(len(part)), bool(np.isnan(part).any())
            for root, output in zip(self.roots_.tolist(), self.output_.tolist(), strict=True):
                node = np.full(len(part), root)
                for _ in range(self.depth_):
                    values = part[rows, self.feature_[node]]
                    below = values < self.threshold_[node]
                    if gaps:
                        below |= np.isnan(values) & self.missing_left_[node]
                    node = np.where(below, self.left_[node], self.right_[node])
                total[first : first + BLOCK, output] += self.value_[node]
        return total


class BoostedRegressor(RegressorMixin, BoostedTrees):  # type: ignore[misc]
    """Boosted trees whose sum is the prediction."""

    def predict(self, X: Any) -> Array:
        """Return the predictions."""
        return np.asarray(self.raw(X)[:, 0])


class BoostedClassifier(ClassifierMixin, BoostedTrees):  # type: ignore[misc]
    """Boosted trees whose sums are log odds: of the second class, or of each of more than two.

    Attributes:
        classes_: The labels.
    """

    def predict_proba(self, X: Any) -> Array:
        """Return class probabilities."""
        raw = self.raw(X)
        if raw.shape[1] > 1:
            return np.asarray(softmax(raw, axis=1))
        up = expit(raw[:, 0])
        return np.column_stack((1 - up, up))

    def predict(self, X: Any) -> Array:
        """Return the most probable label of each row."""
        return np.asarray(self.classes_[self.predict_proba(X).argmax(1)])
