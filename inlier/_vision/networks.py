"""Image networks: the paper's DLA-34, ResNet-18, and a compact residual network for CPUs."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import relu

__all__ = ["DLA34", "CompactCNN", "FeatureHead", "ResNet18", "get", "names"]


class ConvNorm(nn.Sequential):
    """A convolution without bias, then batch normalization."""

    def __init__(self, inputs: int, outputs: int, size: int = 3, stride: int = 1) -> None:
        super().__init__(
            nn.Conv2d(inputs, outputs, size, stride, (size - 1) // 2, bias=False), nn.BatchNorm2d(outputs)
        )


class ResidualBlock(nn.Module):
    """Two 3 x 3 convolutions beside a shortcut: ``relu(F(x) + shortcut(x))``.

    Args:
        inputs: Channels that come in.
        outputs: Channels that go out.
        stride: Of the first convolution and of the shortcut.

    Reference: K. He et al. (2016), Deep residual learning for image recognition, figure 2.
    """

    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__()
        self.first = ConvNorm(inputs, outputs, 3, stride)
        self.second = ConvNorm(outputs, outputs)
        same = inputs == outputs and stride == 1
        self.shortcut = nn.Identity() if same else ConvNorm(inputs, outputs, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output."""
        return relu(self.second(relu(self.first(x))) + self.shortcut(x))


class Head(nn.Sequential):
    """The mean over the image, then one logit per class."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))


class CompactCNN(nn.Sequential):
    """A residual network of 0.29 million parameters that trains on two CPU cores.

    A strided 4 x 4 convolution halves the image, two residual blocks halve it again.

    Args:
        classes: Number of classes.

    Example:
        >>> import torch
        >>> CompactCNN(10)(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 10])
    """

    def __init__(self, classes: int) -> None:
        super().__init__(
            nn.Conv2d(3, 32, 4, 2, 1, bias=False),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            ResidualBlock(32, 64, 2),
            ResidualBlock(64, 128, 2),
            Head(128, classes),
        )


class FeatureHead(nn.Sequential):
    """One hidden layer of 512 on the features of a pretrained encoder.

    Args:
        classes: Number of classes.
        inputs: Numbers for each image; AlexNet's by default.

    Example:
        >>> import torch
        >>> FeatureHead(10)(torch.zeros(2, 2816)).shape
        torch.Size([2, 10])
    """

    def __init__(self, classes: int, inputs: int = 2816) -> None:
        super().__init__(nn.Linear(inputs, 512), nn.ReLU(), nn.Linear(512, classes))


class ResNet18(nn.Sequential):
    """ResNet-18 in its form for small images: a 3 x 3 stem at full size, no pooling before the blocks.

    Args:
        classes: Number of classes.

    Reference: K. He et al. (2016), Deep residual learning for image recognition.
    """

    def __init__(self, classes: int) -> None:
        blocks: list[nn.Module] = [ConvNorm(3, 64), nn.ReLU()]
        channels = 64
        for outputs, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
            blocks += [ResidualBlock(channels, outputs, stride), ResidualBlock(outputs, outputs)]
            channels = outputs
        super().__init__(*blocks, Head(channels, classes))


class Tree(nn.Module):
    """Hierarchical deep aggregation: blocks in a row, some of whose outputs a root joins.

    A tree of depth 1 is two blocks and a root over both. A deeper one is a tree of depth - 1, whose output
    goes through two more blocks; its root sees these two, that output, and a shortcut block of the input.

    Args:
        inputs: Channels that come in.
        outputs: Channels that go out.
        depth: Of the tree.
        stride: Of the first block.

    Reference: F. Yu et al. (2018), Deep layer aggregation, section 3.2 and figure 3.
    """

    def __init__(self, inputs: int, outputs: int, depth: int, stride: int = 1) -> None:
        super().__init__()
        self.inner = nn.ModuleList(Tree(inputs, outputs, d, stride) for d in range(depth - 1, 0, -1))
        self.shortcut = ResidualBlock(inputs, outputs, stride) if depth > 1 else None
        first = ResidualBlock(inputs, outputs, stride) if depth == 1 else ResidualBlock(outputs, outputs)
        self.pair = nn.ModuleList([first, ResidualBlock(outputs, outputs)])
        parts = 2 + (depth if depth > 1 else 0)
        self.root = ConvNorm(parts * outputs, outputs, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return the root's output."""
        parts = [] if self.shortcut is None else [self.shortcut(x)]
        for stage in (*self.inner, *self.pair):
            x = stage(x)
            parts.append(x)
        return relu(self.root(torch.cat(parts, 1)))


class DLA34(nn.Sequential):
    """DLA-34 in its form for CIFAR: levels 1-1-1-2-2-1, channels 16 to 512, 16.3 million parameters.

    Args:
        classes: Number of classes.

    Example:
        >>> round(sum(p.numel() for p in DLA34(10).parameters()) / 1e6, 1)
        16.3

    Reference: F. Yu et al. (2018), Deep layer aggregation, table 1.
    """

    def __init__(self, classes: int) -> None:
        super().__init__(
            *(ConvNorm(3, 16), nn.ReLU()),
            *(ConvNorm(16, 16), nn.ReLU()),
            *(ConvNorm(16, 32), nn.ReLU()),
            Tree(32, 64, depth=1),
            Tree(64, 128, depth=2, stride=2),
            Tree(128, 256, depth=2, stride=2),
            Tree(256, 512, depth=1, stride=2),
            Head(512, classes),
        )


_NETWORKS: dict[str, Callable[[int], nn.Module]] = {
    "compact": CompactCNN,
    "resnet-18": ResNet18,
    "dla-34": DLA34,
    "feature-head": FeatureHead,
}


def names() -> list[str]:
    """Return the names of all networks."""
    return list(_NETWORKS)


def get(name: str, classes: int) -> nn.Module:
    """Return a new network by name.

    Args:
        name: One of :func:`names`.
        classes: Number of classes.
    """
    if name not in _NETWORKS:
        raise ValueError(f"network {name!r} is unknown; choose from {', '.join(_NETWORKS)}")
    return _NETWORKS[name](classes)
