"""Baselines for noisy labels: against mpmath and NumPy, values worked out by hand, and at their limits."""

from __future__ import annotations

import inspect
import math

import mpmath as mp
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import cross_entropy

from inlier import kernels
from inlier.experiments.baselines import LOSSES
from inlier.experiments.baselines.active_passive import nce_rce, normalized_cross_entropy
from inlier.experiments.baselines.co_teaching import keep_fraction, select
from inlier.experiments.baselines.early_learning import EarlyLearning
from inlier.experiments.baselines.generalized_cross_entropy import generalized_cross_entropy
from inlier.experiments.baselines.huberized import huberized_cross_entropy
from inlier.experiments.baselines.symmetric_cross_entropy import (
    reverse_cross_entropy,
    symmetric_cross_entropy,
)

CLASSES = 5


# Each loss once more, from the whole vectors of probabilities p and of the label q, as the papers define it.


def _generalized(p, q, exponent=0.7):
    return (1 - mp.fsum(a * b for a, b in zip(p, q, strict=True)) ** exponent) / exponent


LOG_ZERO = mp.mpf(math.log(1e-4))


def _reverse(p, q, log_zero=LOG_ZERO):
    return -mp.fsum(a * (mp.log(b) if b else log_zero) for a, b in zip(p, q, strict=True))


def _entropy(p, q):
    return -mp.fsum(b * mp.log(a) for a, b in zip(p, q, strict=True))


def _one_hot(label, classes):
    return [mp.mpf(k == label) for k in range(classes)]


def _symmetric(p, q, alpha="0.1", beta=1, log_zero=LOG_ZERO):
    return mp.mpf(alpha) * _entropy(p, q) + beta * _reverse(p, q, log_zero)


def _active_passive(p, q, alpha=1, beta=1, log_zero=LOG_ZERO):
    total = mp.fsum(_entropy(p, _one_hot(k, len(p))) for k in range(len(p)))
    return alpha * _entropy(p, q) / total + beta * _reverse(p, q, log_zero)


def _huberized(p, q, tau=2):
    probability = mp.fsum(a * b for a, b in zip(p, q, strict=True))
    return -mp.log(probability) if probability > mp.mpf(1) / tau else mp.log(tau) + 1 - tau * probability


REFERENCES = {
    "gce": _generalized,
    "sce": _symmetric,
    "nce-rce": _active_passive,
    "huberized": _huberized,
}


def reference(name: str, logits: torch.Tensor, labels: torch.Tensor, **settings) -> list[float]:
    with mp.workdps(200):
        values = []
        for row, label in zip(logits.tolist(), labels.tolist(), strict=True):
            powers = [mp.exp(z) for z in row]
            p = [power / mp.fsum(powers) for power in powers]
            values.append(float(REFERENCES[name](p, _one_hot(label, len(row)), **settings)))
        return values


def batch(n: int = 40, spread: float = 3.0, dtype: torch.dtype = torch.float64, seed: int = 0):
    generator = torch.Generator().manual_seed(seed)
    logits = spread * torch.randn(n, CLASSES, generator=generator, dtype=torch.float64)
    return logits.to(dtype), torch.randint(CLASSES, (n,), generator=generator)


every_loss = pytest.mark.parametrize("name", LOSSES)


@every_loss
@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [(torch.float64, 1e-13), (torch.float32, 2e-5), (torch.float16, 2e-5), (torch.bfloat16, 2e-5)],
)
def test_losses_are_what_the_papers_define(name: str, dtype: torch.dtype, tolerance: float) -> None:
    for spread in (0.1, 3.0, 30.0):
        logits, labels = batch(spread=spread, dtype=dtype)
        losses = LOSSES[name](logits, labels)
        assert losses.shape == (40,)
        assert losses.dtype == torch.promote_types(dtype, torch.float32)
        np.testing.assert_allclose(losses.double(), reference(name, logits, labels), tolerance, tolerance)


