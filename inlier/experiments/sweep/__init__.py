"""The resumable sweep that every experiment runs in.

``_experiment`` says what an experiment is, and how to add one; ``_sweep`` computes its rows, by one of the
``_engines`` (processes, Dask, Ray, or, with ``_distributed``, the processes of ``torchrun``), and enters them
in the ``_journal``; ``_results`` writes tables and README; ``_reproduce`` is all of it, with progress, for
the command line.
"""

from inlier.experiments.sweep._experiment import (
    EXPERIMENTS,
    Experiment,
    Folders,
    Plan,
    PresetSettings,
    Row,
    SweepError,
    grid,
    load,
    plan,
)

__all__ = [
    "EXPERIMENTS",
    "Experiment",
    "Folders",
    "Plan",
    "PresetSettings",
    "Row",
    "SweepError",
    "grid",
    "load",
    "plan",
]
