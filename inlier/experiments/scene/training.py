"""One training of a scene: Nerfacto on corrupted images with one of the methods, and its evaluation."""

from __future__ import annotations

import functools
import math
import random
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from inlier.experiments.baselines.clipping import clipping_factor, global_norm, normalizing_factor
from inlier.experiments.scene.data import MODEL_OPTIONS, clean_fraction, configure_data, corrupt_images
from inlier.integrations.nerfstudio._silence import quiet

__all__ = ["METHODS", "SceneMethod", "SceneResult", "probe_loss", "restore_model", "train_scene"]

SCORED_PART = 0.2
"""Precision and recall of the weights are measured over this last part of the steps."""

PROBES = 4096
"""Training rays that are saved with a model, to measure losses on later."""

VIEWS = 3
"""Held-out views that are saved with a model."""


@dataclass(frozen=True)
class SceneMethod:
    """What a method changes in Nerfacto's training.

    Args:
        rule: How rays are weighted; see the model's option of that name.
        kernel: The kernel of the adaptive rule; the plugin's own by default.
        given_fraction: Whether it is given the true fraction of clean pixels.
        held: Whether weights are held for some steps (AAA_T).
        gradient_factor: From the norm of all gradients, and the limit of the settings, to their factor.
        only_clean: Whether it trains on clean pixels only: the oracle.
        image_gains: Whether each image has a gain for each colour.
    """

    rule: Literal["adaptive", "robustnerf", "both", "none"] = "none"
    kernel: str | None = None
    given_fraction: bool = False
    held: bool = False
    gradient_factor: Callable[[Tensor, float], Tensor] | None = None
    only_clean: bool = False
    image_gains: bool = False


METHODS = {
    "adam": SceneMethod(),
    "gradient-clipping": SceneMethod(gradient_factor=clipping_factor),
    "normalized-gradient": SceneMethod(gradient_factor=lambda norm, limit: limit * normalizing_factor(norm)),
    "adaptive-tl": SceneMethod("adaptive", "truncated", given_fraction=True),
    "adaptive-gm": SceneMethod("adaptive", "geman-mcclure", given_fraction=True),
    "adaptive-t-gm": SceneMethod("adaptive", "geman-mcclure", given_fraction=True, held=True),
    # Out of the box: no prior knowledge.
    "robust": SceneMethod("adaptive"),
    # The same, with one kernel throughout.
    "robust-geman-mcclure": SceneMethod("adaptive", "geman-mcclure"),
    "robust-truncated": SceneMethod("adaptive", "truncated"),
    # The same, with the exposure of each image.
    "robust-image-gains": SceneMethod("adaptive", image_gains=True),
    "robustnerf": SceneMethod("robustnerf"),
    # RobustNeRF's votes of neighbours and patches on the weights of `robust`.
    "both": SceneMethod("both"),
    # The oracle: as many clean rays as the others see, and no corrupted ones.
    "clean-rays-only": SceneMethod(only_clean=True),
}
"""The methods by name."""


@dataclass(frozen=True)
class SceneResult:
    """The result of a training.

    Args:
        metrics: Metrics by name.
        artifacts: Tensors for the figures: the trained fields, probe rays and held-out views.
    """

    metrics: dict[str, float]
    artifacts: dict[str, Tensor]


Watch = Callable[[int, Any, Mapping[str, Any], Mapping[str, Any]], None]
"""Called after each step with its number (1, 2, ...), the pipeline, the outputs of its rays and their batch."""


def train_scene(
    method: SceneMethod,
    scene: Path,
    rate: float,
    seed: int,
    settings: Mapping[str, Any],
    watch: Watch | None = None,
) -> SceneResult:
    """Train Nerfacto on a corrupted scene, and evaluate it on clean held-out images.

    Args:
        method: The method.
        scene: The folder of the scene.
        rate: The rate of corruption.
        seed: Seeds the corruption and the training.
        settings: Settings of a preset; see :mod:`inlier.experiments.scene.experiment`.
        watch: What is to see each step.
    """
    with quiet():
        device = "cuda" if torch.cuda.is_available() else "cpu"
        random.seed(seed)
        torch.manual_seed(seed)
        config, clean = _configuration(method, scene, rate, seed, settings)
        pipeline = config.pipeline.setup(device=device)
        scores = _fit(pipeline, config, method, settings, watch)
        views = _views(pipeline, settings["held_out"])
        names = ("psnr", "ssim", "lpips")
        metrics = {name: statistics.fmean(view[name] for view in views) for name in names}
        metrics |= scores | {"clean_pixels": clean}
        return SceneResult(metrics, _artifacts(pipeline, views, seed))