@every_loss
def test_losses_of_logits_of_100_keep_their_digits_and_a_finite_gradient(name: str) -> None:
    corners = [[100.0, -100.0, 0.0], [-100.0, 100.0, 100.0], [100.0, 100.0, 100.0], [-100.0, 99.0, -100.0]]
    logits = torch.tensor(corners, requires_grad=True)
    for label in range(3):
        labels = torch.full((4,), label)
        losses = LOSSES[name](logits, labels)
        np.testing.assert_allclose(losses.detach(), reference(name, logits, labels), 1e-5, 1e-6)
        (gradient,) = torch.autograd.grad(losses.sum(), logits)
        assert gradient.isfinite().all()


@every_loss
def test_gradients_agree_with_finite_differences(name: str) -> None:
    logits, labels = batch(8)
    assert torch.autograd.gradcheck(lambda z: LOSSES[name](z, labels), logits.requires_grad_())


@every_loss
def test_a_sample_alone_has_the_loss_it_has_in_a_batch(name: str) -> None:
    logits, labels = batch(6)
    joint = LOSSES[name](logits, labels)
    alone = torch.cat([LOSSES[name](logits[i : i + 1], labels[i : i + 1]) for i in range(6)])
    assert torch.allclose(joint, alone, rtol=1e-14)
    assert LOSSES[name](logits[:0], labels[:0]).shape == (0,)


@every_loss
def test_logits_may_be_shifted_and_classes_renamed(name: str) -> None:
    logits, labels = batch()
    losses, order = LOSSES[name](logits, labels), torch.randperm(CLASSES)
    assert torch.allclose(LOSSES[name](logits + 7, labels), losses)
    assert torch.allclose(LOSSES[name](logits[:, order], order.argsort()[labels]), losses)


@every_loss
def test_mixed_precision_is_computed_in_float32(name: str) -> None:
    layer = torch.nn.Linear(8, CLASSES)
    x, (_, labels) = torch.randn(16, 8), batch(16)
    with torch.autocast("cpu", torch.bfloat16):
        logits = layer(x)
        losses = LOSSES[name](logits, labels)
    assert logits.dtype == torch.bfloat16
    assert torch.equal(losses, LOSSES[name](logits.float(), labels))
    losses.mean().backward()
    assert layer.weight.grad.isfinite().all()


@pytest.mark.parametrize(
    ("function", "defaults"),
    [
        (generalized_cross_entropy, {"q": 0.7}),
        (symmetric_cross_entropy, {"alpha": 0.1, "beta": 1.0, "log_zero": math.log(1e-4)}),
        (nce_rce, {"alpha": 1.0, "beta": 1.0, "log_zero": math.log(1e-4)}),
        (huberized_cross_entropy, {"tau": 2.0}),
        (EarlyLearning, {"strength": 3.0, "momentum": 0.7}),
        (keep_fraction, {"ramp": 10}),
    ],
)
def test_defaults_are_the_settings_for_cifar_10(function, defaults: dict) -> None:
    parameters = inspect.signature(function).parameters.values()
    assert {p.name: p.default for p in parameters if p.default is not p.empty} == defaults


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("sce", {"alpha": 6, "beta": 0.5, "log_zero": -9.0}),
        ("nce-rce", {"alpha": 10, "beta": 0.5, "log_zero": -6.0}),
        ("huberized", {"tau": 10}),
    ],
)
def test_every_setting_does_what_the_papers_say(name: str, settings: dict) -> None:
    logits, labels = batch()
    losses = LOSSES[name](logits, labels, **settings)
    np.testing.assert_allclose(losses, reference(name, logits, labels, **settings), 1e-13)


# Values by hand: probabilities 1/2, 1/4, 1/4, label 1, so p_y = 1/4 and the cross-entropy is log 4.


@pytest.mark.parametrize(
    ("name", "settings", "expected"),
    [
        ("gce", {"q": 0.5}, 1.0),
        ("gce", {"q": 1.0}, 0.75),
        ("sce", {"log_zero": -4.0}, 0.1 * math.log(4) + 3),
        ("nce-rce", {"log_zero": -4.0}, 2 / 5 + 3),
        ("huberized", {}, math.log(2) + 1 / 2),
        ("huberized", {"tau": 4.0}, math.log(4)),
    ],
)
def test_values_worked_out_by_hand(name: str, settings: dict, expected: float) -> None:
    logits = torch.log(torch.tensor([[0.5, 0.25, 0.25]], dtype=torch.float64))
    assert float(LOSSES[name](logits, torch.tensor([1]), **settings)) == pytest.approx(expected, rel=1e-14)


