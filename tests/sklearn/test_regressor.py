"""AdaptiveRegressor: it leaves clean data alone, fits the inliers, and says how many there are."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import HuberRegressor, LinearRegression, Ridge
from sklearn.model_selection import KFold
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVR
from sklearn.tree import DecisionTreeRegressor

import inlier
from inlier.experiments.regression.data import draw
from inlier.sklearn import AdaptiveRegressor
from inlier.sklearn._learners import LeastSquares
from inlier.sklearn._regressor import estimate_of
from inlier.sklearn._residuals import examine, without_atoms
from inlier.sklearn._robust import AFFORDABLE, LEAST_GAIN, Data, _first, bound_influence, cost_and_gain
from tests.sklearn.problems import line


def error_ratio(model, x, y, bad, truth):
    """The error of a fit, divided by that of least squares on the inliers alone."""
    reference = LinearRegression().fit(x[~bad], y[~bad])
    error, least = (np.sqrt(np.mean((m.predict(x[~bad]) - truth[~bad]) ** 2)) for m in (model, reference))
    return error / least


# -- clean data --------------------------------------------------------------------------------------------


def skewed(rng, x):
    return np.exp(x[:, 0] + rng.normal(size=len(x)))


def heavy_tailed(rng, x):
    return x[:, 0] + rng.standard_t(2, size=len(x))


def growing_noise(rng, x):
    return 3 * x[:, 0] + np.exp(x[:, 1]) * rng.normal(size=len(x))


def capped(rng, x):
    return np.minimum(x[:, 0] + rng.normal(size=len(x)), 0.2)


def zeros(rng, x):
    return np.maximum(x[:, 0] + rng.normal(size=len(x)), 0)


def counts(rng, x):
    return rng.poisson(np.exp(0.5 * x[:, 0])).astype(float)


def rounded(rng, x):
    return np.round(x[:, 0] + 0.5 * rng.normal(size=len(x)))


@pytest.mark.parametrize(
    "make_targets", [skewed, heavy_tailed, growing_noise, capped, zeros, counts, rounded]
)
def test_no_false_alarm_and_little_harm_on_clean_data(make_targets):
    rng = np.random.default_rng(0)
    x, x_test = rng.normal(size=(1000, 3)), rng.normal(size=(3000, 3))
    y, y_test = make_targets(rng, x), make_targets(rng, x_test)
    model = AdaptiveRegressor(random_state=0).fit(x, y)
    estimate = model.fraction_estimate_
    assert not (estimate.trusted and estimate.value < 0.95)
    errors = [np.mean((m.predict(x_test) - y_test) ** 2) for m in (model, LinearRegression().fit(x, y))]
    assert errors[0] <= 1.05 * errors[1]


def test_clean_data_are_fitted_by_least_squares():
    x, y, _, _ = line(outliers=0.0)
    model = AdaptiveRegressor(random_state=0).fit(x, y)
    np.testing.assert_allclose(model.estimator_.coef_, LinearRegression().fit(x, y).coef_, rtol=1e-9)
    assert (model.weights_ == 1).all()
    assert model.inlier_fraction_ == model.fraction_estimate_.value == 1
    assert model.scale_ == np.inf


def multiplicative(seed, n=1000):
    """Prices with log-normal noise."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(size=(n, 3))
    return x, np.exp(11 + x @ [1.0, 0.5, 0.2] + 0.3 * rng.normal(size=n))


def slipped(y, seed, kind, rate):
    """Targets of which some are ten times too large, or have the other sign."""
    chosen = np.random.default_rng(seed).random(len(y)) < rate
    return np.where(chosen, {"ten": 10.0, "sign": -1.0}[kind] * y, y)


@pytest.mark.parametrize("seed", range(4))
def test_multiplicative_errors_are_no_errors_if_slips_would_have_been_noticed(seed):
    x, y = multiplicative(seed)
    estimate = AdaptiveRegressor(random_state=0).fit(x, y).fraction_estimate_
    assert estimate.trusted
    assert 1 - estimate.value <= max(0, 1.96 * estimate.standard_error)
    for kind in ("ten", "sign"):
        for rate in (0.05, 0.3):
            found = AdaptiveRegressor(random_state=0).fit(x, slipped(y, seed, kind, rate)).fraction_estimate_
            assert found.value == pytest.approx(1 - rate, abs=0.04) or not found.trusted


