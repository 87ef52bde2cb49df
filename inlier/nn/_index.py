"""``with_index``: a dataset whose items include their own index."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch.utils.data import Dataset, IterableDataset

__all__ = ["with_index"]


def with_index(dataset: Any, name: str = "index") -> Any:
    """Return a dataset whose items include their dataset index, by which robust losses remember samples.

    Items that are tuples or lists become ``(*item, index)``, other items ``(item, index)``; items that are mappings
    get one more key. A ``datasets.Dataset`` of Hugging Face stays one and gets one more column.

    Args:
        dataset: Any map-style dataset: ``dataset[i]`` and ``len(dataset)``.
        name: The key or column, where items are mappings.

    Returns:
        The dataset; other attributes of the original (``.classes``, say) are still there.

    Raises:
        TypeError: For an iterable-style dataset: it must number its items itself.
        ValueError: If items already have a key or column of that name.

    Example:
        >>> import torch
        >>> from torch.utils.data import TensorDataset
        >>> dataset = with_index(TensorDataset(torch.rand(3, 2), torch.tensor([0, 1, 0])))
        >>> len(dataset), dataset[2][2]
        (3, 2)
    """
    if isinstance(dataset, IterableDataset) or not (
        hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")
    ):
        raise TypeError(
            f"{type(dataset).__name__} has no items by number (dataset[i], len(dataset)): let it yield an index of "
            "its own with each item, stable from epoch to epoch"
        )
    if hasattr(dataset, "add_column") and hasattr(dataset, "column_names"):
        if name in dataset.column_names:
            raise ValueError(f"the dataset has a column {name!r} already: pass another name")
        return dataset.add_column(name, list(range(len(dataset))))
    return IndexedDataset(dataset, name)


class IndexedDataset(Dataset[Any]):
    """The items of a dataset with their index; made by :func:`with_index`."""

    def __init__(self, dataset: Any, name: str) -> None:
        self.dataset, self.name = dataset, name

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        item = self.dataset[index]
        place = int(index) if index >= 0 else int(index) + len(self)
        if isinstance(item, Mapping):
            if self.name in item:
                raise ValueError(f"items have a key {self.name!r} already: pass another name to with_index")
            return {**item, self.name: place}
        if isinstance(item, (tuple, list)):
            return (*item, place)
        return (item, place)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "dataset":
            raise AttributeError(name)
        return getattr(self.dataset, name)