# Limits and what each loss is made for.


def test_generalized_cross_entropy_leads_from_cross_entropy_to_the_mean_absolute_error() -> None:
    logits, labels = batch()
    entropy = cross_entropy(logits, labels, reduction="none")
    assert torch.allclose(generalized_cross_entropy(logits, labels, q=1e-12), entropy, rtol=1e-10)
    p = logits.softmax(1)
    error = (p - torch.eye(CLASSES)[labels]).abs().sum(1)
    assert torch.allclose(generalized_cross_entropy(logits, labels, q=1.0), error / 2)


def test_symmetric_cross_entropy_without_its_second_term_is_cross_entropy() -> None:
    logits, labels = batch()
    entropy = cross_entropy(logits, labels, reduction="none")
    assert torch.allclose(symmetric_cross_entropy(logits, labels, alpha=2.0, beta=0.0), 2 * entropy)
    passive = symmetric_cross_entropy(logits, labels, alpha=0.0)
    assert torch.allclose(passive, reverse_cross_entropy(entropy))


def test_symmetric_cross_entropy_is_its_kernel_up_to_a_factor() -> None:
    logits, labels = batch()
    kernel = kernels.get("symmetric-cross-entropy", A=1.0 * 4.0 / 0.1)
    entropy = cross_entropy(logits, labels, reduction="none")
    losses = symmetric_cross_entropy(logits, labels, log_zero=-4.0)
    assert torch.allclose(losses, (0.1 + 4.0) * kernel(entropy))


def test_normalized_cross_entropy_adds_up_to_one_over_the_labels() -> None:
    for spread in (0.0, 1.0, 50.0):
        logits, _ = batch(spread=spread)
        total = sum(normalized_cross_entropy(logits, torch.full((40,), k)) for k in range(CLASSES))
        assert torch.allclose(total, torch.ones_like(total))


def test_active_passive_loss_is_symmetric_and_cross_entropy_is_not() -> None:
    """Adding up to the same number over all labels is what makes a loss tolerate symmetric noise."""
    logits, _ = batch()
    total = sum(nce_rce(logits, torch.full((40,), k), log_zero=-4.0) for k in range(CLASSES))
    assert torch.allclose(total, torch.full_like(total, 1 + 4 * (CLASSES - 1)))
    entropies = sum(cross_entropy(logits, torch.full((40,), k), reduction="none") for k in range(CLASSES))
    assert entropies.std() > 1


@pytest.mark.parametrize("tau", [1.0, 2.0, 10.0])
def test_huberized_loss_is_cross_entropy_up_to_a_joint_and_linear_in_the_probability_beyond(tau) -> None:
    p = torch.linspace(1e-6, 1 - 1e-6, 1001, dtype=torch.float64).requires_grad_()
    logits = torch.stack([torch.log(p), torch.log1p(-p)], 1)
    losses = huberized_cross_entropy(logits, torch.zeros(1001, dtype=torch.long), tau)
    (slope,) = torch.autograd.grad(losses.sum(), p)
    assert torch.allclose(slope, -torch.minimum(1 / p, torch.tensor(tau)), rtol=1e-9)
    inside = p > 1 / tau
    assert torch.allclose(losses[inside], -torch.log(p[inside]))


def test_huberized_loss_has_one_value_and_one_slope_at_the_joint() -> None:
    # Two equal logits: p_y is 1/2 and the cross-entropy log 2, the joint itself, to the last digit.
    logits = torch.zeros(1, 2, dtype=torch.float64, requires_grad=True)
    loss = huberized_cross_entropy(logits, torch.tensor([0]))
    assert loss.item() == math.log(2)
    loss.sum().backward()
    assert logits.grad.tolist() == [[-0.5, 0.5]]