def test_heavy_tails_in_which_slips_would_hide_are_not_called_clean():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1000, 3))
    y = x @ [1.0, 0.5, 0.2] + 3 * rng.standard_t(3, size=1000)
    estimate = AdaptiveRegressor(random_state=0).fit(x, y).fraction_estimate_
    assert not estimate.trusted


def test_an_open_question_is_bounded_by_what_would_have_been_noticed():
    weighting = SimpleNamespace(
        kind="bounded",
        evidence=SimpleNamespace(trusted=False, suspected=True, open=True, share=0.97, standard_error=0.005),
    )
    estimate = estimate_of(weighting, 1000, noticed=True)
    assert estimate.trusted
    assert estimate.value - 1.96 * estimate.standard_error < 0.95 < estimate.value
    assert estimate.value + 1.96 * estimate.standard_error > 1
    assert not estimate_of(weighting, 1000, noticed=False).trusted
    weighting.evidence.share = 0.8  # More than the slips that would have been noticed.
    assert not estimate_of(weighting, 1000, noticed=True).trusted


def test_few_samples_are_left_alone():
    x, y, _, _ = line(20, 0.25, dimension=1)
    model = AdaptiveRegressor(random_state=0).fit(x, y)
    assert (model.weights_ == 1).all()
    assert not model.fraction_estimate_.trusted
    assert "20 rows are too few" in model.fraction_estimate_.reason


# -- an open question --------------------------------------------------------------------------------------


def test_what_is_not_proven_has_a_bounded_influence_if_that_is_cheap():
    """A few errors that are somewhat larger: no row is given up, and none decides alone."""
    rng = np.random.default_rng(3)
    x, noise = rng.normal(size=(400, 3)), rng.normal(size=400)
    noise[rng.random(400) < 0.03] *= 6
    model = AdaptiveRegressor(random_state=0).fit(x, x @ [1, 2, 3] + noise)
    estimate = model.fraction_estimate_
    assert (estimate.value, estimate.trusted) == (1.0, False)
    assert "bounded influence" in estimate.reason
    assert 0 < model.weights_.min() < 0.5