def _configuration(
    method: SceneMethod, scene: Path, rate: float, seed: int, settings: Mapping[str, Any]
) -> tuple[Any, float]:
    """Return nerfstudio's configuration of a training, and the true fraction of clean pixels."""
    from nerfstudio.data.datamanagers.base_datamanager import VanillaDataManagerConfig

    config = _base(settings)
    # The stock method prefetches in another process, which pays for large images only.
    manager = config.pipeline.datamanager = VanillaDataManagerConfig(
        train_num_rays_per_batch=settings["rays"], eval_num_rays_per_batch=settings["rays"]
    )
    configure_data(manager, scene, settings["layout"], settings["largest_side"])
    clean = clean_fraction(corrupt_images(manager, settings["corruption"], rate, seed, method.only_clean))
    model = config.pipeline.model
    model.rule, model.image_gains = method.rule, method.image_gains
    if method.kernel is not None:
        model.kernel = method.kernel
    if method.held:
        model.hold = settings["hold"]
    if method.given_fraction:
        # The paper's own methods, without the null model; the loss is divided by the number of rays.
        model.inlier_fraction, model.null_correction = clean, False
        model.divide_by = "samples"
    if method.only_clean:
        manager.train_num_rays_per_batch = max(1, round(clean * settings["rays"]))
    for name, group in config.optimizers.items():
        if name != "camera_opt":
            group["optimizer"].lr = settings["step_size"]
            group["scheduler"].lr_final = settings["last_step_size"]
            group["scheduler"].max_steps = settings["decay_steps"]
    return config, clean


def _base(settings: Mapping[str, Any]) -> Any:
    """Return the configuration that all methods share, without the data of the scene."""
    from inlier.integrations.nerfstudio._configs import robust_nerfacto, robust_nerfacto_tiny

    config = {"tiny": robust_nerfacto_tiny, "stock": robust_nerfacto}[settings["size"]]()
    model = config.pipeline.model
    for name, value in (MODEL_OPTIONS[settings["layout"]] | settings.get("model", {})).items():
        if not hasattr(model, name):
            raise ValueError(f"model option {name!r} is unknown; see RobustNerfactoModelConfig")
        setattr(model, name, value)
    return config


def _fit(
    pipeline: Any, config: Any, method: SceneMethod, settings: Mapping[str, Any], watch: Watch | None
) -> dict[str, float]:
    """Train; return precision and recall of the weights over the last part, and the estimated fraction."""
    from nerfstudio.engine.callbacks import TrainingCallbackAttributes, TrainingCallbackLocation
    from nerfstudio.engine.optimizers import Optimizers

    steps, device = settings["steps"], torch.device(pipeline.device)
    mixed = config.mixed_precision and device.type == "cuda"
    scaler = torch.amp.GradScaler(device.type, enabled=mixed)
    groups = {name: group for name, group in pipeline.get_param_groups().items() if group}
    optimizers = Optimizers(dict(config.optimizers), groups)
    callbacks = pipeline.get_training_callbacks(
        TrainingCallbackAttributes(optimizers=optimizers, grad_scaler=scaler, pipeline=pipeline, trainer=None)
    )
    batches = _record_batches(pipeline)
    sums = torch.zeros(3, dtype=torch.float64)
    pipeline.train()
    for step in range(steps):
        for callback in callbacks:
            callback.run_callback_at_location(step, TrainingCallbackLocation.BEFORE_TRAIN_ITERATION)
        optimizers.zero_grad_all()
        with torch.autocast(device.type, enabled=mixed):
            outputs, losses, _ = pipeline.get_train_loss_dict(step)
            loss = functools.reduce(torch.add, losses.values())
        scaler.scale(loss).backward()
        if method.gradient_factor is not None:
            for optimizer in optimizers.optimizers.values():
                scaler.unscale_(optimizer)
            gradients = [p.grad for group in groups.values() for p in group if p.grad is not None]
            factor = method.gradient_factor(global_norm(gradients), settings["gradient_limit"])
            for gradient in gradients:
                gradient.mul_(factor)
        optimizers.optimizer_scaler_step_all(scaler)
        scaler.update()
        for scheduler in optimizers.schedulers.values():
            scheduler.step()
        for callback in callbacks:
            callback.run_callback_at_location(step, TrainingCallbackLocation.AFTER_TRAIN_ITERATION)
        batch = batches.pop()
        if step >= int((1 - SCORED_PART) * steps):
            sums += _weight_sums(pipeline.model.last_kept, batch["corrupted"].reshape(-1))
        if watch is not None:
            watch(step + 1, pipeline, outputs, batch)
    weight, clean_weight, clean = sums.tolist()
    robust = pipeline.model.robust
    return {
        "precision": clean_weight / weight if weight else math.nan,
        "recall": clean_weight / clean if clean else math.nan,
        "estimated_fraction": math.nan if robust is None else float(robust.inlier_fraction),
    }


