"""Splatfacto whose image loss weights each pixel. Not registered with ``ns-train``: it needs a GPU, and was not run.

To try it, make a method of your own from nerfstudio's ``splatfacto`` whose model is
:class:`RobustSplatfactoModelConfig`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from nerfstudio.models.splatfacto import SplatfactoModel, SplatfactoModelConfig
from torch import Tensor

from inlier.integrations.nerfstudio._image_loss import weighted_image_loss
from inlier.nn import Robust

__all__ = ["RobustSplatfactoModel", "RobustSplatfactoModelConfig"]


@dataclass
class RobustSplatfactoModelConfig(SplatfactoModelConfig):  # type: ignore[misc]
    """Splatfacto's options, and how pixels are weighted."""

    _target: type = field(default_factory=lambda: RobustSplatfactoModel)
    kernel: str = "geman-mcclure"
    """Robust kernel, as in inlier.Robust."""
    inlier_fraction: float | Literal["auto"] = "auto"
    """Fraction of clean pixels, or auto to estimate it from the errors."""
    robust_warmup: int = 1000
    """Steps in which the inlier fraction goes from 1 to its target."""


class RobustSplatfactoModel(SplatfactoModel):  # type: ignore[misc]
    """Splatfacto with a weight for each pixel, by its current absolute error. Not run here: splats need a GPU."""

    config: RobustSplatfactoModelConfig

    def populate_modules(self) -> None:
        """Set the splats, and what weights the pixels."""
        super().populate_modules()
        config = self.config
        self.robust = Robust(config.kernel, config.inlier_fraction, warmup=config.robust_warmup)

    def get_loss_dict(
        self, outputs: dict[str, Any], batch: dict[str, Any], metrics_dict: dict[str, Any] | None = None
    ) -> dict[str, Tensor]:
        """Return Splatfacto's losses, with weighted pixels while training."""
        losses: dict[str, Tensor] = super().get_loss_dict(outputs, batch, metrics_dict)
        if not self.training:
            return losses
        prediction = outputs["rgb"]
        target = self.composite_with_background(self.get_gt_img(batch["image"]), outputs["background"])
        mask = None
        if "mask" in batch:
            mask = self._downscale_if_required(batch["mask"]).to(prediction.device).squeeze(-1) > 0
        weights = self.robust.weigh((prediction - target).abs().mean(-1).detach(), mask=mask)
        losses["main_loss"] = weighted_image_loss(
            prediction, target, weights, self.ssim, self.config.ssim_lambda
        )
        return losses
