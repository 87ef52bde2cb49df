"""One training of a scene: Nerfacto on corrupted photos by one of the methods, and what came out."""

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

from inlier.experiments.scene_data import MODEL_OPTIONS, corrupted_photos, read_into, right_fraction
from inlier.rivals.clipping import clipping_factor, global_norm, normalising_factor
from inlier.scenes.quiet import quiet

__all__ = ["METHODS", "Method", "Outcome", "probe_loss", "restored", "train"]

LAST_PART = 0.2
"""Kept rays are scored over this last part of the steps."""

PROBES = 4096
"""Training rays that are kept with a model, to measure losses on later."""

VIEWS = 3
"""Held-out views that are kept with a model."""


@dataclass(frozen=True)
class Method:
    """What a method changes of Nerfacto's training.

    Args:
        rule: How rays are believed; see the model's option of that name.
        kernel: The kernel of the adaptive rule; the plugin's own unless given.
        told: Whether it is told the true fraction of right pixels.
        held: Whether weights are held for some steps.
        gradient: From the norm of all gradients to what they are multiplied by.
        only_right: Whether it is told which pixels are right, and sees no others.
    """

    rule: Literal["adaptive", "robustnerf", "both", "none"] = "none"
    kernel: str | None = None
    told: bool = False
    held: bool = False
    gradient: Callable[[Tensor, float], Tensor] | None = None
    only_right: bool = False


METHODS = {
    "adam": Method(),
    "gradient-clipping": Method(gradient=clipping_factor),
    "normalised-gradient": Method(gradient=lambda norm, limit: limit * normalising_factor(norm)),
    "adaptive-tl": Method("adaptive", "truncated", told=True),
    "adaptive-gm": Method("adaptive", "geman-mcclure", told=True),
    "adaptive-t-gm": Method("adaptive", "geman-mcclure", told=True, held=True),
    # Out of the box: nothing given.
    "robust": Method("adaptive"),
    # Told nothing, with one kernel throughout.
    "robust-geman-mcclure": Method("adaptive", "geman-mcclure"),
    "robust-truncated": Method("adaptive", "truncated"),
    "robustnerf": Method("robustnerf"),
    # The vote of neighbours and patches on our weights.
    "both": Method("both"),
    # What could be had at best: as many right rays as the others see, and no wrong ones.
    "right-rays-only": Method(only_right=True),
}
"""The methods by name."""


@dataclass(frozen=True)
class Outcome:
    """What came out of a training.

    Args:
        metrics: Numbers by name.
        kept: Tensors to draw figures from: the trained fields, probe rays and held-out views.
    """

    metrics: dict[str, float]
    kept: dict[str, Tensor]


def train(method: Method, scene: Path, rate: float, seed: int, settings: Mapping[str, Any]) -> Outcome:
    """Train Nerfacto on a corrupted scene, and evaluate it on clean held-out photos.

    Args:
        method: How.
        scene: The folder of the scene.
        rate: The rate of corruption.
        seed: Of the corruption and of the training.
        settings: Those of a preset; see :mod:`inlier.experiments.scene`.
    """
    with quiet():
        device = "cuda" if torch.cuda.is_available() else "cpu"
        random.seed(seed)
        torch.manual_seed(seed)
        config, right = _configuration(method, scene, rate, seed, settings)
        pipeline = config.pipeline.setup(device=device)
        kept_rays = _fit(pipeline, config, method, settings)
        views = _views(pipeline, settings["held_out"])
        names = ("psnr", "ssim", "lpips")
        metrics = {name: statistics.fmean(view[name] for view in views) for name in names}
        metrics |= kept_rays | {"right_pixels": right}
        return Outcome(metrics, _keep(pipeline, views, seed))