def test_what_is_not_proven_changes_nothing_if_that_is_expensive():
    """A skewed target: a bounded influence would predict its median, not its mean."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 3))
    y = np.sqrt(skewed(rng, x))
    model = AdaptiveRegressor(random_state=0).fit(x, y)
    assert (model.weights_ == 1).all()


def test_the_cost_of_a_bounded_influence_is_that_on_clean_data():
    """Rounded and skewed targets: about what new rows show, and never much less."""
    rng = np.random.default_rng(0)
    x, x_test = rng.normal(size=(2000, 3)), rng.normal(size=(20_000, 3))
    ones, found = np.ones(2000), {}
    for make_targets in (rounded, skewed):
        y, y_test = make_targets(rng, x), make_targets(rng, x_test)
        data = Data(y, ones, ones, None)
        first = _first(LeastSquares(x, y), data)
        bounded, unweighted = (LinearRegression().fit(x, y, weights) for weights in (first.weights, ones))
        loss = [np.mean((m.predict(x_test) - y_test) ** 2) for m in (bounded, unweighted)]
        found[make_targets] = cost_and_gain(first, data)[0], loss[0] / loss[1] - 1
    assert max(found[rounded]) < 0.01
    assert found[skewed][0] > found[skewed][1] > AFFORDABLE


def test_the_gain_of_a_bounded_influence_is_that_on_the_rows_that_are_right():
    x, y, bad, _ = line(1000, 0.1, shift=10.0)
    ones = np.ones(1000)
    data = Data(y, ones, ones, None)
    first = _first(LeastSquares(x, y), data)
    bounded, unweighted = (LinearRegression().fit(x, y, weights) for weights in (first.weights, ones))
    loss = [np.mean((m.predict(x) - y)[~bad] ** 2) for m in (bounded, unweighted)]
    assert cost_and_gain(first, data)[1] == pytest.approx(np.log(loss[1] / loss[0]), rel=0.25)


@pytest.mark.parametrize(
    ("kind", "least", "most"), [("t3", 0.4, 0.75), ("normal", 0.9, 1.4), ("skewed", 3.0, 1e3)]
)
def test_the_risk_of_a_bounded_fit_is_that_of_new_data(kind, least, most):
    """It is efficient for heavy tails, about as good as the other for normal noise, and biased for skewed targets."""
    rng, risks, squares = np.random.default_rng(0), [], []
    w, ones = np.array([1.0, 2.0, 3.0]), np.ones(500)
    for _ in range(30):
        x = rng.normal(size=(500, 3))
        noise = {"t3": rng.standard_t(3, size=500), "normal": rng.normal(size=500)}.get(kind)
        noise = rng.exponential(size=500) - 1 if noise is None else noise
        learner, data = LeastSquares(x, x @ w + noise), Data(x @ w + noise, ones, ones, None)
        first = _first(learner, data)
        risks.append(first.risk)
        squares.append([np.mean((fit.predictions - x @ w) ** 2) for fit in (first.fit, learner.fit(ones))])
    truth = np.divide(*np.mean(squares, axis=0))
    assert least < truth < most
    assert np.median(risks) == pytest.approx(truth, rel=0.3)


@pytest.mark.parametrize("make_targets", [heavy_tailed, growing_noise])
def test_influences_are_bounded_where_least_squares_is_inefficient(make_targets):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(2000, 10))
    model = AdaptiveRegressor(random_state=0).fit(x, make_targets(rng, x))
    assert model.weights_.min() < 0.5
    assert not model.fraction_estimate_.trusted


def test_clean_targets_that_agree_on_a_cap_are_no_consensus():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2000, 3))
    y = np.clip(2 * x[:, 0] + 2 * rng.normal(size=2000), 0, 2)
    model = AdaptiveRegressor(random_state=0).fit(x, y)
    assert model.inlier_fraction_ > 0.9


def test_the_middle_of_a_rounded_target_is_no_atom_but_zeros_are():
    rng = np.random.default_rng(0)
    rounded = np.round(3 * rng.normal(size=1000))
    far = np.concatenate((rounded, np.round(100 * rng.normal(size=100))))
    assert (without_atoms(far, np.ones(1100)) == 1).all()
    zeros = np.where(rng.random(1100) < 0.3, 0.0, far + 0.5)
    np.testing.assert_array_equal(without_atoms(zeros, np.ones(1100)) == 0, zeros == 0)


def test_many_zeros_do_not_draw_a_bounded_influence_to_them():
    """Of a count that is mostly 0 Huber's scale would be that of the zeros, and nearly all others bounded."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2000, 3))
    y = rng.poisson(0.6 * np.exp(0.3 * x[:, 0])).astype(float)
    ones = np.ones(2000)
    data = Data(y, ones, ones, None)
    first = _first(LeastSquares(x, y), data)
    assert first.weights[y == 1].min() == 1
    assert cost_and_gain(first, data)[0] < 0.01


def test_gross_errors_in_a_skewed_target_are_bounded_though_nothing_is_proven():
    """Ten times a tenth of the targets: whatever the evidence says, much is gained and little can be lost."""
    rng = np.random.default_rng(4)
    x = rng.normal(size=(400, 3))
    y, ones = np.exp(0.5 * (x[:, 0] + rng.normal(size=400))), np.ones(400)
    clean = _first(LeastSquares(x, y), Data(y, ones, ones, None))
    slipped = np.where(rng.random(400) < 0.1, 10 * y, y)
    first = _first(LeastSquares(x, slipped), Data(slipped, ones, ones, None))
    evidence = replace(examine(clean.unweighted, y - clean.unweighted, y, ones), score=-9.0)
    assert bound_influence(first, evidence, Data(slipped, ones, ones, None)).limit == first.limit
    assert bound_influence(clean, evidence, Data(y, ones, ones, None)).limit == np.inf
    assert bound_influence(clean, replace(evidence, score=2.0), Data(y, ones, ones, None)) is clean


def test_a_wide_table_is_not_bounded_by_its_own_errors():
    """With few rows for each unknown, errors without the row itself flatter weights that were fitted to it."""
    rng = np.random.default_rng(0)
    x, ones = rng.normal(size=(120, 60)), np.ones(120)
    data = Data(x[:, 0] + rng.standard_t(2, size=120), ones, ones, None)
    first = _first(LeastSquares(x, data.y), data)
    assert cost_and_gain(first, data)[1] > LEAST_GAIN
    evidence = replace(examine(first.unweighted, data.y - first.unweighted, data.y, ones), score=0.0)
    assert bound_influence(first, evidence, data).limit == np.inf


def test_rows_are_ranked_by_the_size_of_their_errors_where_nothing_is_proven():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 3))
    y = skewed(rng, x)
    model = AdaptiveRegressor(random_state=0).fit(x, y)
    assert not model.fraction_estimate_.trusted or model.inlier_fraction_ == 1
    assert (np.diff(model.inlier_probability_[np.argsort(model.losses_)]) < 0).all()


