"""On a device: what a step waits for, what an update copies, and that no float64 is ever made there."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist

from inlier import Robust, RobustCrossEntropy
from tests.nn.device import EmulatedDevice

SAMPLES, GROUPS, CLASSES, PERIOD = 64, 4, 5, 10


def batches(number: int, seed: int = 0):
    """Losses or logits, dataset index, groups, mask and targets, each sample in the first period already."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(number):
        index = torch.randperm(SAMPLES, generator=generator)[:32]
        yield {
            "losses": torch.rand(32, generator=generator),
            "logits": 3 * torch.randn(32, CLASSES, generator=generator),
            "index": index,
            "groups": index % GROUPS,
            "mask": torch.rand(32, generator=generator) > 0.2,
            "target": torch.where(torch.rand(32, generator=generator) < 0.9, index % CLASSES, -100),
        }


MODES = {
    "losses": (Robust, ("losses",), {}),
    "index": (Robust, ("losses", "index"), {}),
    "groups": (Robust, ("losses", "groups"), {}),
    "mask": (Robust, ("losses", "mask"), {}),
    "all": (Robust, ("losses", "index", "groups", "mask"), {}),
    "all, sizes given": (
        Robust,
        ("losses", "index", "groups", "mask"),
        {"samples": SAMPLES, "num_groups": GROUPS},
    ),
    "hold": (Robust, ("losses", "index"), {"hold": PERIOD}),
    "class labels": (RobustCrossEntropy, ("logits", "target", "index"), {}),
    "class labels, size given": (RobustCrossEntropy, ("logits", "target", "index"), {"samples": SAMPLES}),
    "class labels, no index": (RobustCrossEntropy, ("logits", "target"), {"warmup": 20}),
}


def call(criterion, names, batch, put=lambda x: x):
    first, *rest = names
    if first == "logits":
        return criterion(put(batch["logits"]), *(put(batch[name]) for name in rest))
    return criterion(put(batch["losses"]), **{name: put(batch[name]) for name in rest})


@pytest.mark.parametrize("mode", MODES)
def test_a_step_waits_for_nothing_and_an_update_makes_two_copies(mode):
    kind, names, arguments = MODES[mode]
    criterion, on_cpu = (kind(**({"update_every": PERIOD} | arguments)) for _ in range(2))
    device = EmulatedDevice()
    for number, batch in enumerate(batches(5 * PERIOD), start=1):
        expected = call(on_cpu, names, batch)
        with device:
            device.count()
            loss = call(criterion, names, batch, device.put)
            events = device.count()
            assert float(loss) == pytest.approx(float(expected), rel=1e-5)
        learns_sizes = number <= 2 * PERIOD and "given" not in mode
        if number % PERIOD == 0:
            assert events["copy"] + events["wait"] <= (8 if learns_sizes else 4), events
        elif number > 1 and not learns_sizes:
            assert events["copy"] + events["wait"] == 0, events
    assert device.wide == []


@pytest.mark.parametrize("groups", [3, 1000])
def test_the_copies_of_an_update_do_not_depend_on_the_number_of_groups(groups):
    robust = Robust(update_every=2, num_groups=groups)
    device = EmulatedDevice()
    with device:
        for _ in range(6):
            device.count()
            robust(device.put(torch.rand(64)), groups=device.put(torch.randint(groups, (64,))))
            events = device.count()
    assert events["copy"] + events["wait"] == 2


def test_a_sample_that_comes_late_is_remembered_from_the_next_update_on():
    robust = Robust(update_every=2)
    device = EmulatedDevice()
    with device:
        for _ in range(6):
            robust(device.put(torch.rand(8)), device.put(torch.arange(8)))
        for _ in range(4):
            robust(device.put(torch.rand(2)), device.put(torch.tensor([3, 20])))
        seen = robust.inlier_probability().cpu()
    assert len(seen) == 21
    assert bool(seen[20].isfinite())


@pytest.mark.parametrize("number", [-5, 9])
def test_an_index_that_cannot_be_is_told_at_the_next_update(number):
    robust = Robust(update_every=2, samples=8)
    device = EmulatedDevice()
    with device:
        robust(device.put(torch.rand(1)), device.put(torch.tensor([number])))
        with pytest.raises(IndexError, match=f"index holds {number}"):
            robust(device.put(torch.rand(1)), device.put(torch.tensor([0])))


def test_several_processes_add_one_collective_and_no_wait():
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", rank=0, world_size=256, store=FakeStore())
    try:
        robust = Robust(update_every=PERIOD, samples=SAMPLES, num_groups=GROUPS)
        device = EmulatedDevice()
        with device:
            for number, batch in enumerate(batches(4 * PERIOD), start=1):
                device.count()
                call(robust, ("losses", "index", "groups", "mask"), batch, device.put)
                events = device.count()
                if number > 1 and number % PERIOD:
                    assert events["collective"] == 1
                    assert events["copy"] + events["wait"] == 0, events
                elif number % PERIOD == 0:
                    assert events["collective"] == 1
                    assert events["copy"] + events["wait"] <= 4, events
    finally:
        dist.destroy_process_group()
