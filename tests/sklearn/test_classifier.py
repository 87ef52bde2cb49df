"""AdaptiveClassifier: it leaves clean labels alone, finds noisy ones, and learns from the clean ones."""

import numpy as np
import pytest
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.datasets import load_breast_cancer, make_classification
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score, log_loss
from sklearn.model_selection import KFold
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC
from sklearn.tree import DecisionTreeClassifier

from inlier.sklearn import AdaptiveClassifier
from inlier.sklearn._labels import LabelModel, NoiseChannel, best_strength, keep_classes
from tests.sklearn.problems import two_classes


@pytest.mark.parametrize(
    ("estimator", "precision"),
    [
        (LogisticRegression(), 0.85),
        (LinearSVC(), 0.85),
        (SVC(), 0.85),
        (DecisionTreeClassifier(max_depth=4, random_state=0), 0.5),  # It has few different losses.
        (RandomForestClassifier(20, random_state=0), 0.8),
        (HistGradientBoostingClassifier(max_iter=15, max_bins=16), 0.8),
    ],
    ids=lambda value: type(value).__name__,
)
def test_noisy_labels_are_found_and_corrected(estimator, precision):
    x, y, clean, bad = two_classes()
    names = np.array(["no", "yes"])
    model = AdaptiveClassifier(estimator, random_state=0).fit(x, names[y])
    assert (model.suspected_label_ == names[clean]).mean() > 0.85
    assert average_precision_score(bad, -model.inlier_probability_) > precision
    assert list(model.classes_) == ["no", "yes"]


def test_noise_is_proven_or_nothing_is_done():
    x, y, _, _ = two_classes()
    estimate = AdaptiveClassifier(random_state=0).fit(x, y).fraction_estimate_
    assert estimate.trusted
    assert abs(estimate.value - 0.8) < 0.1
    assert 0 < estimate.standard_error < 0.05
    x, y = make_classification(
        600, 10, n_informative=4, n_clusters_per_class=1, class_sep=0.4, flip_y=0.0, random_state=0
    )
    model = AdaptiveClassifier(random_state=0).fit(x, y)
    assert model.fraction_estimate_.value == 1
    assert (model.weights_ == 1).all()
    given = AdaptiveClassifier(inlier_fraction=0.8, random_state=0).fit(x, y)
    assert given.fraction_estimate_.trusted
    assert given.inlier_probability_.mean() == pytest.approx(0.8, abs=0.01)


def test_label_noise_costs_less_than_in_unweighted_training():
    x, y = load_breast_cancer(return_X_y=True)
    x = StandardScaler().fit_transform(x)
    rng = np.random.default_rng(2)
    train = rng.uniform(size=len(y)) < 0.7
    noisy = np.where(rng.uniform(size=len(y)) < 0.3, 1 - y, y)
    robust = AdaptiveClassifier(random_state=0).fit(x[train], noisy[train])
    unweighted = LogisticRegression().fit(x[train], noisy[train])
    assert robust.score(x[~train], y[~train]) > unweighted.score(x[~train], y[~train]) + 0.01
    losses = [log_loss(y[~train], m.predict_proba(x[~train])) for m in (robust, unweighted)]
    assert losses[0] < losses[1]


@pytest.mark.parametrize("share", [0.5, 0.02])
def test_clean_overlapping_classes_are_left_alone(share):
    x, y = make_classification(
        2000,
        8,
        n_informative=4,
        n_clusters_per_class=1,
        class_sep=0.5,
        flip_y=0.0,
        weights=[1 - share],
        random_state=1,
    )
    model = AdaptiveClassifier(random_state=0).fit(x, y)
    np.testing.assert_allclose(
        model.predict_proba(x), LogisticRegression().fit(x, y).predict_proba(x), atol=1e-6
    )


def test_no_class_is_given_up():
    weights = keep_classes(np.where(np.arange(100) < 5, 0.001, 1.0), np.repeat([1, 0], [5, 95]), np.ones(100))
    assert weights[:5].mean() == pytest.approx(0.2)
    assert (weights[5:] == 1).all()


