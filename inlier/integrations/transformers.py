"""Hugging Face Trainer: an object for ``compute_loss_func``, and a Trainer that knows samples by number."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, mse_loss

from inlier.integrations import need
from inlier.robust import Robust
from inlier.suspects import check_suspects_path, write_suspects

need("transformers", "transformers")
need("accelerate", "transformers")

from safetensors.torch import load_file, save_file  # noqa: E402
from torch.utils.data import Dataset, IterableDataset  # noqa: E402
from transformers import Trainer, TrainerCallback  # noqa: E402

__all__ = ["RobustLoss", "RobustTrainer", "RobustTrainerMixin"]

STATE = "robust.safetensors"
"""The file in a checkpoint's folder that holds the state of the Robust."""

IGNORED = -100
"""The label that leaves a token out of everything."""


class RobustLoss(TrainerCallback):
    """A robust loss for ``Trainer(compute_loss_func=loss, callbacks=[loss])``.

    As ``compute_loss_func`` it weighs the losses of a batch; while gradients are off, in evaluation, it is
    the plain mean and learns nothing. As a callback it saves the Robust in each checkpoint and restores it on
    resume. Sums are divided by ``num_items_in_batch``, so gradient accumulation is exact.

    Whole labels mean cross-entropy, labels of -100 are left out; float labels of one number each mean squared
    error. In language models and token classification each token is judged by its own loss, or, with
    ``per="sequence"``, all tokens of a sequence by its mean loss, each sequence then being a sample.

    Args:
        robust: A Robust; ``inlier.Robust()`` if None.
        per: What gets a weight of its own where there is a label a token: "token" or "sequence".
        shift: Whether logits at a place are for the label at the next one, as in causal language models; None
            tells by the type of the model's output.
        label_smoothing: The Trainer's ``label_smoothing_factor``, which it does not apply to a
            ``compute_loss_func``. Samples are judged by the loss without smoothing.
        class_labels: Whether the Robust is given labels and logits, as is best where some classes are wrong
            and the model can learn them by heart; for one label a sample, with sample numbers, and trainings
            of more than a few epochs.
        losses: Other losses: from outputs and labels, one for each sample (or token).
        suspects: A ``.csv`` or ``.parquet`` file written at the end of training; needs sample numbers.

    Example:
        >>> loss = RobustLoss(Robust(warmup=200), per="token")
        >>> outputs = {"logits": torch.randn(4, 3)}
        >>> loss(outputs, torch.tensor([0, 2, -100, 1])).shape
        torch.Size([])
    """

    def __init__(
        self,
        robust: Robust | None = None,
        *,
        per: Literal["token", "sequence"] = "token",
        shift: bool | None = None,
        label_smoothing: float = 0.0,
        class_labels: bool = False,
        losses: Callable[[Any, Tensor], Tensor] | None = None,
        suspects: str | Path | None = None,
    ) -> None:
        if class_labels and losses is not None:
            raise ValueError("class_labels needs the cross-entropy: leave losses out")
        if per not in ("token", "sequence"):
            raise ValueError(f"per = {per!r}: choose 'token' or 'sequence'")
        self.robust = Robust() if robust is None else robust
        self.per, self.shift, self.label_smoothing, self.losses = per, shift, label_smoothing, losses
        self.class_labels = class_labels
        self.suspects = None if suspects is None else check_suspects_path(suspects)
        self.index: Tensor | None = None
        """The numbers of the samples of the batch to come; RobustTrainer sets them."""
        self.resume_from: Path | None = None
        """The checkpoint that is resumed from; None looks in the output folder."""

    def __call__(
        self, outputs: Any, labels: Tensor, num_items_in_batch: Tensor | int | None = None
    ) -> Tensor:
        """Return the robust loss of a batch.

        Args:
            outputs: What the model returned, with ``logits``.
            labels: The labels.
            num_items_in_batch: How many labels the gradient step has on all devices, from the Trainer.
        """
        judged, losses, mask = self._losses(outputs, labels)
        index, self.index = self.index, None
        count = mask.sum().clamp(min=1) if num_items_in_batch is None else num_items_in_batch
        learns = torch.is_grad_enabled() and self.robust.divide_by == "weights"
        # Taken before this batch moves it.
        expected = self.robust.inlier_fraction.mean() if learns else 1.0
        classes = self._classes(outputs, labels, mask) if self.class_labels else {}
        weights = self._weights(judged.detach(), index, mask, classes)
        total = (weights * torch.where(weights == 0, 0.0, losses)).sum() / expected
        return total / (count.to(total.device) if isinstance(count, Tensor) else count)

    def _losses(self, outputs: Any, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The losses by which samples are judged, those that are learned from, and which of them count."""
        if self.losses is not None:
            losses = self.losses(outputs, labels)
            return losses, losses, torch.ones_like(losses, dtype=torch.bool)
        logits = _logits(outputs)
        if labels.is_floating_point():
            if logits.numel() != labels.numel() or labels.dim() > 2 or labels.numel() != len(labels):
                raise ValueError(
                    f"float labels of shape {tuple(labels.shape)} for logits of {tuple(logits.shape)}: with "
                    "several numbers a sample, pass losses=, a function that makes one loss of each"
                )
            squares = mse_loss(logits.reshape(-1).float(), labels.reshape(-1).float(), reduction="none")
            return squares, squares, torch.ones_like(squares, dtype=torch.bool)
        if labels.dim() > 1 and self._shifts(outputs):
            logits, labels = logits[..., :-1, :], labels[..., 1:]
        mask = labels != IGNORED
        logits, target = logits.float().movedim(-1, 1), torch.where(mask, labels, 0)
        judged = cross_entropy(logits, target, reduction="none")
        if self.label_smoothing == 0:
            return judged, judged, mask
        smooth = cross_entropy(logits, target, reduction="none", label_smoothing=self.label_smoothing)
        return judged, smooth, mask

    def _shifts(self, outputs: Any) -> bool:
        if self.shift is not None:
            return self.shift
        kind = type(outputs).__name__
        if kind in ("dict", "tuple"):
            raise ValueError(
                f"the model returns a {kind}, which does not tell whether it is a causal language model: "
                "pass shift=True if logits are for the next token, else shift=False"
            )
        return "CausalLM" in kind

    def _classes(self, outputs: Any, labels: Tensor, mask: Tensor) -> dict[str, Tensor]:
        """What the Robust is told of classes."""
        if labels.dim() != 1 or labels.is_floating_point():
            raise ValueError(
                f"class_labels with {labels.dtype} labels of shape {tuple(labels.shape)}: it is for one "
                "class a sample; leave it out here"
            )
        return {"labels": torch.where(mask, labels, 0), "logits": _logits(outputs).detach()}

    def _weights(
        self, judged: Tensor, index: Tensor | None, mask: Tensor, classes: dict[str, Tensor]
    ) -> Tensor:
        """A weight for each loss: 0 where it does not count, 1 in evaluation for all that do."""
        if not torch.is_grad_enabled():
            return mask.to(judged.dtype)
        if judged.dim() == 1:
            return self.robust.weigh(judged, index, mask=mask, **classes)
        if self.per == "token":
            if index is not None:
                raise ValueError("tokens have no numbers: use per='sequence' to name suspect sequences")
            return self.robust.weigh(judged, mask=mask)
        known = torch.where(mask, judged, 0.0).flatten(1)
        tokens = mask.flatten(1).sum(1)
        means = known.sum(1) / tokens.clamp(min=1)
        belief = self.robust.weigh(means, index, mask=tokens > 0)
        return belief.view(-1, *[1] * (mask.dim() - 1)) * mask

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Put the state of the Robust into the checkpoint that was just written."""
        folder = Path(args.output_dir, f"checkpoint-{state.global_step}")
        if args.should_save and folder.is_dir():
            tensors = {
                name: tensor.detach().cpu().clone() for name, tensor in self.robust.state_dict().items()
            }
            save_file(tensors, folder / STATE)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Restore the state of the Robust if training resumes."""
        if state.global_step == 0:
            return
        path = (self.resume_from or Path(args.output_dir, f"checkpoint-{state.global_step}")) / STATE
        if not path.is_file():
            raise FileNotFoundError(
                f"training resumes at step {state.global_step}, but there is no {path}: set resume_from of "
                "the loss to the checkpoint's folder (RobustTrainer does), or start anew"
            )
        self.robust.load_state_dict(load_file(path))

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Write the suspects, on one process."""
        if self.suspects is not None and state.is_world_process_zero:
            write_suspects(self.robust, self.suspects)


class RobustTrainerMixin:
    """Put this before a Trainer: it then knows samples by number, remembers their losses and names suspects.

    Rows of the training set are numbered in a column of their own, which is kept when unused columns are
    removed and taken out before the model. ``label_smoothing_factor`` of the arguments is heeded, each log
    has the metrics of the Robust, and each checkpoint its state, which resuming restores.

    Args:
        args: As for the Trainer.
        robust: A Robust; ``inlier.Robust()`` if None.
        index_column: The column of sample numbers; it is made if the dataset has none.
        suspects: A ``.csv`` or ``.parquet`` file written at the end of training.
        class_labels: As in :class:`RobustLoss`; so are the losses.
        losses: Other losses.
        kwargs: As for the Trainer.
    """

    def __init__(
        self,
        *args: Any,
        robust: Robust | None = None,
        index_column: str = "inlier_index",
        suspects: str | Path | None = None,
        class_labels: bool = False,
        losses: Callable[[Any, Tensor], Tensor] | None = None,
        **kwargs: Any,
    ) -> None:
        if kwargs.get("compute_loss_func") is not None:
            raise ValueError("compute_loss_func is what this Trainer makes itself: pass losses= instead")
        super().__init__(*args, **kwargs)
        self.index_column = index_column
        self.robust_loss = self.compute_loss_func = RobustLoss(
            robust,
            per="sequence",
            shift=getattr(self, "_loss_shifts_labels", None),
            label_smoothing=self.args.label_smoothing_factor,  # type: ignore[attr-defined]
            class_labels=class_labels,
            losses=losses,
            suspects=suspects,
        )
        self.add_callback(self.robust_loss)  # type: ignore[attr-defined]

    @property
    def robust(self) -> Robust:
        """The Robust."""
        return self.robust_loss.robust

    def get_train_dataloader(self) -> Any:
        """Batches that hold the number of each sample."""
        dataset, column = self.train_dataset, self.index_column  # type: ignore[has-type]
        # The column is kept for training alone: evaluation knows of no numbers.
        self._set_signature_columns_if_needed()  # type: ignore[attr-defined]
        columns = self._signature_columns  # type: ignore[has-type]
        self.train_dataset, self._signature_columns = _numbered(dataset, column), [*columns, column]
        try:
            return super().get_train_dataloader()  # type: ignore[misc]
        finally:
            self.train_dataset, self._signature_columns = dataset, columns

    def compute_loss(self, model: Any, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        """Take the numbers out of the batch, and go on as ever."""
        index = inputs.pop(self.index_column, None)
        if index is None and torch.is_grad_enabled():
            raise ValueError(
                f"the batch has no {self.index_column!r}: the data collator must keep that column"
            )
        self.robust_loss.index = index
        return super().compute_loss(model, inputs, *args, **kwargs)  # type: ignore[misc]

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        """Log the Robust's metrics with the training loss."""
        if "loss" in logs:
            logs |= self.robust.metrics("robust/", together=True)
        super().log(logs, *args, **kwargs)  # type: ignore[misc]

    def _load_from_checkpoint(self, resume_from_checkpoint: str, *args: Any, **kwargs: Any) -> None:
        self.robust_loss.resume_from = Path(resume_from_checkpoint)
        super()._load_from_checkpoint(resume_from_checkpoint, *args, **kwargs)  # type: ignore[misc]


class RobustTrainer(RobustTrainerMixin, Trainer):  # type: ignore[misc]
    """The Trainer with :class:`RobustTrainerMixin`."""


def _logits(outputs: Any) -> Tensor:
    logits: Tensor = outputs["logits"] if isinstance(outputs, dict) else outputs[0]
    return logits


class _Rows(Dataset[dict[str, Any]]):
    """The items of a dataset, with their number."""

    def __init__(self, dataset: Any, column: str) -> None:
        self.dataset, self.column = dataset, column

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, row: int) -> dict[str, Any]:
        return {self.column: row, **self.dataset[row]}


def _numbered(dataset: Any, column: str) -> Any:
    """The dataset with a column of numbers, its own if it has one."""
    if hasattr(dataset, "add_column"):
        return dataset if column in dataset.column_names else dataset.add_column(column, range(len(dataset)))
    # One that is only read through must number its items itself; compute_loss says so if it does not.
    return dataset if isinstance(dataset, IterableDataset) else _Rows(dataset, column)
