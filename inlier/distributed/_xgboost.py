"""XGBoost on rows that several workers hold: cells as bins, one fit with weights, and its trees as arrays.

The bins of a column come from the sample, so they are the same however the rows are divided, and one byte a cell is all
that a worker keeps of its rows. A fit is XGBoost's own distributed training: workers add up histograms of gradients.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from inlier._clusters import ClusterError
from inlier.fit._columns import Array
from inlier.fit._trees import BoostedTrees
from inlier.sklearn._extension import error_histogram, huber_limit, huber_weights

TREES, STEP, DEPTH = 100, 0.1, 6
"""Trees and step size of scikit-learn's boosting, and the depth of XGBoost's trees."""
MOST_CODES, MISSING = 255, 255
"""Codes of a column: 0 to 254, and 255 for a missing value."""


def xgboost() -> Any:
    """Return the module.

    Raises:
        ClusterError: If XGBoost is not installed.
    """
    try:
        return importlib.import_module("xgboost")
    except ModuleNotFoundError as error:
        message = (
            '--model boosting in passes needs xgboost, which is not installed: pip install "inlier[boosting]"'
        )
        raise ClusterError(message) from error


@dataclass(frozen=True)
class Bins:
    """The bins of each input: a value is in bin k if k of the edges are not above it.

    Args:
        edges: Ascending edges of each input.
    """

    edges: tuple[Array, ...]

    @classmethod
    def of(cls, x: Array) -> Bins:
        """Return bins with about as many rows of a sample in each; one for each value if these are few.

        Example:
            >>> Bins.of(np.array([[3.0], [1.0], [1.0], [np.nan]])).edges
            (array([2.]),)
        """
        edges = []
        for column in x.T:
            values = np.unique(column[~np.isnan(column)])
            if len(values) > MOST_CODES:
                levels = np.arange(1, MOST_CODES) / MOST_CODES
                known = np.sort(column[~np.isnan(column)])
                places = (levels * len(known)).astype(int)
                edges.append(np.unique(known[places]))
            else:
                edges.append((values[:-1] + values[1:]) / 2)
        return cls(tuple(edges))

    def codes(self, x: Array) -> Array:
        """Return the bin of each cell, one byte each."""
        codes = np.empty(x.shape, dtype=np.uint8)
        for k, edges in enumerate(self.edges):
            column = np.ascontiguousarray(x[:, k])
            codes[:, k] = np.searchsorted(edges, column, side="right")
            missing = np.isnan(column)
            if missing.any():
                codes[missing, k] = MISSING
        return codes


def quantized(parts: Sequence[tuple[Array, Array]], threads: int) -> Any:
    """Return XGBoost's matrix of some rows.

    Args:
        parts: Their codes and targets, part by part.
        threads: Threads of XGBoost.
    """
    xgb = xgboost()
    base: Any = xgb.DataIter

    class Parts(base):  # type: ignore[misc]
        def __init__(self) -> None:
            self.place = 0
            super().__init__()

        def next(self, input_data: Callable[..., None]) -> bool:
            if self.place == len(parts):
                return False
            codes, y = parts[self.place]
            input_data(data=codes, label=y.astype(np.float32))
            self.place += 1
            return True

        def reset(self) -> None:
            self.place = 0

    return xgb.QuantileDMatrix(Parts(), missing=MISSING, max_bin=MOST_CODES + 1, nthread=threads)


@dataclass(frozen=True)
class Booster:
    """A fitted model of codes.

    Args:
        content: The model, as XGBoost writes it.
    """

    content: bytes

    def margins(self, codes: Array) -> Array:
        """Return the sums of the trees for codes of any rows, [n] or [n, outputs]."""
        found = _loaded(self.content, 1).inplace_predict(codes, missing=MISSING, predict_type="margin")
        return np.asarray(found, dtype=np.float64)

    def fitted_margins(self, matrix: Any, threads: int) -> Array:
        """Return the same for the rows of a matrix."""
        found = _loaded(self.content, threads).predict(matrix, output_margin=True)
        return np.asarray(found, dtype=np.float64)

    def trees(
        self, model: BoostedTrees, bins: Bins, unit: float = 1.0, baseline: float = 0.0
    ) -> BoostedTrees:
        """Write the trees into a model of inputs, rather than of codes.

        Args:
            model: An empty model.
            bins: The bins behind the codes.
            unit: A factor of all values.
            baseline: What is added to them.
        """
        content = json.loads(bytes(_loaded(self.content, 1).save_raw("json")))["learner"]["gradient_booster"][
            "model"
        ]
        outputs = max(content["tree_info"]) + 1 if content["tree_info"] else 1
        parts: list[tuple[Array, ...]] = []
        roots, first = [], 0
        for tree in content["trees"]:
            left, right = np.array(tree["left_children"]), np.array(tree["right_children"])
            feature, condition = np.array(tree["split_indices"]), np.array(tree["split_conditions"])
            inner, nodes = left >= 0, np.arange(len(left))
            threshold = np.zeros(len(left))
            # "code < k" is "value < edge k - 1"; above all codes are only missing values, below the first none.
            bounds = [np.concatenate(([-np.inf], bins.edges[f], [np.inf])) for f in feature[inner]]
            threshold[inner] = [
                edges[int(np.clip(np.ceil(k), 0, len(edges) - 1))]
                for edges, k in zip(bounds, condition[inner], strict=True)
            ]
            missing = np.array(tree["default_left"], dtype=bool)
            value = np.where(inner, 0.0, condition * unit)
            children = [np.where(inner, side, nodes) + first for side in (left, right)]
            parts.append((np.where(inner, feature, 0), threshold, missing, *children, value))
            roots.append(first)
            first += len(left)
        feature, threshold, missing, left, right, value = (
            np.concatenate(each) for each in zip(*parts, strict=True)
        )
        start = np.full(outputs, baseline)
        roots_, output = np.array(roots), np.array(content["tree_info"])
        inputs = len(bins.edges)
        return model.set_trees(feature, threshold, missing, left, right, value, roots_, output, start, inputs)


@lru_cache(maxsize=16)
def _loaded(content: bytes, threads: int) -> Any:
    """Return XGBoost's object, which batch after batch is predicted with."""
    return xgboost().Booster({"nthread": threads}, model_file=bytearray(content))