# -- the fit -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [0.0, 0.2, 0.4, 0.6, 0.8])
def test_nearly_as_good_as_knowing_the_outliers_of_the_paper(rate):
    data = draw(rate, seed=0)
    x, y, bad = data.x.numpy(), data.y.numpy(), data.outlier.numpy()
    model = AdaptiveRegressor(random_state=0).fit(x, y)
    assert error_ratio(model, x, y, bad, x @ data.true_w.numpy()) < 1.6
    assert abs(model.inlier_fraction_ - (1 - rate)) < 0.03
    assert model.fraction_estimate_.trusted
    assert model.weights_.mean() == pytest.approx(model.inlier_fraction_, abs=0.02)


@pytest.mark.parametrize(
    ("kind", "dimension"),
    [("one side", 2), ("one side", 8), ("leverage", 8), ("another line", 2), ("another line", 8)],
)
def test_outliers_that_agree_with_each_other(kind, dimension):
    x, y, bad, w = line(600, 0.4, shift=10.0 if kind == "one side" else 0.0, dimension=dimension)
    rng = np.random.default_rng(1)
    if kind == "leverage":
        x[bad] = 10 + rng.normal(size=(bad.sum(), dimension))
    elif kind == "another line":
        y[bad] = 5 - x[bad] @ w + 0.1 * rng.normal(size=bad.sum())
    model = AdaptiveRegressor(random_state=0).fit(x, y)
    assert np.abs(model.estimator_.coef_ - w).max() < 0.05
    assert model.inlier_probability_[bad].mean() < 0.1 < 0.8 < model.inlier_probability_[~bad].mean()
    assert np.abs(LinearRegression().fit(x, y).predict(x[~bad]) - x[~bad] @ w).max() > 0.5


@pytest.mark.parametrize("seed", [1, 4])
def test_many_samples_are_fitted_as_well_as_few(seed):
    # Of many samples decisions are made on a subsample. Its mixture once was handed on in another unit of the
    # loss: with these seeds no outliers were found, and the error was 17 times.
    rng = np.random.default_rng(seed)
    x, w = rng.normal(size=(20_000, 20)), rng.normal(size=20)
    y = x @ w + 0.1 * rng.normal(size=20_000)
    bad = rng.uniform(size=20_000) < 0.4
    y[bad] += 5 * rng.normal(size=bad.sum())
    model = AdaptiveRegressor(random_state=seed).fit(x, y)
    assert error_ratio(model, x, y, bad, x @ w) < 1.2
    assert abs(model.inlier_fraction_ - 0.6) < 0.02
    assert model.fraction_estimate_.trusted


def test_leverage_points_in_a_table_with_few_rows_for_each_unknown():
    """No random subset of so many rows is without outliers: the half with central inputs is tried."""
    x, y, bad, w = line(200, 0.2, dimension=50)
    rng = np.random.default_rng(1)
    x[bad] = 10 + rng.normal(size=(bad.sum(), 50))
    model = AdaptiveRegressor(random_state=0).fit(x, y)
    assert error_ratio(model, x, y, bad, x @ w) < 1.2
    assert error_ratio(LinearRegression().fit(x, y), x, y, bad, x @ w) > 3


def test_outliers_that_are_the_majority_on_one_side():
    """Their scale is not that of the inliers, and Huber's fit is theirs."""
    x, y, bad, w = line(2000, 0.6, dimension=3)
    y[bad] = x[bad] @ w + np.random.default_rng(1).uniform(5, 15, size=bad.sum())
    model = AdaptiveRegressor(random_state=0).fit(x, y)
    assert np.abs(model.estimator_.coef_ - w).max() < 0.05
    assert abs(model.inlier_fraction_ - 0.4) < 0.03


@pytest.mark.parametrize("outliers", [0.0, 0.3])
def test_data_without_noise_are_fitted_exactly(outliers):
    rng = np.random.default_rng(1)
    x, bad = rng.normal(size=(400, 3)), np.arange(400) < outliers * 400
    y = 3 + x @ [1.0, -2.0, 0.5] + 10 * bad * rng.normal(size=400)
    model = AdaptiveRegressor(random_state=0).fit(x, y)
    np.testing.assert_allclose(model.estimator_.coef_, [1.0, -2.0, 0.5], rtol=1e-6)


