"""skorch: a mixin that makes any net robust, with samples known by their row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset, Subset

from inlier.integrations import need
from inlier.nn import Robust, RobustCrossEntropy, with_index

need("skorch", "skorch")

from skorch import NeuralNetClassifier  # noqa: E402
from skorch.utils import to_tensor  # noqa: E402

__all__ = ["RobustNet"]


class RobustNet:
    """Put this before a skorch net: ``class Net(RobustNet, NeuralNetClassifier): ...``.

    Training losses are weighted by a robust loss, with the row of each sample as its index: by
    :class:`inlier.RobustCrossEntropy` in a ``NeuralNetClassifier`` whose criterion is cross-entropy or ``NLLLoss``,
    else by :class:`inlier.Robust`. Validation losses are unweighted means. The arguments of the robust loss are
    parameters of the net, ``robust__inlier_fraction`` say, so that a grid search can choose them. After ``fit``,
    ``robust_`` is the robust loss, and ``inlier_probability_`` has the inlier probability of each row of X (NaN for
    rows that were held out for validation).

    Args:
        args: As for the net.
        robust: ``inlier.Robust`` or ``inlier.RobustCrossEntropy``, the class; None chooses as above.
        kwargs: As for the net, and ``robust__...``.

    Example:
        >>> from skorch import NeuralNetRegressor
        >>> class Net(RobustNet, NeuralNetRegressor): ...
        >>> net = Net(torch.nn.Linear(2, 1), robust__inlier_fraction=0.8, max_epochs=1, verbose=0)
        >>> x = torch.randn(50, 2)
        >>> net.fit(x, x.sum(1, keepdim=True)).inlier_probability_.shape
        torch.Size([50])
    """

    robust_: Robust | RobustCrossEntropy
    _index: Tensor
    _samples: int

    def __init__(
        self, *args: Any, robust: type[Robust] | type[RobustCrossEntropy] | None = None, **kwargs: Any
    ) -> None:
        self.robust = robust
        super().__init__(*args, **kwargs)

    def initialize_criterion(self) -> Any:
        """Make the criterion, without a reduction, and the robust loss."""
        super().initialize_criterion()  # type: ignore[misc]
        kind, parameters = self.robust, self.get_params_for("robust")
        criterion = self.criterion_  # type: ignore[attr-defined]
        has_classes = isinstance(criterion, (torch.nn.CrossEntropyLoss, torch.nn.NLLLoss))
        if kind is None:
            has_classes = has_classes and isinstance(self, NeuralNetClassifier)
            kind = RobustCrossEntropy if has_classes else Robust
        if has_classes and isinstance(kind, type) and issubclass(kind, RobustCrossEntropy):
            parameters = {"ignore_index": criterion.ignore_index, **parameters}
        self.robust_ = self.initialized_instance(kind, parameters)  # type: ignore[attr-defined]
        return self

    def get_params_for(self, prefix: str) -> dict[str, Any]:
        """Return the parameters of a part; the criterion's reduction is none unless you set another."""
        parameters: dict[str, Any] = super().get_params_for(prefix)  # type: ignore[misc]
        return {"reduction": "none", **parameters} if prefix == "criterion" else parameters

    def get_iterator(self, dataset: Dataset[Any], training: bool = False) -> Any:
        """Return batches; in training, the net knows the rows of each."""
        if not training:
            return super().get_iterator(dataset, training=False)  # type: ignore[misc]
        rows, self._samples = _rows(dataset)
        batches = super().get_iterator(with_index(dataset), training=True)  # type: ignore[misc]
        return _IndexedBatches(self, batches, rows)

    def get_loss(self, y_pred: Any, y_true: Any, *args: Any, training: bool = False, **kwargs: Any) -> Tensor:
        """Return the robust loss in training, else the unweighted mean."""
        losses: Tensor = super().get_loss(y_pred, y_true, *args, training=training, **kwargs)  # type: ignore[misc]
        if losses.dim() == 0:
            raise ValueError(
                f"{type(self.criterion_).__name__} averages its losses: pass criterion__reduction='none', or "  # type: ignore[attr-defined]
                "a criterion that returns one loss for each sample"
            )
        losses = losses.flatten(1).mean(1) if losses.dim() > 1 else losses
        if not training:
            return losses.mean()
        index = self._index.to(losses.device)
        if isinstance(self.robust_, Robust):
            return self.robust_(losses, index)  # type: ignore[no-any-return]
        weights = self.robust_.weigh(*self._classes(y_pred, y_true), index)
        total = weights.sum().clamp(min=torch.finfo(weights.dtype).tiny)
        return torch.dot(weights.to(losses.dtype), torch.where(weights == 0, 0.0, losses)) / total

    def _classes(self, y_pred: Any, y_true: Any) -> tuple[Tensor, Tensor]:
        """Return logits and classes, as RobustCrossEntropy wants them."""
        output: Tensor = y_pred[0] if isinstance(y_pred, tuple) else y_pred
        target = to_tensor(y_true, device=output.device)
        if target.dim() != 1 or target.is_floating_point() or output.dim() != 2:
            raise ValueError(
                f"{target.dtype} targets of shape {tuple(target.shape)} and outputs of shape "
                f"{tuple(output.shape)}: RobustCrossEntropy needs one class for each sample; pass "
                "robust=inlier.Robust here"
            )
        output = output.detach()
        # To NLLLoss skorch's classifiers give the logarithm of what the module returns.
        if isinstance(self.criterion_, torch.nn.NLLLoss):  # type: ignore[attr-defined]
            is_log = not isinstance(self, NeuralNetClassifier)
            output = output if is_log else (output + torch.finfo(output.dtype).eps).log()
        return output, target

    def on_epoch_end(self, net: Any, *args: Any, **kwargs: Any) -> None:
        """Put the scale and the fractions into the history."""
        super().on_epoch_end(net, *args, **kwargs)  # type: ignore[misc]
        metrics = self.robust_.metrics()
        for name in ("inlier_fraction", "fraction_kept", "scale"):
            if name in metrics:
                self.history.record(name, metrics[name])  # type: ignore[attr-defined]

    @property
    def inlier_probability_(self) -> Tensor:
        """The inlier probability of each row of the training data, NaN for rows that were held out."""
        known = self.robust_.inlier_probability()
        unseen = known.new_full((max(self._samples - len(known), 0),), torch.nan)
        return torch.cat([known, unseen])


def _rows(dataset: Any) -> tuple[Tensor, int]:
    """Return the rows of a dataset in the data that it was split from, and the number of rows there."""
    if not isinstance(dataset, Subset):
        return torch.arange(len(dataset)), len(dataset)
    rows, samples = _rows(dataset.dataset)
    return rows[torch.as_tensor(dataset.indices)], samples


class _IndexedBatches:
    """The batches of a loader without their index, which the net gets."""

    def __init__(self, net: Any, loader: Any, rows: Tensor) -> None:
        self.net, self.loader, self.rows = net, loader, rows

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[Any]:
        for *batch, places in self.loader:
            self.net._index = self.rows[places]
            yield batch
