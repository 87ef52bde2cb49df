"""The colours that Nerfacto compares, so that each ray can have a weight."""

from __future__ import annotations

from torch import Tensor, nn

__all__ = ["ColourErrors"]


class ColourErrors(nn.Module):
    """The mean squared error, which also keeps the colours that it compared until they are taken.

    Example:
        >>> import torch
        >>> errors = ColourErrors()
        >>> float(errors(torch.zeros(2, 3), torch.ones(2, 3))), errors.take()[1].shape
        (1.0, torch.Size([2, 3]))
    """

    def __init__(self) -> None:
        super().__init__()
        self._colours: tuple[Tensor, Tensor] | None = None

    def forward(self, target: Tensor, prediction: Tensor) -> Tensor:
        """Return the mean over rays and channels."""
        self._colours = target, prediction
        return nn.functional.mse_loss(prediction, target)

    def take(self) -> tuple[Tensor, Tensor]:
        """Return the colours of the last call, targets and predictions, and let go of them."""
        colours, self._colours = self._colours, None
        assert colours is not None
        return colours
