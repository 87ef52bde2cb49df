"""Hugging Face Trainer: an object for ``compute_loss_func``, and a Trainer that keeps the dataset index."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, mse_loss

from inlier.integrations import need
from inlier.nn import Robust, RobustCrossEntropy, check_suspects_path, with_index, write_suspects

need("transformers", "transformers")
need("accelerate", "transformers")

from safetensors.torch import load_file, save_file  # noqa: E402
from transformers import Trainer, TrainerCallback  # noqa: E402

__all__ = ["IndexedTrainerMixin", "RobustCallback", "RobustLoss", "RobustTrainer", "RobustTrainerMixin"]

STATE = "robust.safetensors"
"""The file in a checkpoint's folder that holds the state of the robust loss."""

IGNORED = -100
"""The label that leaves a token out of everything."""


class _Batch(NamedTuple):
    """The losses of a batch, one for each sample or token.

    Args:
        losses: What is learned from.
        evidence: What is weighted by: the losses without label smoothing.
        mask: Which of them count.
        logits: With class labels, the logits, their classes in dimension 1; else None.
        target: With class labels, the classes.
    """

    losses: Tensor
    evidence: Tensor
    mask: Tensor
    logits: Tensor | None = None
    target: Tensor | None = None


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


class RobustLoss(RobustCallback):
    """A robust loss for ``Trainer(compute_loss_func=loss, callbacks=[loss])``.

    As ``compute_loss_func`` it weights the losses of a batch; in evaluation, while gradients are off, it is the
    unweighted mean and learns nothing. As a callback it saves the state of the robust loss in each checkpoint and
    restores it on resume. Sums are divided by ``num_items_in_batch``, so gradient accumulation is exact.

    Integer labels mean cross-entropy, and -100 leaves a label out; float labels of one number each mean squared
    error. Samples and tokens with a class label are weighted by :class:`inlier.RobustCrossEntropy`; language
    models, whose next token has many right answers, whole sequences and other losses by :class:`inlier.Robust`.

    Args:
        robust: A :class:`~inlier.Robust` or :class:`~inlier.RobustCrossEntropy` of your own; None makes one as above
            at the first batch.
        per: What gets a weight of its own where there is a label for each token: "token", or "sequence", which
            weights all tokens of a sequence by their mean loss.
        shift: Whether logits at a position are for the next label, as in causal language models; None decides
            by the type of the model's output.
        label_smoothing: The Trainer's ``label_smoothing_factor``, which it does not apply to a
            ``compute_loss_func``. Weights come from the loss without smoothing.
        losses: Other losses: a function of outputs and labels that returns one for each sample (or token).
        suspects: A ``.csv`` or ``.parquet`` file written at the end of training; needs a dataset index.

    Example:
        >>> loss = RobustLoss()
        >>> outputs = {"logits": torch.randn(4, 3)}
        >>> loss(outputs, torch.tensor([0, 2, -100, 1])).shape
        torch.Size([])
        >>> type(loss.robust).__name__
        'RobustCrossEntropy'
    """

    def __init__(
        self,
        robust: Robust | RobustCrossEntropy | None = None,
        *,
        per: Literal["token", "sequence"] = "token",
        shift: bool | None = None,
        label_smoothing: float = 0.0,
        losses: Callable[[Any, Tensor], Tensor] | None = None,
        suspects: str | Path | None = None,
    ) -> None:
        if per not in ("token", "sequence"):
            raise ValueError(f"per = {per!r}: choose 'token' or 'sequence'")
        if losses is not None and isinstance(robust, RobustCrossEntropy):
            raise ValueError(
                "RobustCrossEntropy computes the losses itself: leave losses out, or pass a Robust"
            )
        super().__init__(robust, suspects)
        self.per, self.shift, self.label_smoothing, self.losses = per, shift, label_smoothing, losses
        self.index: Tensor | None = None
        """The dataset indices of the batch to come; RobustTrainer sets them."""

    def __call__(
        self, outputs: Any, labels: Tensor | None, num_items_in_batch: Tensor | int | None = None
    ) -> Tensor:
        """Return the robust loss of a batch.

        Args:
            outputs: What the model returned, with ``logits``.
            labels: The labels.
            num_items_in_batch: The number of labels in the gradient step on all devices, from the Trainer.
        """
        index, self.index = self.index, None
        batch = self._batch(outputs, labels)
        count = self._count(batch.mask, labels, num_items_in_batch)
        expected: Tensor | float = 1.0
        if torch.is_grad_enabled():
            robust = self._prepare(batch, outputs)
            expected = expected_weight(robust)  # before this batch changes it
            weights = self._weights(robust, batch, index)
        else:
            weights = batch.mask.to(batch.losses.dtype)
        # A loss that is masked out or not finite has weight 0, but 0 * NaN would be NaN.
        return (weights * torch.where(weights == 0, 0.0, batch.losses)).sum() / expected / count

    def _batch(self, outputs: Any, labels: Tensor | None) -> _Batch:
        """Compute the losses, by the kind of the labels."""
        if self.losses is not None:
            losses = self.losses(outputs, labels)  # type: ignore[arg-type]
            return _Batch(losses, losses, torch.ones_like(losses, dtype=torch.bool))
        if labels is None:
            raise ValueError("the batch has no labels: name their column 'labels', or pass losses=")
        logits = _logits(outputs)
        if labels.is_floating_point():
            if logits.numel() != labels.numel() or labels.dim() > 2 or labels.numel() != len(labels):
                raise ValueError(
                    f"float labels of shape {tuple(labels.shape)} for logits of {tuple(logits.shape)}: with "
                    "several numbers for each sample, pass losses=, a function that makes one loss of them"
                )
            squares = mse_loss(logits.reshape(-1).float(), labels.reshape(-1).float(), reduction="none")
            return _Batch(squares, squares, torch.ones_like(squares, dtype=torch.bool))
        if labels.dim() > 1 and self._shifts(outputs):
            logits, labels = logits[..., :-1, :], labels[..., 1:]
        logits, mask = logits.float().movedim(-1, 1), labels != IGNORED
        losses = evidence = cross_entropy(logits, labels.long(), reduction="none", ignore_index=IGNORED)
        settings = self.robust if isinstance(self.robust, RobustCrossEntropy) else None
        smoothing = self.label_smoothing or getattr(settings, "label_smoothing", 0.0)
        weight = getattr(settings, "weight", None)
        if smoothing or weight is not None:
            losses = cross_entropy(
                logits,
                labels.long(),
                None if weight is None else weight.to(logits),
                ignore_index=IGNORED,
                reduction="none",
                label_smoothing=smoothing,
            )
        return _Batch(losses, evidence, mask, logits.detach(), labels)

    def _shifts(self, outputs: Any) -> bool:
        if self.shift is not None:
            return self.shift
        kind = type(outputs).__name__
        if kind in ("dict", "tuple"):
            raise ValueError(
                f"the model returns a {kind}, which could be that of a causal language model or not: pass "
                "shift=True if logits are for the next token, else shift=False"
            )
        return "CausalLM" in kind

    @staticmethod
    def _count(mask: Tensor, labels: Tensor | None, items: Tensor | int | None) -> Tensor | float:
        """What the weighted sum is divided by: the losses of the whole gradient step."""
        if items is None:
            return mask.sum().clamp(min=1)
        count = torch.as_tensor(items, device=mask.device)
        if labels is not None and labels.is_floating_point() and labels.numel() > mask.numel():
            # One loss for several labels, and the Trainer has counted labels.
            return count * mask.numel() / labels.numel()
        return count

    def _prepare(self, batch: _Batch, outputs: Any) -> Robust | RobustCrossEntropy:
        """Return the robust loss, made for this kind of batch and restored if training resumes."""
        if self.robust is None:
            is_language = bool(self.shift) or "LM" in type(outputs).__name__
            has_classes = batch.target is not None and (
                batch.target.dim() == 1 or (self.per == "token" and not is_language)
            )
            self.robust = RobustCrossEntropy() if has_classes else Robust()
        return self.restored()

    def _weights(self, robust: Robust | RobustCrossEntropy, batch: _Batch, index: Tensor | None) -> Tensor:
        """Return the weight of each loss, 0 where it does not count."""
        evidence, mask = batch.evidence.detach(), batch.mask
        is_row = evidence.dim() == 1
        if not is_row and self.per == "token" and index is not None:
            raise ValueError(
                "the index is that of whole sequences: use per='sequence' to remember and name them"
            )
        if isinstance(robust, RobustCrossEntropy):
            if batch.logits is None or batch.target is None:
                raise ValueError("RobustCrossEntropy needs integer labels: pass robust=inlier.Robust() here")
            if not is_row and self.per == "sequence":
                raise ValueError(
                    "RobustCrossEntropy weights each token by itself: pass robust=inlier.Robust() for whole "
                    "sequences, or use RobustLoss(per='token')"
                )
            target = torch.where(mask, batch.target, robust.ignore_index)
            return robust.weigh(batch.logits, target, index)
        if is_row or self.per == "token":
            return robust.weigh(evidence, index, mask=mask)
        tokens = mask.flatten(1).sum(1)
        means = torch.where(mask, evidence, 0.0).flatten(1).sum(1) / tokens.clamp(min=1)
        weights = robust.weigh(means, index, mask=tokens > 0)
        return weights.view(-1, *[1] * (mask.dim() - 1)) * mask


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


