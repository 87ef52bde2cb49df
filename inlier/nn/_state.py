"""Checkpoints: tensors are read by name, and each is checked before any state changes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["Checkpointed", "Counters", "State"]


class State:
    """A part of a checkpoint: the tensors whose names begin with a prefix.

    Everything is built anew from a ``State``, and replaces the old only when all of it could be read: a checkpoint
    that does not fit changes nothing.

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


@dataclass(slots=True)
class Counters:
    """Counts and flags of the calls of a loss, on the host.

    Args:
        calls: The number of calls.
        seen: The number of elements up to the last update.
        bad_losses: How many of these were infinite or NaN.
        grouped: Whether elements come in groups; None before the first call.
        is_learning_sizes: Whether sizes are still read from the data: until a whole period between updates has
            brought nothing new.
        has_grown: Whether this period has brought something new.
    """

    calls: int = 0
    seen: int = 0
    bad_losses: int = 0
    grouped: bool | None = None
    is_learning_sizes: bool = True
    has_grown: bool = False

    def state(self) -> Tensor:
        """Return them as a tensor, for a checkpoint."""
        return torch.tensor([-1 if number is None else int(number) for number in astuple(self)])

    @classmethod
    def restored(cls, state: State) -> Counters:
        """Return what :meth:`state` was taken from, or raise ``ValueError``."""
        calls, seen, bad, grouped, *flags = state.read("counters", torch.int64, (6,), low=-1).tolist()
        return cls(calls, seen, bad, None if grouped < 0 else bool(grouped), *map(bool, flags))


class Checkpointed(nn.Module, ABC):
    """A module whose state is neither parameters nor buffers."""

    @abstractmethod
    def _own_state(self) -> dict[str, Tensor]:
        """Return all that a resumed training needs."""

    @abstractmethod
    def _restore(self, state: State) -> None:
        """Become what a checkpoint was taken from, or raise ``ValueError`` and stay as it is."""

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination |= {prefix + name: tensor for name, tensor in self._own_state().items()}

    def _load_from_state_dict(
        self,
        state_dict: Any,
        prefix: str,
        local_metadata: Any,
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        if not any(name.startswith(prefix) for name in state_dict):
            missing_keys.append(prefix + "counters")
            return
        mine = {k.removeprefix(prefix): v for k, v in state_dict.items() if k.startswith(prefix)}
        try:
            self._restore(State(mine))
        except ValueError as error:
            raise ValueError(f"the checkpoint does not fit: {prefix}{error}") from error
