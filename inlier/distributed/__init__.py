"""The fit of tables that do not fit in memory: a folder of Parquet files, on this machine or on a Dask or Ray cluster.

A round is a pass over the files: ``_partitions`` (what is read), ``_engines`` (who reads it), ``_plan`` (from cells to
inputs), ``_survey`` (a sample, sums), ``_regression`` (weighted moments), ``_score`` (suspects). ``_passes`` keeps what
each pass found, ``_fit`` runs them, and ``_command`` is for the command line.

- :func:`fit`: the same as ``inlier fit FOLDER --backend stream|dask|ray``.
"""

from __future__ import annotations

from inlier._clusters import ClusterError
from inlier.distributed._fit import fit
from inlier.distributed._output import FolderFit

__all__ = ["ClusterError", "FolderFit", "fit"]
