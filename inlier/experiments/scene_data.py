"""Scenes on disk, as nerfstudio reads them, with corrupted training photos."""

from __future__ import annotations

import hashlib
import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from inlier.scenes.corruption import CORRUPTIONS

if TYPE_CHECKING:
    from nerfstudio.data.datamanagers.base_datamanager import VanillaDataManagerConfig
    from nerfstudio.data.datasets.base_dataset import InputDataset

__all__ = ["MODEL_OPTIONS", "corrupted_photos", "describe", "read_into", "right_fraction"]

LAYOUTS = {"nerfstudio": "transforms.json", "blender": "transforms_train.json"}
"""The layouts of a scene's folder, and the file that each is known by."""

HELD_OUT_EVERY = 8
"""Every eighth photo of a scene that names no test photos is held out."""

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
"""Options of the model for each layout: what nerfstudio advises for an object before a white wall."""


def describe(folder: Path | None) -> dict[str, str]:
    """Return a scene's name, layout and the hash of its cameras: what tells results of two scenes apart.

    Args:
        folder: The scene: with ``transforms.json`` (nerfstudio), or ``transforms_train.json`` (the synthetic
            scenes of NeRF).

    Raises:
        ValueError: If it is no scene.
        ModuleNotFoundError: If nerfstudio is missing: better now than in every row.
    """
    if importlib.util.find_spec("nerfstudio") is None:
        raise ModuleNotFoundError("scenes need nerfstudio", name="nerfstudio")
    if folder is None:
        raise ValueError("data is missing: name the folder of a scene, as in --data scenes/fox")
    for layout, name in LAYOUTS.items():
        if (folder / name).is_file():
            cameras = hashlib.sha256((folder / name).read_bytes()).hexdigest()[:16]
            return {"scene": folder.resolve().name, "layout": layout, "cameras": cameras}
    raise ValueError(f"data {str(folder)!r} is no scene: it holds neither {' nor '.join(LAYOUTS.values())}")


def read_into(manager: VanillaDataManagerConfig, folder: Path, layout: str, largest_side: int | None) -> None:
    """Have a data manager read a scene.

    Args:
        manager: Its configuration, which is changed.
        folder: The scene.
        layout: Of the folder, out of :data:`LAYOUTS`.
        largest_side: Photos with more pixels in height or width are reduced to this; None leaves them.
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


def corrupted_photos(
    manager: VanillaDataManagerConfig, kind: str, rate: float, seed: int, only_right: bool = False
) -> InputDataset:
    """Have a data manager train on corrupted photos; those for evaluation stay clean.

    Each ray then comes with ``corrupted``, whether its pixel is wrong, and ``clean``, the colour it had.

    Args:
        manager: Its configuration, which is changed.
        kind: A name out of :data:`inlier.scenes.corruption.CORRUPTIONS`.
        rate: The rate of corruption.
        seed: Of the draw.
        only_right: Whether rays go through right pixels only.

    Returns:
        The corrupted photos.
    """
    from nerfstudio.data.datasets.base_dataset import InputDataset

    corrupt = CORRUPTIONS[kind]
    stock: Any = manager._target

    class Corrupted(InputDataset):  # type: ignore[misc]
        def get_data(self, image_idx: int, image_type: Any = "float32") -> dict[str, Any]:
            data: dict[str, Any] = super().get_data(image_idx, image_type)
            clean: Tensor = data["image"]
            data["image"], wrong = corrupt(clean, rate, self.image_filenames[image_idx].name, seed)
            data["clean"], data["corrupted"] = clean, wrong[..., None]
            if only_right:
                data["mask"] = ~data["corrupted"]
            return data

    class Manager(stock):  # type: ignore[misc]
        def create_train_dataset(self) -> InputDataset:
            return Corrupted(self.train_dataparser_outputs, self.config.camera_res_scale_factor)

    manager._target = Manager
    outputs = manager.dataparser.setup().get_dataparser_outputs(split="train")
    return Corrupted(outputs, manager.camera_res_scale_factor)


def right_fraction(photos: InputDataset) -> float:
    """Return the true fraction of right pixels in corrupted photos."""
    wrong = torch.cat([photos[number]["corrupted"].reshape(-1) for number in range(len(photos))])
    return 1 - float(wrong.double().mean())
