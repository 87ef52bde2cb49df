"""skorch: a robust net in a grid search over parameters of the net and of Robust."""

import numpy as np
import torch
from sklearn.model_selection import GridSearchCV
from skorch import NeuralNetRegressor

from inlier.integrations.skorch import RobustNet


class RobustRegressor(RobustNet, NeuralNetRegressor):
    pass


class Mlp(torch.nn.Module):
    def __init__(self, hidden: int = 16):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(5, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, 1)
        )

    def forward(self, x):
        return self.layers(x)


def main(epochs: int = 20) -> None:
    torch.manual_seed(0)
    random = np.random.default_rng(0)
    x = random.normal(size=(600, 5)).astype(np.float32)
    y = x.sum(1, keepdims=True) + 0.1 * random.normal(size=(600, 1))
    outliers = random.random(600) < 0.3
    y = (y + outliers[:, None] * 20 * random.normal(size=(600, 1))).astype(np.float32)

    net = RobustRegressor(
        Mlp,
        max_epochs=epochs,
        lr=0.02,
        batch_size=20,
        train_split=None,
        iterator_train__shuffle=True,
        robust__warmup=100,
        verbose=0,
    )
    # The targets that the search scores by have outliers too: the median error is robust to them.
    grid = {"robust__kernel": ["geman-mcclure", "truncated"], "module__hidden": [8, 16]}
    search = GridSearchCV(net, grid, cv=3, scoring="neg_median_absolute_error").fit(x, y)

    best = search.best_estimator_
    suspects = best.inlier_probability_.argsort()[: outliers.sum()]
    print(f"best: {search.best_params_}")
    print(f"of the {len(suspects)} most suspect rows, {outliers[suspects].mean():.1%} are outliers")


if __name__ == "__main__":
    main()
