"""Wrong labels: how many there are, from what is held out, and a network that is kept from learning them."""

from __future__ import annotations

import pytest
import torch
from sklearn.metrics import average_precision_score
from torch import nn
from torch.nn.functional import cross_entropy

import inlier
from inlier.labels import (
    HELD_OUT,
    LAPSES,
    SHARPNESS,
    HeldOut,
    calibrated,
    lapse_fraction,
    lapse_likelihood,
    right_label_fraction,
    tempered_losses,
)
from inlier.scale import LossHistogram

CLASSES = 10


def predicted(rate: float, spread: float, confidence: float, samples: int = 20_000, seed: int = 0):
    """Held-out cross-entropies of a network that knows the classes well, and the labels as they are given."""
    generator = torch.Generator().manual_seed(seed)
    logits = spread * torch.randn(samples, CLASSES, generator=generator)
    truth = torch.multinomial(logits.softmax(1), 1, generator=generator).squeeze(1)
    drawn = torch.randint(CLASSES, (samples,), generator=generator)
    labels = torch.where(torch.rand(samples, generator=generator) < rate, drawn, truth)
    given = (1 - rate) * logits.softmax(1) + rate / CLASSES
    # A network that is too sure: the logarithms of its probabilities are larger than they should be.
    losses = cross_entropy(confidence * given.log(), labels, reduction="none")
    return losses, float((labels == truth).float().mean())


@pytest.mark.parametrize("rate", [0.2, 0.4, 0.6, 0.8])
@pytest.mark.parametrize("confidence", [1.0, 1.3])
def test_the_fraction_is_found_from_held_out_losses(rate: float, confidence: float) -> None:
    losses, right = predicted(rate, spread=5.0, confidence=confidence)
    assert right_label_fraction(losses, CLASSES) == pytest.approx(right, abs=0.05)


def test_without_calibration_a_confident_network_would_mislead() -> None:
    losses, right = predicted(0.4, spread=5.0, confidence=1.5)
    assert float((-losses).exp().quantile(0.95)) > right + 0.1
    assert right_label_fraction(losses, CLASSES) == pytest.approx(right, abs=0.06)


def test_labels_that_are_all_right_are_all_kept() -> None:
    losses, _ = predicted(0.0, spread=8.0, confidence=1.0)
    assert right_label_fraction(losses, CLASSES) == 1.0


def test_calibrated_probabilities_leave_calibrated_ones_alone() -> None:
    losses, _ = predicted(0.3, spread=3.0, confidence=1.0)
    assert torch.allclose(calibrated(losses, CLASSES), (-losses).exp().double(), atol=0.03)


def test_a_histogram_tells_the_same_as_the_losses() -> None:
    losses, _ = predicted(0.4, spread=5.0, confidence=1.2)
    exact = right_label_fraction(losses, CLASSES)
    assert right_label_fraction(LossHistogram.of(losses, bits=5), CLASSES) == pytest.approx(exact, abs=0.01)


@pytest.mark.parametrize("losses", [torch.empty(0), torch.rand(10), torch.full((100,), torch.inf)])
def test_little_or_no_evidence_is_no_reason_to_doubt(losses) -> None:
    assert right_label_fraction(losses, CLASSES) == 1.0
    assert right_label_fraction(torch.rand(1000), classes=1) == 1.0


def test_a_network_that_has_learned_nothing_is_no_reason_to_doubt() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(5000, CLASSES, generator=generator)
    labels = torch.randint(CLASSES, (5000,), generator=generator)
    assert right_label_fraction(cross_entropy(logits, labels, reduction="none"), CLASSES) == 1.0


def drawn_logits(samples: int, spread: float, rate: float, seed: int = 0):
    """Logits of a network that is often in doubt, given labels, and which of these are right."""
    generator = torch.Generator().manual_seed(seed)
    logits = spread * torch.randn(samples, CLASSES, generator=generator)
    truth = torch.multinomial(logits.softmax(1), 1, generator=generator).squeeze(1)
    drawn = torch.randint(CLASSES, (samples,), generator=generator)
    labels = torch.where(torch.rand(samples, generator=generator) < rate, drawn, truth)
    return logits, labels, float((labels == truth).float().mean())


@pytest.mark.parametrize("rate", [0.0, 0.2, 0.4, 0.6, 0.8])
@pytest.mark.parametrize("confidence", [0.5, 1.0, 3.0])
def test_logits_tell_the_fraction_where_no_class_is_plain_to_see(rate: float, confidence: float) -> None:
    logits, labels, right = drawn_logits(20_000, spread=1.5, rate=rate)
    likelihood = lapse_likelihood(tempered_losses(confidence * logits, labels), CLASSES)
    assert lapse_fraction(likelihood, CLASSES) == pytest.approx(right, abs=0.04)