@pytest.mark.parametrize(("factor", "offset"), [(1e-12, 0.0), (1e25, 0.0), (-3.0, 1e3)])
def test_a_change_of_units_changes_nothing(factor, offset):
    x, y, _, _ = line(120)
    one, other = (AdaptiveRegressor(random_state=0).fit(x, z) for z in (y, factor * (y + offset)))
    np.testing.assert_allclose(one.inlier_probability_, other.inlier_probability_, atol=0.05)


@pytest.mark.parametrize("penalty", [0.0, 3.0])
def test_leverage_gives_the_errors_of_samples_left_out(penalty):
    x, y, _, _ = line(40)
    weights = np.random.default_rng(0).uniform(0.2, 1.0, size=40)
    fit = LeastSquares(x, y, penalty).fit(weights)
    for row in range(3):
        rest = np.arange(40) != row
        estimator = Ridge(penalty) if penalty else LinearRegression()
        left_out = estimator.fit(x[rest], y[rest], weights[rest])
        error = (y - fit.predictions)[row] / (1 - weights[row] * fit.leverage[row])
        assert error == pytest.approx(y[row] - left_out.predict(x[[row]])[0], rel=0.05)


def test_a_wide_table_is_no_worse_than_hubers_regression():
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(150, 60)), rng.normal(size=60)
    y = x @ w + 0.1 * rng.normal(size=150)
    y[:20] += 50
    models = AdaptiveRegressor(random_state=0), HuberRegressor(max_iter=1000), LinearRegression()
    errors = [np.abs(m.fit(x, y).predict(x[20:]) - x[20:] @ w).mean() for m in models]
    assert errors[0] < 1.2 * errors[1] < 0.2 * errors[2]


# -- the fraction ------------------------------------------------------------------------------------------


def test_a_given_fraction_is_used():
    x, y, bad, _ = line()
    model = AdaptiveRegressor(inlier_fraction=0.7, random_state=0).fit(x, y)
    assert model.inlier_fraction_ == 0.7
    assert model.fraction_estimate_ == inlier.FractionEstimate(0.7, 0.0, True, "Given.")
    assert model.weights_[bad].max() < 0.05
    everything = AdaptiveRegressor(inlier_fraction=1.0).fit(x, y)
    assert (everything.weights_ == 1).all()


def test_the_evidence_grows_with_the_number_of_samples_and_not_with_copies_of_a_target():
    rng = np.random.default_rng(0)
    noise = rng.normal(size=2000)
    noise[:200] += 8
    scores = [examine(noise[:n], np.zeros(n), noise[:n], np.ones(n)).score for n in (2000,)]
    few = rng.permutation(2000)[:200]
    scores.append(examine(noise[few], np.zeros(200), noise[few], np.ones(200)).score)
    assert scores[0] > 2 * scores[1] > 4
    # A spike of equal targets beside a wide distribution is no evidence of anything.
    targets = np.where(np.arange(1000) < 600, 0.0, rng.normal(size=1000) + 3)
    assert not examine(targets, np.zeros(1000), targets, np.ones(1000)).trusted


def test_probabilities_fall_with_the_error_on_both_sides():
    rng = np.random.default_rng(0)
    errors = np.concatenate((rng.normal(size=900), 10 + rng.normal(size=100)))
    evidence = examine(errors, np.zeros(1000), errors, np.ones(1000))
    grid = np.linspace(0, 40, 500)
    for side in (grid, -grid):
        center = float(evidence.two[0] * evidence.scale.at(np.zeros(1))[0])
        falling = np.diff(evidence.probability(center + side, np.zeros(500)))
        assert (falling <= 0).all()