class RobustTrainerMixin(IndexedTrainerMixin):
    """Put this before a Trainer: it then keeps the dataset index, remembers samples and names suspects.

    The dataset index is a column of the training set, kept when unused columns are removed and taken out before the
    model. The ``label_smoothing_factor`` of the arguments applies, each log has the metrics of the robust loss, and
    each checkpoint its state, from which training resumes. Where there is a label for each token, the samples are
    whole sequences.

    Args:
        args: As for the Trainer.
        robust: As in :class:`RobustLoss`: None weights class labels by :class:`inlier.RobustCrossEntropy` and
            everything else by :class:`inlier.Robust`.
        index_column: The column of the dataset index; :func:`inlier.with_index` makes it if there is none.
        suspects: A ``.csv`` or ``.parquet`` file written at the end of training.
        losses: Other losses, as in :class:`RobustLoss`.
        kwargs: As for the Trainer.
    """

    robust_loss: RobustLoss

    def __init__(
        self,
        *args: Any,
        robust: Robust | RobustCrossEntropy | None = None,
        index_column: str = "inlier_index",
        suspects: str | Path | None = None,
        losses: Callable[[Any, Tensor], Tensor] | None = None,
        **kwargs: Any,
    ) -> None:
        if kwargs.get("compute_loss_func") is not None:
            raise ValueError("compute_loss_func is what this Trainer makes itself: pass losses= instead")
        super().__init__(*args, **kwargs)
        self.compute_loss_func = RobustLoss(
            robust,
            per="sequence",
            shift=getattr(self, "_loss_shifts_labels", None),
            label_smoothing=self.args.label_smoothing_factor,  # type: ignore[attr-defined]
            losses=losses,
            suspects=suspects,
        )
        self._attach(self.compute_loss_func, index_column)

    def compute_loss(self, model: Any, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        """Take the index out of the batch before the model sees it."""
        self.robust_loss.index = self.take_index(inputs)
        return super().compute_loss(model, inputs, *args, **kwargs)  # type: ignore[misc]


class RobustTrainer(RobustTrainerMixin, Trainer):  # type: ignore[misc]
    """The Trainer with :class:`RobustTrainerMixin`."""


def _logits(outputs: Any) -> Tensor:
    logits: Tensor = outputs["logits"] if isinstance(outputs, dict) else outputs[0]
    return logits


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
