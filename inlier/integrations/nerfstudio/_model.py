"""Nerfacto whose colour loss weights each ray by how well its pixel fits the scene."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from nerfstudio.cameras.cameras import Cameras
from nerfstudio.engine.callbacks import (
    TrainingCallback,
    TrainingCallbackAttributes,
    TrainingCallbackLocation,
)
from nerfstudio.models.nerfacto import NerfactoModel, NerfactoModelConfig
from nerfstudio.utils import writer
from nerfstudio.utils.rich_utils import CONSOLE
from torch import Tensor

from inlier.integrations.nerfstudio._colour_errors import ColourErrors
from inlier.integrations.nerfstudio._image_gains import SETTLED, ImageGains
from inlier.integrations.nerfstudio._kernel_schedule import GRADUATED
from inlier.integrations.nerfstudio._lpips import MissingLpips
from inlier.integrations.nerfstudio._pixels import PixelIndex
from inlier.integrations.nerfstudio._weighted_colours import WeightedColourLoss
from inlier.nn import Robust

__all__ = ["RobustNerfactoModel", "RobustNerfactoModelConfig"]

MOST_PIXELS = 2**27
"""In a scene with more pixels than this, pixels are not remembered: it would take 4 bytes for each."""

HARDEN_EVERY = 50
"""Steps between two checks of whether the kernel should become hard."""


@dataclass
class RobustNerfactoModelConfig(NerfactoModelConfig):  # type: ignore[misc]
    """Nerfacto's options, and how rays are weighted."""

    _target: type = field(default_factory=lambda: RobustNerfactoModel)
    rule: Literal["adaptive", "robustnerf", "both", "none"] = "adaptive"
    """How rays are weighted: by inlier.Robust; by RobustNeRF's rule; by its vote of neighbours and patches on
    Robust's weights, for distractors that cover whole regions; or not at all, as in Nerfacto."""
    kernel: str = GRADUATED
    """Robust kernel, as in inlier.Robust; graduated is geman-mcclure until robust_warmup is over and most
    pixels are inliers, and then truncated, which leaves out what covers whole regions."""
    inlier_fraction: float | Literal["auto"] = "auto"
    """Fraction of clean pixels, or auto to estimate it against a null model."""
    hold: int = 1
    """Steps for which weights stay frozen; 1 takes them from the current losses."""
    robust_warmup: int = 1000
    """Steps in which the inlier fraction goes from 1 to its target."""
    update_every: int = 10
    """Steps between two updates of the scale."""
    loss_window: int = 16384
    """About how many recent rays the scale is solved on."""
    divide_by: Literal["samples", "weights"] = "weights"
    """What the weighted sum is divided by: the number of rays, as in the paper, or that times the current inlier
    fraction, which the weights are expected to add up to. Else the colours would count for less beside Nerfacto's other
    losses, the more outliers there are."""
    null_correction: bool = True
    """Whether the loss that outliers are expected to add is subtracted, where the fraction is auto and hold is
    1: else many outliers draw all colours towards their mean, whence no weights lead back."""
    image_gains: bool = False
    """Whether each image has a gain for each colour, fitted after robust_warmup: its exposure. For images of which some
    are exposed wrongly."""
    robustnerf_quantile: float = 0.5
    """Quantile of errors below which RobustNeRF's rule takes a pixel for an inlier."""
    robust_patch: int = 16
    """Side of the patches that are sampled where the rule is robustnerf or both."""

    @property
    def needs_patches(self) -> bool:
        """Whether rays must come in square patches."""
        return self.rule in ("robustnerf", "both")


