"""Which options of ``inlier fit`` apply to a folder that is read in passes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

from inlier._errors import InputError, quoted
from inlier.distributed._fit import STEPS, fit
from inlier.fit._common import FitSummary, Progress

__all__ = ["plan_folder_fit"]


def plan_folder_fit(
    data: Path,
    out: Path,
    *,
    target: str | None,
    task: str,
    model: str | None,
    inlier_fraction: float | Literal["auto"],
    seed: int,
    drop: Sequence[str],
    overwrite: bool,
    backend: str,
    address: str | None,
    workers: int,
    on_error: str,
    **others: Any,
) -> tuple[int, Callable[[Progress], FitSummary]]:
    """Return the number of steps of a fit in passes, and the function that runs it.

    Args:
        data: A folder of Parquet files.
        out: The output folder.
        target, task, model, inlier_fraction, seed, drop, overwrite, backend, address, workers, on_error: The options
            of the command.
        others: Options that apply to fits in memory only, by name, each with whether it was given.

    Raises:
        InputError: If an option does not apply.
    """
    if target is None:
        raise InputError(f"name the column to predict with --target; {quoted(data)} is read as a table")
    for option, given in others.items():
        if given:
            raise InputError(
                f"{option.replace('_', ' ')} applies to fits in memory; omit it, or omit --backend"
            )
    run = partial(
        fit,
        data,
        target,
        out=out,
        task=task,
        model=model or "linear",
        inlier_fraction=inlier_fraction,
        seed=seed,
        drop=drop,
        overwrite=overwrite,
        backend=backend,
        address=address,
        workers=workers,
        on_error=on_error,
    )
    return STEPS, lambda progress: run(progress=progress).summary