def test_the_share_a_sample_keeps_of_its_gradient_is_the_one_documented() -> None:
    logits, labels = batch(spread=10.0)
    logits.requires_grad_()
    entropy = cross_entropy(logits, labels, reduction="none")
    p = torch.exp(-entropy)
    (unweighted,) = torch.autograd.grad(entropy.sum(), logits, retain_graph=True)
    for losses, share in (
        (generalized_cross_entropy(logits, labels), p**0.7),
        (symmetric_cross_entropy(logits, labels, log_zero=-4.0), 0.1 + 4 * p),
        (huberized_cross_entropy(logits, labels), (2 * p).clamp(max=1)),
    ):
        (gradient,) = torch.autograd.grad(losses.sum(), logits, retain_graph=True)
        assert torch.allclose(gradient, share[:, None] * unweighted, atol=1e-15)


# Early-learning regularization.


def early_learning_in_numpy(logits, labels, index, targets, strength, momentum) -> float:
    """One call, sample by sample; changes ``targets``."""
    total = 0.0
    for z, label, i in zip(logits, labels, index, strict=True):
        p = np.exp(z - z.max()) / np.exp(z - z.max()).sum()
        held = np.minimum(np.maximum(p, 1e-4), 1 - 1e-4)
        targets[i] = momentum * targets[i] + (1 - momentum) * held / held.sum()
        total += -np.log(p[label]) + strength * np.log(1 - held @ targets[i])
    return total / len(labels)


@pytest.mark.parametrize(("strength", "momentum"), [(3.0, 0.7), (7.0, 0.9), (0.0, 0.0)])
def test_early_learning_against_numpy_over_many_steps(strength: float, momentum: float) -> None:
    elr = EarlyLearning(12, CLASSES, strength, momentum).double()
    targets = np.zeros((12, CLASSES))
    for step in range(30):
        logits, labels = batch(1 + step % 6, spread=5.0, seed=step)
        index = torch.randperm(12)[: len(labels)]
        loss = elr(logits, labels, index)
        expected = early_learning_in_numpy(
            logits.numpy(), labels.numpy(), index.numpy(), targets, strength, momentum
        )
        assert float(loss) == pytest.approx(expected, rel=1e-12)
        np.testing.assert_allclose(elr.targets, targets, 1e-12)


def test_early_learning_by_hand() -> None:
    elr = EarlyLearning(samples=3, classes=2)
    logits = torch.zeros(1, 2)
    # p = (1/2, 1/2), so t = 0.3 p at first, then 0.51 p; <p, t> is half of 0.3, then of 0.51.
    first = elr(logits, torch.tensor([0]), torch.tensor([1]))
    assert float(first) == pytest.approx(math.log(2) + 3 * math.log(0.85), rel=1e-6)
    second = elr(logits, torch.tensor([0]), torch.tensor([1]))
    assert float(second) == pytest.approx(math.log(2) + 3 * math.log(0.745), rel=1e-6)
    assert elr.targets[[0, 2]].count_nonzero() == 0


def test_early_learning_targets_converge_to_predictions() -> None:
    logits, labels = batch(10)
    elr = EarlyLearning(10, CLASSES).double()
    for _ in range(120):
        elr(logits, labels, torch.arange(10))
    held = logits.softmax(1).clamp(1e-4, 1 - 1e-4)
    assert torch.allclose(elr.targets, held / held.sum(1, keepdim=True), atol=1e-12)


def test_early_learning_resists_a_label_that_contradicts_its_target() -> None:
    """A step on a noisy label moves the prediction to it without the regularization, and away with it."""
    logits = torch.tensor([[2.0, 0.0, 0.0]], requires_grad=True)
    noisy = torch.tensor([1])
    gradients = []
    for strength in (0.0, 3.0):
        elr = EarlyLearning(1, 3, strength)
        elr.targets[0] = torch.tensor([0.9, 0.05, 0.05])
        (gradient,) = torch.autograd.grad(elr.eval()(logits, noisy, torch.tensor([0])), logits)
        gradients.append(gradient[0, 0].item())
    assert gradients[0] > 0 > gradients[1]


def test_early_learning_gradient_and_that_targets_rest_in_evaluation() -> None:
    logits, labels = batch(6)
    index = torch.arange(6)
    elr = EarlyLearning(6, CLASSES).double()
    elr(logits, labels, index)
    targets = elr.targets.clone()
    elr.eval()
    assert torch.autograd.gradcheck(lambda z: elr(z, labels, index), logits.requires_grad_())
    assert torch.equal(elr.targets, targets)
    assert not elr.targets.requires_grad


