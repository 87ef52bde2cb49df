"""The two steps of the pipeline that scikit-learn has no class for."""

# ruff: noqa: N803 (X is what scikit-learn calls it)

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from inlier.fit.columns import Array

MONTHS, WEEKDAYS = 12, 7
DAY = np.timedelta64(1, "D")


class Standardize(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Centre each column at its median, divide by its spread, and cut what lies further than a limit.

    The spread is the interquartile range; where that is 0, the median distance of the values that differ from
    the median. Unlike mean and standard deviation, neither is moved by a few wrong cells, and a wrong cell
    cannot pull a linear fit by more than the limit.

    Args:
        limit: The furthest a value may be from the median, in spreads.

    Attributes:
        center_: The medians.
        spread_: The spreads.

    Example:
        >>> import numpy as np
        >>> x = np.array([[1.0], [2.0], [3.0], [4.0], [1e9]])
        >>> Standardize(limit=30).fit_transform(x).ravel().tolist()
        [-1.0, -0.5, 0.0, 0.5, 30.0]
    """

    def __init__(self, limit: float = 30.0) -> None:
        self.limit = limit

    def fit(self, X: Array, y: Any = None) -> Self:
        """Find medians and spreads."""
        self.center_ = np.empty(X.shape[1])
        self.spread_ = np.empty(X.shape[1])
        for place in range(X.shape[1]):
            values = X[:, place]
            low, self.center_[place], high = np.quantile(values, (0.25, 0.5, 0.75))
            distance = np.abs(values - self.center_[place])
            differ = distance[distance > 0]
            self.spread_[place] = high - low or (np.median(differ) if len(differ) else 1.0)
        return self

    def transform(self, X: Array) -> Array:
        """Return the columns, centred, divided and cut."""
        check_is_fitted(self)
        out = np.subtract(X, self.center_)
        out /= self.spread_
        return np.asarray(np.clip(out, -self.limit, self.limit, out=out))


class DateParts(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Turn each column of times into its year, month, day of the week and days since 1970; and its hour.

    The hour is left out for a column that held only midnights when fitted. Missing times give NaN.

    Args:
        one_hot: Give a column of 0 and 1 for each month and each day of the week, as linear models need to
            tell them apart.

    Attributes:
        hours_: Which columns have an hour.

    Example:
        >>> import numpy as np
        >>> DateParts().fit_transform(np.array([["1970-01-02"]], dtype="datetime64[us]")).tolist()
        [[1970.0, 1.0, 5.0, 1.0]]
    """

    def __init__(self, one_hot: bool = False) -> None:
        self.one_hot = one_hot

    def fit(self, X: Any, y: Any = None) -> Self:
        """Find the columns with hours."""
        self.hours_ = np.array([bool((hour(column) > 0).any()) for column in times(X).T])
        return self

    def transform(self, X: Any) -> Array:
        """Return the parts of all columns, side by side."""
        check_is_fitted(self)
        parts: list[Array] = []
        for column, has_hour in zip(times(X).T, self.hours_, strict=True):
            missing = np.isnat(column)
            days = column.astype("datetime64[D]")
            year = column.astype("datetime64[Y]")
            month = (column.astype("datetime64[M]") - year).astype(float) + 1
            # The first of January 1970 was a Thursday, day 4 of a week that begins on Monday.
            weekday = (days.astype(np.int64) + 3) % WEEKDAYS + 1.0
            elapsed = (column - np.datetime64(0, "D")) / DAY
            parts.append(_but(year.astype(np.int64) + 1970.0, missing))
            for values, count in ((month, MONTHS), (weekday, WEEKDAYS)):
                if self.one_hot:
                    parts.extend(
                        ((values == number) & ~missing).astype(float) for number in range(1, count + 1)
                    )
                else:
                    parts.append(_but(values, missing))
            parts.append(_but(elapsed, missing))
            if has_hour:
                parts.append(_but(hour(column), missing))
        return np.column_stack(parts)


def times(X: Any) -> Array:
    """Return a frame or an array as times, [n, columns]."""
    return np.asarray(X, dtype="datetime64[us]")


def hour(column: Array) -> Array:
    """Return the hour of the day with its fraction; NaN for missing."""
    since = (column - column.astype("datetime64[D]")) / np.timedelta64(1, "h")
    return _but(np.asarray(since, dtype=float), np.isnat(column))


def _but(values: Array, missing: Array) -> Array:
    """Return values with NaN where they are missing."""
    return np.where(missing, np.nan, values)
