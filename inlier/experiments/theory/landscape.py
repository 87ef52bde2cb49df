"""The loss along the straight line between two trained models."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor, nn

__all__ = ["interpolate", "loss_landscape"]

Model = TypeVar("Model", bound=nn.Module)


def interpolate(model_a: Model, model_b: Model, kappa: float) -> Model:
    """Return a new model at ``(1 - kappa) a + kappa b``, buffers (running means, say) included.

    Integer buffers (counters) are not interpolated: they are those of the nearer model.

    Args:
        model_a: The model at kappa = 0.
        model_b: The model at kappa = 1, of the same architecture.
        kappa: The position on the line; outside [0, 1] it extrapolates.

    Example:
        >>> import torch
        >>> a, b = torch.nn.Linear(1, 1), torch.nn.Linear(1, 1)
        >>> middle = interpolate(a, b, 0.5)
        >>> bool(torch.isclose(middle.weight, (a.weight + b.weight) / 2))
        True
    """
    state_a, state_b = model_a.state_dict(), model_b.state_dict()
    if state_a.keys() != state_b.keys() or any(state_a[k].shape != state_b[k].shape for k in state_a):
        differing = sorted(state_a.keys() ^ state_b.keys()) or [
            k for k in state_a if state_a[k].shape != state_b[k].shape
        ]
        raise ValueError(f"the two models differ in {differing[0]!r}: interpolate models of one architecture")

    def lerp(a: Tensor, b: Tensor) -> Tensor:
        b = b.to(a.device)
        # torch.lerp(a, b, 1) is b exactly; a + kappa (b - a) need not be.
        return torch.lerp(a, b, kappa) if a.is_floating_point() or a.is_complex() else (a, b)[kappa >= 0.5]

    model = copy.deepcopy(model_a)
    model.load_state_dict({name: lerp(state_a[name], state_b[name]) for name in state_a})
    return model


def loss_landscape(
    model_a: Model,
    model_b: Model,
    loss_fn: Callable[[Model], Tensor | float],
    steps: int = 51,
    low: float = -0.5,
    high: float = 1.5,
) -> tuple[Tensor, Tensor]:
    """Return the loss at evenly spaced points on the line through two models.

    Args:
        model_a: The model at kappa = 0; it is not changed.
        model_b: The model at kappa = 1, of the same architecture; it is not changed.
        loss_fn: Takes a model, returns its loss; called without gradients.
        steps: The number of points, at least 2.
        low: The first kappa.
        high: The last kappa.

    Returns:
        The kappas and the losses, float64.

    Example:
        >>> import torch
        >>> a, b = torch.nn.Linear(1, 1, bias=False), torch.nn.Linear(1, 1, bias=False)
        >>> _ = torch.nn.init.constant_(a.weight, 0.0), torch.nn.init.constant_(b.weight, 2.0)
        >>> kappa, loss = loss_landscape(a, b, lambda model: (model.weight - 2).square().sum(), 3, 0.0, 1.0)
        >>> loss
        tensor([4., 1., 0.], dtype=torch.float64)

    Reference: H. Li, Z. Xu, G. Taylor, C. Studer, T. Goldstein (2018), Visualizing the loss landscape of
    neural nets, NeurIPS; the paper's figure of the landscape between Adam and Adaptive TL.
    """
    if steps < 2:
        raise ValueError(f"steps = {steps}: a line needs at least 2 points")
    kappas = torch.linspace(low, high, steps, dtype=torch.float64)
    with torch.no_grad():
        losses = [float(loss_fn(interpolate(model_a, model_b, float(kappa)))) for kappa in kappas]
    return kappas, torch.tensor(losses, dtype=torch.float64)
