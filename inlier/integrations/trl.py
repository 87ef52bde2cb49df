"""TRL: trainers of reward models, of DPO and of instructions that weight each pair, sequence or token.

TRL computes its losses, logs and divisors as ever. What is added is one factor: the gradient of each row that the model
returns (the rewards of a pair, the log-probabilities of a sequence) is multiplied by the weight of its sample. So every
loss that is a sum over samples can be weighted, and the loss in the logs stays the unweighted one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from inspect import signature
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from inlier.integrations import need
from inlier.nn import Robust, RobustCrossEntropy

need("trl", "trl")

import trl  # noqa: E402
from trl import DPOTrainer, RewardTrainer, SFTTrainer  # type: ignore[attr-defined]  # noqa: E402

from inlier.integrations._trainers import (  # noqa: E402
    IndexedTrainerMixin,
    RobustCallback,
    expected_weight,
    indexed,
    margin_weights,
    scale_gradient,
)

__all__ = ["RobustDPOTrainer", "RobustRewardTrainer", "RobustSFTTrainer"]

TRIED = "1.16.0"
"""The version of TRL that the tests have run with."""

SORTED_LOSSES = ("aot", "aot_unpaired")
"""Losses of DPO that sort the pairs of a batch, so that none of their terms belongs to one pair."""


def check_trl() -> None:
    """Raise an error of one line if this version of TRL lacks something that the trainers here build on."""
    problem = None
    expected = ["self", "model", "inputs", "return_outputs", "num_items_in_batch"]
    for trainer in (RewardTrainer, DPOTrainer, SFTTrainer):
        if list(signature(trainer.compute_loss).parameters) != expected:
            problem = f"{trainer.__name__}.compute_loss takes other arguments"
    output = getattr(trl.trainer.utils, "FusedCausalLMOutput", None)
    if output is None or not {"log_probs", "label_mask"} <= {field.name for field in fields(output)}:
        problem = "models do not return log_probs and label_mask"
    if problem:
        raise ImportError(
            f"inlier.integrations.trl was tried with trl {TRIED}, and in trl {trl.__version__} {problem}: pip install "
            '"inlier[trl]"',
            name="trl",
        )


check_trl()


def preference_weights(robust: Robust | RobustCrossEntropy, margins: Tensor, index: Tensor | None) -> Tensor:
    """Return a weight for each pair, by how far the model prefers the chosen answer.

    A preference is a class label: which of two answers is better. Its implied logits are (margin, 0), and a flipped
    pair is a mislabelled one. So the fraction of flipped pairs is estimated as that of noisy labels is.

    Args:
        robust: The robust loss; a :class:`~inlier.Robust` weights by the losses log(1 + exp(-margin)) alone.
        margins: The reward of the chosen answer minus that of the rejected one.
        index: The dataset index of each pair.

    Example:
        >>> preference_weights(RobustCrossEntropy(), torch.tensor([2.0, -1.0]), torch.arange(2))
        tensor([1., 1.])
    """
    margins = margins.detach().float()
    return margin_weights(robust, margins, softplus(-margins), index)


@contextmanager
def recorded(policy: nn.Module, reference: nn.Module | None = None) -> Iterator[dict[str, Any]]:
    """Record what a model returns with gradients, and what it or another one returns without."""
    seen: dict[str, Any] = {}

    def keep(name: str, has_gradient: bool) -> Any:
        def hook(module: nn.Module, inputs: Any, outputs: Any) -> None:
            if torch.is_grad_enabled() == has_gradient:
                seen[name] = outputs

        return hook

    handles = [policy.register_forward_hook(keep("policy", True))]
    if reference is not None:
        handles.append(reference.register_forward_hook(keep("reference", False)))
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()


class RobustTRLMixin(IndexedTrainerMixin):
    """What the robust trainers of TRL have in common: the index from before TRL prepares the data, and the weights.

    Args:
        args: As for the trainer of TRL.
        robust: A robust loss of your own.
        index_column: The column of the dataset index; :func:`inlier.with_index` makes it if there is none.
        suspects: A ``.csv`` or ``.parquet`` file written at the end of training.
        kwargs: As for the trainer of TRL.
    """

    def __init__(
        self,
        *args: Any,
        robust: Robust | RobustCrossEntropy | None = None,
        index_column: str = "inlier_index",
        suspects: str | Path | None = None,
        **kwargs: Any,
    ) -> None:
        callback = RobustCallback(self.default_robust() if robust is None else robust, suspects)
        bound = signature(super().__init__).bind(*args, **kwargs)
        self.check_arguments(bound.arguments, callback)
        # TRL drops samples that are too long, and may shuffle: the index is that of the dataset as it was given.
        if (dataset := bound.arguments.get("train_dataset")) is not None:
            bound.arguments["train_dataset"] = indexed(dataset, index_column)
        super().__init__(*bound.args, **bound.kwargs)
        if index_column not in (self.train_dataset.column_names or [index_column]):
            raise RuntimeError(
                f"TRL has dropped the column {index_column!r} of the training set: prepare the dataset before (with "
                "input_ids and labels), and keep the column"
            )
        self._attach(callback, index_column)

    def default_robust(self) -> Robust | RobustCrossEntropy:
        """Return the robust loss if none was given."""
        return RobustCrossEntropy()

    def check_arguments(self, arguments: dict[str, Any], callback: RobustCallback) -> None:
        """Raise ``ValueError`` if samples could not be weighted with these arguments."""

    def reference_model(self, inputs: dict[str, Any]) -> nn.Module | None:
        """Return the model whose log-probabilities are subtracted, if it is called in this batch."""
        return None

    def weighted(
        self, seen: dict[str, Any], inputs: dict[str, Any], index: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return what the model has returned, by rows, and a weight for each."""
        raise NotImplementedError

    def compute_loss(self, model: Any, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        """Return the loss of TRL; its gradient is weighted."""
        index = self.take_index(inputs)
        if not torch.is_grad_enabled():
            return super().compute_loss(model, inputs, *args, **kwargs)  # type: ignore[misc]
        with recorded(model, self.reference_model(inputs)) as seen:
            loss = super().compute_loss(model, inputs, *args, **kwargs)  # type: ignore[misc]
        scale_gradient(*self.weighted(seen, inputs, index))
        return loss


class RobustRewardTrainer(RobustTRLMixin, RewardTrainer):  # type: ignore[misc]
    """TRL's RewardTrainer for preferences of which an unknown part is flipped.

    A pair is weighted by the probability that its preference is not flipped, from the margin of its rewards
    r(chosen) - r(rejected) and a running mean of it (:class:`inlier.RobustCrossEntropy` on the logits (margin, 0)).
    The centring term of ``center_rewards_coefficient`` has the weights too.

    Args:
        args: As for ``RewardTrainer``.
        robust: A :class:`~inlier.RobustCrossEntropy` or :class:`~inlier.Robust` of your own; None makes the first.
        index_column: The column of the dataset index; :func:`inlier.with_index` makes it if there is none.
        suspects: A ``.csv`` or ``.parquet`` file written at the end of training.
        kwargs: As for ``RewardTrainer``.
    """

    def weighted(
        self, seen: dict[str, Any], inputs: dict[str, Any], index: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Weight the rewards of a batch: the chosen answers, then the rejected ones."""
        rewards = seen["policy"].logits
        chosen, rejected = rewards.squeeze(-1).chunk(2)
        return rewards, preference_weights(self.robust, chosen - rejected, index).repeat(2)


class RobustDPOTrainer(RobustTRLMixin, DPOTrainer):  # type: ignore[misc]
    """TRL's DPOTrainer for preferences of which an unknown part is flipped; the flip rate need not be known.

    A pair is weighted by the probability that its preference is not flipped, from the margin of its implicit rewards,
    beta (log pi(chosen) / pi_ref(chosen) - log pi(rejected) / pi_ref(rejected)), and a running mean of it
    (:class:`inlier.RobustCrossEntropy` on the logits (margin, 0)). Any ``loss_type`` but the sorted ones (``aot``).

    Args:
        args: As for ``DPOTrainer``.
        robust: A :class:`~inlier.RobustCrossEntropy` or :class:`~inlier.Robust` of your own; None makes the first.
        index_column: The column of the dataset index; :func:`inlier.with_index` makes it if there is none.
        suspects: A ``.csv`` or ``.parquet`` file written at the end of training.
        kwargs: As for ``DPOTrainer``.

    Reference: Rafailov et al., Direct Preference Optimization, 2023. With a given flip rate: Mitchell, A note on DPO
    with noisy preferences, 2023 (cDPO); Chowdhury et al., Provably robust DPO, 2024.
    """

    def check_arguments(self, arguments: dict[str, Any], callback: RobustCallback) -> None:
        """Refuse losses whose terms do not belong to a pair."""
        kinds = getattr(arguments.get("args"), "loss_type", None) or []
        for kind in [kinds] if isinstance(kinds, str) else kinds:
            if kind in SORTED_LOSSES:
                raise ValueError(
                    f"loss_type = {kind!r} sorts the pairs of a batch, so no pair has a loss of its own: choose "
                    "another, as loss_type='sigmoid'"
                )

    def reference_model(self, inputs: dict[str, Any]) -> nn.Module | None:
        """Return the reference model; with adapters it is the model itself, without them."""
        return None if "ref_chosen_logps" in inputs else self.ref_model or self.model

    def weighted(
        self, seen: dict[str, Any], inputs: dict[str, Any], index: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Weight the log-probabilities of a batch: the chosen answers, then the rejected ones."""
        log_probs = seen["policy"].log_probs
        ratios = log_probs.detach().sum(1)
        if "reference" in seen:
            ratios = ratios - seen["reference"].log_probs.sum(1)
        else:
            ratios = ratios - torch.cat([inputs["ref_chosen_logps"], inputs["ref_rejected_logps"]])
        chosen, rejected = (self.beta * ratios).chunk(2)
        return log_probs, preference_weights(self.robust, chosen - rejected, index).repeat(2)


class RobustSFTTrainer(RobustTRLMixin, SFTTrainer):  # type: ignore[misc]
    """TRL's SFTTrainer for instructions of which an unknown part is wrong.

    All tokens of a sequence have one weight, from the mean loss of those that count and a running mean of it
    (:class:`inlier.Robust`); or each token has one of its own, from its current loss, and nothing is remembered.

    Args:
        args: As for ``SFTTrainer``.
        per: What has a weight of its own: "sequence" or "token".
        kwargs: As for :class:`RobustTRLMixin` (``robust`` must be an :class:`~inlier.Robust`) and ``SFTTrainer``;
            without packing.
    """

    def __init__(self, *args: Any, per: Literal["sequence", "token"] = "sequence", **kwargs: Any) -> None:
        if per not in ("sequence", "token"):
            raise ValueError(f"per = {per!r}: choose 'sequence' or 'token'")
        self.per = per
        super().__init__(*args, **kwargs)

    def default_robust(self) -> Robust:
        """Return the robust loss if none was given: the next token has many right answers, so no class label."""
        return Robust()

    def check_arguments(self, arguments: dict[str, Any], callback: RobustCallback) -> None:
        """Refuse batches whose rows are not samples, and losses that are computed from logits."""
        config = arguments.get("args")
        for name in ("packing", "padding_free"):
            if getattr(config, name, False):
                raise ValueError(
                    f"{name} = True joins several sequences in one row, and weights need one sample a row: use "
                    f"{name}=False"
                )
        if smoothing := getattr(config, "label_smoothing_factor", 0):
            raise ValueError(
                f"label_smoothing_factor = {smoothing} needs the logits, which are not weighted: use 0"
            )
        if arguments.get("compute_loss_func") is not None:
            raise ValueError("compute_loss_func would replace the weighted loss: leave it out")
        if not isinstance(callback.robust, Robust):
            raise ValueError(
                f"robust = {type(callback.robust).__name__}: the next token has many right answers, so pass an "
                "inlier.Robust"
            )
        if self.per == "token" and callback.suspects is not None:
            raise ValueError("per = 'token' remembers no sample: use per='sequence', or leave suspects= out")

    def weighted(
        self, seen: dict[str, Any], inputs: dict[str, Any], index: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Weight the log-probabilities of a batch."""
        log_probs, mask = seen["policy"].log_probs, seen["policy"].label_mask
        losses, robust = -log_probs.detach().float(), self.robust
        assert isinstance(robust, Robust)
        expected = expected_weight(robust)
        if self.per == "token":
            return log_probs, robust.weigh(losses, mask=mask) / expected
        tokens = mask.sum(1)
        means = torch.where(mask, losses, 0.0).sum(1) / tokens.clamp(min=1)
        return log_probs, robust.weigh(means, index, mask=tokens > 0) / expected