def train(
    matrix: Any,
    y: Array,
    weights: Array,
    classes: int,
    robust: bool,
    threads: int,
    advance: Callable[[float], None],
) -> Booster:
    """Fit to the rows of all workers, each of which calls this with its own.

    Args:
        matrix: The rows of this worker.
        y: Their targets.
        weights: Their weights; rows without any are left out.
        classes: The number of classes; 0 for regression.
        robust: Whether large errors have a bounded influence, with Huber's limit from the errors of all rows before
            each tree (Friedman's M-TreeBoost); else the squared error is minimised.
        threads: Threads of XGBoost.
        advance: Shows progress: called with the share of each tree.

    Reference: J. H. Friedman (2001), Greedy function approximation: a gradient boosting machine.
    """
    xgb = xgboost()
    matrix.set_weight(weights.astype(np.float32))
    parameters: dict[str, Any] = {
        "tree_method": "hist",
        "eta": STEP,
        "max_depth": DEPTH,
        "max_bin": MOST_CODES + 1,
        "nthread": threads,
        # Explicit, so that what begins is known and needs no pass: the target is centred.
        "base_score": 0.5 if classes == 2 else 0.0,
        "objective": {0: "reg:squarederror", 2: "binary:logistic"}.get(classes, "multi:softprob"),
    }
    if classes > 2:
        parameters["num_class"] = classes

    callback: Any = xgb.callback.TrainingCallback

    class Advance(callback):  # type: ignore[misc]
        def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
            advance(1 / TREES)
            return False

    def objective(predictions: Array, _: Any) -> tuple[Array, Array]:
        errors = predictions.astype(np.float64) - y
        slope = huber_weights(errors, merged_limit(errors, weights)) * weights
        return slope * errors, slope

    fitted = xgb.train(
        parameters,
        matrix,
        TREES,
        obj=objective if robust else None,
        callbacks=[Advance()],
        verbose_eval=False,
    )
    return Booster(bytes(fitted.save_raw("ubj")))


def merged_limit(errors: Array, weights: Array) -> float:
    """Return Huber's limit for the weighted errors of all workers, from their merged histograms."""
    counts, sums = allreduce(error_histogram(errors, 1.0, weights))
    used = counts > 0
    return huber_limit(sums[used] / counts[used], counts[used])


def allreduce(values: Array) -> Array:
    """Return the sums over all workers."""
    collective = xgboost().collective
    return np.asarray(collective.allreduce(values, collective.Op.SUM)).reshape(values.shape)
