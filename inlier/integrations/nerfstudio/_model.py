"""Nerfacto whose colour loss weights each ray by how well its pixel fits the scene."""

from __future__ import annotations

import math
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

from inlier.integrations.nerfstudio import _robust_nerf as robust_nerf
from inlier.integrations.nerfstudio._colour_errors import ColourErrors
from inlier.integrations.nerfstudio._image_gains import ImageGains
from inlier.integrations.nerfstudio._kernel_schedule import GRADUATED, HARD, MAJORITY, current_kernel
from inlier.integrations.nerfstudio._lpips import MissingLpips
from inlier.integrations.nerfstudio._null_model import (
    SceneNullModel,
    expected_outlier_loss,
    null_errors,
    remembered_losses,
)
from inlier.integrations.nerfstudio._pixels import PixelIndex
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
    running_mean: float = 0.0
    """Share of a pixel's old mean loss in the new one; 0 weights by the current loss alone: a pixel is visited so
    rarely that its old losses are those of a scene that was another."""
    divide_by: Literal["samples", "weights"] = "weights"
    """What the weighted sum is divided by: the number of rays, as in the paper, or that times the current inlier
    fraction, which the weights are expected to add up to. Else the colours would count for less beside Nerfacto's other
    losses, the more outliers there are."""
    null_correction: bool = True
    """Whether the loss that outliers are expected to add is subtracted, where the fraction is auto and hold is
    1: else many outliers draw all colours towards their mean, whence no weights lead back."""
    image_gains: bool = False
    """Whether each image has a gain for each colour, fitted after robust_warmup: its exposure. For images of which some
    are exposed wrongly; where all are alike, the gains of neighbours drift with the scene."""
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

    The loss is the sum of u_i e_i over the rays divided by zeta n, e_i being the squared error of ray i, mean over its
    channels, u_i its weight by :class:`inlier.Robust` or RobustNeRF's rule, n the number of rays, and zeta the current
    inlier fraction (1 for RobustNeRF's rule). Everything else is Nerfacto's.

    Unless it is given, the inlier fraction is estimated by a :class:`inlier.fraction.NullModel`, and the loss that
    outliers are expected to add is subtracted.
    """

    config: RobustNerfactoModelConfig
    camera_sizes: Tensor
    error_threshold: Tensor

    def populate_modules(self) -> None:
        """Set the fields and modules of Nerfacto, and what weights the rays."""
        self._populate_nerfacto()
        self.rgb_loss = ColourErrors()
        # Height and width of each training image, 0 while they are unknown.
        self.register_buffer("camera_sizes", torch.zeros(self.num_train_data, 2, dtype=torch.int64))
        self.register_buffer("error_threshold", torch.tensor(math.inf))
        self.last_kept: Tensor | None = None
        """The weights of the rays of the last training batch, in its order."""
        self._pixels: PixelIndex | None = None
        self.image_gains = ImageGains(self.num_train_data) if self.config.image_gains else None
        self._make_robust(None)

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

    def _make_robust(self, pixels: int | None) -> None:
        """Make the robust loss, of so many pixels, and its null model, if the options ask for them."""
        config = self.config
        self.robust: Robust | None = None
        self.null_model: SceneNullModel | None = None
        if config.rule not in ("adaptive", "both"):
            return
        kernel = current_kernel(config.kernel)
        if config.inlier_fraction == "auto":
            self.null_model = SceneNullModel(kernel)
        self.robust = Robust(
            kernel,
            self.null_model or config.inlier_fraction,
            config.hold,
            warmup=config.robust_warmup,
            window=config.loss_window,
            update_every=config.update_every,
            running_mean=config.running_mean,
            samples=pixels,
        )

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
        self._make_robust(None if self._pixels is None else self._pixels.total)

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
            losses["rgb_loss"] = self._colour_loss(prediction, target, index, metrics_dict)
            if self.image_gains is not None and self.last_kept is not None:
                self.image_gains.observe(prediction, exposed, self.last_kept, image)
        return losses

    def _exposed_as_usual(self, target: Tensor, prediction: Tensor, image: Tensor) -> Tensor:
        """Return the colours without the exposure of their images, once the scene has taken shape."""
        if self.image_gains is None or self.robust is None or not self.robust.is_warm:
            return target
        return self.image_gains.corrected(target, prediction, image)

    def _colour_loss(
        self,
        prediction: Tensor,
        target: Tensor,
        index: Tensor | None,
        metrics_dict: dict[str, Any] | None,
    ) -> Tensor:
        """Return the weighted mean squared error of the rays, corrected by the null model if there is one."""
        errors = (prediction - target).square().mean(-1)
        null_model, robust = self.null_model, self.robust
        is_corrected = null_model is not None and self.config.null_correction and self.config.hold == 1
        remembered = None
        if is_corrected and robust is not None and index is not None:
            remembered = remembered_losses(robust, index)  # before this step adds to them
        fraction = None if robust is None else robust.inlier_fraction  # which this step's weights add up to
        weights = self.last_kept = self._weigh(errors.detach(), index)
        loss = torch.dot(weights, errors) / len(errors)
        if null_model is not None and robust is not None:
            null, partners = null_errors(prediction, target, weights)
            if is_corrected:
                past = None if remembered is None else remembered[partners]
                loss = loss - expected_outlier_loss(robust, null, past, self.config.running_mean)
            null_model.compare(errors, null)
        if fraction is not None and self.config.divide_by == "weights":
            # It goes from 1 to its target in the warm-up, and is never below SMALLEST_FRACTION.
            loss = loss / fraction.to(loss)
        if metrics_dict is not None:
            metrics_dict |= self._metrics(weights, errors.detach())
        return loss

    def _weigh(self, errors: Tensor, index: Tensor | None) -> Tensor:
        config = self.config
        if self.robust is not None:
            weights = self.robust.weigh(errors, index)
            if config.rule == "adaptive":
                return weights
            inliers = robust_nerf.as_patches(weights, config.robust_patch) >= 0.5
            return torch.maximum(weights, robust_nerf.vote(inliers).reshape(-1).to(weights.dtype))
        patches = robust_nerf.as_patches(errors, config.robust_patch)
        kept = robust_nerf.kept_pixels(patches, self.error_threshold)
        self.error_threshold = robust_nerf.next_threshold(errors, config.robustnerf_quantile)
        return kept.reshape(-1).to(errors.dtype)

    def _metrics(self, weights: Tensor, errors: Tensor) -> dict[str, Tensor]:
        """What is logged: tensors, not numbers, so that a step does not wait for the device."""
        kept_error = torch.dot(weights, errors) / weights.sum()
        numbers = {"kept_fraction": weights.mean(), "psnr_kept": -10 * kept_error.log10()}
        if self.robust is not None:
            numbers |= {"scale": self.robust.scale, "inlier_fraction": self.robust.inlier_fraction}
        return numbers

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
        """Change from the soft kernel to the hard one when it is time; see the option ``kernel``.

        The inlier fraction is the same on all processes, so they change at the same step.

        Args:
            step: Unused; callbacks get it.
        """
        robust = self.robust
        if self.config.kernel != GRADUATED or robust is None or not robust.is_warm:
            return
        if not isinstance(robust.kernel, type(HARD)) and float(robust.inlier_fraction) > MAJORITY:
            robust.change_kernel(HARD)

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
        label = state_dict.get(prefix + "robust.kernel")
        if self.robust is not None and label is not None and self.config.kernel == GRADUATED:
            self.robust.change_kernel(current_kernel(GRADUATED, label))
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)
