"""Hugging Face Trainer: an object for ``compute_loss_func``, and a Trainer that keeps the dataset index."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, mse_loss

from inlier.integrations import need
from inlier.nn import Robust, RobustCrossEntropy

need("transformers", "transformers")
need("accelerate", "transformers")

from transformers import Trainer  # noqa: E402

from inlier.integrations._trainers import IndexedTrainerMixin, RobustCallback, expected_weight  # noqa: E402

__all__ = ["RobustLoss", "RobustTrainer", "RobustTrainerMixin"]

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