def test_early_learning_is_finite_for_logits_of_100_and_any_size_of_batch() -> None:
    elr = EarlyLearning(3, 3)
    for _ in range(200):
        logits = torch.tensor([[100.0, -100.0, 0.0], [-100.0, 100.0, 100.0]], requires_grad=True)
        loss = elr(logits, torch.tensor([0, 0]), torch.tensor([0, 1]))
        loss.backward()
        assert loss.isfinite()
        assert logits.grad.isfinite().all()
    empty = torch.zeros(0, 3, requires_grad=True)
    assert elr(empty, torch.zeros(0, dtype=torch.long), torch.zeros(0, dtype=torch.long)).item() == 0


def test_early_learning_resumes_from_a_checkpoint(tmp_path) -> None:
    elr, resumed = EarlyLearning(8, CLASSES), EarlyLearning(8, CLASSES)
    logits, labels = batch(4, dtype=torch.float32)
    index = torch.tensor([6, 0, 3, 1])
    elr(logits, labels, index)
    torch.save(elr.state_dict(), tmp_path / "state.pt")
    resumed.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    assert elr(logits, labels, index) == resumed(logits, labels, index)
    assert torch.equal(elr.targets, resumed.targets)


def _one_of_two_processes(rank: int, folder: str) -> None:
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2
    )
    elr = EarlyLearning(20, CLASSES)
    for step, index in enumerate(_shares()):
        logits, labels = _of_samples(index[rank], step)
        elr(logits, labels, index[rank])
    torch.save(elr.targets, f"{folder}/{rank}.pt")
    torch.distributed.destroy_process_group()


def _shares() -> list[tuple[torch.Tensor, torch.Tensor]]:
    """The dataset indices of both processes in each step: uneven, once none at all."""
    shares = []
    for step, (a, b) in enumerate([(3, 5), (8, 2), (0, 4), (10, 10)]):
        order = torch.randperm(20, generator=torch.Generator().manual_seed(step))
        shares.append((order[:a], order[a : a + b]))
    return shares


