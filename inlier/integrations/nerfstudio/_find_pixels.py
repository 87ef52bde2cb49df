"""The outlier pixels that a training with nerfstudio has found, read from its output folder.

nerfstudio's ``config.yml`` can make any Python object, and so can its checkpoints: here both are read in ways
that make none, so that an output folder from elsewhere can be inspected.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from inlier._errors import InputError
from inlier.integrations.nerfstudio._image_gains import ImageGains
from inlier.integrations.nerfstudio._kernel_schedule import current_kernel
from inlier.integrations.nerfstudio._maps import WeightedImage, write_maps
from inlier.integrations.nerfstudio._pixels import PixelIndex
from inlier.integrations.nerfstudio._silence import quiet
from inlier.nn import Robust

if TYPE_CHECKING:
    from nerfstudio.data.dataparsers.base_dataparser import DataParserConfig

__all__ = ["PixelMaps", "find"]

CLASS = "class of the object"
"""Where a mapping that stands for an object has the name of its class."""

MODEL = "_model."
"""What the model's names begin with in a checkpoint."""


@dataclass(frozen=True)
class PixelMaps:
    """What was written: the contact sheet, and maps of how many images."""

    sheet: Path
    images: int


def find(output: Path, out: Path | None = None) -> PixelMaps:
    """Write for each training image the map of its outlier pixels, and a contact sheet of all.

    Args:
        output: The output folder of a training with ``ns-train robust-nerfacto``: it holds ``config.yml``.
        out: Where to write; the folder ``suspects`` of the output unless given.

    Raises:
        InputError: If the folder is no such output, or its training remembered no pixels.
    """
    folder = output.parent if output.name == "config.yml" else output
    if not (folder / "config.yml").is_file():
        raise InputError(
            f"output {str(output)!r} holds no config.yml; name the folder that ns-train printed, like "
            "outputs/SCENE/robust-nerfacto/TIME"
        )
    config = _read_config(folder / "config.yml")
    checkpoint = _last_checkpoint(folder)
    weights = _pixel_weights(checkpoint, config["pipeline"]["model"])
    paths = _training_images(config["pipeline"]["datamanager"])
    if len(paths) != len(weights):
        raise InputError(
            f"the scene has {len(paths)} training images, but the checkpoint has {len(weights)}: the scene "
            "has changed since the training"
        )
    stops = _stops(checkpoint, len(paths))
    images = (
        WeightedImage(path.name, path, weight, stop)
        for path, weight, stop in zip(paths, weights, stops, strict=True)
    )
    title = f"{folder.parent.parent.name} · {config.get('method_name', '')}"
    return PixelMaps(write_maps(images, out or folder / "suspects", title), len(paths))


def _read_config(path: Path) -> dict[str, Any]:
    """Return nerfstudio's configuration as mappings, lists, texts, numbers and paths."""
    if importlib.util.find_spec("nerfstudio") is None:
        raise ModuleNotFoundError("maps of a scene need nerfstudio", name="nerfstudio")
    import yaml

    class Loader(yaml.SafeLoader):  # type: ignore[misc]
        pass

    def without_objects(loader: Any, kind: str, node: Any) -> Any:
        if isinstance(node, yaml.MappingNode):
            return loader.construct_mapping(node, deep=True) | {CLASS: kind.partition(":")[2]}
        if isinstance(node, yaml.SequenceNode):
            parts = loader.construct_sequence(node, deep=True)
            return Path(*parts) if kind.startswith("object/apply:pathlib.") else parts
        return loader.construct_scalar(node)

    Loader.add_multi_constructor("tag:yaml.org,2002:python/", without_objects)
    try:
        config = yaml.load(path.read_text("utf-8"), Loader)
    except (yaml.YAMLError, UnicodeDecodeError, TypeError) as error:
        raise InputError(f"{str(path)!r} cannot be read: {' '.join(str(error).split())}") from None
    pipeline = config.get("pipeline") if isinstance(config, dict) else None
    if not isinstance(pipeline, dict) or not {"model", "datamanager"} <= pipeline.keys():
        raise InputError(f"{str(path)!r} is no configuration of a training with nerfstudio")
    return dict(config)


def _last_checkpoint(folder: Path) -> dict[str, Tensor]:
    """Return the state of the pipeline in the last checkpoint."""
    import numpy as np

    paths = sorted(folder.glob("*/step-*.ckpt"))
    if not paths:
        raise InputError(f"output {str(folder)!r} holds no checkpoint; let ns-train run until it saves one")
    # The learning rate in a checkpoint is a number of NumPy's; nothing else is allowed.
    multiarray = importlib.import_module("numpy._core.multiarray")
    numbers = [multiarray.scalar, np.dtype, *(type(np.dtype(kind)) for kind in "fdlq")]
    with torch.serialization.safe_globals(numbers):
        try:
            state = torch.load(paths[-1], map_location="cpu", weights_only=True)
        except Exception as error:
            raise InputError(f"checkpoint {str(paths[-1])!r} cannot be read: {error}") from None
    return dict(state["pipeline"])


def _pixel_weights(state: dict[str, Tensor], model: dict[str, Any]) -> list[Tensor]:
    """Return the weight of each pixel of each training image, by what the checkpoint remembers."""
    start = f"{MODEL}colours.robust."
    remembered = {name.removeprefix(start): x for name, x in state.items() if name.startswith(start)}
    if not remembered.get("memory.mean", torch.empty(0)).numel():
        raise InputError(
            "the training remembered no pixels: train robust-nerfacto with the rule adaptive or both"
        )
    robust = Robust(current_kernel(model["kernel"], remembered.get("kernel")), inlier_fraction=1.0)
    try:
        robust.load_state_dict(remembered)
    except ValueError as error:
        raise InputError(f"{error}; was it saved by another version of inlier?") from None
    pixels, weights = PixelIndex(state[f"{MODEL}camera_sizes"]), robust.inlier_probability()
    return [pixels.image(weights, image) for image in range(len(pixels.sizes))]


def _stops(state: dict[str, Tensor], images: int) -> list[float]:
    """Return by how many stops each training image is brighter than the others."""
    gains = ImageGains(images)
    sums = state.get(f"{MODEL}image_gains.sums")
    if sums is not None and sums.shape == gains.sums.shape:
        gains.sums.copy_(sums)
    return [float(gain) for gain in gains.gains().log2().mean(1)]


def _training_images(manager: dict[str, Any]) -> list[Path]:
    """Return the paths of the training images, in the order of the training."""
    with quiet():
        from nerfstudio.configs.dataparser_configs import all_dataparsers

    wanted = manager["dataparser"]
    kinds: dict[str, DataParserConfig] = {
        f"{type(parser).__module__}.{type(parser).__qualname__}": parser
        for parser in all_dataparsers.values()
    }
    if wanted.get(CLASS) not in kinds:
        raise InputError(f"data parser {wanted.get(CLASS)!r} is not one of nerfstudio's")
    parser = dataclasses.replace(kinds[wanted[CLASS]])
    for name in (field.name for field in dataclasses.fields(parser)):
        value = wanted.get(name)
        if not name.startswith("_") and isinstance(value, bool | int | float | str | PurePath):
            setattr(parser, name, value)
    if isinstance(manager.get("data"), PurePath):
        parser.data = manager["data"]
    with quiet():
        return list(parser.setup().get_dataparser_outputs(split="train").image_filenames)
