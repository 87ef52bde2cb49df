"""Both classes as scikit-learn estimators: its own checks, parameters, pipelines, searches, tables."""

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.linear_model import HuberRegressor, LinearRegression, Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVR, LinearSVC
from sklearn.tree import DecisionTreeRegressor
from sklearn.utils.estimator_checks import parametrize_with_checks

from inlier.fraction import FractionEstimate, FromLosses
from inlier.sklearn import AdaptiveClassifier, AdaptiveRegressor
from inlier.sklearn._introspection import is_linear
from tests.sklearn.problems import line, two_classes


@parametrize_with_checks([AdaptiveRegressor(random_state=0), AdaptiveClassifier(random_state=0)])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def test_an_estimator_without_weights_is_named():
    x, y, _, _ = line(60)
    for estimator in (KNeighborsRegressor(), make_pipeline(StandardScaler(), KNeighborsRegressor())):
        with pytest.raises(ValueError, match="KNeighborsRegressor takes no sample_weight"):
            AdaptiveRegressor(estimator).fit(x, y)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"inlier_fraction": 0.0}, "inlier_fraction = 0.0"),
        ({"inlier_fraction": 1.5}, "inlier_fraction = 1.5"),
        ({"inlier_fraction": "most"}, "inlier_fraction = 'most'"),
        ({"inlier_fraction": None}, "inlier_fraction = None"),
        ({"cv": "many"}, "cv = 'many'"),
    ],
)
def test_wrong_parameters_are_named(parameters, message):
    x, y, _, _ = line(60)
    with pytest.raises(ValueError, match=message):
        AdaptiveRegressor(**parameters).fit(x, y)


class HalfOfTheLosses(FromLosses):
    """An estimator that counts the losses it is shown."""

    shown = 0

    def observe(self, histogram):
        type(self).shown = int(histogram.total)

    def estimate(self):
        return FractionEstimate(0.5, 0.1, self.shown > 0, "Half of them.")


@pytest.mark.parametrize("kind", [AdaptiveRegressor, AdaptiveClassifier], ids=lambda kind: kind.__name__)
def test_a_fraction_estimator_is_shown_the_losses_and_taken_as_given(kind):
    x, y, _, _ = line(200) if kind is AdaptiveRegressor else two_classes(200)
    estimator = HalfOfTheLosses()
    HalfOfTheLosses.shown = 0
    model = kind(inlier_fraction=estimator, random_state=0).fit(x, y)
    assert HalfOfTheLosses.shown == len(y)
    assert model.fraction_estimate_ == FractionEstimate(0.5, 0.1, True, "Half of them.")
    assert model.weights_.min() < 0.5
    assert model.inlier_fraction is estimator


def test_pipelines_pass_weights_to_the_last_step_or_where_requested():
    x, y, _, w = line()
    model = AdaptiveRegressor(make_pipeline(StandardScaler(), Ridge(1e-6)), random_state=0).fit(x, y)
    assert np.abs(model.predict(x) - x @ w).max() < 0.2
    np.testing.assert_allclose(model.estimator_[0].mean_, x.mean(0))
    with config_context(enable_metadata_routing=True):
        both = make_pipeline(
            StandardScaler().set_fit_request(sample_weight=True),
            Ridge(1e-6).set_fit_request(sample_weight=True),
        )
        routed = AdaptiveRegressor(both, random_state=0).fit(x, y)
    # The weighted mean of the columns leaves out the outliers.
    assert not np.allclose(routed.estimator_[0].mean_, x.mean(0))


@pytest.mark.parametrize(
    ("estimator", "linear"),
    [
        (LinearRegression(), True),
        (HuberRegressor(), True),
        (make_pipeline(StandardScaler(), LinearSVC()), True),
        (SVR(kernel="linear"), True),
        (GridSearchCV(Ridge(), {"alpha": [1.0]}), True),
        (SVR(), False),
        (DecisionTreeRegressor(), False),
    ],
    ids=str,
)
def test_what_counts_as_linear(estimator, linear):
    assert is_linear(estimator) == linear


def test_grid_search_clone_and_pickle():
    x, y, _, _ = line(120)
    search = GridSearchCV(
        AdaptiveRegressor(Ridge(), random_state=0), {"estimator__alpha": [1e-3, 1e3]}, cv=3,
        scoring="neg_median_absolute_error",
    ).fit(x, y)  # fmt: skip
    assert search.best_params_ == {"estimator__alpha": 1e-3}
    model = search.best_estimator_
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(x), model.predict(x))
    assert again.fraction_estimate_ == model.fraction_estimate_
    assert clone(model).get_params()["estimator__alpha"] == 1e-3


@pytest.mark.parametrize("library", ["pandas", "polars"])
@pytest.mark.parametrize("estimator", [LinearRegression(), DecisionTreeRegressor()], ids=str)
def test_tables_keep_their_names(library, estimator):
    x, y, _, _ = line(120)
    columns = dict(zip("abc", x.T, strict=True))
    frame = pd.DataFrame(columns) if library == "pandas" else pytest.importorskip("polars").DataFrame(columns)
    model = AdaptiveRegressor(estimator, random_state=0).fit(frame, y)
    assert list(model.feature_names_in_) == ["a", "b", "c"]
    assert model.n_features_in_ == 3
    assert len(model.predict(frame)) == 120


@pytest.mark.parametrize(("package", "name"), [("lightgbm", "LGBMRegressor"), ("xgboost", "XGBRegressor")])
def test_boosting_packages(package, name):
    estimator = getattr(pytest.importorskip(package), name)(n_estimators=30, n_jobs=1)
    x, y, bad, _ = line(400, 0.2, shift=30.0)
    model = AdaptiveRegressor(estimator, random_state=0).fit(x, y)
    assert model.inlier_probability_[bad].mean() < 0.4 * model.inlier_probability_[~bad].mean()
