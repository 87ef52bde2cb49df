"""Nerfacto whose colour loss believes a ray as much as its pixel fits the scene."""

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
from torch import Tensor, nn

from inlier import processes
from inlier.chance import fraction_beyond_chance, others_by_disbelief
from inlier.rivals import robust_nerf
from inlier.robust import Robust
from inlier.scenes.graduated import GRADUATED, HARD, MAJORITY, kernel_in_force

__all__ = ["RobustNerfactoModel", "RobustNerfactoModelConfig"]

MOST_PIXELS = 2**27
"""A scene with more pixels than this is judged without memory, which takes 8 bytes a pixel."""


ESTIMATE_OVER = 20
"""About how many steps the estimate of the inlier fraction is a mean over."""

CHANCE_PAIRS = 8
"""Colours of other pixels that each ray is compared with: more make the correction for chance less noisy."""

HARDEN_EVERY = 50
"""Steps from one look at whether the hard kernel may be taken to the next."""

SMALLEST_FRACTION = 0.05
"""The inlier fraction is never estimated below this: something must be learned from."""


@dataclass
class RobustNerfactoModelConfig(NerfactoModelConfig):  # type: ignore[misc]
    """Nerfacto's options, and how rays are believed."""

    _target: type = field(default_factory=lambda: RobustNerfactoModel)
    rule: Literal["adaptive", "robustnerf", "both", "none"] = "adaptive"
    """How rays are believed: by inlier.Robust; by RobustNeRF's rule; by its vote of neighbours and patches on
    Robust's weights, for distractors that cover whole regions; or all alike, as in Nerfacto."""
    kernel: str = GRADUATED
    """Robust kernel, as in inlier.Robust; graduated is geman-mcclure until robust_warmup is over and most
    pixels are found right, and then truncated, which leaves out what covers whole regions."""
    inlier_fraction: float | Literal["auto"] = "auto"
    """Part of the pixels that is right, or auto to estimate it."""
    hold: int = 1
    """Steps for which weights stay frozen; 1 takes them from the current losses."""
    robust_warmup: int = 1000
    """Steps in which the inlier fraction goes from 1 to its target."""
    update_every: int = 10
    """Steps between two updates of the scale."""
    loss_window: int = 16384
    """About how many recent rays the scale is solved on."""
    running_mean: float = 0.7
    """Share of a pixel's old mean loss in the new one; 0 judges by the current loss alone."""
    chance_correction: bool = True
    """Whether the pull that outliers are expected to have is taken off the loss, where the fraction is auto
    and hold is 1: else many outliers draw all colours towards their mean, whence no weights lead back."""
    robustnerf_quantile: float = 0.5
    """Quantile of errors below which RobustNeRF's rule takes a pixel for an inlier."""
    robust_patch: int = 16
    """Side of the patches that are sampled where the rule is robustnerf or both."""

    @property
    def needs_patches(self) -> bool:
        """Whether rays must come in square patches."""
        return self.rule in ("robustnerf", "both")


class ColourErrors(nn.Module):
    """The mean squared error, which also keeps the colours that it compared until they are taken."""

    def __init__(self) -> None:
        super().__init__()
        self._colours: tuple[Tensor, Tensor] | None = None

    def forward(self, target: Tensor, prediction: Tensor) -> Tensor:
        """Return the mean over rays and channels."""
        self._colours = target, prediction
        return nn.functional.mse_loss(prediction, target)

    def take(self) -> tuple[Tensor, Tensor]:
        """Return the colours of the last call, targets and predictions, and let go of them."""
        colours, self._colours = self._colours, None
        assert colours is not None
        return colours


class NoLpips(nn.Module):
    """In place of LPIPS where its weights are missing."""

    def forward(self, target: Tensor, prediction: Tensor) -> Tensor:
        """Return NaN."""
        return torch.tensor(math.nan)


