"""Lightning: a robust loss is a submodule like any other; a callback logs it and writes the suspects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor

from inlier.integrations import need
from inlier.nn import check_suspects_path, write_suspects
from inlier.nn._metrics import weight_shares
from inlier.nn._module import RobustModule

need("lightning", "lightning")

from lightning.pytorch import Callback, LightningModule, Trainer  # noqa: E402
from lightning.pytorch.loggers import Logger  # noqa: E402

__all__ = ["RobustCallback"]


class RobustCallback(Callback):
    """Log the metrics of a robust loss to every logger of the Trainer, and write the suspects at the end.

    The loss is a :class:`inlier.Robust` or :class:`inlier.RobustCrossEntropy` in the module. Every ``every_n_steps``
    steps its :meth:`~inlier.Robust.metrics` over all processes are logged, with a histogram of weights: a real
    one where the logger has ``add_histogram`` (TensorBoard), else the share of weights in each tenth. The weights
    are the inlier probabilities of all samples, or the weights of the last call if it had no ``index``.

    Args:
        suspects: A ``.csv`` or ``.parquet`` file for the samples, most suspect first; None for none.
        every_n_steps: Optimizer steps from one logging to the next; ``log_every_n_steps`` of the Trainer if
            None.
        attribute: The path of the loss in the module ("robust", "loss.robust"); None finds it if there is one.
        prefix: Put before the name of each metric.

    Example:
        >>> callback = RobustCallback(suspects="suspects.csv")
    """

    def __init__(
        self,
        suspects: str | Path | None = None,
        every_n_steps: int | None = None,
        attribute: str | None = None,
        prefix: str = "robust/",
    ) -> None:
        self.suspects = None if suspects is None else check_suspects_path(suspects)
        self.every_n_steps, self.attribute, self.prefix = every_n_steps, attribute, prefix
        self._logged = -1

    def robust_of(self, pl_module: LightningModule) -> RobustModule:
        """Return the robust loss of a module."""
        if self.attribute is not None:
            return pl_module.get_submodule(self.attribute)  # type: ignore[return-value]
        found = {
            name: module for name, module in pl_module.named_modules() if isinstance(module, RobustModule)
        }
        if len(found) != 1:
            raise ValueError(
                f"{type(pl_module).__name__} has {len(found)} robust losses {sorted(found)}: set one in its "
                "__init__ (self.robust = inlier.Robust()), or name one with RobustCallback(attribute=...)"
            )
        return next(iter(found.values()))

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Raise before the training, not after it, if there is no robust loss."""
        self.robust_of(pl_module)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Log, every so many steps."""
        step = trainer.global_step
        every = self.every_n_steps or trainer.log_every_n_steps  # type: ignore[attr-defined]
        # With gradient accumulation a step takes several batches.
        if not trainer.loggers or not every or step == 0 or step % every or step == self._logged:
            return
        self._logged = step
        robust = self.robust_of(pl_module)
        metrics = robust.metrics(self.prefix, distributed=True)
        weights = robust.inlier_probability() if robust.num_samples else robust.last_weights
        if trainer.is_global_zero:
            known = None if weights is None else weights[~weights.isnan()]
            for logger in trainer.loggers:
                self._log(logger, metrics, known, step)

    def _log(self, logger: Logger, metrics: dict[str, float], weights: Tensor | None, step: int) -> None:
        name = f"{self.prefix}weights"
        board: Any = getattr(logger, "experiment", None)
        if weights is not None and hasattr(board, "add_histogram"):
            board.add_histogram(name, weights.cpu(), step)
        elif weights is not None:
            metrics = metrics | {f"{name}/{tenth}": share for tenth, share in weight_shares(weights).items()}
        logger.log_metrics(metrics, step)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Write the suspects, once."""
        if self.suspects is not None and trainer.is_global_zero:
            write_suspects(self.robust_of(pl_module), self.suspects)
