"""skorch: RobustNet before any net, in a grid search, pickled, with samples known by row."""

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

from inlier import Robust
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
    }
    return kind(**settings | changes)


def test_it_beats_the_plain_net_and_knows_the_wrong_rows():
    x, y, wrong, truth = contaminated()
    torch.manual_seed(0)
    plain = NeuralNetRegressor(
        Mlp, max_epochs=30, lr=0.02, batch_size=20, verbose=0, iterator_train__shuffle=True
    )
    robust = net()
    errors = [np.square(model.fit(x, y).predict(x) - truth).mean() for model in (robust, plain)]
    assert errors[0] < errors[1] / 3
    belief = robust.inlier_probability_
    assert belief.shape == (400,)
    # The rows that validation kept were never judged; the others are numbered as in X.
    seen = belief.isfinite().numpy()
    assert 300 <= seen.sum() <= 340
    assert belief[seen & wrong].mean() < 0.3
    assert belief[seen & ~wrong].mean() > 0.8


def test_grid_search_chooses_an_argument_of_robust():
    x, y, _, _ = contaminated(200)
    grid = {"robust__inlier_fraction": [0.7, 1.0], "module__hidden": [8]}
    search = GridSearchCV(
        net(max_epochs=15, train_split=None, robust__kernel="tukey"),
        grid,
        cv=3,
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
    assert twin.robust_.window.given_fraction == 0.6
    twin.set_params(robust__inlier_fraction=0.8)
    assert twin.robust_.window.given_fraction == 0.8
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
    assert model.robust_._step == 2 * 4


def test_classification_with_callbacks_that_look_at_batches():
    random = np.random.default_rng(0)
    truth = random.integers(2, size=300)
    x = (random.normal(size=(300, 5)) + 2 * truth[:, None]).astype(np.float32)
    wrong = random.random(300) < 0.25
    y = np.where(wrong, 1 - truth, truth)
    model = net(
        Classifier,
        module=lambda: torch.nn.Sequential(torch.nn.Linear(5, 2), torch.nn.Softmax(dim=1)),
        lr=0.1,
        train_split=None,
        callbacks=[EpochScoring("accuracy", on_train=True, name="train_accuracy")],
    ).fit(x, y)
    assert (model.predict(x) == truth).mean() > 0.9
    assert model.history[-1, "train_accuracy"] == pytest.approx((model.predict(x) == y).mean(), abs=0.05)
    assert wrong[model.inlier_probability_.argsort()[:30]].mean() > 0.9


def flipped(rows: int = 2000, classes: int = 5, rate: float = 0.4):
    random = np.random.default_rng(0)
    truth = random.integers(classes, size=rows)
    x = (0.5 * random.normal(size=(classes, 20))[truth] + random.normal(size=(rows, 20))).astype(np.float32)
    wrong = random.random(rows) < rate
    return x, np.where(wrong, (truth + random.integers(1, classes, size=rows)) % classes, truth), wrong, truth


def layers(*last):
    return torch.nn.Sequential(torch.nn.Linear(20, 128), torch.nn.ReLU(), torch.nn.Linear(128, 5), *last)


@pytest.mark.parametrize(
    ("module", "criterion"),
    [
        (lambda: layers(torch.nn.Softmax(dim=1)), torch.nn.NLLLoss),
        (layers, torch.nn.CrossEntropyLoss),
    ],
)
def test_wrong_classes_are_counted_with_class_labels(module, criterion):
    x, y, wrong, truth = flipped()
    settings = {"module": module, "criterion": criterion, "lr": 0.1, "train_split": None, "max_epochs": 20}
    model = net(Classifier, class_labels=True, **settings).fit(x, y)
    assert float(model.robust_.inlier_fraction.mean()) == pytest.approx(0.6, abs=0.05)
    # Without it all labels are believed, 0.67 of the classes are right, 0.39 of the suspects wrong.
    assert (model.predict(x) == truth).mean() > 0.82
    assert wrong[model.inlier_probability_.argsort()[:600]].mean() > 0.93


def test_class_labels_are_for_one_class_a_sample():
    x, y, _, _ = contaminated(60)
    with pytest.raises(ValueError, match=r"float32 labels of shape \(20, 1\).*leave it out here"):
        net(class_labels=True).fit(x, y)


def test_the_history_has_the_metrics_and_validation_is_plain():
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


def test_another_class_of_robust():
    class Doubter(Robust):
        pass

    x, y, _, _ = contaminated(60)
    assert isinstance(net(max_epochs=1, robust=Doubter).fit(x, y).robust_, Doubter)
