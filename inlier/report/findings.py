"""What a report shows: plain data, the same for a table and for a training loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from inlier.fraction import InlierFit
    from inlier.kernels import Kernel

    Numbers = Tensor | NDArray[np.floating[Any]]

__all__ = ["Deviation", "Findings", "Suspect"]


@dataclass(frozen=True)
class Deviation:
    """How far one value of a sample lies from what is usual.

    Args:
        column: What was measured.
        value: The sample's value, as text.
        usual: What is usual there, as text.
        score: How far apart they are, at least 0: 1 is nothing special (one standard deviation, say).

    Example:
        >>> Deviation("age", "212", "38", 9.4).column
        'age'
    """

    column: str
    value: str
    usual: str
    score: float


@dataclass(frozen=True)
class Suspect:
    """A sample that looks wrong, and what is known about it.

    Args:
        row: Its number, from 0.
        inlier_probability: The belief that it is right, between 0 and 1.
        loss: Its loss under the robust model.
        given: The label or target value it came with.
        suggested: What the robust model believes instead.
        values: Its cells by column, as text.
        deviations: Where it is unusual, largest first.
        image: A picture of it, the bytes of a PNG file.

    Example:
        >>> Suspect(17, 0.02, 8.1, given="cat", suggested="dog").row
        17
    """

    row: int
    inlier_probability: float
    loss: float
    given: str = ""
    suggested: str = ""
    values: Mapping[str, str] = field(default_factory=dict)
    deviations: Sequence[Deviation] = ()
    image: bytes | None = None


@dataclass(frozen=True)
class Findings:
    """All that a report shows.

    Args:
        title: The heading: the name of the data, say.
        losses: The loss of every sample; NaN for one that was not judged.
        inlier_probability: The belief that each sample is right.
        kernel: The kernel sigma.
        scale: Its scale c.
        inlier_fraction: zeta, the estimated fraction of right samples.
        fit: The groups fitted to the losses, if they were; drawn over the histogram.
        history: (iteration, scale, inlier fraction), in order.
        suspects: The samples to look at, most suspect first.
        facts: Further lines for the summary: the model, the held-out error.
        weights: The weight of every sample, where it is not its probability.
        unit: What the samples are called, in the plural.
        group_scales: The scale of each group, where groups have their own.

    Example:
        >>> import torch, inlier
        >>> losses = torch.tensor([0.1, 0.2, 9.0])
        >>> kernel = inlier.kernels.get("geman-mcclure")
        >>> probability = kernel.weight(losses, 1.0)
        >>> findings = Findings(
        ...     "three rows", losses, probability, kernel, 1.0, 0.67, None, [], [Suspect(2, 0.01, 9.0)]
        ... )
        >>> findings.suspects[0].row
        2
    """

    title: str
    losses: Numbers
    inlier_probability: Numbers
    kernel: Kernel
    scale: float
    inlier_fraction: float
    fit: InlierFit | None
    history: Sequence[tuple[int, float, float]]
    suspects: Sequence[Suspect]
    facts: Mapping[str, str] = field(default_factory=dict)
    weights: Numbers | None = None
    unit: str = "rows"
    group_scales: Sequence[float] = ()
