"""A step that is compiled whole: Robust breaks no graph, and what it learns is what it learns uncompiled."""

from __future__ import annotations

import copy
import gc
import pickle
import shutil
import weakref

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from inlier import Robust, RobustCrossEntropy


def step(model, robust, x, y, index=None, groups=None, mask=None):
    logits = model(x)
    if isinstance(robust, RobustCrossEntropy):
        return robust(logits, y, index)
    return robust(F.cross_entropy(logits, y, reduction="none"), index, groups, mask)


def data(steps: int = 30, samples: int = 60):
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(samples, 8, generator=generator), torch.randint(4, (samples,), generator=generator)
    return [
        (x[i], y[i], i) for i in (torch.randperm(samples, generator=generator)[:20] for _ in range(steps))
    ]


def arguments(kind: str, y, index) -> dict:
    return {
        "losses": {},
        "index": {"index": index},
        "groups": {"index": index, "groups": y},
        "mask": {"index": index, "mask": index % 3 != 0},
        "hold": {"index": index},
        "labels": {"index": index},
    }[kind]


KINDS = ["losses", "index", "groups", "mask", "hold", "labels"]


def robust_of(kind: str):
    if kind == "labels":
        return RobustCrossEntropy(0.6, update_every=4)
    return Robust("tukey", 0.6, warmup=10, update_every=4, hold=3 if kind == "hold" else 1)


@pytest.mark.parametrize("kind", KINDS)
def test_the_whole_step_is_one_graph(kind):
    torch._dynamo.reset()
    model, robust = nn.Linear(8, 4), robust_of(kind)
    x, y, index = data(1)[0]
    found = torch._dynamo.explain(step)(model, robust, x, y, **arguments(kind, y, index))
    assert (found.graph_count, found.graph_break_count) == (1, 0), found.break_reasons


def trained(kind: str, backend: str | None):
    """Train, compiled by a backend or not at all: the losses, the model and Robust."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = nn.Linear(8, 4)
    robust = robust_of(kind)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    call = step if backend is None else torch.compile(step, backend=backend, fullgraph=True)
    losses = []
    for x, y, index in data():
        loss = call(model, robust, x, y, **arguments(kind, y, index))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses), model, robust


def calls(robust) -> int:
    """How many calls a robust loss has learned from."""
    return int(robust.state_dict()["counters"][0])


def assert_same_training(kind: str, backend: str) -> None:
    (losses, model, robust), (compiled_losses, compiled_model, compiled_robust) = (
        trained(kind, None),
        trained(kind, backend),
    )
    torch.testing.assert_close(compiled_losses, losses)
    torch.testing.assert_close(compiled_model.weight, model.weight)
    torch.testing.assert_close(compiled_robust.scale, robust.scale)
    assert robust.last_weights.min() < 1
    # Every call was counted once: none was merged, dropped or repeated for the backward pass.
    assert calls(compiled_robust) == calls(robust) == 30


@pytest.mark.parametrize("kind", KINDS)
def test_a_compiled_training_equals_the_eager_one(kind):
    # This backend traces forward and backward as the default one does, without needing a C++ compiler.
    assert_same_training(kind, "aot_eager")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="the default backend needs a C++ compiler")
def test_the_default_backend_equals_the_eager_one():
    assert_same_training("mask", "inductor")


def test_two_calls_with_the_same_losses_are_two_calls():
    robust = Robust(update_every=100)

    def twice(losses):
        return robust(losses) + robust(losses)

    torch._dynamo.reset()
    losses = torch.rand(5, requires_grad=True)
    torch.compile(twice, backend="aot_eager", fullgraph=True)(losses).backward()
    assert calls(robust) == 2
    torch.testing.assert_close(losses.grad, torch.full((5,), 0.4))


def test_bad_losses_have_no_part_in_a_compiled_loss():
    robust = Robust(update_every=100)
    torch._dynamo.reset()
    losses = torch.tensor([1.0, torch.nan, torch.inf, 2.0], requires_grad=True)
    loss = torch.compile(robust, backend="aot_eager", fullgraph=True)(losses)
    loss.backward()
    assert loss.item() == pytest.approx(0.75)
    assert losses.grad.tolist() == [0.25, 0, 0, 0.25]


def test_weights_and_evaluation_compile_too():
    robust = Robust("tukey", 0.5, warmup=0, update_every=1)
    robust(torch.rand(50))
    losses, mask = torch.tensor([[0.1, 5.0], [0.2, 0.3]]), torch.tensor([[True, True], [True, False]])
    eager = copy.deepcopy(robust)
    torch._dynamo.reset()
    weigh = torch.compile(lambda r: r.weigh(losses, mask=mask), backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(weigh(robust), eager.weigh(losses, mask=mask))
    mean = torch.compile(lambda r: r(losses, mask=mask), backend="aot_eager", fullgraph=True)
    assert mean(robust.eval()).item() == pytest.approx(5.3 / 3)
    assert weigh(robust).tolist() == [[1, 1], [1, 0]]


def test_a_copy_is_another_one():
    """Each Robust has a handle of its own, so that a compiled step never teaches the one it was copied from."""
    robust = Robust(update_every=100)
    step = torch.compile(lambda r: r(torch.ones(3)), backend="aot_eager", fullgraph=True)
    step(robust)
    for twin in (copy.deepcopy(robust), pickle.loads(pickle.dumps(robust))):
        step(twin)
        assert (calls(robust), calls(twin)) == (1, 2)
    gone = weakref.ref(twin)
    del twin
    torch._dynamo.reset()
    gc.collect()
    assert gone() is None
