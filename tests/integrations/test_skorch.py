"""skorch: RobustNet before any net, in a grid search, pickled, with samples known by their row."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from skorch import NeuralNetClassifier, NeuralNetRegressor
from skorch.callbacks import EpochScoring

from inlier import Robust, RobustCrossEntropy
from inlier.integrations.skorch import RobustNet


class Classifier(RobustNet, NeuralNetClassifier):
    pass


class Regressor(RobustNet, NeuralNetRegressor):
    pass


class Mlp(torch.nn.Module):
    def __init__(self, hidden: int = 32):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(5, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, 1)
        )

    def forward(self, x):
        return self.layers(x)


def contaminated(rows: int = 400, rate: float = 0.3, seed: int = 0):
    random = np.random.default_rng(seed)
    x = random.normal(size=(rows, 5)).astype(np.float32)
    y = x.sum(1, keepdims=True)
    wrong = random.random(rows) < rate
    return x, (y + wrong[:, None] * 20 * random.normal(size=(rows, 1))).astype(np.float32), wrong, y


def net(kind=Regressor, **changes):
    torch.manual_seed(0)
    settings = {
        "module": Mlp,
        "max_epochs": 30,
        "lr": 0.02,
        "batch_size": 20,
        "verbose": 0,
        "iterator_train__shuffle": True,
        "robust__warmup": 100,
        "robust__update_every": 5,  # A training of 300 steps is short: several estimates have to agree in it.
    }
    return kind(**settings | changes)


def test_it_beats_the_baseline_and_finds_the_outlying_rows():
    # Enough rows for an estimate that is trusted: others are acted on by half.
    x, y, wrong, truth = contaminated(800)
    torch.manual_seed(0)
    baseline = NeuralNetRegressor(
        Mlp, max_epochs=30, lr=0.02, batch_size=20, verbose=0, iterator_train__shuffle=True
    )
    robust = net()
    errors = [np.square(model.fit(x, y).predict(x) - truth).mean() for model in (robust, baseline)]
    assert errors[0] < errors[1] / 3
    probability = robust.inlier_probability_
    assert robust.robust_.fraction_estimate.trusted
    assert probability.shape == (800,)
    # Rows that were held out have none; the others are in the order of X.
    seen = probability.isfinite().numpy()
    assert seen.sum() == 640
    assert probability[seen & wrong].mean() < 0.3
    assert probability[seen & ~wrong].mean() > 0.8


def test_grid_search_chooses_an_argument_of_robust():
    x, y, _, _ = contaminated(120)
    grid = {"robust__inlier_fraction": [0.7, 1.0], "module__hidden": [8]}
    search = GridSearchCV(
        net(max_epochs=15, train_split=None, robust__kernel="tukey", robust__warmup=40),
        grid,
        cv=2,
        scoring="neg_median_absolute_error",
        error_score="raise",
    ).fit(x, y)
    assert search.best_params_["robust__inlier_fraction"] == 0.7
    assert float(search.best_estimator_.robust_.inlier_fraction) == pytest.approx(0.7)


def test_clone_and_set_params():
    one = net(robust__inlier_fraction=0.6)
    twin = clone(one)
    assert twin.get_params()["robust__inlier_fraction"] == 0.6
    twin.initialize()
    assert twin.robust_.fraction_estimate.value == 0.6
    twin.set_params(robust__inlier_fraction=0.8)
    assert twin.robust_.fraction_estimate.value == 0.8
    with pytest.raises(ValueError, match="robus__inlier_fraction"):
        net(robus__inlier_fraction=0.6).initialize()


def test_pickled_it_goes_on_as_it_would_have():
    x, y, _, _ = contaminated(100)
    model = net(max_epochs=5).fit(x, y)
    twin = pickle.loads(pickle.dumps(model))
    for each in (model, twin):
        torch.manual_seed(1)
        each.partial_fit(x, y)
    np.testing.assert_array_equal(twin.predict(x), model.predict(x))
    torch.testing.assert_close(twin.inlier_probability_, model.inlier_probability_, equal_nan=True)


def test_a_fit_begins_anew():
    x, y, _, _ = contaminated(100)
    model = net(max_epochs=2).fit(x, y)
    first = model.robust_
    assert model.fit(x, y).robust_ is not first


def flipped(rows: int = 600, classes: int = 5, rate: float = 0.4):
    """Classes that overlap, with symmetric label noise."""
    random = np.random.default_rng(0)
    truth = random.integers(classes, size=rows)
    x = (0.7 * random.normal(size=(classes, 20))[truth] + random.normal(size=(rows, 20))).astype(np.float32)
    noisy = random.random(rows) < rate
    return x, np.where(noisy, (truth + random.integers(1, classes, size=rows)) % classes, truth), noisy, truth


def layers(*last):
    return torch.nn.Sequential(torch.nn.Linear(20, 128), torch.nn.ReLU(), torch.nn.Linear(128, 5), *last)


@pytest.mark.parametrize(
    ("module", "criterion"),
    [
        (lambda: layers(torch.nn.Softmax(dim=1)), torch.nn.NLLLoss),
        (layers, torch.nn.CrossEntropyLoss),
    ],
    ids=["NLLLoss", "CrossEntropyLoss"],
)
def test_a_classifier_weights_noisy_labels_down(module, criterion):
    x, y, noisy, truth = flipped()
    settings = {"module": module, "criterion": criterion, "lr": 0.1, "train_split": None, "max_epochs": 12}
    scoring = [EpochScoring("accuracy", on_train=True, name="train_accuracy")]
    model = net(Classifier, robust__inlier_fraction=0.6, callbacks=scoring, **settings).fit(x, y)
    assert isinstance(model.robust_, RobustCrossEntropy)
    assert float(model.robust_.inlier_fraction) == pytest.approx(0.6)
    suspects = model.inlier_probability_.argsort()[:120]
    assert noisy[suspects].mean() > 0.85
    assert (model.robust_.suggested_label().numpy()[suspects] == truth[suspects]).mean() > 0.7
    # Callbacks that look at batches see them without the index.
    assert model.history[-1, "train_accuracy"] == pytest.approx((model.predict(x) == y).mean(), abs=0.1)


def test_a_classifier_ignores_what_its_criterion_ignores():
    x, y, _, _ = flipped(100)
    y[:30] = -1
    settings = {
        "module": layers,
        "criterion": torch.nn.CrossEntropyLoss,
        "train_split": None,
        "max_epochs": 1,
    }
    model = net(Classifier, criterion__ignore_index=-1, classes=list(range(5)), **settings).fit(x, y)
    probability = model.inlier_probability_
    assert probability.shape == (100,)
    assert probability[:30].isnan().all()
    assert probability[30:].isfinite().all()


@pytest.mark.parametrize(
    ("kind", "changes", "expected"),
    [
        (Regressor, {}, Robust),
        (Classifier, {"criterion": torch.nn.BCEWithLogitsLoss}, Robust),
        (Classifier, {"criterion": torch.nn.CrossEntropyLoss}, RobustCrossEntropy),
        (Classifier, {"criterion": torch.nn.CrossEntropyLoss, "robust": Robust}, Robust),
    ],
)
def test_the_robust_loss_follows_from_the_criterion_unless_it_is_given(kind, changes, expected):
    assert type(net(kind, **changes).initialize().robust_) is expected


def test_robust_cross_entropy_is_for_one_class_a_sample():
    x, y, _, _ = contaminated(60)
    with pytest.raises(ValueError, match=r"float32 targets of shape \(20, 1\).*pass robust=inlier.Robust"):
        net(robust=RobustCrossEntropy).fit(x, y)


def test_the_history_has_the_metrics_and_validation_is_unweighted():
    x, y, _, _ = contaminated(90)
    model = net(max_epochs=3).fit(x, y)
    last = model.history[-1]
    metrics = model.robust_.metrics()
    assert {name: last[name] for name in ("inlier_fraction", "fraction_kept", "scale")} == {
        name: metrics[name] for name in ("inlier_fraction", "fraction_kept", "scale")
    }
    _, valid = model.get_split_datasets(x, y)
    rows = valid.indices
    expected = float(np.square(model.predict(x[rows]) - y[rows]).mean())
    assert last["valid_loss"] == pytest.approx(expected, rel=1e-4)
    assert math.isfinite(expected)


def test_a_criterion_that_averages_is_named():
    x, y, _, _ = contaminated(100)
    with pytest.raises(ValueError, match="MSELoss averages its losses: pass criterion__reduction='none'"):
        net(criterion__reduction="mean").fit(x, y)
