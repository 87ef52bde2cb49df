"""What the trainers of Hugging Face, TRL and Sentence Transformers share: dataset indices, checkpoints, weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from inlier.integrations import need
from inlier.nn import Robust, RobustCrossEntropy, check_suspects_path, with_index, write_suspects

need("transformers", "transformers")

from safetensors.torch import load_file, save_file  # noqa: E402
from transformers import TrainerCallback  # noqa: E402

__all__ = [
    "IndexCollator",
    "IndexedTrainerMixin",
    "RobustCallback",
    "expected_weight",
    "indexed",
    "margin_weights",
    "scale_gradient",
]

STATE = "robust.safetensors"
"""The file in a checkpoint's folder that holds the state of the robust loss."""


class RobustCallback(TrainerCallback):
    """Keep a robust loss with the checkpoints of a Trainer, and write its suspects at the end of training.

    Args:
        robust: A :class:`~inlier.Robust` or :class:`~inlier.RobustCrossEntropy`; None if it is made at the first batch.
        suspects: A ``.csv`` or ``.parquet`` file written at the end of training; needs a dataset index.
    """

    def __init__(
        self, robust: Robust | RobustCrossEntropy | None = None, suspects: str | Path | None = None
    ) -> None:
        self.robust = robust
        self.suspects = None if suspects is None else check_suspects_path(suspects)
        self.resume_from: Path | None = None
        """The checkpoint to resume from; None looks in the output folder."""
        self._saved: dict[str, Tensor] | None = None

    def restored(self) -> Robust | RobustCrossEntropy:
        """Return the robust loss, with the state of the checkpoint if training resumes."""
        if self.robust is None:
            raise RuntimeError("the robust loss is made at the first batch: train first, or pass robust=")
        if self._saved is not None:
            self.robust.load_state_dict(self._saved)
            self._saved = None
        return self.robust

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Put the state of the robust loss into the checkpoint that was just written."""
        folder = Path(args.output_dir, f"checkpoint-{state.global_step}")
        if args.should_save and folder.is_dir() and self.robust is not None:
            save_file({k: v.cpu().contiguous() for k, v in self.robust.state_dict().items()}, folder / STATE)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Read the state of the robust loss if training resumes."""
        if state.global_step == 0:
            return
        path = (self.resume_from or Path(args.output_dir, f"checkpoint-{state.global_step}")) / STATE
        if not path.is_file():
            raise FileNotFoundError(
                f"training resumes at step {state.global_step}, but there is no {path}: set resume_from of "
                "the loss to the checkpoint's folder (RobustTrainer does), or start from scratch"
            )
        self._saved = load_file(path)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Write the suspects, on one process."""
        if self.suspects is not None and self.robust is not None and state.is_world_process_zero:
            write_suspects(self.robust, self.suspects)


class IndexedTrainerMixin:
    """What the robust Trainers have in common: the dataset index, and a robust loss with logs and checkpoints.

    The dataset index is a column of the training set. It is kept when unused columns are removed, passes any data
    collator, and is taken out before the model is called.
    """

    index_column: str
    robust_loss: RobustCallback

    def _attach(self, robust_loss: RobustCallback, index_column: str) -> None:
        """Begin to keep a robust loss, once the Trainer is made."""
        self.index_column, self.robust_loss = index_column, robust_loss
        self.add_callback(robust_loss)  # type: ignore[attr-defined]

    @property
    def robust(self) -> Robust | RobustCrossEntropy:
        """The robust loss; unless it was given, there may be one from the first batch on only."""
        return self.robust_loss.restored()

    def get_train_dataloader(self) -> Any:
        """Return batches with the dataset index of each sample."""
        dataset, column, collator = self.train_dataset, self.index_column, self.data_collator  # type: ignore[has-type]
        # The column is kept for training alone: evaluation needs no index.
        self._set_signature_columns_if_needed()  # type: ignore[attr-defined]
        columns = self._signature_columns  # type: ignore[has-type]
        self.train_dataset, self._signature_columns = indexed(dataset, column), [*columns, column]
        self.data_collator = IndexCollator(collator, column)
        try:
            return super().get_train_dataloader()  # type: ignore[misc]
        finally:
            self.train_dataset, self._signature_columns, self.data_collator = dataset, columns, collator

    def take_index(self, inputs: dict[str, Any]) -> Tensor | None:
        """Take the index out of a batch, before the model sees it; None in evaluation."""
        index: Tensor | None = inputs.pop(self.index_column, None)
        if index is None and torch.is_grad_enabled():
            raise ValueError(
                f"the batch has no {self.index_column!r}: a training set without items by number must have that "
                "column itself, with an integer for each sample, the same in every epoch"
            )
        return index

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        """Log the metrics of the robust loss with the training loss."""
        if "loss" in logs:
            logs |= self.robust.metrics("robust/", distributed=True)
        super().log(logs, *args, **kwargs)  # type: ignore[misc]

    def _load_from_checkpoint(self, resume_from_checkpoint: str, *args: Any, **kwargs: Any) -> None:
        self.robust_loss.resume_from = Path(resume_from_checkpoint)
        super()._load_from_checkpoint(resume_from_checkpoint, *args, **kwargs)  # type: ignore[misc]


def expected_weight(robust: Robust | RobustCrossEntropy) -> Tensor | float:
    """Return what the weights are expected to be in the mean, if the loss is to be divided by it; else 1."""
    if isinstance(robust, Robust) and robust.divide_by == "weights":
        return robust.inlier_fraction.mean()
    return 1.0


def margin_weights(
    robust: Robust | RobustCrossEntropy, margins: Tensor, losses: Tensor, index: Tensor | None
) -> Tensor:
    """Return a weight for each sample whose label is one of two: what was given, or something else.

    Args:
        robust: What weights: a RobustCrossEntropy by the margins, a Robust by the losses.
        margins: The log-odds of what was given, by the model: the logits of the two classes are (margin, 0).
        losses: The losses.
        index: The dataset index of each sample.
    """
    expected = expected_weight(robust)
    if isinstance(robust, RobustCrossEntropy):
        logits = torch.stack([margins, torch.zeros_like(margins)], 1)
        return robust.weigh(logits, torch.zeros_like(margins, dtype=torch.long), index)
    return robust.weigh(losses, index) / expected


def scale_gradient(tensor: Tensor, weights: Tensor) -> None:
    """Multiply the gradient of each row of a tensor by its weight; the value stays as it is.

    A loss that is a sum over rows of a tensor is then trained on as if each of its terms had that weight, whoever
    computes it, and however.

    Args:
        tensor: Rows that a loss was or will be computed from.
        weights: One weight for each row, or for each element.

    Example:
        >>> scores = torch.zeros(3, requires_grad=True) + 1
        >>> scores.retain_grad()
        >>> scale_gradient(scores, torch.tensor([1.0, 0.5, 0.0]))
        >>> scores.square().sum().backward()
        >>> scores.grad
        tensor([2., 1., 0.])
    """
    factors = weights.detach().view(*weights.shape, *[1] * (tensor.dim() - weights.dim()))
    tensor.register_hook(lambda gradient: gradient * factors.to(gradient.dtype))  # type: ignore[no-untyped-call]


class IndexCollator:
    """A data collator that hands the dataset index through to the batch, whatever the collator inside does.

    Args:
        collator: The data collator, which does not see the index.
        column: The column of the dataset index; samples without it (in evaluation) are left as they are.

    Example:
        >>> collate = IndexCollator(lambda rows: {"n": len(rows)}, "index")
        >>> collate([{"text": "a", "index": 4}, {"text": "b", "index": 2}])
        {'n': 2, 'index': tensor([4, 2])}
    """

    def __init__(self, collator: Callable[[list[Any]], Any], column: str) -> None:
        self.collator, self.column = collator, column

    def __call__(self, rows: list[Any]) -> Any:
        """Return the batch of the collator, with the index."""
        if not rows or not isinstance(rows[0], Mapping) or self.column not in rows[0]:
            return self.collator(rows)
        index = torch.as_tensor([int(row[self.column]) for row in rows])
        batch = self.collator([{k: v for k, v in row.items() if k != self.column} for row in rows])
        batch[self.column] = index
        return batch

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "collator":
            raise AttributeError(name)
        return getattr(self.collator, name)


def indexed(dataset: Any, column: str) -> Any:
    """Return the dataset with its index in a column, which may be there already."""
    if column in (getattr(dataset, "column_names", None) or ()) or not hasattr(dataset, "__len__"):
        return dataset
    try:
        first = dataset[0]
    except (TypeError, NotImplementedError, KeyError, IndexError):
        # One without items by number must have the column itself; take_index says so if it does not.
        return dataset
    return dataset if isinstance(first, Mapping) and column in first else with_index(dataset, column)