# -- other models ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "estimator",
    [
        DecisionTreeRegressor(min_samples_leaf=5, random_state=0),
        HistGradientBoostingRegressor(max_iter=15, max_bins=16),
        make_pipeline(HistGradientBoostingRegressor(max_iter=15, max_bins=16)),
        SVR(C=10.0),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_models_that_memorise_are_fitted_with_out_of_fold_errors(estimator):
    x, y, bad, w = line(500, 0.2, shift=30.0)
    model = AdaptiveRegressor(estimator, random_state=0).fit(x, y)
    assert model.inlier_probability_[bad].mean() < 0.3 * model.inlier_probability_[~bad].mean()
    unweighted = clone(estimator).fit(x, y)
    errors = [np.sqrt(np.mean((m.predict(x[~bad]) - x[~bad] @ w) ** 2)) for m in (model, unweighted)]
    assert errors[0] <= errors[1] * 1.05


def test_boosting_with_one_sided_slips_is_as_good_as_the_absolute_error():
    x, y, bad, w = line(1000, 0.0)
    y = 10 + y
    bad = np.arange(1000) < 300
    y[bad] *= 10
    model, absolute = (
        m.fit(x, y)
        for m in (
            AdaptiveRegressor(HistGradientBoostingRegressor(max_iter=50), random_state=0),
            HistGradientBoostingRegressor(max_iter=50, loss="absolute_error"),
        )
    )
    errors = [np.abs(m.predict(x[~bad]) - 10 - x[~bad] @ w).mean() for m in (model, absolute)]
    assert errors[0] < 1.02 * errors[1]
    assert abs(model.inlier_fraction_ - 0.7) < 0.03


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.3])
def test_boosting_takes_seven_fits_of_which_the_last_alone_may_have_weights(rate, monkeypatch):
    """Weighted fits take several times as long; rows that are more likely outliers are left out instead."""
    x, y, bad, _ = line(600, rate, shift=20.0)
    fits, fit = [], HistGradientBoostingRegressor.fit

    def noted(model, x, y, sample_weight=None):
        fits.append((model.loss, len(y), sample_weight is not None))
        return fit(model, x, y, sample_weight)

    monkeypatch.setattr(HistGradientBoostingRegressor, "fit", noted)
    base = HistGradientBoostingRegressor(max_iter=30, random_state=0)
    model = AdaptiveRegressor(base, random_state=0).fit(x, y)
    losses, rows, weighted = zip(*fits, strict=True)
    second = "absolute_error" if rate else "squared_error"
    assert losses == ("absolute_error",) * 3 + (second,) * 3 + ("squared_error",)
    assert rows[:3] == (400, 400, 400)
    assert sum(rows[3:6]) == pytest.approx(1200 * (1 - bad.mean()), rel=0.1)
    assert not any(weighted[:6])
    assert model.inlier_fraction_ == pytest.approx(1 - bad.mean(), abs=0.03)


def test_an_error_is_never_that_of_a_fit_that_saw_the_sample():
    x, y = np.arange(40.0)[:, None], np.arange(40.0)
    model = AdaptiveRegressor(DecisionTreeRegressor(), cv=KFold(5)).fit(x, y)
    # A full tree repeats what it has seen: an error of 0 would be a memorised one.
    assert model.losses_.min() > 0


def test_a_splitter_must_partition_the_samples():
    x, y, _, _ = line(60)
    half = [(np.arange(30), np.arange(30, 60))]
    with pytest.raises(ValueError, match="cv must test each sample exactly once"):
        AdaptiveRegressor(cv=half).fit(x, y)


def test_integer_sample_weights_are_repetitions_and_zero_is_absence():
    x, y, _, _ = line(200)
    frequency = np.arange(200) % 3
    weighted = AdaptiveRegressor(random_state=0).fit(x, y, sample_weight=frequency)
    rows = np.repeat(np.arange(200), frequency)
    repeated = AdaptiveRegressor(random_state=0).fit(x[rows], y[rows])
    np.testing.assert_allclose(weighted.predict(x), repeated.predict(x), rtol=1e-2, atol=0.02)


def test_what_trees_cannot_follow_is_no_outlier_however_many_rows_show_it():
    """With enough rows any misfit is significant: errors are larger where a product of two inputs is."""
    rng = np.random.default_rng((0, 0))
    x = rng.normal(size=(40_000, 6))
    y = x[:, :3].sum(1) + 2 * np.sin(2 * x[:, 3]) + x[:, 4] * x[:, 5] + 0.3 * rng.normal(size=40_000)
    model = AdaptiveRegressor(HistGradientBoostingRegressor(random_state=0), random_state=0).fit(x, y)
    assert (model.weights_ == 1).all()
    assert model.inlier_fraction_ == 1


@pytest.mark.parametrize("kind", ["product", "growing noise"])
def test_what_a_line_cannot_follow_is_no_outlier_however_many_rows_show_it(kind):
    rng = np.random.default_rng((1, 14_000))
    x = rng.normal(size=(14_000, 6))
    y = x[:, 1] * x[:, 2] if kind == "product" else np.exp(x[:, 1]) * rng.normal(size=14_000)
    model = AdaptiveRegressor(random_state=0).fit(x, x[:, 0] + y + 0.3 * rng.normal(size=14_000))
    assert model.inlier_fraction_ == 1
