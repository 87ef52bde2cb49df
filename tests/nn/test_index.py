"""with_index: any map-style dataset, with the index of each item."""

from __future__ import annotations

import pytest
import torch
from datasets import Dataset as HuggingFaceDataset
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset

import inlier


class Images(Dataset):
    classes = ("cat", "dog")

    def __init__(self, item):
        self.item = item

    def __len__(self):
        return 5

    def __getitem__(self, i):
        if i >= 5:
            raise IndexError(i)
        return self.item(i)


def test_tuples_get_one_more_and_loaders_stack_it():
    dataset = inlier.with_index(TensorDataset(torch.rand(7, 2), torch.arange(7)))
    seen = torch.cat([index for _, _, index in DataLoader(dataset, batch_size=3, shuffle=True)])
    assert sorted(seen.tolist()) == list(range(7))


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        (lambda i: (i, "x"), (3, "x", 3)),
        (lambda i: [i, "x"], (3, "x", 3)),
        (lambda i: 10 * i, (30, 3)),
        (lambda i: {"x": i}, {"x": 3, "index": 3}),
    ],
)
def test_items_of_any_kind(item, expected):
    assert inlier.with_index(Images(item))[3] == expected


def test_a_negative_place_is_the_same_sample():
    assert inlier.with_index(Images(lambda i: (i,)))[-1][-1] == 4


def test_the_index_is_that_of_the_whole_dataset_under_a_subset():
    dataset = Subset(inlier.with_index(Images(lambda i: (i,))), [4, 2])
    assert [item[-1] for item in dataset] == [4, 2]


def test_what_the_dataset_knows_besides_it_still_knows():
    assert inlier.with_index(Images(lambda i: i)).classes == ("cat", "dog")


def test_a_hugging_face_dataset_gets_a_column_and_stays_one():
    dataset = inlier.with_index(HuggingFaceDataset.from_dict({"text": ["a", "b", "c"]}))
    assert isinstance(dataset, HuggingFaceDataset)
    assert dataset[2] == {"text": "c", "index": 2}
    assert dataset.shuffle(seed=0)["index"][:] != [0, 1, 2]
    with pytest.raises(ValueError, match="has a column 'index' already"):
        inlier.with_index(dataset)


def test_what_cannot_be_numbered_is_told():
    class Stream(IterableDataset):
        def __iter__(self):
            yield 1

    with pytest.raises(TypeError, match="Stream has no items by number"):
        inlier.with_index(Stream())
    with pytest.raises(ValueError, match="have a key 'index' already"):
        inlier.with_index(Images(lambda i: {"index": i}))[0]
