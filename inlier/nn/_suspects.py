"""The samples that are probably outliers, as columns or as a file."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inlier._files import write_whole

if TYPE_CHECKING:
    from inlier.nn._module import RobustModule

__all__ = ["check_suspects_path", "suspect_columns", "with_suspects", "write_suspects"]

FORMATS = (".csv", ".parquet")


def suspect_columns(robust: RobustModule) -> dict[str, list[Any]]:
    """Return the samples that were seen, most suspect first, by column.

    Args:
        robust: A :class:`~inlier.Robust` or :class:`~inlier.RobustCrossEntropy` that was called with ``index``.

    Returns:
        ``row``, the dataset index; ``inlier_probability``; ``loss``, the running mean of the sample; with groups
        ``group``, with class labels ``suggested_label``.

    Example:
        >>> import torch, inlier
        >>> robust = inlier.Robust("tukey", 0.5, warmup=0, update_every=1)
        >>> loss = robust(torch.tensor([0.5, 9.0, 0.25]), torch.tensor([0, 1, 3]))
        >>> suspect_columns(robust)["row"]
        [1, 0, 3]
    """
    probability, loss = robust.inlier_probability().cpu(), robust.sample_losses().cpu()
    # By probability and, where that is equal (often 0), by loss.
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


def with_suspects(dataset: Any, robust: RobustModule, index: Any = None) -> Any:
    """Return a dataset with columns that say how suspect each sample is, in the order of the dataset.

    Args:
        dataset: A ``datasets.Dataset`` of Hugging Face, the one that was trained on.
        robust: A robust loss that was called with ``index``.
        index: The dataset index of each sample, if that is not its place: a column of the dataset, such as
            ``dataset["id"]``.

    Returns:
        The dataset with the columns of :func:`suspect_columns` except ``row``: ``inlier_probability``, ``loss`` and,
        where there are any, ``group`` or ``suggested_label``; None where a sample was never seen.

    Raises:
        TypeError: If it is not a ``datasets.Dataset``.
        ValueError: If it already has one of these columns, or ``robust`` knows samples beyond its end.

    Example:
        >>> import torch, inlier
        >>> from datasets import Dataset
        >>> robust = inlier.Robust("tukey", 0.5, warmup=0, update_every=1)
        >>> loss = robust(torch.tensor([0.5, 9.0, 0.25]), torch.tensor([0, 1, 3]))
        >>> with_suspects(Dataset.from_dict({"text": ["a", "b", "c", "d"]}), robust)["loss"][:]
        [0.5, 9.0, None, 0.25]
    """
    if not (
        hasattr(dataset, "add_column") and hasattr(dataset, "column_names") and hasattr(dataset, "__len__")
    ):
        raise TypeError(
            f"dataset = a {type(dataset).__name__}: columns can be added to a datasets.Dataset; for anything else "
            "there is inlier.nn.write_suspects"
        )
    columns = suspect_columns(robust)
    places = {number: place for place, number in enumerate(columns.pop("row"))}
    numbers = list(range(len(dataset))) if index is None else [int(number) for number in index]
    if len(numbers) != len(dataset):
        raise ValueError(f"index has {len(numbers)} numbers for {len(dataset)} samples: pass one a sample")
    if index is None and places and max(places) >= len(dataset):
        raise ValueError(
            f"robust knows a sample {max(places)}, and the dataset has {len(dataset)}: pass the dataset that was "
            "trained on, or the index of its samples"
        )
    if taken := [name for name in columns if name in dataset.column_names]:
        raise ValueError(f"the dataset has a column {taken[0]!r} already: rename or remove it")
    for name, values in columns.items():
        found = [values[places[number]] if number in places else None for number in numbers]
        dataset = dataset.add_column(name, found)
    return dataset


def check_suspects_path(path: str | Path) -> Path:
    """Return the path of a file of suspects, or raise if it could not be written; call it before training."""
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
    """Write the samples, most suspect first, to a CSV or Parquet file; an existing file is replaced.

    Args:
        robust: A robust loss that was called with ``index``.
        path: The file, ending in ``.csv`` or ``.parquet`` (which needs pyarrow); its folder is created.

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