def test_losses_alone_cannot() -> None:
    logits, labels, right = drawn_logits(20_000, spread=1.5, rate=0.4)
    assert right_label_fraction(cross_entropy(logits, labels, reduction="none"), CLASSES) < right - 0.05


def test_the_likelihood_is_that_of_predicting_well_and_then_being_wrong_by_chance() -> None:
    logits, labels, _ = drawn_logits(20_000, spread=2.0, rate=0.4)
    likelihood = lapse_likelihood(tempered_losses(logits, labels), CLASSES)
    at = LAPSES.index(0.4)
    best = 0.6 * logits.softmax(1) + 0.4 / CLASSES
    reference = float(best.gather(1, labels.unsqueeze(1)).log().sum())
    assert float(likelihood[at]) == pytest.approx(reference, rel=1e-5)
    assert abs(int(likelihood.argmax()) - at) <= 4


def test_passes_count_by_what_they_tell() -> None:
    likelihoods = []
    for spread in (0.3, 4.0):
        logits, labels, right = drawn_logits(1000, spread=spread, rate=0.2)
        likelihoods.append(lapse_likelihood(tempered_losses(logits, labels), CLASSES))
    weak, strong = likelihoods
    assert lapse_fraction(weak + strong, CLASSES, passes=2) == pytest.approx(right, abs=0.03)
    assert abs(lapse_fraction(weak, CLASSES) - right) > 0.1


def test_logits_without_evidence_are_no_reason_to_doubt() -> None:
    logits, labels, _ = drawn_logits(5000, spread=2.0, rate=1.0)
    likelihood = lapse_likelihood(tempered_losses(logits, labels), CLASSES)
    assert lapse_fraction(likelihood, CLASSES) == 1.0
    assert lapse_fraction(7 * likelihood, CLASSES, passes=7) == 1.0, "to say it again is no evidence"


def test_a_network_that_is_infinitely_sure_and_wrong_is_no_trouble() -> None:
    losses = tempered_losses(torch.eye(CLASSES).repeat(20, 1) * 1e4, torch.arange(200) % 9)
    assert not lapse_likelihood(losses, CLASSES).isnan().any()


def test_tempered_losses_are_the_cross_entropies_of_scaled_logits() -> None:
    logits, labels = 4 * torch.randn(20, 7, dtype=torch.bfloat16), torch.randint(7, (20,))
    losses = tempered_losses(logits, labels)
    assert losses.dtype == torch.float32
    for column, a in zip(losses.T, SHARPNESS, strict=True):
        torch.testing.assert_close(column, cross_entropy(a * logits.float(), labels, reduction="none"))


def test_a_tenth_is_held_out_whatever_the_order() -> None:
    index = torch.arange(50_000)
    chosen = HeldOut.chosen(index)
    assert float(chosen.float().mean()) == pytest.approx(HELD_OUT, abs=0.01)
    assert torch.equal(HeldOut.chosen(index.flip(0)).flip(0), chosen)
    # Neighbours, which may be of one class, do not go together.
    assert float(chosen[1:][chosen[:-1]].float().mean()) == pytest.approx(HELD_OUT, abs=0.1)


class Task:
    """Ten clusters that touch, a network that learns every label by heart, 40 % of them drawn anew."""

    def __init__(self, samples: int = 4000, rate: float = 0.4) -> None:
        generator = torch.Generator().manual_seed(0)
        centres = 1.1 * torch.randn(CLASSES, 20, generator=generator)
        self.truth, test = (torch.randint(CLASSES, (samples,), generator=generator) for _ in range(2))
        self.x, self.test_x = (
            centres[y] + torch.randn(samples, 20, generator=generator) for y in (self.truth, test)
        )
        self.test_y = test
        drawn = torch.randint(CLASSES, (samples,), generator=generator)
        noisy = torch.rand(samples, generator=generator) < rate
        self.y = torch.where(noisy, drawn, self.truth)

    def network(self) -> tuple[nn.Module, torch.optim.Optimizer]:
        torch.manual_seed(0)
        network = nn.Sequential(
            nn.Linear(20, 256),
            nn.BatchNorm1d(256),
            nn.ReLU(),
            nn.Linear(256, 256),
            nn.ReLU(),
            nn.Linear(256, 10),
        )
        return network, torch.optim.SGD(network.parameters(), 0.1, momentum=0.9)

    def train(self, robust, network, optimiser, epochs: range) -> None:
        for epoch in epochs:
            order = torch.randperm(len(self.y), generator=torch.Generator().manual_seed(epoch))
            for index in order.split(64):
                logits, y = network(self.x[index]), self.y[index]
                losses = cross_entropy(logits, y, reduction="none")
                loss = losses.mean() if robust is None else robust(losses, index, labels=y, logits=logits)
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()

    def accuracy(self, network: nn.Module) -> float:
        network.eval()
        with torch.no_grad():
            return float((network(self.test_x).argmax(1) == self.test_y).float().mean())


