"""The fit of a folder of Parquet files that need not fit in memory: passes, then the same files as ``inlier fit``."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import inlier
from inlier._errors import InputError, quoted
from inlier.distributed._boosting import fit_boosting
from inlier.distributed._classification import fit_classification
from inlier.distributed._collections import engine_of, write_collection
from inlier.distributed._engines import BACKENDS, Engine, engine
from inlier.distributed._inspect import Columns, survey
from inlier.distributed._output import FolderFit, write_output
from inlier.distributed._partitions import PARTITION_ROWS, Folder, open_folder
from inlier.distributed._passes import Passes, open_passes
from inlier.distributed._regression import fit_regression
from inlier.distributed._score import Fitted, Ranked, Score, Scores, Stored
from inlier.distributed._survey import MOST_LABELS, Summary
from inlier.distributed._xgboost import xgboost
from inlier.fit._command import default_output_folder
from inlier.fit._common import Progress, no_progress
from inlier.fit._outputs import check_output_folder
from inlier.fit._pipeline import base_model, robust_model
from inlier.fit._table_fit import TableFitOptions, check_options
from inlier.fit._tables import FIRST_ROW, TableFile, check_columns

ON_ERROR = ("raise", "skip")
IN_MEMORY = {"regression": 15_000, "classification": MOST_LABELS}
"""So many rows are fitted in memory: the decisions about more are made on a part of them anyway."""
STEPS = 10
"""Number of steps that :func:`fit` shows, about."""


def fit(
    data: Any,
    target: str,
    *,
    out: str | Path | None = None,
    task: str = "auto",
    model: str = "linear",
    inlier_fraction: float | Literal["auto"] = "auto",
    seed: int = 0,
    drop: Sequence[str] = (),
    overwrite: bool = False,
    backend: str | None = None,
    address: str | None = None,
    workers: int = 2,
    on_error: str = "raise",
    partition_rows: int = PARTITION_ROWS,
    progress: Progress = no_progress,
) -> FolderFit:
    """Fit a model to a folder of Parquet files robustly, a pass over the files for each round.

    A linear regression is that of :class:`inlier.sklearn.AdaptiveRegressor` on the same rows up to rounding, however
    they are divided into files and whoever reads them. Types and transformations of columns are those of a sample of
    100,000 rows. An interrupted fit goes on where it was when it is started again.

    Args:
        data: The folder, on a cluster a path that all workers see; or a ``dask.dataframe.DataFrame`` or
            ``ray.data.Dataset``, which is written once as Parquet beside the output, since each round reads it again.
        target: The column to predict.
        out: The output folder; by default ``runs/NAME-fit`` for a folder.
        task: ``auto``, ``regression`` or ``classification``.
        model: ``linear``, or ``boosting`` by XGBoost.
        inlier_fraction: A number, or "auto" to estimate it.
        seed: The seed of all randomness.
        drop: Columns that are not used.
        overwrite: Whether an earlier output is replaced.
        backend: ``stream`` for this process, ``dask`` or ``ray`` for a cluster; by default that of a collection, and
            ``stream`` for a folder.
        address: A running cluster; by default the one that this process is connected to, then that of
            ``DASK_SCHEDULER_ADDRESS`` or ``RAY_ADDRESS``, and without one a cluster is started here.
        workers: Workers of a cluster that is started here.
        on_error: ``raise`` or ``skip`` files and parts of files that cannot be read or are unlike the others.
        partition_rows: About how many rows a task reads.
        progress: Shows each step as it begins.

    Returns:
        The fitted pipeline, the estimate, and what to print.

    Raises:
        InputError: If the folder or the options cannot be used.
        ClusterError: If the cluster cannot be used.

    Example:
        >>> import tempfile, numpy as np, pyarrow as pa, pyarrow.parquet
        >>> from inlier import distributed
        >>> rng = np.random.default_rng(0)
        >>> folder = Path(tempfile.mkdtemp())
        >>> for part in range(3):
        ...     x = rng.normal(size=400)
        ...     y = 2 * x + 0.1 * rng.normal(size=400) + 30 * (rng.random(400) < 0.2)
        ...     pa.parquet.write_table(pa.table({"x": x, "y": y}), folder / f"{part}.parquet")
        >>> fitted = distributed.fit(folder, "y", out=folder / "out")
        >>> fitted.rows, round(fitted.inlier_fraction, 1)
        (1200, 0.8)
    """
    collection = engine_of(data)
    backend = backend or collection or "stream"
    for name, value, known in (("backend", backend, BACKENDS), ("on_error", on_error, ON_ERROR)):
        if value not in known:
            raise InputError(f"{name} {quoted(value)} is unknown; choose from {', '.join(known)}")
    if workers < 1:
        raise InputError(f"workers {workers}: choose 1 or more")
    if collection == "ray" and backend != "ray":
        raise InputError(f"backend {quoted(backend)}: a Ray dataset is fitted by Ray; omit it")
    if collection is not None and out is None:
        raise InputError("out: name the output folder of a collection")
    out = default_output_folder(Path(data)) if out is None else Path(out)
    copy = out.absolute().parent / f".{out.name}-copy" / "table"
    path = Path(data) if collection is None else copy
    options = TableFitOptions(path, target, out, task, model, inlier_fraction, seed, drop, overwrite)
    check_options(options)
    check_output_folder(out, overwrite)
    how = How(options, on_error == "skip", partition_rows, progress)
    if collection is None:
        folder = how.open()
        with engine(backend, workers, address) as started:
            return _run(how, folder, started, backend)
    with engine(backend, workers, address) as started:
        progress("writing the collection as Parquet")
        try:
            write_collection(data, copy, started)
            fitted = _run(how, how.open(), started, backend)
        except InputError:
            shutil.rmtree(copy.parent)  # Nothing to go on with; after an interruption it stays.
            raise
    shutil.rmtree(copy.parent)
    return fitted


@dataclass(frozen=True)
class How:
    """The options of a fit in passes.

    Args:
        options: Those that fits in memory have too.
        skip: Whether parts that cannot be used are skipped.
        rows: About how many rows a task reads.
        progress: Shows each step as it begins.
    """

    options: TableFitOptions
    skip: bool
    rows: int
    progress: Progress

    def open(self) -> Folder:
        """Return the folder, if it can be used."""
        options = self.options
        folder = open_folder(options.data, options.drop, self.skip, self.rows)
        check_columns(TableFile(options.data, "parquet", folder.names), [options.target], "target")
        if options.model == "boosting" and folder.rows > min(IN_MEMORY.values()):
            xgboost()  # Before any pass, rather than after two.
        return folder


def _run(how: How, folder: Folder, started: Engine, backend: str) -> FolderFit:
    """Fit a folder by an engine, from where an interrupted run stopped."""
    options, progress = how.options, how.progress
    key = {
        "version": inlier.__version__,
        "data": str(options.data.resolve()),
        "files": folder.fingerprint,
        "options": [options.target, options.task, options.model, options.inlier_fraction, options.seed],
        "parts": [sorted(options.drop), how.skip, how.rows],
    }
    work = options.out.absolute().parent / f".{options.out.name}-unfinished"
    with warnings.catch_warnings():
        # About convergence, rare classes and categories that the sample lacks, which are named elsewhere.
        warnings.simplefilter("ignore")
        passes = open_passes(started, folder.partitions, work, key, how.skip, progress)
        columns, summary = survey(passes, folder, options)
        passes.skip = False  # From here on all passes have to see the same rows.
        fitted = _fitted(passes, columns, summary, options)
        suspects = work / "suspects.parquet"
        suspects.mkdir(exist_ok=True)
        score = Score(columns.plan, folder.names, fitted.scorer, summary.starts(), suspects, FIRST_ROW)
        ranked: Ranked = passes.run(score, Ranked.__add__, "scoring the rows")
        progress("writing the files")
        return write_output(options, folder, passes, columns, summary, fitted, ranked, backend)


def _fitted(passes: Passes, columns: Columns, summary: Summary, options: TableFitOptions) -> Fitted:
    """Fit the model: in memory if there are few rows, else by passes."""
    share = None if options.inlier_fraction == "auto" else float(options.inlier_fraction)
    spec, plan = columns.spec, columns.plan
    x = plan.inputs(columns.cells)
    if summary.n <= IN_MEMORY[spec.task] and summary.n == len(columns.y):
        estimator = robust_model(spec, columns.vectorizer).fit(x, columns.y)
        regression = spec.task == "regression"
        suggested = estimator.predict(x) if regression else estimator.suspected_label_
        scores = Scores(estimator.inlier_probability_, estimator.losses_, estimator.weights_, suggested)
        return Fitted(estimator.estimator_, estimator.fraction_estimate_, Stored(scores), estimator.n_iter_)
    base = base_model(spec, columns.vectorizer)
    if spec.model == "boosting":
        return fit_boosting(passes, plan, summary, base, share, options.seed, x, columns.y)
    run = fit_regression if spec.task == "regression" else fit_classification
    return run(passes, plan, summary, base, share, options.seed, x)
