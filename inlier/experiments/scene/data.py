"""Scenes on disk, as nerfstudio reads them, with corrupted training images."""

from __future__ import annotations

import hashlib
import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from inlier.experiments.datasets.corruption import CORRUPTIONS

if TYPE_CHECKING:
    from nerfstudio.data.datamanagers.base_datamanager import VanillaDataManagerConfig
    from nerfstudio.data.datasets.base_dataset import InputDataset

__all__ = ["MODEL_OPTIONS", "clean_fraction", "configure_data", "corrupt_images", "describe"]

LAYOUTS = {"nerfstudio": "transforms.json", "blender": "transforms_train.json"}
"""The layouts of a scene's folder, and the file that identifies each."""

HELD_OUT_EVERY = 8
"""Every eighth image of a scene without test images of its own is held out."""

MODEL_OPTIONS: dict[str, dict[str, Any]] = {
    "nerfstudio": {},
    "blender": {
        "background_color": "white",
        "proposal_initial_sampler": "uniform",
        "near_plane": 2.0,
        "far_plane": 6.0,
        "disable_scene_contraction": True,
        "distortion_loss_mult": 0.0,
        "use_average_appearance_embedding": False,
    },
}
"""Model options by layout: those that nerfstudio recommends for an object before a white background."""


def describe(folder: Path | None) -> dict[str, str]:
    """Return a scene's name, layout and the hash of its cameras: settings that identify its rows.

    Args:
        folder: The scene: with ``transforms.json`` (nerfstudio), or ``transforms_train.json`` (the synthetic
            scenes of NeRF).

    Raises:
        ValueError: If it is no scene.
        ModuleNotFoundError: If nerfstudio is missing.
    """
    if importlib.util.find_spec("nerfstudio") is None:
        raise ModuleNotFoundError("scenes need nerfstudio", name="nerfstudio")
    if folder is None:
        raise ValueError("data is missing: pass the folder of a scene, as in --data scenes/fox")
    for layout, name in LAYOUTS.items():
        if (folder / name).is_file():
            cameras = hashlib.sha256((folder / name).read_bytes()).hexdigest()[:16]
            return {"scene": folder.resolve().name, "layout": layout, "cameras": cameras}
    raise ValueError(f"data {str(folder)!r} is no scene: it holds neither {' nor '.join(LAYOUTS.values())}")


def configure_data(
    manager: VanillaDataManagerConfig, folder: Path, layout: str, largest_side: int | None
) -> None:
    """Configure a data manager to read a scene.

    Args:
        manager: Its configuration, which is changed.
        folder: The scene.
        layout: The layout of the folder, one of :data:`LAYOUTS`.
        largest_side: Images with more pixels in height or width are downscaled to this; None leaves them.
    """
    from nerfstudio.data.dataparsers.blender_dataparser import BlenderDataParserConfig
    from nerfstudio.data.dataparsers.nerfstudio_dataparser import NerfstudioDataParserConfig
    from PIL import Image

    manager.data = folder
    if layout == "blender":
        manager.dataparser = BlenderDataParserConfig(data=folder)
    else:
        manager.dataparser = NerfstudioDataParserConfig(
            data=folder, eval_mode="interval", eval_interval=HELD_OUT_EVERY
        )
    if largest_side is not None:
        first = manager.dataparser.setup().get_dataparser_outputs(split="train").image_filenames[0]
        with Image.open(first) as image:
            manager.camera_res_scale_factor = min(1.0, largest_side / max(image.size))


def corrupt_images(
    manager: VanillaDataManagerConfig, kind: str, rate: float, seed: int, only_clean: bool = False
) -> InputDataset:
    """Configure a data manager to train on corrupted images; those for evaluation stay clean.

    A batch then has ``corrupted``, whether the pixel of each ray is corrupted, and ``clean``, its true
    colour.

    Args:
        manager: Its configuration, which is changed.
        kind: One of :data:`inlier.experiments.datasets.corruption.CORRUPTIONS`.
        rate: The rate of corruption.
        seed: Seeds the corruption.
        only_clean: Whether rays go through clean pixels only.

    Returns:
        The corrupted images.
    """
    from nerfstudio.data.datasets.base_dataset import InputDataset

    corrupt = CORRUPTIONS[kind]
    base: Any = manager._target

    class CorruptedDataset(InputDataset):  # type: ignore[misc]
        def get_data(self, image_idx: int, image_type: Any = "float32") -> dict[str, Any]:
            data: dict[str, Any] = super().get_data(image_idx, image_type)
            clean: Tensor = data["image"]
            data["image"], corrupted = corrupt(clean, rate, self.image_filenames[image_idx].name, seed)
            data["clean"], data["corrupted"] = clean, corrupted[..., None]
            if only_clean:
                data["mask"] = ~data["corrupted"]
            return data

    class CorruptedDataManager(base):  # type: ignore[misc]
        def create_train_dataset(self) -> InputDataset:
            return CorruptedDataset(self.train_dataparser_outputs, self.config.camera_res_scale_factor)

    manager._target = CorruptedDataManager
    outputs = manager.dataparser.setup().get_dataparser_outputs(split="train")
    return CorruptedDataset(outputs, manager.camera_res_scale_factor)


def clean_fraction(images: InputDataset) -> float:
    """Return the true fraction of clean pixels in corrupted images."""
    corrupted = torch.cat([images[index]["corrupted"].reshape(-1) for index in range(len(images))])
    return 1 - float(corrupted.double().mean())