def _of_samples(index: torch.Tensor, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    logits, labels = batch(20, dtype=torch.float32, seed=step)
    return logits[index], labels[index]


@pytest.mark.slow
@pytest.mark.skipif(not torch.distributed.is_gloo_available(), reason="needs gloo")
def test_early_learning_targets_are_those_of_one_process_on_the_joined_batches(tmp_path) -> None:
    torch.multiprocessing.spawn(_one_of_two_processes, args=(str(tmp_path),), nprocs=2)
    alone = EarlyLearning(20, CLASSES)
    for step, index in enumerate(_shares()):
        joined = torch.cat(index)
        alone(*_of_samples(joined, step), joined)
    for rank in range(2):
        targets = torch.load(tmp_path / f"{rank}.pt", weights_only=True)
        assert torch.allclose(targets, alone.targets, rtol=1e-6)


# Co-teaching.


def test_co_teaching_exchanges_the_samples_of_smallest_loss() -> None:
    losses_a = torch.tensor([0.1, 9.0, 0.2, 8.0, 0.3], requires_grad=True)
    losses_b = torch.tensor([9.0, 0.1, 8.0, 0.2, 0.3], requires_grad=True)
    for_a, for_b = select(losses_a, losses_b, 0.6)
    assert for_a.tolist() == [1, 3, 4]
    assert for_b.tolist() == [0, 2, 4]
    losses_a[for_a].mean().backward()
    assert losses_a.grad.nonzero().squeeze(1).tolist() == [1, 3, 4]
    assert losses_b.grad is None


@given(st.integers(1, 50), st.floats(0.02, 1.0), st.integers(0, 99))
def test_co_teaching_keeps_as_many_as_it_says_and_none_that_fits_worse(n, fraction, seed) -> None:
    generator = torch.Generator().manual_seed(seed)
    losses = torch.rand(2, n, generator=generator)
    for teacher, kept in zip((losses[1], losses[0]), select(*losses, fraction), strict=True):
        assert len(kept) == max(int(fraction * n + 1e-9), 1)
        ranks = np.argsort(np.argsort(teacher.numpy(), kind="stable"))
        assert sorted(ranks[kept.numpy()]) == list(range(len(kept)))


def test_co_teaching_passes_over_losses_that_are_no_numbers() -> None:
    losses_a = torch.tensor([math.nan, 3.0, math.inf, 1.0])
    for_a, for_b = select(losses_a, torch.zeros(4), 0.5)
    assert for_b.tolist() == [1, 3]
    assert for_a.tolist() == [0, 1]


def test_co_teaching_keeps_all_at_first_and_the_inliers_after_the_ramp() -> None:
    schedule = [keep_fraction(epoch, outlier_rate=0.5) for epoch in range(13)]
    assert schedule == pytest.approx([1 - 0.05 * min(epoch, 10) for epoch in range(13)])
    assert keep_fraction(3, 0.2, ramp=6) == pytest.approx(0.9)
    assert keep_fraction(100, 0.0) == 1.0


# Invalid arguments.


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda z, y: generalized_cross_entropy(z, y, q=0.0), "q must be above 0"),
        (lambda z, y: symmetric_cross_entropy(z, y, alpha=-1.0), "alpha = -1"),
        (lambda z, y: symmetric_cross_entropy(z, y, beta=math.nan), "beta = nan"),
        (lambda z, y: symmetric_cross_entropy(z, y, log_zero=4.0), "log_zero = 4"),
        (lambda z, y: nce_rce(z, y, alpha=0.0), "alpha = 0"),
        (lambda z, y: nce_rce(z, y, log_zero=0.0), "log_zero = 0"),
        (lambda z, y: huberized_cross_entropy(z, y, tau=0.5), "tau = 0.5"),
        (lambda z, y: EarlyLearning(0, 3), "samples = 0"),
        (lambda z, y: EarlyLearning(4, 1), "classes = 1"),
        (lambda z, y: EarlyLearning(4, 3, strength=-1.0), "strength = -1"),
        (lambda z, y: EarlyLearning(4, 3, momentum=1.0), "momentum = 1"),
        (lambda z, y: EarlyLearning(4, 3)(z, y, torch.arange(2)), "4 logits"),
        (lambda z, y: EarlyLearning(4, 7)(z, y, torch.arange(4)), "3 columns"),
        (lambda z, y: select(z[:, 0], z[:3, 0], 0.5), r"losses_b \(3,\)"),
        (lambda z, y: select(z[:, 0], z[:, 1], 0.0), "= 0.0: pass a number above 0"),
        (lambda z, y: keep_fraction(-1, 0.4), "epoch = -1"),
        (lambda z, y: keep_fraction(1, 1.0), "outlier_rate = 1"),
        (lambda z, y: keep_fraction(1, 0.4, ramp=0), "ramp = 0"),
    ],
)
def test_invalid_settings_raise_and_name_the_argument(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(torch.zeros(4, 3), torch.zeros(4, dtype=torch.long))


@every_loss
def test_invalid_labels_raise(name: str) -> None:
    logits = torch.zeros(4, 3)
    with pytest.raises(ValueError, match="logits have shape"):
        LOSSES[name](torch.zeros(4, 1), torch.zeros(4, dtype=torch.long))
    with pytest.raises(ValueError, match="labels have shape"):
        LOSSES[name](logits, torch.zeros(3, dtype=torch.long))
    with pytest.raises(TypeError, match=r"labels are torch.float32"):
        LOSSES[name](logits, torch.zeros(4))
    for label in (-100, 3):
        with pytest.raises((IndexError, RuntimeError), match="out of bounds"):
            LOSSES[name](logits, torch.full((4,), label))


@pytest.mark.parametrize("index", [[0, -1], [0, 9]])
def test_early_learning_refuses_indices_it_has_no_target_for(index: list[int]) -> None:
    elr = EarlyLearning(5, 3)
    with pytest.raises(IndexError, match="index the samples from 0 to 4"):
        elr(torch.zeros(2, 3), torch.tensor([0, 1]), torch.tensor(index))
    assert elr.targets.count_nonzero() == 0
