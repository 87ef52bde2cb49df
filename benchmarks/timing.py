"""Times as ratios inside one run: machines differ and are noisy, ratios much less so."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable

import torch


def interleaved(functions: dict[str, Callable[[], object]], rounds: int, repeat: int = 1) -> dict[str, float]:
    """Best seconds of each function, called in turn: a busy machine only ever adds time, to any of them."""
    seconds = dict.fromkeys(functions, float("inf"))
    for function in functions.values():
        function()
    for _ in range(rounds):
        for name, function in functions.items():
            begin = time.perf_counter()
            for _ in range(repeat):
                function()
            seconds[name] = min(seconds[name], (time.perf_counter() - begin) / repeat)
    return seconds


def machine() -> str:
    """The machine and versions, for the head of a table."""
    threads, python = torch.get_num_threads(), platform.python_version()
    return f"{threads} threads, {platform.machine()}, Python {python}, torch {torch.__version__}"
