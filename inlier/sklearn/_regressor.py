"""AdaptiveRegressor."""

# ruff: noqa: N803 (X is what scikit-learn calls it)

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.base import RegressorMixin
from sklearn.linear_model import LinearRegression
from sklearn.utils import Tags, check_array, check_random_state, column_or_1d, indexable
from sklearn.utils.validation import _num_features

from inlier.fraction import FractionEstimate, FractionEstimator, GivenFraction
from inlier.sklearn._base import Adaptive, estimate_from, frequency_of
from inlier.sklearn._extension import Weighting
from inlier.sklearn._introspection import absolute_error_variant, is_least_squares, is_linear
from inlier.sklearn._learners import Array, InSample, LeastSquares, OutOfFold
from inlier.sklearn._power import PLANTED
from inlier.sklearn._robust import Data, Result, find_weights

FEWEST = 30
"""With fewer rows nothing is examined."""
AMPLE = 100
"""With fewer, that nothing was found means little."""
COLUMNS = 0.1
"""A linear model that is not least squares, with more columns than this share of the rows, may memorise them."""


class AdaptiveRegressor(RegressorMixin, Adaptive):  # type: ignore[misc]
    """Regression on data of which an unknown part is wrong.

    First, do no harm: what happens depends on how strongly the errors of a robust first fit speak for outliers, beyond
    what one skewed, heavy-tailed distribution explains (:mod:`inlier.sklearn._residuals`).

    - They prove it: each sample is weighted by its probability of being an inlier, ``u_i = P(inlier | e_i)``, and the
      mean weight is the inlier fraction. ``fraction_estimate_.trusted`` is true.
    - They leave it open: no sample is given up. Those with large errors are weighted as by Huber if outliers are
      suspected, or if that would cost next to nothing were everything clean, and gain much were the large errors wrong.
      The estimate is trusted all the same if gross errors in 5 % of the rows would have been noticed.
    - Else all weights are 1, and the fit is that of the estimator alone.

    Args:
        estimator: Any regressor that takes ``sample_weight``; LinearRegression by default. In a pipeline the last
            step is weighted, or, with metadata routing enabled, the steps that request weights.
        inlier_fraction: The fraction of inliers; "auto" to estimate it. A number is taken as given, and so is what a
            :class:`~inlier.fraction.FractionEstimator` says of the squared errors of the fit that "auto" makes.
        cv: Where errors come from. "auto": from the fit itself for linear models with few columns (for least squares
            corrected for leverage, whatever the number), and from 3 shuffled folds for all others, which may memorise
            their samples. A number of folds or a splitter: out of fold.
        random_state: Seeds folds and subsets.

    Attributes:
        estimator_: The fitted estimator.
        inlier_probability_: For each sample, the probability of being an inlier.
        inlier_fraction_: The fraction of inliers, as given or estimated.
        fraction_estimate_: The :class:`inlier.FractionEstimate` behind it: value, standard error, whether to trust it,
            and why.
        weights_: The weights of the last fit, without those of the user.
        losses_: The squared error of each sample, from which its probability was computed.
        scale_: The loss from which on a sample is more likely an outlier; infinite if none is.
        n_iter_: The number of fits before the last.
        n_features_in_: The number of columns seen in ``fit``.
        feature_names_in_: Their names, if they are strings.

    Example:
        >>> import numpy as np
        >>> from inlier.sklearn import AdaptiveRegressor
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(size=(500, 2))
        >>> y = X @ [1.0, 2.0] + 0.1 * rng.normal(size=500)
        >>> y[:150] += 10
        >>> robust = AdaptiveRegressor(random_state=0).fit(X, y)
        >>> bool(abs(robust.inlier_fraction_ - 0.7) < 0.02), robust.estimator_.coef_.round(1)
        (True, array([1., 2.]))

    Reference: Algorithm 1 of Talak, Georgiou, Shi, Carlone, "Outlier-Robust Training of Machine Learning
    Models".
    """

    _default = LinearRegression

    def _check_targets(self, y: Any) -> Array:
        y = column_or_1d(check_array(y, ensure_2d=False, dtype="numeric", input_name="y"), warn=True)
        return np.asarray(y, dtype=np.float64)

    def _fit(self, X: Any, y: Array, sample_weight: Array, fraction: FractionEstimator | None) -> None:
        generator = check_random_state(self.random_state)
        learner = self._learner(X, y, generator)
        frequency = frequency_of(sample_weight)
        n = float(frequency.sum())
        variant = None if isinstance(learner, LeastSquares) else absolute_error_variant(self._base())

        def find(share: float | None) -> Result:
            return find_weights(learner, Data(y, sample_weight, frequency, share), variant, generator)

        found = given = None
        if isinstance(fraction, GivenFraction):
            given = fraction.estimate()
        elif n >= FEWEST:
            found = find(None)
            given = None if fraction is None else estimate_from(fraction, found.errors**2)
        if n < FEWEST or (given is not None and given.value == 1):
            few = FractionEstimate(1.0, 0.0, False, f"{n:.0f} rows are too few to tell errors from noise.")
            errors = y - learner.fit(sample_weight).predictions
            ones = np.ones(len(y))
            self._finish(X, y, sample_weight, ones, ones, errors**2, given or few, 1)
            return
        if given is not None:
            found = find(given.value)
        assert found is not None
        estimate = given or estimate_of(found.weighting, n, found.noticed)
        self._finish(
            X, y, sample_weight, found.weights, found.probability, found.errors**2, estimate, found.n_iter
        )

    def _learner(self, X: Any, y: Array, generator: np.random.RandomState) -> LeastSquares | InSample:
        """Choose where errors come from, as ``cv`` says."""
        base = self._base()
        auto = isinstance(self.cv, str) and self.cv == "auto"
        if auto and is_least_squares(base) and not issparse(X):
            x = check_array(X, dtype=np.float64)
            if x.shape[1] < len(x):
                return LeastSquares.of(base, x, y)
        if auto and is_linear(base) and _num_features(X) <= COLUMNS * len(y):
            return InSample(base, X, y, _predictions)
        (X,) = indexable(X)
        return OutOfFold(base, X, y, _predictions, self._folds(X, y, generator))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = False
        return tags


