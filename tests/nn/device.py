"""An emulated device: tensors that compute on the CPU, say that they are elsewhere, and count every wait."""

from __future__ import annotations

from collections import Counter

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

WAITS = {
    "_local_scalar_dense",
    "bincount",
    "equal",
    "is_nonzero",
    "masked_select",
    "nonzero",
    "unique2",
    "_unique2",
    "unique_dim",
}
"""Operations whose result the host must wait for on a real device."""


class Elsewhere(torch.Tensor):
    """A tensor on the emulated device."""

    @staticmethod
    def __new__(cls, inner: torch.Tensor, device: torch.device):
        return torch.Tensor._make_wrapper_subclass(
            cls, inner.size(), strides=inner.stride(), dtype=inner.dtype, device=device
        )

    def __init__(self, inner: torch.Tensor, device: torch.device) -> None:
        self.inner = inner

    def __repr__(self, *, tensor_contents=None) -> str:
        return f"Elsewhere({self.inner})"

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise RuntimeError(f"{func} outside of the emulated device")


class EmulatedDevice(TorchDispatchMode):
    """While it is active, `device` is a device: it has tensors of its own, and what would wait is counted."""

    def __init__(self, name: str = "lazy:0") -> None:
        super().__init__()
        self.device = torch.device(name)
        self.events: Counter[str] = Counter()
        self.wide: list[str] = []
        """Operations that made a float64 tensor on the device."""

    def put(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor on the device, without counting."""
        return Elsewhere(tensor.clone(), self.device)

    def count(self) -> Counter[str]:
        """Return what was counted since the last time."""
        events, self.events = self.events, Counter()
        return events

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        name = func._schema.name.split("::")[1]
        found: list[bool] = []
        hosts: list[torch.Tensor] = []

        def unwrap(x):
            if isinstance(x, Elsewhere):
                found.append(True)
                return x.inner
            if isinstance(x, torch.Tensor) and x.dim() > 0:
                hosts.append(x)
            return x

        args, inner_kwargs = tree_map(unwrap, args), tree_map(unwrap, kwargs)
        target = kwargs.get("device")
        to_device = target is not None and torch.device(target).type == self.device.type
        to_host = target is not None and not to_device
        if target is not None:
            inner_kwargs["device"] = torch.device("cpu")
        if func.namespace == "c10d":
            self.events["collective"] += 1
            result = func(*args, **inner_kwargs)
            received, message = args[:2]
            received.view(-1, message.numel()).copy_(message)
            return result
        if found and name in WAITS:
            self.events["wait"] += 1
        if found and name in ("index", "index_put_", "index_put", "_index_put_impl_"):
            self.events["wait"] += sum(i is not None and i.dtype == torch.bool for i in args[1])
        if (
            (found and to_host)
            or (hosts and to_device and not found)
            or (name == "copy_" and found and hosts)
        ):
            self.events["copy"] += 1
        elif found and hosts and not to_device:
            raise RuntimeError(
                f"{func}: tensors on two devices, {[tuple(x.shape) for x in hosts]} on the host"
            )
        result = func(*args, **inner_kwargs)
        if name == "copy_" or (found and to_host):
            return result if to_host else (Elsewhere(result, self.device) if found else result)
        if not (found or to_device):
            return result

        def wrap(x):
            if not isinstance(x, torch.Tensor) or isinstance(x, Elsewhere):
                return x
            if x.dtype == torch.float64:
                self.wide.append(name)
            return Elsewhere(x, self.device)

        return tree_map(wrap, result)
