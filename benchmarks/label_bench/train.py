"""Training in a cell: a head on features, with any method of the classification experiment."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.label_bench.data import Split
from inlier._vision.training import Task
from inlier.experiments.classification.experiment import average_precision
from inlier.experiments.classification.methods import METHODS

HIDDEN, STEP_SIZE, WARMUP = 512, 1e-3, 0.06
"""One hidden layer; AdamW; the step size rises in the first 6 % of the steps, then falls to 0."""

FOLDS = 5


def fit_head(
    split: Split, given: Tensor, method: str, epochs: int, batch_size: int, seed: int
) -> dict[str, float | str]:
    """Train with a method; return test accuracy, the estimated fraction, and how well noisy labels are found."""
    noisy = given != split.y
    if method == "clean-only":
        return fit_head(_part(split, ~noisy), split.y[~noisy], "sgd", epochs, batch_size, seed)
    if method == "cleanlab":
        kept = _kept_by_cleanlab(split, given, epochs, batch_size, seed)
        return fit_head(_part(split, kept), given[kept], "sgd", epochs, batch_size, seed)
    (network, trained), _ = _fit(split, given, method, epochs, batch_size, seed)
    with torch.no_grad():
        correct = network(split.x_test).argmax(1) == split.y_test
    found: dict[str, float | str] = {"accuracy": 100 * float(correct.float().mean())}
    found["clean"] = 1 - float(noisy.float().mean())
    if method.startswith("inlier"):
        estimate = trained.criterion.fraction_estimate  # type: ignore[union-attr,attr-defined]
        known = trained.criterion._confidence.rates  # type: ignore[union-attr]
        found |= {"estimate": estimate.value, "trusted": float(estimate.trusted)}
        found |= {"low": known.low, "high": known.high, "worth": known.worth}
    score = trained.outlier_score(given)
    if score is not None and bool(noisy.any()):
        found["average_precision"] = average_precision(score, noisy)
    return found


def _fit(split: Split, given: Tensor, method: str, epochs: int, batch_size: int, seed: int) -> tuple:
    torch.manual_seed(seed)
    steps = math.ceil(len(given) / batch_size)
    clean_fraction = float((given == split.y).float().mean())
    trained = METHODS[method](Task(len(given), split.classes, clean_fraction, epochs, steps))
    networks = nn.ModuleList(
        nn.Sequential(nn.Linear(split.x.shape[1], HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, split.classes))
        for _ in range(trained.networks)
    )
    optimizer = torch.optim.AdamW(networks.parameters(), STEP_SIZE)
    total, step = epochs * steps, 0
    for epoch in range(epochs):
        trained.start_epoch(epoch)
        for index in torch.randperm(len(given)).split(batch_size):
            factor = min(1, (step + 1) / max(1, WARMUP * total)) * (total - step) / total
            for group in optimizer.param_groups:
                group["lr"] = STEP_SIZE * factor
            loss = trained([network(split.x[index]) for network in networks], given[index], index)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
    return (networks[0], trained), networks


def _part(split: Split, chosen: Tensor) -> Split:
    return replace(split, x=split.x[chosen], y=split.y[chosen], human={})


def _kept_by_cleanlab(split: Split, given: Tensor, epochs: int, batch_size: int, seed: int) -> Tensor:
    """Return which labels cleanlab keeps, by out-of-fold probabilities of unweighted trainings."""
    from cleanlab.filter import find_label_issues

    fold = torch.randperm(len(given), generator=torch.Generator().manual_seed(seed)) % FOLDS
    probabilities = torch.empty(len(given), split.classes)
    for part in range(FOLDS):
        seen = fold != part
        (network, _), _ = _fit(_part(split, seen), given[seen], "sgd", epochs, batch_size, seed)
        with torch.no_grad():
            probabilities[~seen] = network(split.x[~seen]).softmax(1)
    return torch.from_numpy(~np.asarray(find_label_issues(given.numpy(), probabilities.numpy())))
