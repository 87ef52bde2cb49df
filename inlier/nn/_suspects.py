"""The samples that are probably outliers, written to a file that other programs read."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inlier._files import write_whole

if TYPE_CHECKING:
    from inlier.nn._module import RobustModule

__all__ = ["check_suspects_path", "suspect_columns", "write_suspects"]

FORMATS = (".csv", ".parquet")


def suspect_columns(robust: RobustModule) -> dict[str, list[Any]]:
    """Return the samples that were seen, most suspect first, by column.

    Args:
        robust: A :class:`~inlier.Robust` or :class:`~inlier.RobustCrossEntropy` that was called with ``index``.

    Returns:
        ``row``, the dataset index; ``inlier_probability``; ``loss``, by the running mean of the sample; with
        groups ``group``, with class labels ``suggested_label``.

    Example:
        >>> import torch, inlier
        >>> robust = inlier.Robust("tukey", 0.5, warmup=0, update_every=1)
        >>> loss = robust(torch.tensor([0.5, 9.0, 0.25]), torch.tensor([0, 1, 3]))
        >>> suspect_columns(robust)["row"]
        [1, 0, 3]
    """
    probability, loss = robust.inlier_probability().cpu(), robust.sample_losses().cpu()
    # By probability, and where that is equal (0, often) by loss.
    rows = loss.argsort(descending=True, stable=True)
    rows = rows[probability[rows].argsort(stable=True)]
    rows = rows[~probability[rows].isnan()]
    columns = {
        "row": rows.tolist(),
        "inlier_probability": probability[rows].tolist(),
        "loss": loss[rows].tolist(),
    }
    tags = robust.sample_tags()
    return columns | ({} if tags is None else {robust.tag_name: tags.cpu()[rows].tolist()})


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


def write_suspects(robust: RobustModule, path: str | Path) -> Path:
    """Write the samples, most suspect first, to a CSV or Parquet file; a file of that name is replaced.

    Args:
        robust: A robust loss that was called with ``index``.
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
