"""Gradient clipping and the normalised gradient: bound the length of a step, whatever made it long.

Both multiply a gradient by a number that depends on its norm alone, so both are functions of the norm here;
the caller computes the norm of one sample's gradient, of a batch's, or of all parameters together, as fits.

For a linear model and batches of one sample, the gradient is ``2 r x``: normalising it gives ``sign(r) x /
|x|``, a step of least absolute deviations, and clipping it gives a step of the Huber loss. So both are
robust there, with no notion of an outlier; with larger batches they are not, as one outlier turns the
direction of the whole batch.

Reference: J. Zhang, T. He, S. Sra, A. Jadbabaie (2020), Why gradient clipping accelerates training: a
    theoretical
justification for adaptivity, ICLR, equations 5 and 6; A. K. Menon, A. S. Rawat, S. J. Reddi, S. Kumar
(2020), Can gradient clipping mitigate label noise?, ICLR.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

__all__ = ["clipping_factor", "global_norm", "normalising_factor"]


def global_norm(gradients: Iterable[Tensor]) -> Tensor:
    """Return the Euclidean norm of all gradients laid end to end.

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
    """Return min(1, limit / norm): a gradient times this is at most ``limit`` long and keeps its direction.

    Args:
        norm: Norms of gradients, at least 0; any shape.
        limit: The longest gradient allowed, above 0.

    Example:
        >>> import torch
        >>> clipping_factor(torch.tensor([0.0, 0.5, 4.0]), limit=1.0)
        tensor([1.0000, 1.0000, 0.2500])

    Reference: Zhang et al. (2020), equation 5.
    """
    if not limit > 0:
        raise ValueError(f"limit = {limit}: pass the longest gradient allowed, a number above 0")
    return limit / norm.clamp(min=limit)


def normalising_factor(norm: Tensor, smallest: float = 1e-8) -> Tensor:
    """Return 1 / (norm + smallest): a gradient times this has length 1, and a vanishing one stays small.

    Args:
        norm: Norms of gradients, at least 0; any shape.
        smallest: Added to the norm, above 0: gradients well below it are not blown up.

    Example:
        >>> import torch
        >>> normalising_factor(torch.tensor([0.5, 4.0]))
        tensor([2.0000, 0.2500])

    Reference: Zhang et al. (2020), equation 6.
    """
    if not smallest > 0:
        raise ValueError(f"smallest = {smallest}: pass a number above 0, or a zero gradient has no factor")
    return 1 / (norm + smallest)
