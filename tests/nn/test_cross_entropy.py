"""RobustCrossEntropy: the shapes of nn.CrossEntropyLoss, weights by margins, the fraction of clean labels."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from inlier import RobustCrossEntropy
from inlier.nn._confidence import PLACES, ConfidenceWindow

SHAPES = {"classes": (6, 4), "tokens": (3, 4, 5), "pixels": (2, 4, 3, 5)}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("training", [True, False])
def test_before_anything_is_known_it_is_nn_cross_entropy_loss(shape, weighted, smoothing, training):
    torch.manual_seed(0)
    logits = torch.randn(SHAPES[shape])
    target = torch.randint(4, (logits.shape[0], *logits.shape[2:]))
    target.view(-1)[::4] = -100
    weight = torch.tensor([1.0, 2.0, 0.5, 3.0]) if weighted else None
    ours = RobustCrossEntropy(weight=weight, label_smoothing=smoothing).train(training)
    index = torch.arange(target.numel()).view(target.shape)
    torch.testing.assert_close(
        ours(logits, target, index), nn.CrossEntropyLoss(weight, label_smoothing=smoothing)(logits, target)
    )
    weights = ours.weigh(logits, target, index)
    assert torch.equal(weights == 0, target == -100)


def test_another_ignore_index():
    logits, target = torch.randn(5, 3), torch.tensor([0, 1, 2, 0, 1])
    ours = RobustCrossEntropy(ignore_index=0)
    torch.testing.assert_close(ours(logits, target), nn.CrossEntropyLoss(ignore_index=0)(logits, target))


def test_a_batch_that_is_all_ignored_gives_zero_with_a_graph():
    logits = torch.randn(3, 4, requires_grad=True)
    for training in (True, False):
        loss = RobustCrossEntropy().train(training)(logits, torch.full((3,), -100))
        loss.backward()
        assert loss.item() == 0


def train(criterion, rate: float, epochs: int, classes: int = 5, n: int = 1500, similar: bool = False):
    """Classes that overlap a little, some labels noisy: accuracy on clean data, and which labels are noisy."""
    torch.manual_seed(0)
    centres = 1.2 * torch.randn(classes, 20)
    truth = torch.randint(classes, (n,))
    x = centres[truth] + torch.randn(n, 20)
    noisy = torch.rand(n) < rate
    other = (truth + 1) % classes if similar else (truth + torch.randint(1, classes, (n,))) % classes
    y = torch.where(noisy, other, truth)
    model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, classes))
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    for _ in range(epochs):
        for index in torch.randperm(n).split(50):
            loss = criterion(model(x[index]), y[index], index)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    test = torch.randint(classes, (2000,))
    predicted = model(centres[test] + torch.randn(2000, 20)).argmax(1)
    return float((predicted == test).float().mean()), noisy, truth


class Plain(nn.CrossEntropyLoss):
    def forward(self, logits, target, index=None):
        return super().forward(logits, target)


def test_noisy_labels_are_found_and_the_model_is_better_for_it():
    criterion = RobustCrossEntropy()
    accuracy, noisy, truth = train(criterion, 0.3, epochs=12)
    plain, _, _ = train(Plain(), 0.3, epochs=12)
    assert accuracy > plain + 0.005
    probability = criterion.inlier_probability()
    assert float(probability[~noisy].mean()) > 0.85
    assert float(probability[noisy].mean()) < 0.25
    suggested = criterion.suggested_label()
    assert float((suggested[noisy] == truth[noisy]).float().mean()) > 0.75
    assert criterion.fraction_estimate.value == pytest.approx(0.7, abs=0.08)


def test_labels_of_the_most_similar_class_lose_weight_too():
    criterion = RobustCrossEntropy()
    accuracy, noisy, _ = train(criterion, 0.3, epochs=12, similar=True)
    plain, _, _ = train(Plain(), 0.3, epochs=12, similar=True)
    assert accuracy > plain + 0.1
    probability = criterion.inlier_probability()
    assert float(probability[~noisy].mean()) > float(probability[noisy].mean()) + 0.25


def test_labels_are_ranked_where_none_has_lost_its_weight():
    criterion = RobustCrossEntropy()
    _, noisy, _ = train(criterion, 0.02, epochs=3)
    assert bool((criterion.last_weights == 1).all()), "so few are left alone"
    suspects = criterion.inlier_probability().argsort()[: int(noisy.sum())]
    assert float(noisy[suspects].float().mean()) > 0.5


def test_clean_labels_are_left_alone():
    criterion = RobustCrossEntropy()
    accuracy, _, _ = train(criterion, 0.0, epochs=12)
    plain, _, _ = train(Plain(), 0.0, epochs=12)
    assert accuracy > plain - 0.01
    assert float(criterion.inlier_fraction) > 0.95


@pytest.mark.parametrize(("sure", "unweighted"), [(False, 2), (True, 1)])
def test_weights_count_when_something_is_known_and_add_up_to_the_given_fraction(sure, unweighted):
    criterion = RobustCrossEntropy(0.6, update_every=1)
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(2000, 4, generator=generator)
    target = torch.randint(4, (2000,), generator=generator)
    if sure:  # of most labels, and the more so the more confident
        target = torch.where(torch.rand(2000, generator=generator) < 0.6, logits.argmax(1), target)
    means = [float(criterion.weigh(logits, target, torch.arange(2000)).mean()) for _ in range(4)]
    assert means[:unweighted] == [1.0] * unweighted
    assert means[3] == pytest.approx(0.6, abs=0.01)


def test_what_the_first_epoch_tells_stays():
    """Later the same labels are memorised, and every prediction agrees."""
    criterion = RobustCrossEntropy(update_every=1)
    generator = torch.Generator().manual_seed(0)
    truth = torch.randint(5, (2000,), generator=generator)
    target = torch.where(torch.rand(2000, generator=generator) < 0.3, (truth + 1) % 5, truth)
    noise = torch.randn(2000, 5, generator=generator)
    easy = 1 + 8 * torch.rand(2000, 1, generator=generator)

    def logits(learned):
        return easy * nn.functional.one_hot(learned, 5) + noise

    for learned in (truth, truth, target, target, target, target):
        criterion(logits(learned), target, torch.arange(2000))
    found = criterion.fraction_estimate
    assert found.value == pytest.approx(float((target == truth).float().mean()), abs=0.04)
    assert found.trusted
    assert float(criterion.weigh(logits(target), target, torch.arange(2000)).mean()) < 0.9


def test_what_a_later_epoch_tells_is_not_trusted():
    """A network that knew nothing in the first epoch agrees with all labels once it has memorised them."""
    _, _, target = first_epoch(0.3)
    criterion, index = RobustCrossEntropy(update_every=1), torch.arange(4000)
    for z in (*[torch.zeros(4000, 5)] * 2, *[8.0 * nn.functional.one_hot(target, 5)] * 3):
        criterion(z + 1e-3 * torch.randn(4000, 5), target, index)
    assert not criterion.fraction_estimate.trusted


def first_epoch(rate: float, n: int = 4000, classes: int = 5, seed: int = 0):
    """Logits that are right the more often the more confident they are, the true classes, and noisy labels."""
    generator = torch.Generator().manual_seed(seed)
    truth = torch.randint(classes, (n,), generator=generator)
    easy = 8 * torch.rand(n, 1, generator=generator)
    logits = easy * nn.functional.one_hot(truth, classes) + torch.randn(n, classes, generator=generator)
    target = torch.where(torch.rand(n, generator=generator) < rate, (truth + 1) % classes, truth)
    return logits, truth, target


@pytest.mark.parametrize("rate", [0.0, 0.3])
def test_weights_count_once_noise_is_proven_in_the_first_epoch_too(rate):
    logits, truth, target = first_epoch(rate)
    criterion = RobustCrossEntropy(update_every=5, samples=4000)
    parts, noisy = torch.arange(4000).split(50), target != truth
    first, second = (
        torch.cat([criterion.weigh(logits[part], target[part], part) for part in parts]) for _ in range(2)
    )
    assert bool((first[:500] == 1).all()), "so few predictions prove nothing"
    if rate:
        late = slice(2000, 4000)
        assert float(second[late].mean()) == pytest.approx(0.7, abs=0.05)
        for weights in (first[late], second[late]):
            assert float(weights[noisy[late]].mean()) < 0.4 < 0.85 < float(weights[~noisy[late]].mean())
    else:
        assert bool((first == 1).all())
        assert bool((second == 1).all())


def test_with_rare_classes_weights_wait_for_the_second_epoch():
    """A network learns rare classes last: what it misses of them early looks like noise."""
    logits, truth, target = first_epoch(0.3, n=12_000)
    kept = (truth < 2) | (torch.arange(12_000) % 20 == 0)  # Of the other three classes few are left.
    logits, target = logits[kept], target[kept]
    criterion = RobustCrossEntropy(update_every=5, samples=len(target))
    first, second = (
        torch.cat([criterion.weigh(logits[p], target[p], p) for p in torch.arange(len(target)).split(50)])
        for _ in range(2)
    )
    rates = criterion._confidence.rates
    assert rates.proves_noise
    assert not rates.is_even
    assert bool((first == 1).all())
    assert float(second.mean()) < 0.95


def test_the_first_epoch_is_left_out_of_the_mean_and_later_ones_count_alike_at_first(monkeypatch):
    logits, _, target = first_epoch(0.3)
    monkeypatch.setattr(ConfidenceWindow, "log_frequencies", lambda self, rows: rows.new_zeros(rows.shape[1]))
    criterion, index = RobustCrossEntropy(update_every=1), torch.arange(4000)
    margin = logits.gather(1, target[:, None]) - logits.scatter(1, target[:, None], -torch.inf).amax(1, True)
    visits = [5.0, 0.25, 1.0, 0.5]  # factors of the logits
    for factor, expected in zip([1.0, *visits], [1.0, 5.0, 0.25, 0.625, 1.75 / 3], strict=True):
        criterion(factor * logits, target, index)
        # One call is an epoch, and known to be over at the next one.
        if factor in visits[1:]:
            mean = criterion._memory.means
            near = margin.squeeze(1).abs() < 1  # where nothing is clamped
            torch.testing.assert_close(mean[near], expected * margin.squeeze(1)[near])


def imbalanced(n: int = 4000, share: float = 0.9):
    """Labels of two classes, most of them of the first one, and logits that know nothing but that."""
    target = (torch.arange(n) >= share * n).long()
    return torch.tensor([share, 1 - share]).log().expand(n, 2), target


def test_margins_are_relative_to_the_frequencies_of_classes():
    """What a network says of a rare class for its rarity alone is no evidence against its labels."""
    logits, target = imbalanced()
    criterion, index = RobustCrossEntropy(update_every=1), torch.arange(len(target))
    for _ in range(2):
        criterion(logits, target, index)
    torch.testing.assert_close(criterion._memory.means, torch.zeros(len(target)), atol=0.01, rtol=0)


def test_a_label_counts_by_its_weight_in_the_frequency_of_its_class():
    logits, _, target = first_epoch(0.3)
    criterion, index = RobustCrossEntropy(update_every=1), torch.arange(4000)
    for _ in range(8):
        weights = criterion.weigh(logits, target, index)
    expected = torch.zeros(5).index_add_(0, target, weights)
    found = criterion._confidence.current[1, :5].exp()
    torch.testing.assert_close(found / found.sum(), expected / expected.sum(), atol=0.01, rtol=0)


def test_classes_that_are_never_given_and_too_many_classes_are_left_alone():
    criterion = RobustCrossEntropy(update_every=1)
    for _ in range(3):
        criterion(torch.randn(60, 4), torch.arange(60) % 3, torch.arange(60))
    assert float(criterion._confidence.current[1, 3]) == 0.0
    many = torch.randn(2, PLACES + 1)
    assert not bool(criterion._confidence.log_frequencies(many).any())


def test_a_class_that_noise_made_frequent_does_not_hide_it():
    """Labels of class 0 go to class 1: a network that has learned the noisy labels is torn, and prefers neither."""
    generator = torch.Generator().manual_seed(0)
    truth = torch.randint(4, (4000,), generator=generator)
    noisy = (torch.rand(4000, generator=generator) < 0.5) & (truth == 0)
    target = torch.where(noisy, 1, truth)
    rates = torch.tensor([[0.5, 0.5, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]])
    criterion, index = RobustCrossEntropy(float(1 - noisy.float().mean()), update_every=1), torch.arange(4000)
    for _ in range(4):
        criterion((rates[truth] + 1e-2).log(), target, index)
    probability = criterion.inlier_probability()
    assert float(probability[noisy].mean()) < 0.5 < 0.7 < float(probability[(truth == 0) & ~noisy].mean())


def learning(accuracies: list[float], rate: float, n: int = 6000, classes: int = 10):
    """Labels with noise, and logits of a network that begins from nothing: by epoch, more of them are right."""
    generator = torch.Generator().manual_seed(0)
    truth = torch.randint(classes, (n,), generator=generator)
    other = (truth + torch.randint(1, classes, (n,), generator=generator)) % classes
    target = torch.where(torch.rand(n, generator=generator) < rate, other, truth)
    epochs = []
    for accuracy in accuracies:
        # Confidence is what makes a prediction right: e^c / (e^c + K - 1) of those with confidence c are.
        confidence = 4 * accuracy * torch.rand(n, generator=generator)
        chance = confidence.exp() / (confidence.exp() + classes - 1) + 0.3 * accuracy * confidence / (
            4 * accuracy
        )
        wrong = (truth + torch.randint(1, classes, (n,), generator=generator)) % classes
        predicted = torch.where(torch.rand(n, generator=generator) < chance, truth, wrong)
        epochs.append(confidence[:, None] * nn.functional.one_hot(predicted, classes))
    return epochs, target, truth


def weights_of(criterion, epochs, target):
    """The mean weight in each epoch of a training whose logits are given."""
    means = []
    for logits in epochs:
        parts = torch.arange(len(target)).split(100)
        means.append(float(torch.cat([criterion.weigh(logits[i], target[i], i) for i in parts]).mean()))
    return means


GROWING = [0.2, 0.4, 0.6, 0.8, 1.0, 1.0]


def test_from_scratch_clean_labels_keep_their_weight():
    """A network that still learns disagrees with many clean labels, and is sure of some mistakes."""
    epochs, target, _ = learning(GROWING, 0.0)
    criterion = RobustCrossEntropy(samples=len(target))
    assert weights_of(criterion, epochs, target) == [1.0] * len(epochs)
    assert criterion.fraction_estimate.value == 1


def test_from_scratch_noise_is_found_once_the_network_knows_something_and_not_trusted():
    epochs, target, truth = learning(GROWING, 0.4)
    criterion = RobustCrossEntropy(samples=len(target))
    means = weights_of(criterion, epochs, target)
    assert means[:2] == [1.0, 1.0]
    assert means[-1] < 0.8
    assert not criterion.fraction_estimate.trusted
    probability = criterion.inlier_probability()
    assert float(probability[target != truth].mean()) + 0.15 < float(probability[target == truth].mean())


@pytest.mark.parametrize("from_scratch", [True, False])
def test_visits_count_as_one_where_the_network_was_trained_on_the_labels_before(from_scratch):
    """The log odds of a clean label are its mean margin times what its visits count for, plus a constant."""
    if from_scratch:
        epochs, target, _ = learning(GROWING, 0.4)
    else:
        logits, _, target = first_epoch(0.3)
        epochs = [logits] * 4
    criterion = RobustCrossEntropy(samples=len(target))
    weights_of(criterion, epochs, target)
    margins = -criterion.sample_losses().double().expm1().log()
    near = margins.abs() < 2
    margins, log_odds = margins[near], criterion.inlier_probability().double().logit()[near]
    slope = float(torch.cov(torch.stack([margins, log_odds]))[0, 1] / margins.var())
    assert slope == pytest.approx(1.0, abs=1e-3) if from_scratch else slope > 1.5


@pytest.mark.parametrize("rate", [0.0, 0.25])
def test_labels_that_are_all_of_one_class_are_no_special_case(rate):
    """A preference is the label 0 of the logits (margin, 0): which answer is called chosen says nothing."""
    logits, _, target = first_epoch(rate, n=6000, classes=2)
    margins = logits.gather(1, target[:, None]).squeeze(1) - logits.gather(1, 1 - target[:, None]).squeeze(1)
    criterion = RobustCrossEntropy(samples=6000, update_every=5)
    for part in torch.arange(6000).repeat(3).split(50):
        one_sided = torch.stack([margins[part], torch.zeros(len(part))], 1)
        criterion(one_sided, torch.zeros(len(part), dtype=torch.long), part)
    found = criterion.fraction_estimate
    assert found.trusted
    assert found.value == pytest.approx(1 - rate, abs=0.05)


def test_noise_in_some_classes_only_is_seen():
    """A network is less confident of noisy classes, so the most confident predictions are of clean ones."""
    generator = torch.Generator().manual_seed(0)
    truth = torch.randint(10, (6000,), generator=generator)
    noisy = (truth % 2 == 0) & (torch.rand(6000, generator=generator) < 0.4)
    target = torch.where(noisy, (truth + 1) % 10, truth)
    easy = torch.where(truth % 2 == 0, 2.0, 8.0) * torch.rand(6000, generator=generator)
    logits = easy[:, None] * nn.functional.one_hot(truth, 10)
    logits += 0.2 * torch.randn(6000, 10, generator=generator)
    criterion = RobustCrossEntropy(update_every=5)
    for part in torch.arange(6000).repeat(2).split(50):
        criterion(logits[part], target[part], part)
    assert criterion.fraction_estimate.value == pytest.approx(0.8, abs=0.05)


def test_without_an_index_weights_count_after_the_warm_up():
    criterion = RobustCrossEntropy(0.6, update_every=1, warmup=3)
    logits, target = 3 * torch.randn(500, 4), torch.randint(4, (500,))
    lows = [float(criterion.weigh(logits, target).min()) for _ in range(5)]
    assert lows[:3] == [1.0, 1.0, 1.0]
    assert max(lows[3:]) < 0.5


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda c: c(torch.randn(3), torch.tensor([0, 1, 2])), ValueError, r"\(N, C\)"),
        (lambda c: c(torch.randn(3, 2), torch.rand(3, 2)), TypeError, "class numbers"),
        (lambda c: c(torch.randn(3, 2), torch.tensor([0, 1])), ValueError, r"target must have shape \(3,\)"),
        (lambda c: c(torch.randn(2, 4, 3), torch.tensor([0, 1])), ValueError, r"must have shape \(2, 3\)"),
        (lambda c: c(torch.randn(3, 1), torch.zeros(3).long()), ValueError, "at least 2 classes"),
        (
            lambda c: c(torch.randn(2, 3), torch.tensor([0, 1]), torch.arange(3)),
            ValueError,
            "index has shape",
        ),
        (lambda c: RobustCrossEntropy(1.5), ValueError, "at most 1"),
        (lambda c: RobustCrossEntropy(label_smoothing=2.0), ValueError, "label_smoothing = 2.0"),
    ],
)
def test_mistakes_are_named(call, error, words):
    with pytest.raises(error, match=words):
        call(RobustCrossEntropy())
