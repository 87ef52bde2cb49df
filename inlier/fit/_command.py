"""Which fit ``inlier fit`` runs, that of a table or of images, and which options apply to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

from inlier._errors import InputError, quoted
from inlier.fit._common import FitSummary, Progress
from inlier.fit._image_data import holds_images
from inlier.fit._tables import Limits, first_table, inspect_table

__all__ = ["default_output_folder", "plan_fit"]

COMPRESSED = (".gz", ".zst", ".bz2")


def default_output_folder(data: Path) -> Path:
    """Return the output folder unless another one is named.

    Example:
        >>> default_output_folder(Path("tables/houses.csv.gz")).as_posix()
        'runs/houses-fit'
    """
    if data.is_dir():
        return Path("runs", f"{data.resolve().name}-fit")
    uncompressed = data.with_suffix("") if data.suffix.lower() in COMPRESSED else data
    return Path("runs", f"{uncompressed.stem}-fit")


def plan_fit(
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
    encoding: str | None = None,
    limits: Limits | None = None,
    decisions: Path | None = None,
    encoder: str | None = None,
    errors: str = "target",
) -> tuple[int, Callable[[Progress], FitSummary]]:
    """Return the number of steps of a fit, and the function that runs it.

    Args:
        data: A table, a folder of class folders, or a Parquet file of images.
        out: The output folder.
        target, task, model, epochs, inlier_fraction, seed, drop, overwrite, encoding, limits,
            decisions, encoder, errors: The options of the command; None where one was not given.

    Raises:
        InputError: If an option does not apply to the data, or a table has no target.
    """
    if holds_images(data, drop):
        if data.is_dir():
            if target is not None:
                found = first_table(data)
                if found:
                    raise InputError(f"{quoted(data)} is a folder without Parquet files; name {found}")
                if not any(data.iterdir()):
                    raise InputError(f"{quoted(data)} is an empty folder; name a table")
                raise InputError(
                    f"target {quoted(target)}: {quoted(data)} is a folder of classes; omit --target"
                )
            if out.resolve().is_relative_to(data.resolve()):
                raise InputError(f"out {quoted(out)} is inside the folder of images; choose one outside")
        unsupported = {
            f"task {quoted(task)}": task not in ("auto", "classification"),
            f"model {quoted(model)}": model is not None,
            "drop": bool(drop),
            f"errors {quoted(errors)}": errors != "target",
        }
        for option, given in unsupported.items():
            if given:
                raise InputError(f"{option} applies to tables, and {quoted(data)} holds images; omit it")
        from inlier.fit import _image_fit

        images = _image_fit.ImageFitOptions(
            data, out, target or "label", epochs, inlier_fraction, seed, overwrite, encoder, decisions
        )
        return _image_fit.STEPS, partial(_image_fit.fit_images, images)
    if epochs is not None:
        inspect_table(data)
        raise InputError(f"epochs apply to images, and {quoted(data)} is a table; omit --epochs")
    if target is None:
        names = ", ".join(map(quoted, inspect_table(data).names[:8]))
        raise InputError(f"name the column to predict with --target; {quoted(data)} has {names}")
    from inlier.fit import _table_fit

    table = _table_fit.TableFitOptions(
        data,
        target,
        out,
        task,
        model or "linear",
        inlier_fraction,
        seed,
        drop,
        overwrite,
        encoding,
        limits or Limits(),
        decisions,
        encoder,
        errors,
    )
    return _table_fit.STEPS, partial(_table_fit.fit_table, table)