def test_class_weight_and_sample_weight_are_respected():
    x, y, _, _ = two_classes(noise=0.0)
    balanced = LogisticRegression(class_weight={0: 1.0, 1: 20.0})
    model = AdaptiveClassifier(balanced, random_state=0).fit(x, y)
    assert (model.predict(x) == 1).mean() >= (balanced.fit(x, y).predict(x) == 1).mean()
    weighted = AdaptiveClassifier(random_state=0).fit(x, y, sample_weight=np.where(y == 1, 20.0, 1.0))
    equal = AdaptiveClassifier(random_state=0).fit(x, y)
    assert weighted.predict_proba(x)[:, 1].mean() > equal.predict_proba(x)[:, 1].mean()


@pytest.mark.parametrize("share", [0.5, 0.05])
def test_class_weight_is_no_noise(share):
    x, y = make_classification(
        2000,
        8,
        n_informative=4,
        n_clusters_per_class=1,
        class_sep=0.8,
        flip_y=0.0,
        weights=[1 - share],
        random_state=2,
    )
    balanced = LogisticRegression(class_weight="balanced")
    model = AdaptiveClassifier(balanced, random_state=0).fit(x, y)
    assert model.noise_probability_ < 0.05
    np.testing.assert_allclose(model.predict_proba(x), balanced.fit(x, y).predict_proba(x), atol=0.01)


def test_repeated_rows_count_as_integer_weights_do():
    x, y, _, _ = two_classes(300)
    twice = LabelModel.fit(
        np.tile(y, 2), np.tile(np.column_stack((expit(-x[:, 0]), expit(x[:, 0]))), (2, 1)), np.ones(600)
    )
    weighted = LabelModel.fit(y, np.column_stack((expit(-x[:, 0]), expit(x[:, 0]))), np.full(300, 2.0))
    np.testing.assert_allclose(weighted.log_likelihood, twice.log_likelihood)
    assert weighted.noise_probability(weighted) == pytest.approx(twice.noise_probability(twice))


def test_a_class_that_a_fold_has_not_seen():
    x, y, _, _ = two_classes(60)
    y[:2] = 2
    model = AdaptiveClassifier(DecisionTreeClassifier(), cv=KFold(5), random_state=0)
    assert model.fit(x, y).predict_proba(x).shape == (60, 3)


def test_the_label_model_finds_the_noise_of_a_good_classifier():
    x, y, _, bad = two_classes(2000)
    up = expit(8 * (x[:, 0] + 0.3 * x[:, 1]))
    probability = np.column_stack((1 - up, up))
    model = LabelModel.fit(y, probability, np.ones(len(y)))
    clean = model.channel(noisy=True).clean(y, probability)
    assert clean.mean() == pytest.approx(1 - bad.mean(), abs=0.03)
    assert average_precision_score(bad, -clean) > 0.9
    assert model.noise_probability(model) > 0.999
    assert model.capable
    blind = LabelModel.fit(y, np.full((len(y), 2), 0.5), np.ones(len(y)))
    assert 0.05 < blind.noise_probability(blind) < 0.95
    assert not blind.is_clean
    assert not blind.capable


@pytest.mark.parametrize("target", ["even", "single"])
def test_the_truth_follows_the_noise_channel(target):
    rng = np.random.default_rng(0)
    probability = rng.dirichlet(np.ones(3), size=2)
    s = np.full((3, 3), 0.5) - 0.5 * np.eye(3) if target == "even" else np.roll(np.eye(3), 1, axis=1)
    label = np.array([0, 2])
    joint = probability * (0.7 * np.eye(3) + 0.3 * s)[:, label].T
    channel = NoiseChannel(1.0, s, 0.3, np.full(3, 1 / 3))
    expected = joint / joint.sum(1, keepdims=True)
    np.testing.assert_allclose(channel.truth(label, probability), expected, atol=1e-12)
    np.testing.assert_allclose(channel.clean(label, probability), expected[[0, 1], label], atol=1e-12)


def test_open_questions_are_answered_with_bounded_weights():
    rng = np.random.default_rng(3)
    x = np.repeat([[-1.0], [1.0]], 150, axis=0) + 0.05 * rng.normal(size=(300, 1))
    truth = np.repeat([0, 1], 150)
    y = np.where(rng.uniform(size=300) < 0.3, 1 - truth, truth)
    # Two values of one input, a label that agrees with it in 70 %: noise, or chance? Nothing in the data can tell.
    model = AdaptiveClassifier(random_state=0).fit(x, y)
    assert not model.fraction_estimate_.trusted
    assert model.fraction_estimate_.value == 1.0
    assert 0.02 < model.noise_probability_ < 0.95
    assert model.weights_.min() > 0.2
    unweighted = LogisticRegression().fit(x, y)
    losses = [log_loss(y, each.predict_proba(x)) for each in (model, unweighted)]
    assert losses[0] < 1.02 * losses[1]  # Its price, if it is chance.