@pytest.mark.slow
def test_a_network_that_learns_everything_by_heart_is_kept_from_wrong_labels() -> None:
    task = Task()
    robust = inlier.Robust()
    accuracies = []
    for judge in (None, robust):
        network, optimiser = task.network()
        task.train(judge, network, optimiser, range(30))
        accuracies.append(task.accuracy(network))
    plain, protected = accuracies
    assert protected > plain + 0.1
    right = float((task.y == task.truth).float().mean())
    assert float(robust.inlier_fraction.mean()) == pytest.approx(right, abs=0.08)
    suspicion = 1 - robust.inlier_probability()
    assert average_precision_score(task.y != task.truth, suspicion) > 0.85


@pytest.mark.parametrize("stop", [2, 12], ids=["while samples are held out", "after"])
def test_a_stopped_training_goes_on_to_the_bit(stop: int) -> None:
    task = Task(samples=1000)

    def through(pause: bool):
        network, optimiser = task.network()
        robust = inlier.Robust(update_every=7)
        task.train(robust, network, optimiser, range(stop))
        if pause:
            saved = robust.state_dict()
            robust = inlier.Robust(update_every=7)
            robust.load_state_dict(saved)
        task.train(robust, network, optimiser, range(stop, 14))
        return robust, network

    (one, first), (two, second) = through(False), through(True)
    assert one.held_out.is_settled
    assert float(one.inlier_fraction.mean()) == float(two.inlier_fraction.mean()) < 1
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))


def test_a_checkpoint_of_an_earlier_form_learns_of_labels_anew() -> None:
    task = Task(samples=1000)
    robust = inlier.Robust()
    task.train(robust, *task.network(), range(3))
    saved = robust.state_dict()
    del saved["held_out.likelihood"]
    saved["held_out.state"] = torch.zeros(5, dtype=torch.float64)
    resumed = inlier.Robust()
    resumed.load_state_dict(saved)
    assert torch.equal(resumed.memory.means, robust.memory.means)
    assert not resumed.held_out.has_begun


def test_held_out_samples_do_not_train() -> None:
    losses = torch.ones(1000, requires_grad=True)
    index = torch.arange(1000)
    inlier.Robust()(losses, index, labels=index % CLASSES).backward()
    assert torch.equal(losses.grad == 0, HeldOut.chosen(index))


def test_nothing_is_held_out_if_the_fraction_is_given() -> None:
    losses = torch.ones(1000, requires_grad=True)
    index = torch.arange(1000)
    inlier.Robust(inlier_fraction=0.8)(losses, index, labels=index % CLASSES).backward()
    assert bool((losses.grad > 0).all())


def test_what_labels_need_is_said() -> None:
    losses, index = torch.rand(4), torch.arange(4)
    labels = index % 2
    with pytest.raises(ValueError, match="number of each sample"):
        inlier.Robust()(losses, labels=labels)
    with pytest.raises(ValueError, match="number of each sample and hold = 1, not 5"):
        inlier.Robust(hold=5)(losses, index, labels=labels)
    with pytest.raises(ValueError, match="labels or groups, not both"):
        inlier.Robust()(losses, index, groups=labels, labels=labels)
    with pytest.raises(ValueError, match="logits are of use with labels only"):
        inlier.Robust()(losses, index, logits=torch.rand(4, 2))
    with pytest.raises(ValueError, match=r"logits has shape \(3, 2\) and losses \(4,\)"):
        inlier.Robust()(losses, index, labels=labels, logits=torch.rand(3, 2))
    robust = inlier.Robust()
    robust(losses, index, labels=labels)
    with pytest.raises(ValueError, match="logits were given in some calls"):
        robust(losses, index, labels=labels, logits=torch.rand(4, 2))
    with pytest.raises(ValueError, match="some calls and not in others"):
        robust(losses, index)
    assert robust.eval()(losses, index).item() == pytest.approx(float(losses.mean()))


def test_a_fraction_that_is_given_is_used_once_the_first_passes_are_over() -> None:
    task = Task(samples=1000)
    robust = inlier.Robust(inlier_fraction=0.5)
    task.train(robust, *task.network(), range(12))
    assert robust.held_out.is_settled
    assert torch.equal(robust.inlier_fraction, torch.full((CLASSES,), 0.5))
