"""Sentence Transformers: pairs and triplets of which an unknown part does not belong together.

The losses of the library are computed as ever; the gradient of each pair is multiplied by its weight. So the loss in
the logs stays the unweighted one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from inlier.integrations import need
from inlier.nn import Robust, RobustCrossEntropy

need("sentence_transformers", "sentence_transformers")

from sentence_transformers import SentenceTransformerTrainer  # noqa: E402
from sentence_transformers.sentence_transformer import losses  # noqa: E402

from inlier.integrations._trainers import (  # noqa: E402
    IndexedTrainerMixin,
    RobustCallback,
    expected_weight,
    margin_weights,
    scale_gradient,
)

__all__ = ["RobustPairLoss", "RobustSentenceTransformerTrainer"]


class RobustPairLoss(nn.Module):
    """A loss of Sentence Transformers in which each pair has the weight of a probability that it belongs together.

    With ``MultipleNegativesRankingLoss`` a pair (or triplet) is a class label: which text of the batch belongs to the
    anchor. Its margin S is the scaled similarity of its positive minus that of the best other text, and a wrong
    positive is a mislabelled sample: :class:`inlier.RobustCrossEntropy` on the logits (S, 0). With
    ``CosineSimilarityLoss`` a wrong score is an outlier of the regression: :class:`inlier.Robust` on its loss.

    Args:
        loss: A ``MultipleNegativesRankingLoss`` or ``CosineSimilarityLoss``.
        robust: A robust loss of your own: for a ranking of either kind, else a :class:`~inlier.Robust`.

    Example:
        ``SentenceTransformerTrainer(model, loss=RobustPairLoss(MultipleNegativesRankingLoss(model)), ...)``; with a
        :class:`RobustSentenceTransformerTrainer` samples are remembered by dataset index.
    """

    def __init__(self, loss: nn.Module, robust: Robust | RobustCrossEntropy | None = None) -> None:
        super().__init__()
        self.is_ranking = type(loss) is losses.MultipleNegativesRankingLoss
        if not self.is_ranking and type(loss) is not losses.CosineSimilarityLoss:
            raise TypeError(
                f"loss = {type(loss).__name__}: only MultipleNegativesRankingLoss and CosineSimilarityLoss have a "
                "robust form"
            )
        if self.is_ranking and (loss.directions != ("query_to_doc",) or loss.gather_across_devices):
            raise ValueError(
                f"directions = {loss.directions}, gather_across_devices = {loss.gather_across_devices}: weights need "
                "one row of similarities a pair, directions=('query_to_doc',) and gather_across_devices=False"
            )
        if not self.is_ranking and isinstance(robust, RobustCrossEntropy):
            raise ValueError(
                "robust = RobustCrossEntropy: similarity scores are no class labels, pass an inlier.Robust"
            )
        if robust is None:
            robust = RobustCrossEntropy() if self.is_ranking else Robust()
        self.loss: Any = loss
        self.index: Tensor | None = None
        """The dataset indices of the batch to come; RobustSentenceTransformerTrainer sets them."""
        self.callback = RobustCallback(robust)
        """What keeps the robust loss in checkpoints: pass it to a Trainer of your own as a callback."""

    @property
    def model(self) -> nn.Module:
        """The model of the loss: the Trainer replaces it by what wraps it on several devices."""
        return self.loss.model  # type: ignore[no-any-return]

    @property
    def robust(self) -> Robust | RobustCrossEntropy:
        """The robust loss."""
        return self.callback.restored()

    def forward(self, sentence_features: Any, labels: Tensor | None = None) -> Tensor:
        """Return the loss of a batch; with gradients, these are weighted.

        Args:
            sentence_features: Columns of a batch, as for the loss.
            labels: Labels, as for the loss.
        """
        index, self.index = self.index, None
        if not torch.is_grad_enabled():
            return self.loss(sentence_features, labels)  # type: ignore[no-any-return]
        with self._weighted_ranking(index) if self.is_ranking else self._weighted_scores(index):
            return self.loss(sentence_features, labels)  # type: ignore[no-any-return]

    @contextmanager
    def _weighted_ranking(self, index: Tensor | None) -> Iterator[None]:
        """Let the similarities of each anchor, a row, have gradients with the weight of its pair."""
        similarity_of = self.loss.similarity_fct

        def weighted(anchors: Tensor, texts: Tensor) -> Tensor:
            similarities: Tensor = similarity_of(anchors, texts)
            scores = similarities.detach().float() * self.loss.scale
            given = scores.diagonal()
            margins = given - scores.clone().fill_diagonal_(-torch.inf).amax(1)
            ranking_losses = scores.logsumexp(1) - given
            scale_gradient(similarities, margin_weights(self.robust, margins, ranking_losses, index))
            return similarities

        self.loss.similarity_fct = weighted
        try:
            yield
        finally:
            self.loss.similarity_fct = similarity_of

    @contextmanager
    def _weighted_scores(self, index: Tensor | None) -> Iterator[None]:
        """Let the predicted score of each pair have a gradient with its weight."""
        each = copy(self.loss.loss_fct)
        each.reduction = "none"

        def weight(module: nn.Module, inputs: tuple[Tensor, Tensor]) -> None:
            robust, (scores, given) = self.robust, inputs
            assert isinstance(robust, Robust)
            expected = expected_weight(robust)
            # Not each(...): the copy shares the hooks, of which this is one.
            losses_of_pairs = each.forward(scores.detach(), given)
            scale_gradient(scores, robust.weigh(losses_of_pairs, index) / expected)

        handle = self.loss.loss_fct.register_forward_pre_hook(weight)
        try:
            yield
        finally:
            handle.remove()

    def get_config_dict(self) -> dict[str, Any]:
        """Return the settings of the loss, for the model card."""
        return self.loss.get_config_dict()  # type: ignore[no-any-return]


class RobustSentenceTransformerTrainer(IndexedTrainerMixin, SentenceTransformerTrainer):  # type: ignore[misc]
    """The SentenceTransformerTrainer with a :class:`RobustPairLoss`: it keeps the dataset index and names suspects.

    Args:
        args: As for ``SentenceTransformerTrainer``; ``loss`` is a MultipleNegativesRankingLoss (the default there) or
            a CosineSimilarityLoss.
        robust: As in :class:`RobustPairLoss`.
        index_column: The column of the dataset index; :func:`inlier.with_index` makes it if there is none.
        suspects: A ``.csv`` or ``.parquet`` file written at the end of training.
        kwargs: As for ``SentenceTransformerTrainer``.
    """

    def __init__(
        self,
        *args: Any,
        robust: Robust | RobustCrossEntropy | None = None,
        index_column: str = "inlier_index",
        suspects: str | Path | None = None,
        **kwargs: Any,
    ) -> None:
        self._robust, self._suspects = robust, suspects
        super().__init__(*args, **kwargs)
        if not isinstance(self.loss, RobustPairLoss):
            raise TypeError(f"loss = {type(self.loss).__name__}: pass one loss, for all training sets")
        self._attach(self.loss.callback, index_column)

    def prepare_loss(self, loss: Any, model: Any) -> Any:
        """Make the loss robust."""
        loss = super().prepare_loss(loss, model)
        if not isinstance(loss, RobustPairLoss):
            loss = RobustPairLoss(loss, self._robust)
        elif self._robust is not None:
            raise ValueError(
                "robust= is given, and the loss has one already: pass it to RobustPairLoss alone"
            )
        loss.callback = RobustCallback(loss.callback.robust, self._suspects)
        return loss

    def compute_loss(self, model: Any, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        """Take the index out of the batch before the model sees it."""
        self.loss.index = self.take_index(inputs)  # type: ignore[attr-defined]
        return super().compute_loss(model, inputs, *args, **kwargs)
