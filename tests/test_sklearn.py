"""AdaptiveRegressor and AdaptiveClassifier: what they promise, and scikit-learn's own checks."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import config_context
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestClassifier
from sklearn.linear_model import HuberRegressor, LinearRegression, LogisticRegression, Ridge
from sklearn.metrics import average_precision_score
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR, LinearSVC
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from sklearn.utils.estimator_checks import parametrize_with_checks

import inlier
from inlier.experiments.regression_data import draw
from inlier.sklearn import AdaptiveClassifier, AdaptiveRegressor
from inlier.sklearn.labels import right_fraction, right_posterior
from inlier.sklearn.learners import LeastSquares, OutOfFold, is_linear, weight_argument
from inlier.sklearn.rounds import Settings, alternate, histogram
from inlier.sklearn.slab import Slab


def line(samples=400, outliers=0.3, shift=10.0, dimension=3, seed=0):
    """A linear problem whose first samples are shifted; and which these are."""
    rng = np.random.default_rng(seed)
    x, w = rng.normal(size=(samples, dimension)), rng.normal(size=dimension)
    bad = np.arange(samples) < outliers * samples
    return x, x @ w + 0.1 * rng.normal(size=samples) + shift * bad, bad, w


def two_classes(samples=400, wrong=0.2, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(samples, 3))
    truth = (x[:, 0] + 0.3 * x[:, 1] > 0).astype(int)
    bad = np.arange(samples) < wrong * samples
    return x, np.where(bad, 1 - truth, truth), truth, bad


@parametrize_with_checks([AdaptiveRegressor(random_state=0), AdaptiveClassifier(random_state=0)])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


# -- regression --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [0.0, 0.2, 0.4, 0.6, 0.8])
def test_nearly_as_good_as_knowing_the_outliers_of_the_paper(rate):
    data = draw(rate, seed=0)
    x, y, bad = data.x.numpy(), data.y.numpy(), data.outlier.numpy()
    model = AdaptiveRegressor(random_state=0).fit(x, y)
    truth = data.x_test.numpy() @ data.true_w.numpy()
    floor = LinearRegression().fit(x[~bad], y[~bad])
    error, least = (np.sqrt(np.mean((m.predict(data.x_test.numpy()) - truth) ** 2)) for m in (model, floor))
    assert error <= 1.6 * least
    assert abs(model.inlier_fraction_ - (1 - rate)) < 0.02


@pytest.mark.parametrize("seed", [2, 203])
def test_ninety_percent_outliers_with_unknown_fraction(seed):
    # Seed 2: the plain fit alone ends 20 times worse than least squares on the inliers. Seed 203: its losses
    # look like one group, and it is trusted.
    data = draw(0.9, seed=seed)
    model = AdaptiveRegressor(LinearRegression(fit_intercept=False), random_state=0)
    model.fit(data.x.numpy(), data.y.numpy())
    error = np.sqrt(np.mean((data.x_test.numpy() @ (model.estimator_.coef_ - data.true_w.numpy())) ** 2))
    assert error < 0.12
    assert abs(model.inlier_fraction_ - 0.1) < 0.05


@pytest.mark.parametrize("kind", ["one side", "bad inputs", "another line"])
@pytest.mark.parametrize("dimension", [2, 8])
def test_outliers_that_agree_with_each_other(kind, dimension):
    x, y, bad, w = line(600, 0.4, shift=10.0 if kind == "one side" else 0.0, dimension=dimension)
    rng = np.random.default_rng(1)
    if kind == "bad inputs":
        x[bad] = 10 + rng.normal(size=(bad.sum(), dimension))
    elif kind == "another line":
        y[bad] = 5 - x[bad] @ w + 0.1 * rng.normal(size=bad.sum())
    model = AdaptiveRegressor(random_state=0).fit(x, y)
    assert np.abs(model.estimator_.coef_ - w).max() < 0.05
    assert model.inlier_probability_[bad].mean() < 0.1 < 0.8 < model.inlier_probability_[~bad].mean()
    assert np.abs(LinearRegression().fit(x, y).predict(x[~bad]) - x[~bad] @ w).max() > 0.5


def test_clean_data_are_fitted_by_plain_least_squares():
    x, y, _, _ = line(outliers=0.0)
    model = AdaptiveRegressor(random_state=0).fit(x, y)
    np.testing.assert_allclose(model.estimator_.coef_, LinearRegression().fit(x, y).coef_, rtol=1e-9)
    assert model.inlier_fraction_ == 1


def test_few_samples():
    x, y, bad, w = line(40, 0.25, dimension=1)
    model = AdaptiveRegressor(random_state=0).fit(x, y)
    assert abs(model.estimator_.coef_[0] - w[0]) < 0.1
    assert set(np.argsort(model.inlier_probability_)[: bad.sum()]) == set(np.flatnonzero(bad))


@pytest.mark.parametrize("kernel", ["truncated", "welsch-leclerc", "tukey", "geman-mcclure"])
def test_a_given_fraction_sets_the_mean_weight(kernel):
    x, y, bad, _ = line()
    model = AdaptiveRegressor(kernel=kernel, inlier_fraction=0.7, random_state=0).fit(x, y)
    assert model.inlier_fraction_ == 0.7
    assert model.weights_.mean() == pytest.approx(0.7, abs=0.01)
    assert model.weights_[bad].max() < 0.05
    np.testing.assert_allclose(
        model.weights_, inlier.kernels.get(kernel).weight(model.losses_, model.scale_), atol=1e-9
    )


def test_the_direct_solve_is_that_of_the_estimator():
    x, y, _, _ = line()
    weights = np.random.default_rng(0).uniform(size=len(y))
    for estimator in (LinearRegression(), LinearRegression(fit_intercept=False), Ridge(3.0)):
        for target in (y, np.column_stack((y, y**2))):
            model = clone(estimator).fit(x, target, sample_weight=weights)
            expected = ((model.predict(x) - target) ** 2).reshape(len(y), -1).sum(1)
            direct = LeastSquares.of(estimator, x, target).losses(weights)
            np.testing.assert_allclose(direct, expected, rtol=1e-6, atol=1e-12)


def test_direct_and_general_way_agree():
    x, y, _, _ = line()
    direct = AdaptiveRegressor(Ridge(1.0), inlier_fraction=0.7, n_starts=0).fit(x, y)
    general = AdaptiveRegressor(make_pipeline(Ridge(1.0)), inlier_fraction=0.7, n_starts=0).fit(x, y)
    np.testing.assert_allclose(direct.predict(x), general.predict(x), rtol=1e-6)


def test_several_outputs_share_one_judgement():
    x, y, bad, w = line()
    two = np.column_stack((y, -2 * x @ w))
    model = AdaptiveRegressor(random_state=0).fit(x, two)
    assert model.predict(x).shape == two.shape
    assert np.abs(model.estimator_.coef_[0] - w).max() < 0.05
    assert model.inlier_probability_[bad].max() < 0.01


@pytest.mark.parametrize(
    "estimator",
    [
        DecisionTreeRegressor(min_samples_leaf=5, random_state=0),
        HistGradientBoostingRegressor(max_iter=15),
        SVR(C=10.0),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_learners_that_fit_everything_are_judged_out_of_fold(estimator):
    x, y, bad, w = line(500, 0.2, shift=30.0)
    model = AdaptiveRegressor(estimator, random_state=0).fit(x, y)
    assert model.inlier_probability_[bad].mean() < 0.3 * model.inlier_probability_[~bad].mean()
    plain = clone(estimator).fit(x, y)
    errors = [np.sqrt(np.mean((m.predict(x[~bad]) - x[~bad] @ w) ** 2)) for m in (model, plain)]
    assert errors[0] <= errors[1] * 1.05


def test_a_sample_is_never_judged_by_a_fit_that_saw_it():
    x, y = np.arange(20.0)[:, None], np.arange(20.0)
    learner = OutOfFold(
        DecisionTreeRegressor(), x, y, lambda m, z: m.predict(z), lambda a, b: (a - b) ** 2,
        list(KFold(5).split(x)),
    )  # fmt: skip
    # A full tree repeats what it has seen: an error of 0 would be its own.
    assert learner.losses(np.ones(20)).min() > 0


def test_a_callable_loss_is_used():
    x, y, _, _ = line()
    seen = []

    def absolute(target, prediction):
        seen.append(len(target))
        return np.abs(target - prediction)

    model = AdaptiveRegressor(loss=absolute, inlier_fraction=0.7).fit(x, y)
    assert seen
    np.testing.assert_allclose(model.losses_, np.abs(y - model.predict(x)), atol=0.2)


@settings(max_examples=5)
@given(st.floats(1e-12, 1e12), st.floats(-1e3, 1e3))
def test_a_change_of_units_changes_nothing(factor, offset):
    x, y, _, _ = line(120)
    one, other = (AdaptiveRegressor(random_state=0).fit(x, z) for z in (y, factor * (y + offset)))
    np.testing.assert_allclose(one.inlier_probability_, other.inlier_probability_, atol=0.05)


def test_whole_sample_weights_are_repetitions_and_zero_is_absence():
    x, y, _, _ = line(200)
    repeats = np.arange(200) % 3
    weighted = AdaptiveRegressor(random_state=0, n_starts=0).fit(x, y, sample_weight=repeats)
    rows = np.repeat(np.arange(200), repeats)
    repeated = AdaptiveRegressor(random_state=0, n_starts=0).fit(x[rows], y[rows])
    np.testing.assert_allclose(weighted.predict(x), repeated.predict(x), rtol=1e-4)


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=30))
def test_weighted_counts_are_counts_of_repeated_losses(losses):
    losses = np.array(losses)
    repeats = np.arange(len(losses)) % 3 + 1.0
    expected = inlier.LossHistogram.of(torch.from_numpy(np.repeat(losses, repeats.astype(int))))
    assert torch.equal(histogram(losses, repeats).counts, expected.counts.double())


def test_infinite_and_missing_losses_count_as_outliers():
    given_losses = np.r_[np.linspace(0.1, 1, 97), np.inf, np.nan, np.inf]

    class Given:
        size = len(given_losses)

        def losses(self, weights):
            return given_losses

    ones = np.ones(100)
    outcome = alternate(Given(), Settings(inlier.kernels.get("geman-mcclure"), ones, ones, target=0.9))
    assert (outcome.weights[97:] == 0).all()
    assert np.isfinite(outcome.weights).all()


@pytest.mark.parametrize("samples", [200, 20_000])
def test_the_history_says_how_scale_and_fraction_came_about(samples):
    x, y, _, _ = line(samples, 0.3)
    model = AdaptiveRegressor(inlier_fraction=0.7, n_starts=0, random_state=0).fit(x, y)
    rounds, scales, fractions = map(list, zip(*model.history_, strict=True))
    assert rounds == list(range(1, model.n_iter_ + 1))
    assert (scales[-1], fractions[-1]) == (model.scale_, model.inlier_fraction_)
    assert fractions[0] > 0.8 > fractions[-1]


@pytest.mark.parametrize("outliers", [0.0, 0.3])
@pytest.mark.parametrize("samples", [60, 400])
def test_data_without_noise_are_fitted_exactly_and_settle(samples, outliers):
    rng = np.random.default_rng(1)
    x, bad = rng.normal(size=(samples, 3)), np.arange(samples) < outliers * samples
    y = 3 + x @ [1.0, -2.0, 0.5] + 10 * bad * rng.normal(size=samples)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = AdaptiveRegressor(random_state=0).fit(x, y)
    np.testing.assert_allclose(model.estimator_.coef_, [1.0, -2.0, 0.5], rtol=1e-9)
    assert model.inlier_fraction_ == pytest.approx(1 - outliers, abs=0.02)


# -- the judge of starts -----------------------------------------------------------------------------------


@settings(max_examples=25)
@given(st.floats(0.15, 0.95), st.integers(1, 3), st.integers(0, 1000))
def test_the_slab_finds_the_fraction_and_prefers_the_truth(fraction, outputs, seed):
    rng = np.random.default_rng(seed)
    errors = rng.normal(size=(1000, outputs))
    count = round(1000 * (1 - fraction))
    errors[:count] = rng.uniform(-60, 60, size=(count, outputs))
    losses = (errors**2).sum(1)
    slab = Slab.around(losses, 2, outputs, np.ones(1000))
    assert abs(slab.fraction(losses) - fraction) < 0.06
    assert slab.gain(losses) > slab.gain(((errors + 20) ** 2).sum(1))


# -- classification ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "estimator",
    [
        LogisticRegression(),
        LinearSVC(),
        SVC(),
        DecisionTreeClassifier(max_depth=4, random_state=0),
        RandomForestClassifier(20, random_state=0),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_wrong_labels_are_found_and_corrected(estimator):
    x, y, truth, bad = two_classes()
    names = np.array(["no", "yes"])
    model = AdaptiveClassifier(estimator, random_state=0).fit(x, names[y])
    assert (model.suspected_label_ == names[truth]).mean() > 0.85
    # A single tree ranks coarsely.
    least = 0.65 if isinstance(estimator, DecisionTreeClassifier) else 0.85
    assert average_precision_score(bad, -model.inlier_probability_) > least
    assert abs(model.inlier_fraction_ - 0.8) < 0.1
    assert list(model.classes_) == ["no", "yes"]


def test_label_noise_costs_less_than_in_plain_training():
    x, y = load_breast_cancer(return_X_y=True)
    x = StandardScaler().fit_transform(x)
    rng = np.random.default_rng(0)
    train = rng.uniform(size=len(y)) < 0.7
    noisy = np.where(rng.uniform(size=len(y)) < 0.3, 1 - y, y)
    robust = AdaptiveClassifier(random_state=0).fit(x[train], noisy[train])
    plain = LogisticRegression().fit(x[train], noisy[train])
    assert robust.score(x[~train], y[~train]) > plain.score(x[~train], y[~train]) + 0.01


def test_clean_labels_are_kept():
    x, y, _, _ = two_classes(wrong=0.0)
    assert AdaptiveClassifier(random_state=0).fit(x, y).inlier_fraction_ > 0.97


def test_a_class_that_a_fold_has_not_seen():
    x, y, _, _ = two_classes(60)
    y[:2] = 2
    model = AdaptiveClassifier(DecisionTreeClassifier(), cv=KFold(5), random_state=0)
    assert model.fit(x, y).predict_proba(x).shape == (60, 3)


def test_right_fraction_of_a_perfect_model_is_that_of_right_labels():
    _, y, truth, bad = two_classes()
    probability = np.where(np.eye(2)[truth] > 0, 0.95, 0.05)
    assert right_fraction(y, probability, np.ones(len(y))) == pytest.approx(1 - bad.mean())
    doubled = right_fraction(y, probability, np.where(bad, 2.0, 1.0))
    assert doubled == pytest.approx(1 - 2 * bad.sum() / (len(y) + bad.sum()))


def test_hard_samples_keep_their_weight_and_wrong_labels_lose_it():
    probability = np.array([[0.5, 0.5], [0.95, 0.05], [0.05, 0.95]])
    labels = np.array([0, 1, 1])
    for fraction in (0.6, 0.9):
        hard, wrong, right = right_posterior(labels, probability, fraction, mixed=False)
        assert hard == pytest.approx(fraction)
        assert wrong < 0.35 < 0.9 < right
    # Mixing in the wrong labels, and taking them out again, changes nothing.
    mixed = 0.2 + 0.6 * probability
    np.testing.assert_allclose(
        right_posterior(labels, mixed, 0.8, mixed=True),
        right_posterior(labels, probability, 0.8, mixed=False),
    )


# -- being an estimator ------------------------------------------------------------------------------------


def test_an_estimator_without_weights_is_named():
    x, y, _, _ = line(60)
    with pytest.raises(ValueError, match="KNeighborsRegressor takes no sample_weight"):
        AdaptiveRegressor(KNeighborsRegressor()).fit(x, y)
    with pytest.raises(ValueError, match="KNeighborsRegressor"):
        AdaptiveRegressor(make_pipeline(StandardScaler(), KNeighborsRegressor())).fit(x, y)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"inlier_fraction": 0.0}, "inlier_fraction = 0.0"),
        ({"inlier_fraction": 1.5}, "inlier_fraction = 1.5"),
        ({"loss": "absolute"}, "loss = 'absolute'"),
        ({"cv": "many"}, "cv = 'many'"),
        ({"max_iter": 0}, "max_iter = 0"),
        ({"n_starts": -1}, "n_starts = -1"),
    ],
)
def test_wrong_parameters_are_named(parameters, message):
    x, y, _, _ = line(60)
    with pytest.raises(ValueError, match=message):
        AdaptiveRegressor(**parameters).fit(x, y)


def test_pipelines_route_weights_to_the_last_step_or_where_asked():
    x, y, _, w = line()
    pipeline = make_pipeline(StandardScaler(), Ridge(1e-6))
    assert weight_argument(pipeline) == "ridge__sample_weight"
    model = AdaptiveRegressor(pipeline, random_state=0).fit(x, y)
    assert np.abs(model.predict(x) - x @ w).max() < 0.2
    with config_context(enable_metadata_routing=True):
        both = make_pipeline(
            StandardScaler().set_fit_request(sample_weight=True),
            Ridge(1e-6).set_fit_request(sample_weight=True),
        )
        assert weight_argument(both) == "sample_weight"
        routed = AdaptiveRegressor(both, random_state=0).fit(x, y)
    # A weighted mean of the columns leaves out the outliers, a plain one does not.
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
    assert clone(model).get_params()["estimator__alpha"] == 1e-3


def test_tables_keep_their_names():
    x, y, _, _ = line(120)
    frame = pd.DataFrame(x, columns=["a", "b", "c"])
    for table in (frame, _polars(frame)):
        for estimator in (LinearRegression(), DecisionTreeRegressor()):
            model = AdaptiveRegressor(estimator, random_state=0).fit(table, y)
            assert list(model.feature_names_in_) == ["a", "b", "c"]
            assert model.n_features_in_ == 3
            assert len(model.predict(table)) == 120


def _polars(frame):
    return pytest.importorskip("polars").from_dict({name: frame[name].to_numpy() for name in frame})


@pytest.mark.parametrize(("package", "name"), [("lightgbm", "LGBMRegressor"), ("xgboost", "XGBRegressor")])
def test_boosting_packages(package, name):
    estimator = getattr(pytest.importorskip(package), name)(n_estimators=30, n_jobs=1)
    x, y, bad, _ = line(400, 0.2, shift=30.0)
    model = AdaptiveRegressor(estimator, random_state=0).fit(x, y)
    assert model.inlier_probability_[bad].mean() < 0.4 * model.inlier_probability_[~bad].mean()


@pytest.mark.slow
def test_many_samples_are_fitted_as_well_as_on_the_inliers_alone():
    errors = []
    for seed in range(3):
        data = draw(0.4, seed=seed, samples=100_000, dimension=20)
        x, y, bad = data.x.numpy(), data.y.numpy(), data.outlier.numpy()
        model = AdaptiveRegressor(LinearRegression(fit_intercept=False), random_state=0).fit(x, y)
        floor = LinearRegression(fit_intercept=False).fit(x[~bad], y[~bad])
        errors.append([np.square(m.coef_ - data.true_w.numpy()).sum() for m in (model.estimator_, floor)])
    error, least = np.sqrt(np.mean(errors, axis=0))
    assert error < 1.1 * least


def test_a_fold_of_samples_that_are_not_believed_is_fitted_all_the_same():
    folds = [(np.array([0, 1]), np.array([2, 3])), (np.array([2, 3]), np.array([0, 1]))]
    x, y = np.arange(4.0)[:, None], np.arange(4.0)
    judge = OutOfFold(LinearRegression(), x, y, lambda m, x: m.predict(x), lambda y, p: (y - p) ** 2, folds)
    assert judge.losses(np.array([0.0, 0.0, 1.0, 1.0])) == pytest.approx(np.zeros(4))
