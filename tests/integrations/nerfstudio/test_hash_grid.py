"""The quick hash grid against nerfstudio's own."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

pytest.importorskip("nerfstudio", reason="needs nerfstudio; make test-scene installs it")

from nerfstudio.field_components.encodings import HashEncoding
from torch import nn

from inlier.integrations.nerfstudio._hash_grid import quicken


class Grid(nn.Module):
    """A model with a hash grid in it, and the options that matter."""

    def __init__(self, predict_normals=False, poses="off"):
        super().__init__()
        torch.manual_seed(0)
        camera_optimizer = SimpleNamespace(mode=poses)
        self.config = SimpleNamespace(predict_normals=predict_normals, camera_optimizer=camera_optimizer)
        self.grid = HashEncoding(
            num_levels=6, log2_hashmap_size=12, implementation="torch", hash_init_scale=1.0
        )


def features_and_gradient(model, points):
    model.zero_grad()
    features = model.grid(points)
    (features * torch.linspace(-1, 1, features.numel()).view_as(features)).sum().backward()
    return features.detach(), model.grid.hash_table.grad.clone()


def test_features_and_gradients_are_those_of_nerfstudio():
    model = Grid()
    # Random places, places on the corners of the grid, and the ends.
    points = torch.cat([torch.rand(500, 3), torch.randint(0, 17, (100, 3)) / 16, torch.ones(1, 3)])
    stock = features_and_gradient(model, points)
    state = set(model.state_dict())
    quicken(model)
    quick = features_and_gradient(model, points)
    assert type(model.grid) is not HashEncoding
    assert isinstance(model.grid, HashEncoding)
    assert set(model.state_dict()) == state
    assert torch.allclose(quick[0], stock[0], atol=1e-5)
    assert torch.allclose(quick[1], stock[1], atol=1e-4)


@pytest.mark.parametrize("needs", [{"predict_normals": True}, {"poses": "SO3xR3"}])
def test_where_points_need_gradients_nerfstudios_own_grid_stays(needs):
    model = Grid(**needs)
    quicken(model)
    assert type(model.grid) is HashEncoding
