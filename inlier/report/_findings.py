"""The content of a report, the same for a table and for a training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from inlier.fraction import FractionEstimate
    from inlier.kernels import Kernel

    Numbers = Tensor | NDArray[np.floating[Any]]

__all__ = ["Deviation", "Findings", "Suspect"]


@dataclass(frozen=True)
class Deviation:
    """How far one value of a sample is from the usual.

    Args:
        column: The name of the value.
        value: The sample's value, as text.
        usual: The usual value, as text.
        score: The distance, at least 0; 1 is unremarkable (one standard deviation, say).

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
    """A sample that may be wrong, and what is known about it.

    Args:
        row: Its row or dataset index.
        inlier_probability: The probability that it is an inlier.
        loss: Its loss under the robust model.
        given: Its given label or target value.
        suggested: The label or value that the robust model predicts.
        values: Its cells by column, as text.
        deviations: Its unusual values, most unusual first.
        image: An image of it, the bytes of a PNG file.
        numbers: ``given`` and ``suggested`` as numbers, where they are texts like "$1,200".

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
    numbers: tuple[float, float] | None = None


@dataclass(frozen=True)
class Findings:
    """All that a report shows.

    Args:
        title: The heading: the name of the data, say.
        losses: The loss of every sample; NaN for one that was never scored.
        inlier_probability: The inlier probability of every sample.
        estimate: The estimate of the inlier fraction that was used. The densities of a
            :class:`inlier.fraction.LossMixture` are drawn over the histogram of losses.
        kernel: The kernel sigma; None for class labels, whose weights come from margins.
        scale: Its scale c; without a kernel, the loss at which the weight is 1/2.
        history: (iteration, scale, inlier fraction), in order.
        suspects: The samples to inspect, most suspect first.
        facts: Further lines for the summary: the model, the held-out error.
        weights: The weight of every sample, where it is not its inlier probability.
        unit: What the samples are called, in the plural.
        density_note: What the densities of the estimate were fitted to, if not to these losses.
        group_scales: The scale of each group, where groups have their own.
        columns: Name, type and remarks of each column of a table.
        confusion: Given and suggested label and number of samples, most frequent first.
        cells: Row, column, value, expected value and reason of suspect cells, most suspect first.
        total: The number of all samples, where the losses are of some of them.
        doubtful: How many of these have an inlier probability below 1/2.
        named: How many samples have a target that is wrong by itself: a text among numbers, a misspelled class.

    Example:
        >>> import torch, inlier
        >>> losses = torch.tensor([0.1, 0.2, 9.0])
        >>> kernel = inlier.kernels.get("geman-mcclure")
        >>> findings = Findings(
        ...     title="three rows",
        ...     losses=losses,
        ...     inlier_probability=kernel.weight(losses, 1.0),
        ...     estimate=inlier.fit_inliers(losses),
        ...     kernel=kernel,
        ...     scale=1.0,
        ...     suspects=[Suspect(2, 0.01, 9.0)],
        ... )
        >>> findings.suspects[0].row
        2
    """

    title: str
    losses: Numbers
    inlier_probability: Numbers
    estimate: FractionEstimate
    kernel: Kernel | None = None
    scale: float = float("nan")
    history: Sequence[tuple[int, float, float]] = ()
    suspects: Sequence[Suspect] = ()
    facts: Mapping[str, str] = field(default_factory=dict)
    weights: Numbers | None = None
    unit: str = "rows"
    density_note: str = ""
    group_scales: Sequence[float] = ()
    columns: Sequence[tuple[str, str, str]] = ()
    confusion: Sequence[tuple[str, str, int]] = ()
    cells: Sequence[tuple[int, str, str, str, str]] = ()
    total: int | None = None
    doubtful: int | None = None
    named: int = 0
