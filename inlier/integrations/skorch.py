"""skorch: a mixin that makes any net robust, with samples numbered by their row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset, Subset

from inlier.integrations import need
from inlier.robust import Robust

need("skorch", "skorch")

from skorch import NeuralNetClassifier  # noqa: E402
from skorch.utils import to_tensor  # noqa: E402

__all__ = ["RobustNet"]


class RobustNet:
    """Put this before a skorch net: ``class Net(RobustNet, NeuralNetClassifier): ...``.

    Training losses go through a :class:`inlier.Robust` with the row of each sample; losses in validation are
    plain means. Its arguments are parameters of the net, ``robust__inlier_fraction`` say, so that a grid
    search can choose them. After ``fit``, ``robust_`` is the Robust, and ``inlier_probability_`` the belief
    in each row of X (NaN for rows that validation kept).

    Args:
        args: As for the net.
        robust: The class of ``robust_``.
        class_labels: Whether the Robust is given labels and logits, as is best where some classes are wrong
            (y is one class a sample).
        kwargs: As for the net, and ``robust__...``.

    Example:
        >>> from skorch import NeuralNetRegressor
        >>> class Net(RobustNet, NeuralNetRegressor): ...
        >>> net = Net(torch.nn.Linear(2, 1), robust__inlier_fraction=0.8, max_epochs=1, verbose=0)
        >>> x = torch.randn(50, 2)
        >>> net.fit(x, x.sum(1, keepdim=True)).inlier_probability_.shape
        torch.Size([50])
    """

    _rows: Tensor
    _samples: int

    def __init__(
        self, *args: Any, robust: type[Robust] = Robust, class_labels: bool = False, **kwargs: Any
    ) -> None:
        self.robust, self.class_labels = robust, class_labels
        super().__init__(*args, **kwargs)

    def initialize_criterion(self) -> Any:
        """Make the criterion, without a reduction, and the Robust."""
        super().initialize_criterion()  # type: ignore[misc]
        self.robust_ = self.initialized_instance(self.robust, self.get_params_for("robust"))  # type: ignore[attr-defined]
        return self

    def get_params_for(self, prefix: str) -> dict[str, Any]:
        """Parameters of a part; the criterion's reduction is none unless you say another."""
        parameters: dict[str, Any] = super().get_params_for(prefix)  # type: ignore[misc]
        return {"reduction": "none", **parameters} if prefix == "criterion" else parameters

    def get_iterator(self, dataset: Dataset[Any], training: bool = False) -> Any:
        """Batches; in training, the rows of each are known when it comes."""
        if not training:
            return super().get_iterator(dataset, training=False)  # type: ignore[misc]
        numbered = _Numbered(dataset)
        self._samples = numbered.samples
        return _Batches(self, super().get_iterator(numbered, training=True))  # type: ignore[misc]

    def get_loss(self, y_pred: Any, y_true: Any, *args: Any, training: bool = False, **kwargs: Any) -> Tensor:
        """Return the robust loss in training, else the plain mean."""
        losses: Tensor = super().get_loss(y_pred, y_true, *args, training=training, **kwargs)  # type: ignore[misc]
        if losses.dim() == 0:
            raise ValueError(
                f"{type(self.criterion_).__name__} averages its losses: pass criterion__reduction='none', or "  # type: ignore[attr-defined]
                "a criterion that returns one loss for each sample"
            )
        losses = losses.flatten(1).mean(1) if losses.dim() > 1 else losses
        if not training:
            return losses.mean()
        index = to_tensor(self._rows, device=losses.device)
        classes = self._classes(y_pred, y_true) if self.class_labels else {}
        loss: Tensor = self.robust_(losses, index, **classes)
        return loss

    def _classes(self, y_pred: Any, y_true: Any) -> dict[str, Tensor]:
        """What the Robust is told of classes."""
        output: Tensor = y_pred[0] if isinstance(y_pred, tuple) else y_pred
        labels = to_tensor(y_true, device=output.device)
        if labels.dim() != 1 or labels.is_floating_point() or output.dim() != 2:
            raise ValueError(
                f"class_labels with {labels.dtype} labels of shape {tuple(labels.shape)} and outputs of "
                f"shape {tuple(output.shape)}: it is for one class a sample; leave it out here"
            )
        # To NLLLoss skorch's classifiers give the logarithm of what the module returns.
        if isinstance(self, NeuralNetClassifier) and isinstance(self.criterion_, torch.nn.NLLLoss):
            output = (output + torch.finfo(output.dtype).eps).log()
        return {"labels": labels, "logits": output}

    def on_epoch_end(self, net: Any, *args: Any, **kwargs: Any) -> None:
        """Put the scale and the fractions into the history."""
        super().on_epoch_end(net, *args, **kwargs)  # type: ignore[misc]
        metrics = self.robust_.metrics()
        for name in ("inlier_fraction", "fraction_kept", "scale"):
            if name in metrics:
                self.history.record(name, metrics[name])  # type: ignore[attr-defined]

    @property
    def inlier_probability_(self) -> Tensor:
        """The belief in each row of the training data, NaN for those that validation kept."""
        belief = self.robust_.inlier_probability()
        unseen = belief.new_full((max(self._samples - len(belief), 0),), torch.nan)
        return torch.cat([belief, unseen])


class _Numbered(Dataset[Any]):
    """The items of a dataset with their rows in the data that it was split from."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset
        while isinstance(dataset, Subset):
            dataset = dataset.dataset
        self.samples = len(dataset)

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, item: int) -> Any:
        row, part = item, self.dataset
        while isinstance(part, Subset):
            row, part = part.indices[row], part.dataset
        return int(row), self.dataset[item]


class _Batches:
    """The batches of a loader as the net expects them; their rows are put into the net as they come."""

    def __init__(self, net: Any, loader: Any) -> None:
        self.net, self.loader = net, loader

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[Any]:
        for rows, batch in self.loader:
            self.net._rows = rows
            yield batch
