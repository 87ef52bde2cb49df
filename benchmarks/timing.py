"""Times as ratios inside one run: machines differ and are noisy, ratios much less so."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from statistics import median

import torch


def interleaved(functions: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Best seconds of each function, called in turn: a busy machine only ever adds time, to any of them."""
    seconds = dict.fromkeys(functions, float("inf"))
    for function in functions.values():
        function()
    for _ in range(rounds):
        for name, function in functions.items():
            begin = time.perf_counter()
            function()
            seconds[name] = min(seconds[name], time.perf_counter() - begin)
    return seconds


def over_first(functions: dict[str, Callable[[], object]], rounds: int, repeat: int) -> dict[str, float]:
    """Processor time of each function but the first over that of the first: the median over rounds.

    In a round all are called ``repeat`` times, in turn and each time beginning with another one, so that
    whatever else the machine does falls on all of them alike: for differences of a few percent.
    """
    names = list(functions)
    first, *others = names
    ratios: dict[str, list[float]] = {name: [] for name in others}
    for function in functions.values():
        function()
    for _ in range(rounds):
        seconds = dict.fromkeys(functions, 0.0)
        for turn in range(repeat):
            start = turn % len(names)
            for name in names[start:] + names[:start]:
                begin = time.process_time()
                functions[name]()
                seconds[name] += time.process_time() - begin
        for name in others:
            ratios[name].append(seconds[name] / seconds[first])
    return {name: median(values) for name, values in ratios.items()}


def machine() -> str:
    """The machine and versions, for the head of a table."""
    parts = [f"{torch.get_num_threads()} threads", platform.machine(), f"Python {platform.python_version()}"]
    for package in ("torch", "numpy", "scikit-learn", "statsmodels", "cleanlab"):
        with suppress(PackageNotFoundError):
            parts.append(f"{package} {version(package)}")
    return ", ".join(parts)