def test_weights_are_taken_back_where_they_do_not_pay():
    truth = np.eye(2)[np.repeat([0, 1], 50)]
    half, sure, wrong = np.full((100, 2), 0.5), 0.98 * truth + 0.01, 0.98 * (1 - truth) + 0.01
    assert best_strength(half, sure, truth, np.ones(100)) == 1.0
    assert best_strength(half, wrong, truth, np.ones(100)) == 0.0


def test_clean_classes_are_said_to_be_clean_and_one_in_ten_flipped_is_not():
    x, y, _, _ = two_classes(600, noise=0.0)
    estimate = AdaptiveClassifier(random_state=0).fit(x, y).fraction_estimate_
    assert (estimate.value, estimate.trusted) == (1.0, True)
    assert 0 < estimate.standard_error < 0.025
    x, y, _, _ = two_classes(600, noise=0.1)
    estimate = AdaptiveClassifier(random_state=0).fit(x, y).fraction_estimate_
    assert not (estimate.value == 1.0 and estimate.trusted)


class Stubborn(ClassifierMixin, BaseEstimator):
    """A classifier that is sure of its one rule, whatever it is shown."""

    def fit(self, X, y, sample_weight=None):
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, X):
        up = expit(8 * X[:, 0])
        return np.column_stack((1 - up, up))


def test_a_model_that_cannot_learn_more_does_not_call_labels_noisy():
    x = np.random.default_rng(0).normal(size=(1000, 2))
    y = ((x[:, 0] > 0) ^ (x[:, 1] > 1)).astype(int)  # A rule that it does not know.
    first = LabelModel.fit(y, Stubborn().fit(x, y).predict_proba(x), np.ones(1000))
    assert first.noise_probability(first) > 0.999
    model = AdaptiveClassifier(Stubborn(), random_state=0).fit(x, y)
    assert not model.fraction_estimate_.trusted
    assert "no better" in model.fraction_estimate_.reason


def test_a_classifier_without_skill_is_no_evidence_of_noise():
    rng = np.random.default_rng(0)
    shares = np.array([0.64, 0.12, 0.1, 0.08, 0.06])
    y = rng.choice(5, size=800, p=shares)
    logits = np.log(shares) + 0.4 * rng.normal(size=(800, 5))  # It overfits a little, and knows nothing.
    probability = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    model = LabelModel.fit(y, probability, np.ones(800))
    assert model.noise_probability(model) < 0.5
    assert not model.is_clean  # Nor is it evidence of the contrary.


def test_noise_between_similar_classes_is_not_taken_for_even_noise():
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 6, size=3000)
    bad = rng.uniform(size=3000) < 0.2
    y = np.where(bad, truth ^ 1, truth)  # Each class has one that it is taken for.
    logits = 1.0 * rng.normal(size=(3000, 6))
    logits[np.arange(3000), truth] += 5
    probability = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    model = LabelModel.fit(y, probability, np.ones(3000))
    channel = model.channel(noisy=True)
    assert model.noise_probability(model) > 0.999
    assert channel.clean(y, probability).mean() == pytest.approx(0.8, abs=0.03)
    flipped, far = (0.5 * np.eye(6)[0] + 0.5 * np.eye(6)[k] for k in (1, 3))
    both = channel.clean(np.array([0, 0]), np.vstack((flipped, far)))
    assert both[0] < both[1]  # As likely by the classifier, but noise goes from 1 to 0, and not from 3 to 0.


def test_noise_to_one_class_each_is_seen_although_there_are_many_classes():
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 20, size=1000)
    y = np.where(rng.uniform(size=1000) < 0.1, truth ^ 1, truth)
    logits = rng.normal(size=(1000, 20))
    logits[np.arange(1000), truth] += 5
    logits[np.arange(1000), truth ^ 1] += 2.5  # It has learned a part of the noise.
    probability = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    model = LabelModel.fit(y, probability, np.ones(1000))
    assert model.noise_probability(model) > 0.95
