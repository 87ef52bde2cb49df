"""Nerfstudio's pipeline, which shows the model the sizes of the training images."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from nerfstudio.data.pixel_samplers import PatchPixelSamplerConfig
from nerfstudio.pipelines.base_pipeline import VanillaPipeline, VanillaPipelineConfig

from inlier.integrations.nerfstudio._hash_grid import quicken

__all__ = ["RobustPipeline", "RobustPipelineConfig"]


@dataclass
class RobustPipelineConfig(VanillaPipelineConfig):  # type: ignore[misc]
    """The options of nerfstudio's pipeline."""

    _target: type = field(default_factory=lambda: RobustPipeline)


class RobustPipeline(VanillaPipeline):  # type: ignore[misc]
    """Nerfstudio's pipeline; rays come in patches where the model's rule needs them."""

    def __init__(self, config: RobustPipelineConfig, device: str, *args: Any, **kwargs: Any) -> None:
        if device.startswith("cuda") and not torch.cuda.is_available():
            raise SystemExit(
                "inlier: no GPU was found: train with robust-nerfacto-tiny, or with --machine.device-type "
                "cpu --pipeline.model.implementation torch, which is slow"
            )
        if config.model.needs_patches:
            _sample_patches(config.datamanager, config.model.robust_patch)
        _let_checkpoints_hold_numbers()
        super().__init__(config, device, *args, **kwargs)
        self.model.know_images(self.datamanager.train_dataset.cameras)
        if device == "cpu":
            quicken(self.model)


def _sample_patches(manager: Any, patch: int) -> None:
    if manager.train_num_rays_per_batch < patch**2:
        raise ValueError(
            f"train_num_rays_per_batch = {manager.train_num_rays_per_batch}: the rule needs at least one "
            f"patch of {patch} x {patch} rays"
        )
    # Not by the manager's patch_size: nerfstudio would round the number of rays to patches of 32 x 32.
    manager.pixel_sampler = PatchPixelSamplerConfig(patch_size=patch)


def _let_checkpoints_hold_numbers() -> None:
    """Let torch.load read the NumPy numbers that nerfstudio's schedulers leave in checkpoints, and no
    more."""
    scalar: Any = np.float64(0).__reduce__()[0]
    torch.serialization.add_safe_globals([scalar, np.dtype, type(np.dtype(np.float64))])