def _configuration(
    method: Method, scene: Path, rate: float, seed: int, settings: Mapping[str, Any]
) -> tuple[Any, float]:
    """Return nerfstudio's configuration of a training, and the true fraction of right pixels."""
    from nerfstudio.data.datamanagers.base_datamanager import VanillaDataManagerConfig

    config = _base(settings)
    # The stock method reads ahead in another process, which pays for large photos only.
    manager = config.pipeline.datamanager = VanillaDataManagerConfig(
        train_num_rays_per_batch=settings["rays"], eval_num_rays_per_batch=settings["rays"]
    )
    read_into(manager, scene, settings["layout"], settings["largest_side"])
    right = right_fraction(corrupted_photos(manager, settings["corruption"], rate, seed, method.only_right))
    model = config.pipeline.model
    model.rule = method.rule
    if method.kernel is not None:
        model.kernel = method.kernel
    if method.held:
        model.hold = settings["hold"]
    if method.told:
        # The paper's own methods, without what was added to them.
        model.inlier_fraction, model.chance_correction = right, False
    if method.only_right:
        manager.train_num_rays_per_batch = max(1, round(right * settings["rays"]))
    for name, group in config.optimizers.items():
        if name != "camera_opt":
            group["optimizer"].lr = settings["step_size"]
            group["scheduler"].lr_final = settings["last_step_size"]
            group["scheduler"].max_steps = settings["decay_steps"]
    return config, right


def _base(settings: Mapping[str, Any]) -> Any:
    """Return the configuration that all methods share, without the scene's photos."""
    from inlier.integrations.nerfstudio.configs import robust_nerfacto, robust_nerfacto_tiny

    config = {"tiny": robust_nerfacto_tiny, "stock": robust_nerfacto}[settings["size"]]()
    model = config.pipeline.model
    for name, value in (MODEL_OPTIONS[settings["layout"]] | settings.get("model", {})).items():
        if not hasattr(model, name):
            raise ValueError(f"model option {name!r} is unknown; see RobustNerfactoModelConfig")
        setattr(model, name, value)
    return config


def _fit(pipeline: Any, config: Any, method: Method, settings: Mapping[str, Any]) -> dict[str, float]:
    """Train; return how well rays were kept over the last part."""
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
    batches = _remember_batches(pipeline)
    score = torch.zeros(3, dtype=torch.float64)
    pipeline.train()
    for step in range(steps):
        for callback in callbacks:
            callback.run_callback_at_location(step, TrainingCallbackLocation.BEFORE_TRAIN_ITERATION)
        optimizers.zero_grad_all()
        with torch.autocast(device.type, enabled=mixed):
            _, losses, _ = pipeline.get_train_loss_dict(step)
            loss = functools.reduce(torch.add, losses.values())
        scaler.scale(loss).backward()
        if method.gradient is not None:
            for optimizer in optimizers.optimizers.values():
                scaler.unscale_(optimizer)
            gradients = [p.grad for group in groups.values() for p in group if p.grad is not None]
            factor = method.gradient(global_norm(gradients), settings["gradient_limit"])
            for gradient in gradients:
                gradient.mul_(factor)
        optimizers.optimizer_scaler_step_all(scaler)
        scaler.update()
        for scheduler in optimizers.schedulers.values():
            scheduler.step()
        for callback in callbacks:
            callback.run_callback_at_location(step, TrainingCallbackLocation.AFTER_TRAIN_ITERATION)
        if step >= int((1 - LAST_PART) * steps):
            score += _score(pipeline.model.last_kept, batches.pop())
        batches.clear()
    weight, right_weight, right = score.tolist()
    robust = pipeline.model.robust
    return {
        "precision": right_weight / weight if weight else math.nan,
        "recall": right_weight / right if right else math.nan,
        "estimated_fraction": math.nan if robust is None else float(robust.inlier_fraction),
    }


def _remember_batches(pipeline: Any) -> list[Tensor]:
    """Have the data manager put which rays are wrong into the list that is returned, batch by batch."""
    seen: list[Tensor] = []
    next_train = pipeline.datamanager.next_train

    def remember(step: int) -> Any:
        rays, batch = next_train(step)
        seen.append(batch["corrupted"].reshape(-1))
        return rays, batch

    pipeline.datamanager.next_train = remember
    return seen


