"""AdaptiveRegressor."""

# ruff: noqa: N803 (X is what scikit-learn calls it)

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Self

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.linear_model import LinearRegression
from sklearn.utils import check_array, column_or_1d, get_tags
from sklearn.utils.validation import validate_data

from inlier.kernels import Kernel
from inlier.sklearn.base import Adaptive
from inlier.sklearn.learners import Array, weight_argument


class AdaptiveRegressor(RegressorMixin, Adaptive):  # type: ignore[misc]
    """Regression that finds out which samples are wrong, and fits the others.

    Alternates between fitting ``min over w of sum_i u_i f_i(w)`` and updating what is believed: the inlier
    fraction zeta (given, or estimated from the losses), the scale c with ``mean sigma'_c(f_i) = zeta``, and
    the weights ``u_i = sigma'_c(f_i)``. The fraction starts at 1 and falls to its target over the first
    rounds. When the weights have settled, and two groups of losses were found, the last fits use each
    sample's posterior probability of being an inlier instead, which wastes fewer of them.

    Args:
        estimator: Any regressor that takes ``sample_weight``; LinearRegression by default. A pipeline has
            its last step weighted, or the steps that ask for it if metadata routing is enabled.
        kernel: A kernel, its name, or a function sigma.
        inlier_fraction: zeta, or "auto" to estimate it.
        loss: "squared_error" (summed over outputs), or a function from ``y`` and predictions to one loss of
            at least 0 for each sample.
        cv: How samples are judged. "auto": by the fit itself for linear models and linear support vector
            machines (of ``sklearn.linear_model``, LinearSVR, SVR with a linear kernel; also at the end of a
            pipeline), and out of 5 shuffled folds for all others, which may fit their samples exactly. None:
            by the fit itself. A number of folds or a splitter: out of fold.
        max_iter: The most rounds; None for 100, or 6 out of fold.
        tol: Rounds end when the mean change of a weight is at most this.
        n_starts: How many random subsets are tried as other starts, for linear models with squared error;
            "auto" for 300 where a start is a direct solve of at most 12 unknowns, and 10 for other linear
            models if the first outcome is in doubt. 0 for no other starts at all.
        random_state: Seeds folds and starts.

    Attributes:
        estimator_: The fitted estimator.
        inlier_probability_: For each sample, the posterior probability of being an inlier if two groups of
            losses were found, else the kernel's weight ``sigma'_c(f_i)``.
        weights_: The weights of the last fit, without those of the user.
        losses_: The loss by which each sample was judged.
        inlier_fraction_: zeta, as given or estimated.
        scale_: c; infinite if no outliers were found.
        n_iter_: The number of rounds.
        history_: A tuple (round, scale, inlier fraction) for each round of the outcome that was chosen, from
            round 1; a fit of many samples begins with the rounds on a part of them.
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

    def __init__(
        self,
        estimator: Any = None,
        *,
        kernel: str | Kernel | Callable[[Any], Any] = "geman-mcclure",
        inlier_fraction: float | Literal["auto"] = "auto",
        loss: Literal["squared_error"] | Callable[[Array, Array], Array] = "squared_error",
        cv: Any = "auto",
        max_iter: int | None = None,
        tol: float = 1e-3,
        n_starts: int | Literal["auto"] = "auto",
        random_state: Any = None,
    ) -> None:
        super().__init__(
            estimator,
            kernel=kernel,
            inlier_fraction=inlier_fraction,
            loss=loss,
            cv=cv,
            max_iter=max_iter,
            tol=tol,
            random_state=random_state,
        )
        self.n_starts = n_starts

    def _base(self) -> Any:
        return LinearRegression() if self.estimator is None else self.estimator

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the estimator to the inliers.

        Args:
            X: Inputs, as the estimator takes them.
            y: Targets, [n] or [n, outputs].
            sample_weight: Weights that multiply into those found here.

        Returns:
            The regressor itself.
        """
        weight_argument(self._base())
        validate_data(self, X, y, skip_check_array=True)
        y = check_array(y, ensure_2d=False, dtype="numeric", input_name="y", allow_nd=False)
        if not get_tags(self._base()).target_tags.multi_output:
            y = column_or_1d(y, warn=True)
        squared = self.loss == "squared_error"
        if not squared and not callable(self.loss):
            raise ValueError(f"loss = {self.loss!r}: pass 'squared_error' or a function of y and predictions")
        if self.n_starts != "auto" and self.n_starts < 0:
            raise ValueError(f"n_starts = {self.n_starts!r}: pass 'auto', or a whole number of at least 0")
        self._fit(
            X,
            y,
            sample_weight,
            lambda model, x: model.predict(x),
            squared_error if squared else self.loss,
            squared_outputs=y.size // max(len(y), 1) if squared else 0,
            n_starts=None if self.n_starts == "auto" else int(self.n_starts),
        )
        return self


def squared_error(y: Array, prediction: Array) -> Array:
    """Return the squared error of each sample, summed over outputs."""
    errors = (np.asarray(y, float) - np.asarray(prediction, float).reshape(y.shape)).reshape(len(y), -1)
    return np.asarray(np.einsum("ij,ij->i", errors, errors))