class RobustNerfactoModel(NerfactoModel):  # type: ignore[misc]
    """Nerfacto with a weight for each ray.

    The loss is the sum of u_i e_i over the rays divided by their number, e_i being the squared error of ray
    i, mean over its channels, and u_i its weight by :class:`inlier.Robust` or RobustNeRF's rule. Robust knows
    a pixel by its number, so that it is judged by all its rays so far. Everything else is Nerfacto's.

    Where the inlier fraction is unknown, it is estimated by comparison with chance (:mod:`inlier.chance`),
    since the losses alone do not tell early in training, and what outliers are expected to add to the loss is
    taken off.
    """

    config: RobustNerfactoModelConfig
    camera_sizes: Tensor
    error_threshold: Tensor
    estimated_fraction: Tensor

    def populate_modules(self) -> None:
        """Set the fields and modules of Nerfacto, and what weighs the rays."""
        self._populate_nerfacto()
        self.rgb_loss = ColourErrors()
        # Height and width of each training image, 0 while they are unknown.
        self.register_buffer("camera_sizes", torch.zeros(self.num_train_data, 2, dtype=torch.int64))
        self.register_buffer("error_threshold", torch.tensor(math.inf))
        self.register_buffer("estimated_fraction", torch.tensor(1.0))
        self.robust: Robust | None = self._new_robust(None)
        self.last_kept: Tensor | None = None
        """The weights of the rays of the last training batch, in its order."""
        self._first_pixels: Tensor | None = None

    def _populate_nerfacto(self) -> None:
        try:
            super().populate_modules()
        except OSError as error:
            # Nerfacto's last act is to build LPIPS, whose weights are downloaded once.
            if not hasattr(self, "ssim") or hasattr(self, "lpips"):
                raise
            CONSOLE.print(
                f"inlier: LPIPS will be missing (NaN), since its weights could not be downloaded: {error}"
            )
            self.lpips, self.step = NoLpips(), 0

    def _new_robust(self, pixels: int | None) -> Robust | None:
        config = self.config
        if config.rule not in ("adaptive", "both"):
            return None
        return Robust(
            kernel_in_force(config.kernel),
            1.0 if config.inlier_fraction == "auto" else config.inlier_fraction,
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
        counts = sizes.prod(1)
        pixels = int(counts.sum())
        device = self.camera_sizes.device
        self.camera_sizes = sizes.to(device)
        if pixels > MOST_PIXELS:
            CONSOLE.print(
                f"inlier: {pixels:,} pixels are too many to remember each; rays are judged by themselves"
            )
            self._first_pixels = None
        else:
            self._first_pixels = (counts.cumsum(0) - counts).to(device)
        robust = self._new_robust(None if self._first_pixels is None else pixels)
        self.robust = None if robust is None else robust.to(device)

    def _pixel_numbers(self, indices: Tensor) -> Tensor | None:
        """Return the number of each (camera, y, x), or None if pixels are not remembered."""
        if self._first_pixels is None:
            return None
        camera, y, x = indices.to(self._first_pixels.device).unbind(-1)
        return self._first_pixels[camera] + y * self.camera_sizes[camera, 1] + x

    def get_loss_dict(
        self, outputs: dict[str, Any], batch: dict[str, Any], metrics_dict: dict[str, Any] | None = None
    ) -> dict[str, Tensor]:
        """Return Nerfacto's losses, with weighted rays while training."""
        losses: dict[str, Tensor] = super().get_loss_dict(outputs, batch, metrics_dict)
        target, prediction = self.rgb_loss.take()
        if self.training and self.config.rule != "none":
            errors = (prediction - target).square().mean(-1)
            numbers = self._pixel_numbers(batch["indices"])
            remembered = None if self.robust is None or numbers is None else self.robust.memory.means[numbers]
            weights = self._weigh(errors.detach(), numbers)
            losses["rgb_loss"] = torch.dot(weights, errors) / len(errors)
            if self.robust is not None and self.config.inlier_fraction == "auto":
                others = others_by_disbelief(weights, CHANCE_PAIRS)
                by_chance = (prediction.unsqueeze(1) - target[others]).square().mean(-1)
                losses["rgb_loss"] = losses["rgb_loss"] - self._pull_of_outliers(
                    self.robust, by_chance, None if remembered is None else remembered[others]
                )
                self._estimate_fraction(self.robust, errors, by_chance)
            self.last_kept = weights
            if metrics_dict is not None:
                metrics_dict |= self._metrics(weights, errors.detach())
        return losses

    def _weigh(self, errors: Tensor, numbers: Tensor | None) -> Tensor:
        config, weights = self.config, None
        if self.robust is not None:
            weights = self.robust.weigh(errors, numbers)
            if config.rule == "adaptive":
                return weights
            believed = robust_nerf.as_patches(weights, config.robust_patch) >= 0.5
            return torch.maximum(weights, robust_nerf.vote(believed).reshape(-1).to(weights.dtype))
        patches = robust_nerf.as_patches(errors, config.robust_patch)
        kept = robust_nerf.kept_pixels(patches, self.error_threshold)
        self.error_threshold = robust_nerf.next_threshold(errors, config.robustnerf_quantile)
        return kept.reshape(-1).to(errors.dtype)

    def _pull_of_outliers(self, robust: Robust, by_chance: Tensor, remembered: Tensor | None) -> Tensor:
        """Return what outliers are expected to add to the loss: errors by chance, weighted as rays are.

        Args:
            robust: What weighs.
            by_chance: The errors of predictions and other pixels' colours.
            remembered: The mean losses of those pixels before this step, NaN where there was none.
        """
        if not self.config.chance_correction or self.config.hold > 1:
            return by_chance.new_zeros(())
        evidence = by_chance.detach().float()
        if remembered is not None:
            mean = torch.lerp(evidence, remembered, self.config.running_mean)
            evidence = torch.where(mean.isnan(), evidence, mean)
        weights = robust.kernel.slope(evidence / robust.scale).to(by_chance.dtype)
        return (1 - robust.inlier_fraction) * (weights * by_chance).mean()

    def _estimate_fraction(self, robust: Robust, errors: Tensor, by_chance: Tensor) -> None:
        now = fraction_beyond_chance(errors, by_chance)
        self.estimated_fraction.lerp_(now.to(self.estimated_fraction), 1 / ESTIMATE_OVER)
        least = robust.kernel.weight_floor + SMALLEST_FRACTION
        robust.window.targets.copy_(self.estimated_fraction.clamp(least, 1.0))

    def _metrics(self, weights: Tensor, errors: Tensor) -> dict[str, Tensor]:
        """What is logged: no number is looked at here, so that a step does not wait for the device."""
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
        if self.robust is None or self._first_pixels is None:
            return None
        height, width = self.camera_sizes[camera].tolist()
        first = int(self._first_pixels[camera])
        return self.robust.inlier_probability()[first : first + height * width].view(height, width)

    def get_training_callbacks(
        self, training_callback_attributes: TrainingCallbackAttributes
    ) -> list[TrainingCallback]:
        """Return Nerfacto's callbacks, and one that shows the weights of a training image now and then."""
        callbacks: list[TrainingCallback] = super().get_training_callbacks(training_callback_attributes)
        pipeline, trainer = training_callback_attributes.pipeline, training_callback_attributes.trainer
        if pipeline is not None:
            # Pixels of a checkpoint with other images would be others' pixels.
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
        """Change from the soft kernel to the hard one if it is time for that; see the option ``kernel``.

        Args:
            step: Unused; callbacks are given it.
        """
        robust = self.robust
        if self.config.kernel != GRADUATED or robust is None or not robust.is_warm:
            return
        if isinstance(robust.kernel, type(HARD)):
            return
        fraction, world = robust.inlier_fraction.clone(), processes.world_size()
        if world > 1:
            # Each process has estimated for itself, and they must change together.
            processes.add_up(fraction)
        if float(fraction) / world > MAJORITY:
            robust.change_kernel(HARD)

    def _show_weights(self, every: int, step: int) -> None:
        weights = self.pixel_weights(step // every % self.num_train_data) if step else None
        if weights is not None:
            shades = weights.nan_to_num(nan=0.5).clamp(0, 1)
            writer.put_image(
                name="Train Images/weights", image=shades[..., None].expand(-1, -1, 3), step=step
            )

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any, **kwargs: Any) -> None:
        # The checkpoint knows which images its pixels belong to; a viewer, say, has only loaded smaller ones.
        if prefix + "camera_sizes" in state_dict:
            self._number_pixels(state_dict[prefix + "camera_sizes"].cpu())
        label = state_dict.get(prefix + "robust.kernel_label")
        if self.robust is not None and label is not None and self.config.kernel == GRADUATED:
            self.robust.change_kernel(kernel_in_force(GRADUATED, label))
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)
