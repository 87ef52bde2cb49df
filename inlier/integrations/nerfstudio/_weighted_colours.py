"""The weighted colour loss of rays: what weights them, and what the weighted sum is corrected and divided by."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from inlier.integrations.nerfstudio import _robust_nerf as robust_nerf
from inlier.integrations.nerfstudio._kernel_schedule import GRADUATED, HARD, MAJORITY, current_kernel
from inlier.integrations.nerfstudio._null_model import SceneNullModel, expected_outlier_loss, null_errors
from inlier.nn import Robust

if TYPE_CHECKING:
    from inlier.integrations.nerfstudio._model import RobustNerfactoModelConfig

__all__ = ["WeightedColourLoss"]


class WeightedColourLoss(nn.Module):
    """The mean squared error of colours with a weight for each ray:

        (sum u_i e_i - what outliers are expected to add) / (zeta n),

    e_i being the squared error of ray i, mean over its channels, u_i its weight by :class:`inlier.Robust` or
    RobustNeRF's rule, n the number of rays, and zeta the current inlier fraction (1 for RobustNeRF's rule). Unless it
    is given, zeta is estimated by a :class:`inlier.fraction.NullModel`, which knows what outliers are expected to add,
    too.

    Weights come from current errors, without a running mean: a pixel is visited so rarely that its old errors are those
    of another scene, that of the first steps above all.

    Args:
        config: The options of the model.
        pixels: How many pixels there are to remember; None to remember none.
    """

    error_threshold: Tensor

    def __init__(self, config: RobustNerfactoModelConfig, pixels: int | None) -> None:
        super().__init__()
        self.config = config
        self.register_buffer("error_threshold", torch.tensor(math.inf))
        self.last_weights: Tensor | None = None
        """The weights of the rays of the last call, in its order."""
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
            running_mean=0.0,
            samples=pixels,
        )

    def forward(
        self, prediction: Tensor, target: Tensor, index: Tensor | None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the loss, and what is logged: tensors, not numbers, so that a step does not wait for the device.

        Args:
            prediction: The predicted colour of each of n rays, [n, 3].
            target: The colours of their pixels.
            index: The number of the pixel of each; None if pixels are not remembered.
        """
        config, robust = self.config, self.robust
        errors = (prediction - target).square().mean(-1)
        fraction = None if robust is None else robust.inlier_fraction  # which this step's weights add up to
        weights = self.last_weights = self._weigh(errors.detach(), index)
        weighted = torch.dot(weights, errors.detach())
        loss = torch.dot(weights, errors) / len(errors)
        numbers = {"kept_fraction": weights.mean(), "psnr_kept": -10 * (weighted / weights.sum()).log10()}
        if robust is None or fraction is None:
            return loss, numbers
        if self.null_model is not None:
            null = null_errors(prediction, target, weights)
            if config.null_correction and config.hold == 1:
                loss = loss - expected_outlier_loss(robust, null)
            self.null_model.compare(errors, null)
        if config.divide_by == "weights":
            # It goes from 1 to its target in the warm-up, and is never below SMALLEST_FRACTION.
            loss = loss / fraction.to(loss)
        return loss, numbers | {"scale": robust.scale, "inlier_fraction": robust.inlier_fraction}

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

    def harden(self) -> None:
        """Change from the soft kernel to the hard one when it is time; see the option ``kernel``.

        The inlier fraction is the same on all processes, so they change at the same step.
        """
        robust = self.robust
        if self.config.kernel != GRADUATED or robust is None or not robust.is_warm:
            return
        if not isinstance(robust.kernel, type(HARD)) and float(robust.inlier_fraction) > MAJORITY:
            robust.change_kernel(HARD)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any, **kwargs: Any) -> None:
        label = state_dict.get(prefix + "robust.kernel")
        if self.robust is not None and label is not None and self.config.kernel == GRADUATED:
            self.robust.change_kernel(current_kernel(GRADUATED, label))
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)
