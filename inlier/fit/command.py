"""What ``inlier fit`` was asked for: a table or pictures, and which options go with which."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

from inlier.fit import InputError, shown
from inlier.fit.common import Outcome, Say
from inlier.fit.pictures import holds_pictures
from inlier.fit.tables import look

__all__ = ["default_folder", "prepare"]


def default_folder(data: Path) -> Path:
    """Return where the output goes unless another folder is named.

    Example:
        >>> default_folder(Path("tables/houses.csv")).as_posix()
        'runs/houses-fit'
    """
    return Path("runs", f"{data.resolve().name if data.is_dir() else data.stem}-fit")


def prepare(
    data: Path,
    out: Path,
    *,
    target: str | None = None,
    task: str = "auto",
    model: str | None = None,
    epochs: int | None = None,
    inlier_fraction: float | Literal["auto"] = "auto",
    seed: int = 0,
    drop: Sequence[str] = (),
    overwrite: bool = False,
) -> tuple[int, Callable[[Say], Outcome]]:
    """Return the number of steps of a fit, and what runs it.

    Args:
        data: A table, a folder of class folders, or a Parquet file of pictures.
        out: The output folder.
        target, task, model, epochs, inlier_fraction, seed, drop, overwrite: The options of the command; None
            where one was not given.

    Raises:
        InputError: If an option does not go with the data, or a table has no target.
    """
    if holds_pictures(data, drop):
        if data.is_dir():
            if target is not None:
                raise InputError(
                    f"target {shown(target)}: {shown(data)} is a folder of classes; leave out --target"
                )
            if out.resolve().is_relative_to(data.resolve()):
                raise InputError(f"out {shown(out)} is within the pictures; choose a folder outside")
        wrong = {
            f"task {shown(task)}": task not in ("auto", "classification"),
            f"model {shown(model)}": model is not None,
            "drop": bool(drop),
        }
        for option, given in wrong.items():
            if given:
                raise InputError(f"{option} is for tables, and {shown(data)} holds pictures; leave it out")
        from inlier.fit import images

        asked = images.Request(data, out, target or "label", epochs, inlier_fraction, seed, overwrite)
        return images.STEPS, partial(images.fit, asked)
    if epochs is not None:
        look(data)
        raise InputError(f"epochs are for pictures, and {shown(data)} is a table; leave out --epochs")
    if target is None:
        names = ", ".join(map(shown, look(data).names[:8]))
        raise InputError(f"name the column to predict with --target; {shown(data)} has {names}")
    from inlier.fit import run

    request = run.Request(data, target, out, task, model or "linear", inlier_fraction, seed, drop, overwrite)
    return run.STEPS, partial(run.fit, request)
