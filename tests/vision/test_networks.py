"""The networks have the size and the levels of their papers."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from inlier._vision import networks

IMAGE = 3, 32, 32
EXPECTED = {
    "compact": (290_762, IMAGE),
    "resnet-18": (11_173_962, IMAGE),
    "dla-34": (16_291_386, IMAGE),
    "feature-head": (2816 * 512 + 512 + 512 * 10 + 10, (2816,)),
}


@pytest.mark.parametrize("name", networks.names())
def test_networks_have_their_size_and_a_logit_per_class(name):
    parameters, inputs = EXPECTED[name]
    network = networks.get(name, 10)
    assert sum(p.numel() for p in network.parameters()) == parameters
    with torch.no_grad():
        assert network(torch.zeros(2, *inputs)).shape == (2, 10)


def test_an_unknown_network_is_refused_with_the_choices():
    with pytest.raises(ValueError, match="compact, resnet-18, dla-34"):
        networks.get("vgg", 10)


def test_dla_34_has_the_levels_of_the_paper():
    """Levels 1-1-1-2-2-1 of 16 to 512 channels; each root joins what figure 3 of Yu et al. joins."""
    network = networks.DLA34(10)
    shapes = []
    for stage in network:
        stage.register_forward_hook(
            lambda module, _, out: shapes.append((type(module).__name__, *out.shape[1:]))
        )
    with torch.no_grad():
        network(torch.zeros(1, 3, 32, 32))
    levels = [shape for shape in shapes if shape[0] in ("ConvNorm", "Tree")]
    assert levels == [
        ("ConvNorm", 16, 32, 32),
        ("ConvNorm", 16, 32, 32),
        ("ConvNorm", 32, 32, 32),
        ("Tree", 64, 32, 32),
        ("Tree", 128, 16, 16),
        ("Tree", 256, 8, 8),
        ("Tree", 512, 4, 4),
    ]
    trees = [stage for stage in network if isinstance(stage, networks.Tree)]
    assert [tree.root[0].in_channels // tree.root[0].out_channels for tree in trees] == [2, 4, 4, 2]
    convolutions = [m for m in network.modules() if isinstance(m, nn.Conv2d) and m.kernel_size == (3, 3)]
    assert len(convolutions) == 3 + 2 * (2 + 2 * 5 + 2)
