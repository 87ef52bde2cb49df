"""Training in a cell: a head on features or a whole encoder, with any method of the classification experiment."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.label_bench.data import Split, part_of
from benchmarks.label_bench.features import TextClassifier
from inlier._vision.training import Method, Task
from inlier.experiments.classification.experiment import average_precision
from inlier.experiments.classification.methods import METHODS

HIDDEN, STEP_SIZE, WARMUP = 512, 1e-3, 0.06
"""One hidden layer; AdamW; the step size rises in the first 6 % of the steps, then falls to 0."""

FINE_TUNING_STEP_SIZE = 3e-4
"""That of a whole encoder."""

FOLDS = 5


def fit_head(
    split: Split, given: Tensor, method: str, epochs: int, batch_size: int, seed: int
) -> dict[str, float | str]:
    """Train with a method; return test accuracy, the estimated fraction, and how well noisy labels are found."""
    noisy = given != split.y
    if method == "clean-only":
        return fit_head(part_of(split, ~noisy), split.y[~noisy], "sgd", epochs, batch_size, seed)
    if method == "cleanlab":
        kept, quality = _cleanlab(split, given, epochs, batch_size, seed)
        found = fit_head(part_of(split, kept), given[kept], "sgd", epochs, batch_size, seed)
        return found | (
            {"average_precision": average_precision(-quality, noisy)} if bool(noisy.any()) else {}
        )
    network, trained, margins = _fit(split, given, method, epochs, batch_size, seed)
    correct = _predict(network, split.x_test).argmax(1) == split.y_test
    found: dict[str, float | str] = {"accuracy": 100 * float(correct.float().mean())}
    found["clean"] = 1 - float(noisy.float().mean())
    if method.startswith("inlier"):
        estimate = trained.criterion.fraction_estimate  # type: ignore[union-attr,attr-defined]
        known = trained.criterion._confidence.rates  # type: ignore[union-attr]
        found |= {"estimate": estimate.value, "trusted": float(estimate.trusted)}
        found |= {"low": known.low, "high": known.high, "worth": known.worth}
    score = -margins if method == "sgd" else trained.outlier_score(given)
    if score is not None and bool(noisy.any()):
        found["average_precision"] = average_precision(score, noisy)
    return found


def _fit(
    split: Split, given: Tensor, method: str, epochs: int, batch_size: int, seed: int
) -> tuple[nn.Module, Method, Tensor]:
    """Return the (first) network, the method, and the sum of each sample's margins over its visits."""
    torch.manual_seed(seed)
    steps = math.ceil(len(given) / batch_size)
    clean_fraction = float((given == split.y).float().mean())
    trained = METHODS[method](Task(len(given), split.classes, clean_fraction, epochs, steps))
    networks = nn.ModuleList(_network(split) for _ in range(trained.networks))
    step_size = STEP_SIZE if split.x.is_floating_point() else FINE_TUNING_STEP_SIZE
    optimizer = torch.optim.AdamW(networks.parameters(), step_size)
    total, step, margins = epochs * steps, 0, torch.zeros(len(given))
    for epoch in range(epochs):
        trained.start_epoch(epoch)
        for index in torch.randperm(len(given)).split(batch_size):
            factor = min(1, (step + 1) / max(1, WARMUP * total)) * (total - step) / total
            for group in optimizer.param_groups:
                group["lr"] = step_size * factor
            logits = [network(split.x[index]) for network in networks]
            margins[index] += _margins(logits[0].detach(), given[index])
            loss = trained(logits, given[index], index)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
    return networks[0], trained, margins


def _margins(logits: Tensor, given: Tensor) -> Tensor:
    chosen = given[:, None]
    others = logits.scatter(1, chosen, -math.inf).amax(1)
    return logits.gather(1, chosen).squeeze(1) - others


def _network(split: Split) -> nn.Module:
    """A head on features, or a whole encoder of token ids."""
    if not split.x.is_floating_point():
        return TextClassifier(split.classes)
    return nn.Sequential(nn.Linear(split.x.shape[1], HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, split.classes))


@torch.no_grad()
def _predict(network: nn.Module, x: Tensor) -> Tensor:
    network.eval()
    return torch.cat([network(part) for part in x.split(500)])


def _cleanlab(split: Split, given: Tensor, epochs: int, batch_size: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return which labels cleanlab keeps and their quality, by out-of-fold probabilities of unweighted trainings."""
    from cleanlab.filter import find_label_issues
    from cleanlab.rank import get_label_quality_scores

    fold = torch.randperm(len(given), generator=torch.Generator().manual_seed(seed)) % FOLDS
    probabilities = torch.empty(len(given), split.classes)
    for part in range(FOLDS):
        seen = fold != part
        network, _, _ = _fit(part_of(split, seen), given[seen], "sgd", epochs, batch_size, seed)
        probabilities[~seen] = _predict(network, split.x[~seen]).softmax(1)
    labels, predicted = given.numpy(), probabilities.numpy()
    kept = ~np.asarray(find_label_issues(labels, predicted))
    return torch.from_numpy(kept), torch.from_numpy(get_label_quality_scores(labels, predicted))