class RobustNerfactoModel(NerfactoModel):  # type: ignore[misc]
    """Nerfacto with a weight for each ray.

    The colour loss is a :class:`~inlier.integrations.nerfstudio._weighted_colours.WeightedColourLoss`, which knows a
    pixel by its index. Everything else is Nerfacto's.
    """

    config: RobustNerfactoModelConfig
    camera_sizes: Tensor

    def populate_modules(self) -> None:
        """Set the fields and modules of Nerfacto, and what weights the rays."""
        self._populate_nerfacto()
        self.rgb_loss = ColourErrors()
        # Height and width of each training image, 0 while they are unknown.
        self.register_buffer("camera_sizes", torch.zeros(self.num_train_data, 2, dtype=torch.int64))
        self._pixels: PixelIndex | None = None
        settle = SETTLED * self.config.robust_warmup
        self.image_gains = ImageGains(self.num_train_data, settle) if self.config.image_gains else None
        self.colours = WeightedColourLoss(self.config, None)

    @property
    def robust(self) -> Robust | None:
        """What weights the rays, unless the rule is another."""
        return self.colours.robust

    @property
    def last_kept(self) -> Tensor | None:
        """The weights of the rays of the last training batch, in its order."""
        return self.colours.last_weights

    def _populate_nerfacto(self) -> None:
        try:
            super().populate_modules()
        except OSError as error:
            # The last thing that Nerfacto builds is LPIPS, whose weights are downloaded once.
            if not hasattr(self, "ssim") or hasattr(self, "lpips"):
                raise
            CONSOLE.print(
                f"inlier: LPIPS will be missing (NaN), since its weights could not be downloaded: {error}"
            )
            self.lpips, self.step = MissingLpips(), 0

    def know_images(self, cameras: Cameras) -> None:
        """Number the pixels of the training images, so that each of them is remembered.

        Args:
            cameras: Those of the training images, in their order.
        """
        self._number_pixels(torch.stack([cameras.height.reshape(-1), cameras.width.reshape(-1)], 1).cpu())

    def _number_pixels(self, sizes: Tensor) -> None:
        if torch.equal(sizes, self.camera_sizes.cpu()):
            return
        self.camera_sizes = sizes.to(self.camera_sizes.device)
        self._pixels = PixelIndex(sizes)
        if self._pixels.total > MOST_PIXELS:
            CONSOLE.print(
                f"inlier: {self._pixels.total:,} pixels are too many to remember each; rays are weighted by "
                "their current loss"
            )
            self._pixels = None
        remembered = None if self._pixels is None else self._pixels.total
        self.colours = WeightedColourLoss(self.config, remembered).to(self.camera_sizes.device)

    def get_loss_dict(
        self, outputs: dict[str, Any], batch: dict[str, Any], metrics_dict: dict[str, Any] | None = None
    ) -> dict[str, Tensor]:
        """Return Nerfacto's losses, with weighted rays while training."""
        losses: dict[str, Tensor] = super().get_loss_dict(outputs, batch, metrics_dict)
        target, prediction = self.rgb_loss.take()
        if self.training and self.config.rule != "none":
            index = None if self._pixels is None else self._pixels.of(batch["indices"]).to(target.device)
            image = batch["indices"][:, 0].to(target.device)
            exposed, target = target, self._exposed_as_usual(target, prediction, image)
            losses["rgb_loss"], numbers = self.colours(prediction, target, index)
            if metrics_dict is not None:
                metrics_dict |= numbers
            if self.image_gains is not None and self.last_kept is not None:
                self.image_gains.observe(prediction, exposed, self.last_kept, image)
        return losses

    def _exposed_as_usual(self, target: Tensor, prediction: Tensor, image: Tensor) -> Tensor:
        """Return the colours without the exposure of their images, once the scene has taken shape."""
        if self.image_gains is None or self.robust is None or not self.robust.is_warm:
            return target
        return self.image_gains.corrected(target, prediction, image)

    @torch.no_grad()
    def pixel_weights(self, camera: int) -> Tensor | None:
        """Return the weight of each pixel of a training image by what is remembered of it.

        Args:
            camera: The number of the training image.

        Returns:
            Weights of shape H x W, NaN where a pixel was never seen; None if pixels are not remembered.
        """
        if self.robust is None or self._pixels is None:
            return None
        return self._pixels.image(self.robust.inlier_probability(), camera)

    def get_training_callbacks(
        self, training_callback_attributes: TrainingCallbackAttributes
    ) -> list[TrainingCallback]:
        """Return Nerfacto's callbacks, one that changes the kernel, and one that shows weights of an image."""
        callbacks: list[TrainingCallback] = super().get_training_callbacks(training_callback_attributes)
        pipeline, trainer = training_callback_attributes.pipeline, training_callback_attributes.trainer
        if pipeline is not None:
            # What a checkpoint remembers of other images belongs to other pixels.
            self.know_images(pipeline.datamanager.train_dataset.cameras)
        after = [TrainingCallbackLocation.AFTER_TRAIN_ITERATION]
        callbacks.append(TrainingCallback(after, self.harden, update_every_num_iters=HARDEN_EVERY))
        if trainer is not None:
            callbacks.append(
                TrainingCallback(
                    where_to_run=after,
                    update_every_num_iters=trainer.config.steps_per_eval_image,
                    func=self._show_weights,
                    args=[trainer.config.steps_per_eval_image],
                )
            )
        return callbacks

    def harden(self, step: int) -> None:
        """Let the kernel become hard when it is time.

        Args:
            step: Unused; callbacks get it.
        """
        self.colours.harden()

    def _show_weights(self, every: int, step: int) -> None:
        weights = self.pixel_weights(step // every % self.num_train_data) if step else None
        if weights is not None:
            shades = weights.nan_to_num(nan=0.5).clamp(0, 1)
            writer.put_image(
                name="Train Images/weights", image=shades[..., None].expand(-1, -1, 3), step=step
            )

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any, **kwargs: Any) -> None:
        # The checkpoint knows which images its pixels belong to; a viewer, say, may have loaded smaller ones.
        if prefix + "camera_sizes" in state_dict:
            self._number_pixels(state_dict[prefix + "camera_sizes"].cpu())
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)
