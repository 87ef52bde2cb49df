"""What a call leaves for the next update: few operations at a step, and it does not matter when they are counted."""

from __future__ import annotations

import copy

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from inlier import Robust, RobustCrossEntropy
from inlier.nn import _module


class Operations(TorchDispatchMode):
    """Counts the operations that are run while it is active."""

    def __init__(self) -> None:
        super().__init__()
        self.number = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.number += 1
        return func(*args, **(kwargs or {}))


def calls(number: int, classes: int | None = None):
    """Losses, index and groups, or logits, target and index, of 200 samples."""
    generator = torch.Generator().manual_seed(0)
    for _ in range(number):
        index = torch.randperm(200, generator=generator)[:24]
        if classes is None:
            yield torch.rand(24, generator=generator), index, index % 3
        else:
            yield 3 * torch.randn(24, classes, generator=generator), index % classes, index


MODES = {
    "losses": (lambda r, losses, index, groups: r(losses), 15),
    "index": (lambda r, losses, index, groups: r(losses, index), 25),
    "index and groups": (lambda r, losses, index, groups: r(losses, index, groups), 33),
    "index and mask": (lambda r, losses, index, groups: r(losses, index, mask=losses > 0.2), 60),
}


@pytest.mark.parametrize("mode", MODES)
def test_an_ordinary_step_is_few_operations(mode):
    call, most = MODES[mode]
    robust = Robust(update_every=10)
    for batch in calls(20):
        call(robust, *batch)
    for batch in calls(9):
        with Operations() as operations:
            call(robust, *batch)
        assert operations.number <= most


@pytest.mark.parametrize(("with_index", "most"), [(False, 37), (True, 45)])
def test_an_ordinary_step_on_class_labels_is_few_operations(with_index, most):
    criterion = RobustCrossEntropy(update_every=10)
    for call, (logits, target, index) in enumerate(calls(29, 5), start=1):
        with Operations() as operations:
            criterion(logits, target, index if with_index else None)
        assert call <= 20 or operations.number <= most


def assert_same(one: dict, other: dict) -> None:
    for key, value in one.items():
        torch.testing.assert_close(value, other[key], rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize(("arguments", "classes"), [(1, None), (2, None), (3, None), (2, 5), (3, 5)])
def test_a_caller_may_put_its_next_batch_in_the_same_place(arguments, classes):
    kind = Robust if classes is None else RobustCrossEntropy
    robust, untouched = kind(warmup=0, update_every=4), kind(warmup=0, update_every=4)
    static = [torch.empty_like(x) for x in next(calls(1, classes))][:arguments]
    for batch in calls(12, classes):
        for place, new in zip(static, batch, strict=False):
            place.copy_(new)
        assert torch.equal(robust(*static), untouched(*batch[:arguments]))
    assert_same(untouched.state_dict(), robust.state_dict())


@pytest.mark.parametrize("classes", [None, 5])
def test_looking_at_a_loss_changes_nothing(classes):
    """A checkpoint or a report counts what waits; the training goes on as if nobody had asked."""
    kind = Robust if classes is None else RobustCrossEntropy
    watched, alone = (kind(update_every=7) for _ in range(2))
    for batch in calls(40, classes):
        assert torch.equal(watched(*batch), alone(*batch))
        copy.deepcopy(watched.state_dict())
        watched.inlier_probability(), watched.metrics(), watched.sample_tags()
    assert_same(watched.state_dict(), alone.state_dict())


@pytest.mark.parametrize("classes", [None, 5])
def test_what_waits_is_bounded_and_counted_alike(classes, monkeypatch):
    kind = Robust if classes is None else RobustCrossEntropy
    often, seldom = (kind(update_every=15) for _ in range(2))
    for batch in calls(40, classes):
        monkeypatch.setattr(_module, "MOST_PENDING", 30)
        often(*batch)
        assert often._pending.size <= 30
        monkeypatch.setattr(_module, "MOST_PENDING", 10**6)
        seldom(*batch)
    assert_same(often.state_dict(), seldom.state_dict())


def test_calls_with_and_without_an_index_may_take_turns():
    robust = Robust(update_every=6)
    for turn, (losses, index, groups) in enumerate(calls(12)):
        robust(losses, index if turn % 2 else None, groups)
    seen = ~robust.inlier_probability().isnan()
    groups = robust.sample_tags()[seen]
    assert torch.equal(groups, seen.nonzero().squeeze(1) % 3)
