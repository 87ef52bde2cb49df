"""Batches of images in memory: shuffled by seed and epoch, cropped and flipped as a whole."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.functional import pad

__all__ = ["crop_and_flip", "make_generator", "normalize", "shuffled_batches"]


def shuffled_batches(samples: int, batch_size: int, seed: int, epoch: int) -> Iterator[Tensor]:
    """Yield the dataset indices of an epoch's batches; the order depends on seed and epoch alone.

    A last batch of one sample would have no variance for batch normalization: it joins the one before.

    Args:
        samples: Number of samples; each comes up once.
        batch_size: Samples per batch.
        seed: Seed of the run.
        epoch: Index of the epoch.

    Example:
        >>> [len(index) for index in shuffled_batches(10, 4, seed=0, epoch=0)]
        [4, 4, 2]
    """
    order = torch.randperm(samples, generator=make_generator(seed, epoch))
    parts = list(torch.split(order, batch_size))
    if len(parts) > 1 and len(parts[-1]) == 1:
        parts[-2:] = [torch.cat(parts[-2:])]
    yield from parts


def make_generator(seed: int, *numbers: int) -> torch.Generator:
    """Return a generator seeded by all numbers: the same in each process and after each restart."""
    mixed = seed
    for number in numbers:
        mixed = (mixed * 1_000_003 + number + 1) % 2**63
    return torch.Generator().manual_seed(mixed)


def normalize(pixels: Tensor) -> Tensor:
    """Return pixels of 0 to 255 as floats of mean about 0, in the memory layout that convolutions prefer.

    Features of an encoder, [n, d], stay as they are.
    """
    if pixels.dim() == 2:
        return pixels
    return pixels.float().sub_(120.0).div_(64.0).contiguous(memory_format=torch.channels_last)


def crop_and_flip(pixels: Tensor, generator: torch.Generator, margin: int = 4) -> Tensor:
    """Shift each image of a batch at random by up to ``margin`` pixels, and mirror it with probability 1/2.

    Args:
        pixels: [n, 3, height, width] of any dtype; what is shifted in is 0.
        generator: Draws shifts and mirrors.
        margin: The largest shift, in pixels.

    Returns:
        Images of the same shape.

    Example:
        >>> import torch
        >>> pixels = torch.zeros(8, 3, 32, 32, dtype=torch.uint8)
        >>> crop_and_flip(pixels, torch.Generator()).shape
        torch.Size([8, 3, 32, 32])
    """
    count, _, height, width = pixels.shape
    device = pixels.device
    shifts = torch.randint(0, 2 * margin + 1, (count, 2), generator=generator).to(device)
    mirrored = torch.randint(0, 2, (count, 1), generator=generator).bool().to(device)
    rows = shifts[:, :1] + torch.arange(height, device=device)
    columns = torch.arange(width, device=device)
    columns = shifts[:, 1:] + torch.where(mirrored, columns.flip(0), columns)
    # Channels last, so that one lookup takes whole pixels.
    wide = pad(pixels, (margin, margin, margin, margin)).permute(0, 2, 3, 1)
    image = torch.arange(count, device=device).view(-1, 1, 1)
    return wide[image, rows.unsqueeze(2), columns.unsqueeze(1)].permute(0, 3, 1, 2)
