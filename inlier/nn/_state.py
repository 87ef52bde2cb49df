"""The state of a checkpoint: read by name, each tensor checked before anything takes it over."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

__all__ = ["State"]


class State:
    """A part of a checkpoint: the tensors whose names begin with a prefix.

    Whatever is restored is built anew from a ``State`` and takes the place of the old only when all of it could be
    read; so a checkpoint that does not fit changes nothing.

    Args:
        tensors: The whole checkpoint.
        prefix: What the names of this part begin with.

    Example:
        >>> state = State({"window.rounds": torch.tensor(3)}).part("window")
        >>> int(state.read("rounds", torch.int64, ()))
        3
    """

    def __init__(self, tensors: Mapping[str, object], prefix: str = "") -> None:
        self._tensors, self._prefix = tensors, prefix

    def part(self, name: str) -> State:
        """Return the part of this name."""
        return State(self._tensors, f"{self._prefix}{name}.")

    def names(self) -> Iterable[str]:
        """Return the names of this part, without the prefix."""
        size = len(self._prefix)
        return [name[size:] for name in self._tensors if name.startswith(self._prefix)]

    def __contains__(self, name: str) -> bool:
        return self._prefix + name in self._tensors

    def tensor(self, name: str) -> Tensor:
        """Return a tensor of any kind, on the CPU, or raise ``ValueError`` with its name."""
        full = self._prefix + name
        if full not in self._tensors:
            raise ValueError(f"{full} is missing")
        tensor = self._tensors[full]
        if not isinstance(tensor, Tensor):
            raise ValueError(f"{full} is a {type(tensor).__name__}: a tensor is expected")
        return tensor.detach().cpu().clone()

    def read(
        self,
        name: str,
        dtype: torch.dtype,
        shape: tuple[int | None, ...] | torch.Size,
        low: float | None = None,
        high: float | None = None,
        nan: bool = False,
    ) -> Tensor:
        """Return a copy of a tensor on the CPU, or raise ``ValueError`` with its name and what is expected.

        Args:
            name: Its name in this part.
            dtype: Its dtype.
            shape: Its shape; None for any length.
            low: The smallest number that it may hold.
            high: The largest.
            nan: Whether it may hold NaN.
        """
        tensor, full = self.tensor(name), self._prefix + name
        fits = tensor.dim() == len(shape) and all(
            b in (None, a) for a, b in zip(tensor.shape, shape, strict=True)
        )
        if tensor.dtype != dtype or not fits:
            expected = tuple("any" if length is None else length for length in shape)
            raise ValueError(
                f"{full} has shape {tuple(tensor.shape)} and {tensor.dtype}: shape {expected} and {dtype} are expected"
            )
        if not nan and bool(tensor.isnan().any()):
            raise ValueError(f"{full} holds NaN")
        if low is not None and bool((tensor < low).any()):
            raise ValueError(f"{full} holds {float(tensor.min()):g}: at least {low:g} is expected")
        if high is not None and bool((tensor > high).any()):
            raise ValueError(f"{full} holds {float(tensor.max()):g}: at most {high:g} is expected")
        return tensor