def _record_batches(pipeline: Any) -> list[dict[str, Any]]:
    """Return a list to which the data manager appends each batch."""
    batches: list[dict[str, Any]] = []
    next_train = pipeline.datamanager.next_train

    def recording_next_train(step: int) -> Any:
        rays, batch = next_train(step)
        batches.append(batch)
        return rays, batch

    pipeline.datamanager.next_train = recording_next_train
    return batches


def _weight_sums(weights: Tensor | None, corrupted: Tensor) -> Tensor:
    """Return the sum of weights, that of clean rays' weights, and the number of clean rays."""
    clean = (~corrupted).double().cpu()
    weights = torch.ones_like(clean) if weights is None else weights.detach().double().cpu()
    return torch.stack([weights.sum(), (weights * clean).sum(), clean.sum()])


@torch.no_grad()
def _views(pipeline: Any, count: int | None) -> list[dict[str, Any]]:
    """Render held-out images, evenly spread; return metrics, view and true image of each."""
    dataset, model = pipeline.datamanager.eval_dataset, pipeline.model
    count = min(count or len(dataset), len(dataset))
    chosen = [number * len(dataset) // count for number in range(count)]
    pipeline.eval()
    views = []
    for index in chosen:
        data = dataset.get_data(index)
        outputs = model.get_outputs_for_camera(dataset.cameras[index : index + 1].to(model.device))
        metrics, _ = model.get_image_metrics_and_images(outputs, data)
        views.append(metrics | {"view": outputs["rgb"].cpu(), "image": data["image"][..., :3]})
    pipeline.train()
    return views


def _artifacts(pipeline: Any, views: list[dict[str, Any]], seed: int) -> dict[str, Tensor]:
    """Return the tensors for the figures: fields, probe rays, the first views as bytes."""
    model, manager = pipeline.model, pipeline.datamanager
    artifacts = {
        f"model.{name}": value.detach().cpu().clone()
        for name, value in model.state_dict().items()
        if name.startswith(("field.", "proposal_networks."))
    }
    artifacts["scene_box"] = manager.train_dataset.scene_box.aabb.cpu().clone()
    artifacts["images"] = torch.tensor(len(manager.train_dataset))
    # The same rays for every method that trains on these images with this seed.
    torch.manual_seed(seed)
    random.seed(seed)
    parts: list[dict[str, Tensor]] = []
    while sum(len(part["given"]) for part in parts) < PROBES:
        rays, batch = manager.next_train(0)
        part = {
            name: getattr(rays, name) for name in ("origins", "directions", "pixel_area", "camera_indices")
        }
        parts.append(part | {"given": batch["image"][:, :3], "clean": batch["clean"][:, :3]})
    for name in parts[0]:
        artifacts[f"probe.{name}"] = torch.cat([part[name] for part in parts])[:PROBES].cpu().contiguous()
    for number, view in enumerate(views[:VIEWS]):
        for name in ("view", "image"):
            artifacts[f"{name}.{number}"] = (255 * view[name].clamp(0, 1)).round().byte().contiguous()
    return artifacts


def restore_model(artifacts: Mapping[str, Tensor], settings: Mapping[str, Any]) -> Any:
    """Return the trained model of the artifacts of a training, in evaluation mode.

    Args:
        artifacts: See :class:`SceneResult`.
        settings: The settings of the training.
    """
    with quiet():
        from nerfstudio.data.scene_box import SceneBox

        from inlier.integrations.nerfstudio._hash_grid import quicken

        config = _base(settings).pipeline.model
        config.rule = "none"
        model = config.setup(
            scene_box=SceneBox(artifacts["scene_box"]),
            num_train_data=int(artifacts["images"]),
            metadata={},
            device="cpu",
        )
        weights = {
            name.removeprefix("model."): x for name, x in artifacts.items() if name.startswith("model.")
        }
        missing, unexpected = model.load_state_dict(weights, strict=False)
        lost = [name for name in missing if name.startswith(("field.", "proposal_networks."))]
        if lost or unexpected:
            raise ValueError(f"the saved model lacks {lost} or has unexpected tensors: {unexpected}")
        quicken(model)
        return model.eval()


@torch.no_grad()
def probe_loss(model: Any, artifacts: Mapping[str, Tensor], target: str) -> Tensor:
    """Return the mean squared error of a model on saved training rays.

    Args:
        model: See :func:`restore_model`.
        artifacts: Has the rays.
        target: "given", the colours of the training, or "clean", those before the corruption.
    """
    from nerfstudio.cameras.rays import RayBundle

    names = ("origins", "directions", "pixel_area", "camera_indices")
    rays = RayBundle(**{name: artifacts[f"probe.{name}"] for name in names})
    loss: Tensor = (model(rays)["rgb"] - artifacts[f"probe.{target}"]).square().mean()
    return loss
