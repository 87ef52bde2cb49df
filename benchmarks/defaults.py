"""Why Robust's defaults are what they are: `python -m benchmarks.defaults` (about ten minutes on two cores).

Two problems. Regression: the paper's data, 10^6 samples seen in batches of 25 at the paper's step size; the
error is the test RMSE over that of least squares on the inliers alone. Labels: ten overlapping classes, 40 %
noisy labels, an MLP that can memorise them; test accuracy, and the average precision of finding the noisy labels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from statistics import mean

import torch
from sklearn.metrics import average_precision_score
from torch.nn import functional as F

from inlier import Robust
from inlier.experiments.regression.data import draw, rmse
from inlier.experiments.regression.direct import inlier_least_squares

BATCH, SEEN, STEP_SIZE = 25, 10**6, 7e-4


def regression(make: Callable[[], Robust], rate: float, seed: int) -> float:
    """Test RMSE of a robust training over that of least squares on the inliers."""
    data = draw(rate, seed)
    x, y, generator = data.x.float(), data.y.float(), torch.Generator().manual_seed(seed)
    w, robust = torch.zeros(x.shape[1], requires_grad=True), make()
    for _ in range(SEEN // len(x)):
        for index in torch.randperm(len(x), generator=generator).split(BATCH):
            (gradient,) = torch.autograd.grad(robust((x[index] @ w - y[index]) ** 2, index), w)
            with torch.no_grad():
                w -= BATCH * STEP_SIZE * gradient
    return rmse(data, w.detach()) / rmse(data, inlier_least_squares(data, seed))


def labels(
    make: Callable[[], Robust], seed: int, use_index: bool = True, epochs: int = 60
) -> tuple[float, float]:
    """Test accuracy, and average precision of finding the noisy labels (nan without an index)."""
    torch.manual_seed(seed)
    centres, truth, test_truth = torch.randn(10, 30), torch.randint(10, (3000,)), torch.randint(10, (5000,))
    x, test_x = (centres[t] + 1.3 * torch.randn(len(t), 30) for t in (truth, test_truth))
    wrong = torch.rand(3000) < 0.4
    y = torch.where(wrong, (truth + torch.randint(1, 10, (3000,))) % 10, truth)
    model = torch.nn.Sequential(torch.nn.Linear(30, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
    optimizer, robust = torch.optim.Adam(model.parameters(), 1e-3), make()
    for _ in range(epochs):
        for index in torch.randperm(3000).split(64):
            losses = F.cross_entropy(model(x[index]), y[index], reduction="none")
            loss = robust(losses, index if use_index else None)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    accuracy = float((model(test_x).argmax(1) == test_truth).float().mean())
    if not use_index:
        return accuracy, float("nan")
    return accuracy, float(average_precision_score(wrong.numpy(), 1 - robust.inlier_probability().numpy()))


def study_running_mean(seeds: int) -> None:
    print("running_mean: test accuracy, average precision")
    for name, share in (("no index", 0.0), ("0", 0.0), ("0.5", 0.5), ("0.7", 0.7), ("0.9", 0.9)):
        make = partial(Robust, update_every=10, running_mean=share)
        results = [labels(make, seed, use_index=name != "no index") for seed in range(seeds)]
        print(f"  {name:8}", *(f"{mean(column):.3f}" for column in zip(*results, strict=True)), flush=True)


def study_regression(argument: str, values: Sequence[object], given: bool, seeds: int) -> None:
    print(f"{argument}: test RMSE over that of the inliers' least squares, at 60, 80 and 90 % outliers")
    for value in values:
        ratios = []
        for rate in (0.6, 0.8, 0.9):
            fraction = 1 - rate if given else "auto"
            make = partial(Robust, update_every=10, inlier_fraction=fraction, **{argument: value})
            ratios.append(mean(regression(make, rate, seed) for seed in range(seeds)))
        print(f"  {value!s:8}", *(f"{ratio:.2f}" for ratio in ratios), flush=True)


def main(seeds: int = 2) -> None:
    torch.set_num_threads(1)
    study_running_mean(seeds)
    study_regression("divide_by", ("samples", "weights"), given=False, seeds=seeds)
    study_regression("warmup", (0, 1000, 10_000), given=True, seeds=seeds)


if __name__ == "__main__":
    main()
