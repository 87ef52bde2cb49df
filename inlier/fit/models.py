"""The fitted pipeline in a file, without pickle.

A skops file names the types it is made of. Only those listed here are built; a file that asks for any other
is refused before anything of it is.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from inlier.fit import InputError, shown

TRUSTED = (
    "functools.partial",
    "inlier.fit.transformers.DateParts",
    "inlier.fit.transformers.Standardize",
    "numpy.dtype",
    "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
    "sklearn.utils.validation.check_array",
)
"""What pipelines of ``inlier fit`` hold beyond what skops trusts by itself."""


def save(pipeline: Any, path: Path) -> None:
    """Write a pipeline to a file."""
    import skops.io

    skops.io.dump(pipeline, path)


def load(path: Path) -> Any:
    """Read a pipeline from a file.

    Raises:
        InputError: If it is no model file, or asks for types that a pipeline of ``inlier fit`` does not hold.
    """
    import skops.io

    try:
        strange = sorted(set(skops.io.get_untrusted_types(file=path)) - set(TRUSTED))
    except Exception:
        # A broken archive or schema fails in many ways, all of which say the same.
        raise InputError(f"{shown(path)} is no model of inlier fit, or it is broken") from None
    if strange:
        raise InputError(
            f"{shown(path)} holds {shown(strange[0])}, which no model of inlier fit does: not loaded"
        )
    try:
        return skops.io.load(path, trusted=list(TRUSTED))
    except Exception as error:
        raise InputError(f"{shown(path)} cannot be loaded: {shown(error)}") from None
