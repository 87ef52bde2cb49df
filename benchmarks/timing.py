"""Times as ratios inside one run: machines differ and are noisy, ratios much less so."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from statistics import median

import torch


def interleaved(functions: dict[str, Callable[[], object]], rounds: int, repeat: int = 1) -> dict[str, float]:
    """Median seconds of each function, called in turn, so that all of them meet the same disturbances."""
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    for function in functions.values():
        function()
    for _ in range(rounds):
        for name, function in functions.items():
            begin = time.perf_counter()
            for _ in range(repeat):
                function()
            seconds[name].append((time.perf_counter() - begin) / repeat)
    return {name: median(values) for name, values in seconds.items()}


def machine() -> str:
    """The machine and versions, for the head of a table."""
    threads, python = torch.get_num_threads(), platform.python_version()
    return f"{threads} threads, {platform.machine()}, Python {python}, torch {torch.__version__}"
