"""Gradient clipping and the normalized gradient: bound the norm of a step.

Both multiply a gradient by a factor that depends on its norm alone, so both are functions of the norm here;
the caller computes the norm of one sample's gradient, of a batch's, or over all parameters.

For a linear model and batches of one sample, the gradient is ``2 r x``: normalizing it gives ``sign(r) x /
|x|``, a step of least absolute deviations, and clipping it gives a step of the Huber loss. So both are
robust there without any notion of an outlier. With larger batches they are not: one outlier changes the
direction of the whole batch.

Reference: J. Zhang, T. He, S. Sra, A. Jadbabaie (2020), Why gradient clipping accelerates training: a
theoretical justification for adaptivity, ICLR, equations 5 and 6; A. K. Menon, A. S. Rawat, S. J. Reddi, S.
Kumar (2020), Can gradient clipping mitigate label noise?, ICLR.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

__all__ = ["clipping_factor", "global_norm", "normalizing_factor"]


def global_norm(gradients: Iterable[Tensor]) -> Tensor:
    """Return the Euclidean norm of all gradients, concatenated.

    Args:
        gradients: Tensors of any shapes, at least one.

    Example:
        >>> import torch
        >>> global_norm([torch.tensor([3.0]), torch.tensor([[4.0]])])
        tensor(5.)
    """
    norms = torch.stack([torch.linalg.vector_norm(gradient) for gradient in gradients])
    return norms.square().sum().sqrt()


def clipping_factor(norm: Tensor, limit: float = 1.0) -> Tensor:
    """Return min(1, limit / norm): a gradient times this has a norm of at most ``limit``.

    Args:
        norm: Norms of gradients, at least 0; any shape.
        limit: The largest norm allowed, above 0.

    Example:
        >>> import torch
        >>> clipping_factor(torch.tensor([0.0, 0.5, 4.0]), limit=1.0)
        tensor([1.0000, 1.0000, 0.2500])

    Reference: Zhang et al. (2020), equation 5.
    """
    if not limit > 0:
        raise ValueError(f"limit = {limit}: pass the largest norm allowed, a number above 0")
    return limit / norm.clamp(min=limit)


def normalizing_factor(norm: Tensor, smallest: float = 1e-8) -> Tensor:
    """Return 1 / (norm + smallest): a gradient times this has norm 1, and a vanishing one stays small.

    Args:
        norm: Norms of gradients, at least 0; any shape.
        smallest: Added to the norm, above 0: gradients well below it stay small.

    Example:
        >>> import torch
        >>> normalizing_factor(torch.tensor([0.5, 4.0]))
        tensor([2.0000, 0.2500])

    Reference: Zhang et al. (2020), equation 6.
    """
    if not smallest > 0:
        raise ValueError(f"smallest = {smallest}: pass a number above 0, or a zero gradient has no factor")
    return 1 / (norm + smallest)