def _score(weights: Tensor | None, wrong: Tensor) -> Tensor:
    """Return the sums of weights, of right rays' weights, and of right rays; without weights all are 1."""
    right = (~wrong).double().cpu()
    weights = torch.ones_like(right) if weights is None else weights.detach().double().cpu()
    return torch.stack([weights.sum(), (weights * right).sum(), right.sum()])


@torch.no_grad()
def _views(pipeline: Any, count: int | None) -> list[dict[str, Any]]:
    """Render held-out photos, evenly spread, and measure each; photo and view come with the metrics."""
    dataset, model = pipeline.datamanager.eval_dataset, pipeline.model
    count = min(count or len(dataset), len(dataset))
    chosen = [place * len(dataset) // count for place in range(count)]
    pipeline.eval()
    views = []
    for number in chosen:
        photo = dataset.get_data(number)
        outputs = model.get_outputs_for_camera(dataset.cameras[number : number + 1].to(model.device))
        metrics, _ = model.get_image_metrics_and_images(outputs, photo)
        views.append(metrics | {"view": outputs["rgb"].cpu(), "photo": photo["image"][..., :3]})
    pipeline.train()
    return views


def _keep(pipeline: Any, views: list[dict[str, Any]], seed: int) -> dict[str, Tensor]:
    """Return what figures are drawn from: fields, probe rays, the first views as bytes."""
    model, manager = pipeline.model, pipeline.datamanager
    kept = {
        f"model.{name}": value.detach().cpu().clone()
        for name, value in model.state_dict().items()
        if name.startswith(("field.", "proposal_networks."))
    }
    kept["scene_box"] = manager.train_dataset.scene_box.aabb.cpu().clone()
    kept["photos"] = torch.tensor(len(manager.train_dataset))
    # The same rays for every method that trains on these photos with this seed.
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
        kept[f"probe.{name}"] = torch.cat([part[name] for part in parts])[:PROBES].cpu().contiguous()
    for number, view in enumerate(views[:VIEWS]):
        for name in ("view", "photo"):
            kept[f"{name}.{number}"] = (255 * view[name].clamp(0, 1)).round().byte().contiguous()
    return kept


def restored(kept: Mapping[str, Tensor], settings: Mapping[str, Any]) -> Any:
    """Return the trained model of what was kept of a training, for evaluation.

    Args:
        kept: See :class:`Outcome`.
        settings: Those it was trained with.
    """
    with quiet():
        from nerfstudio.data.scene_box import SceneBox

        from inlier.integrations.nerfstudio.hash_grid import quicken

        config = _base(settings).pipeline.model
        config.rule = "none"
        model = config.setup(
            scene_box=SceneBox(kept["scene_box"]),
            num_train_data=int(kept["photos"]),
            metadata={},
            device="cpu",
        )
        weights = {name.removeprefix("model."): x for name, x in kept.items() if name.startswith("model.")}
        missing, unexpected = model.load_state_dict(weights, strict=False)
        lost = [name for name in missing if name.startswith(("field.", "proposal_networks."))]
        if lost or unexpected:
            raise ValueError(f"the kept model lacks {lost} or has too much: {unexpected}")
        quicken(model)
        return model.eval()


def probe_loss(model: Any, kept: Mapping[str, Tensor], target: str) -> Tensor:
    """Return the mean squared error of a model on kept training rays.

    Args:
        model: See :func:`restored`.
        kept: Holds the rays.
        target: "given", the colours that it was trained with, or "clean", those before the corruption.
    """
    from nerfstudio.cameras.rays import RayBundle

    names = ("origins", "directions", "pixel_area", "camera_indices")
    rays = RayBundle(**{name: kept[f"probe.{name}"] for name in names})
    loss: Tensor = (model(rays)["rgb"] - kept[f"probe.{target}"]).square().mean()
    return loss
