"""The samples that a training came to doubt, written to a file that other programs read."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inlier.files import write_whole

if TYPE_CHECKING:
    from inlier.robust import Robust

__all__ = ["check_suspects_path", "suspect_columns", "write_suspects"]

FORMATS = (".csv", ".parquet")


def suspect_columns(robust: Robust) -> dict[str, list[Any]]:
    """Return the samples that were seen, most suspect first, by column.

    Args:
        robust: A :class:`~inlier.Robust` that was called with ``index``.

    Returns:
        ``row``, the sample's number; ``inlier_probability``, the belief in it; ``loss``, the running mean of
        its losses; with groups, ``group``.

    Example:
        >>> import torch, inlier
        >>> robust = inlier.Robust("tukey", 0.5, warmup=0, update_every=1)
        >>> loss = robust(torch.tensor([0.5, 9.0, 0.25]), torch.tensor([0, 1, 3]))
        >>> suspect_columns(robust)["row"]
        [1, 0, 3]
    """
    belief, loss = robust.inlier_probability().cpu(), robust.memory.means.cpu()
    # By belief, and where that is equal (0, often) by loss.
    rows = loss.argsort(descending=True, stable=True)
    rows = rows[belief[rows].argsort(stable=True)]
    rows = rows[~belief[rows].isnan()]
    columns = {"row": rows.tolist(), "inlier_probability": belief[rows].tolist(), "loss": loss[rows].tolist()}
    groups = robust.memory.groups
    return columns | ({"group": groups[rows].tolist()} if len(groups) else {})


def check_suspects_path(path: str | Path) -> Path:
    """Return the path of a suspects file, or raise if it could not be written: better before training."""
    path = Path(path)
    if path.suffix not in FORMATS:
        raise ValueError(f"suspects = {str(path)!r}: end the name in {' or '.join(FORMATS)}")
    if path.suffix == ".parquet":
        try:
            import pyarrow  # noqa: F401
        except ImportError as error:
            raise ImportError(
                f"{path.name} needs pyarrow: pip install pyarrow, or write a .csv", name="pyarrow"
            ) from error
    return path


def write_suspects(robust: Robust, path: str | Path) -> Path:
    """Write the samples, most suspect first, to a CSV or Parquet file; a file of that name is replaced.

    Args:
        robust: A :class:`~inlier.Robust` that was called with ``index``.
        path: The file, ending in ``.csv`` or ``.parquet`` (which needs pyarrow); its folder is made.

    Returns:
        The path.
    """
    path = check_suspects_path(path)
    columns = suspect_columns(robust)
    if path.suffix == ".csv":
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
        content = text.getvalue().encode()
    else:
        import pyarrow
        from pyarrow import parquet

        buffer = io.BytesIO()
        parquet.write_table(pyarrow.table(columns), buffer)
        content = buffer.getvalue()
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, content)
    return path