def _predictions(model: Any, X: Any) -> Array:
    return np.asarray(model.predict(X), dtype=np.float64).ravel()


def estimate_of(weighting: Weighting, n: float, noticed: bool = False) -> FractionEstimate:
    """Say what the evidence behind weights from n rows means.

    Args:
        weighting: The weights.
        n: The number of rows.
        noticed: Whether slips in a few of the targets would have been noticed.
    """
    evidence = weighting.evidence
    if evidence.trusted:
        reason = f"Outliers explain the errors better than one distribution, by {evidence.score:.1f} standard errors."
        return FractionEstimate(evidence.share, evidence.standard_error, True, reason)
    slips = f"gross errors in {100 * PLANTED:.0f} % of the rows would have been noticed."
    if evidence.suspected:
        wrong = 1 - evidence.share
        if noticed and wrong <= PLANTED and n >= AMPLE:
            # No outliers at all are well possible: the interval includes none.
            reason = f"They may be no errors, but the tails of one distribution; {slips}"
            return FractionEstimate(evidence.share, max(evidence.standard_error, wrong / 1.9), True, reason)
        reason = (
            "The errors may be of two groups, or of one distribution with heavy tails: no row is given up, "
            "and those with large errors have a bounded influence."
        )
        return FractionEstimate(evidence.share, evidence.standard_error, False, reason)
    if n < AMPLE:
        return FractionEstimate(1.0, 0.0, False, f"Nothing points to outliers, but {n:.0f} rows are few.")
    if noticed:
        return FractionEstimate(1.0, 0.0, True, f"One distribution explains the errors, and {slips}")
    if weighting.kind == "bounded":
        reason = (
            "No outliers are proven, but rows with large errors have a bounded influence, which costs little."
        )
        return FractionEstimate(1.0, 0.0, False, reason)
    if evidence.open:
        reason = "One distribution explains the errors about as well as outliers do: all rows count alike."
        return FractionEstimate(1.0, 0.0, False, reason)
    reason = "One distribution explains all errors. Wrong targets that are as plausible as right ones cannot be seen."
    return FractionEstimate(1.0, 0.0, True, reason)
