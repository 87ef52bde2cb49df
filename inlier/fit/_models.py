"""The fitted pipeline in a file, without pickle.

A skops file is an archive of arrays with a schema that names the types to build. skops itself trusts every
type of scikit-learn, some of which open files; here only the types that a pipeline of ``inlier fit`` is made of
are built. The schema is checked before anything is.

The vocabulary of a text column is stored as one array of bytes: skops would write a node for each of its n-grams, which
takes longer than the fit.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from inlier._errors import InputError, quoted

__all__ = ["load_pipeline", "save_pipeline"]

MODEL_FILE = "model.skops"
MAX_RATIO = 20
"""Largest ratio of a model's uncompressed size to its file: ``inlier fit`` does not compress them."""
MODULES = {
    "builtins": "dict int list slice str tuple",
    "functools": "partial",
    "numpy": "dtype float32 float64 ndarray uint64",
    "inlier.fit._trees": "BoostedClassifier BoostedRegressor",
    "numpy.random._generator": "Generator",
    "scipy._lib.array_api_compat.numpy._aliases": "asarray",
    "scipy.interpolate._bsplines": "BSpline",
    "sklearn._loss._loss": "CyHalfBinomialLoss CyHalfMultinomialLoss CyHalfSquaredError",
    "sklearn._loss.link": "IdentityLink Interval LogitLink MultinomialLogit",
    "sklearn._loss.loss": "HalfBinomialLoss HalfMultinomialLoss HalfSquaredError",
    "sklearn.compose._column_transformer": "ColumnTransformer",
    "sklearn.decomposition._truncated_svd": "TruncatedSVD",
    "sklearn.ensemble._hist_gradient_boosting.binning": "_BinMapper",
    "sklearn.ensemble._hist_gradient_boosting.gradient_boosting": "HistGradientBoostingClassifier "
    "HistGradientBoostingRegressor",
    "sklearn.ensemble._hist_gradient_boosting.predictor": "TreePredictor",
    "sklearn.feature_extraction.text": "TfidfTransformer TfidfVectorizer",
    "sklearn.impute._base": "MissingIndicator SimpleImputer",
    "sklearn.linear_model._logistic": "LogisticRegression",
    "sklearn.linear_model._ridge": "Ridge",
    "sklearn.pipeline": "Pipeline",
    "sklearn.preprocessing._data": "Normalizer RobustScaler StandardScaler",
    "sklearn.preprocessing._encoders": "OneHotEncoder OrdinalEncoder",
    "sklearn.preprocessing._function_transformer": "FunctionTransformer",
    "sklearn.preprocessing._label": "LabelEncoder",
    "sklearn.preprocessing._polynomial": "SplineTransformer",
    "sklearn.utils.validation": "check_array",
    "skrub._datetime_encoder": "DatetimeEncoder _SplineEncoder",
    "skrub._squashing_scaler": "SquashingScaler _MinMaxScaler",
    "skrub._string_encoder": "StringEncoder",
    "skrub._to_str": "ToStr",
}
TYPES = frozenset(f"{module}.{name}" for module, names in MODULES.items() for name in names.split())
"""Types and functions in pipelines of ``inlier fit``: a test compares them with those of fitted ones."""
LOADERS = frozenset(
    f"{name}Node"
    for name in (
        *("Object", "List", "Type", "Json", "Tuple", "Slice", "Loss", "Function", "DType", "RandomGenerator"),
        *("Partial", "NdArray", "Dict", "Cached"),
    )
)
"""How skops may build them."""


def save_pipeline(pipeline: Any, path: Path) -> None:
    """Write a pipeline to a file."""
    import skops.io

    texts = _text_vectorizers(pipeline)
    vocabularies = [tfidf.vocabulary_ for tfidf in texts]
    try:
        for tfidf, words in zip(texts, vocabularies, strict=True):
            # N-grams of words hold no line break.
            lines = "\n".join(sorted(words, key=words.__getitem__))
            tfidf.vocabulary_ = np.frombuffer(lines.encode("utf-8", "surrogatepass"), np.uint8)
        skops.io.dump(pipeline, path)
    finally:
        for tfidf, words in zip(texts, vocabularies, strict=True):
            tfidf.vocabulary_ = words


def _text_vectorizers(pipeline: Any) -> list[Any]:
    """Return the fitted TF-IDF of each text column; a model of ready numbers has none."""
    parts = pipeline.named_steps["transform"].transformers_ if "transform" in pipeline.named_steps else []
    return [part.vectorizer_ for _, part, _ in parts if hasattr(part, "vectorizer_")]


def load_pipeline(path: str | Path) -> Any:
    """Read the pipeline that ``inlier fit`` wrote for a table.

    Args:
        path: The file ``model.skops`` of its output folder.

    Returns:
        A fitted scikit-learn pipeline, from a data frame to predictions.

    Raises:
        InputError: If it is not such a file, or asks for types that such a pipeline does not hold.
    """
    import skops.io

    path = Path(path)
    if not path.is_file():
        raise InputError(f"{quoted(path)} is not a model of inlier fit, or is broken")
    try:
        unexpected = sorted(types_in(path) - TYPES)
    except (zipfile.BadZipFile, KeyError, ValueError, OSError, RecursionError, NotImplementedError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{quoted(path)} is not a model of inlier fit, or is broken") from None
    if unexpected:
        raise InputError(
            f"{quoted(path)} holds {quoted(unexpected[0])}, which no model of inlier fit does; not loaded"
        )
    try:
        pipeline = skops.io.load(path, trusted=sorted(TYPES))
        for tfidf in _text_vectorizers(pipeline):
            lines = tfidf.vocabulary_.tobytes().decode("utf-8", "surrogatepass")
            tfidf.vocabulary_ = {word: place for place, word in enumerate(lines.split("\n"))}
        return pipeline
    except Exception as error:  # A broken archive or schema fails in many ways.
        raise InputError(f"{quoted(path)} cannot be loaded: {quoted(error)}") from None


def types_in(path: Path) -> set[str]:
    """Return all types and functions that a skops file would build.

    Raises:
        InputError: If its arrays are far larger than the file.
    """
    with zipfile.ZipFile(path) as archive:
        if sum(entry.file_size for entry in archive.infolist()) > MAX_RATIO * path.stat().st_size:
            raise InputError(f"{quoted(path)} unpacks to far more than its size; not loaded")
        return {name for node in _nodes(json.loads(archive.read("schema.json"))) for name in _named(node)}


def _nodes(value: Any) -> Iterator[dict[str, Any]]:
    """Yield all mappings in a schema."""
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            yield item
            stack.extend(item.values())
        elif isinstance(item, list):
            stack.extend(item)


def _named(node: dict[str, Any]) -> list[str]:
    """Return what a node of a schema would build, if anything."""
    if "__loader__" not in node:
        return []
    if node["__loader__"] not in LOADERS:
        return [str(node["__loader__"])]
    name = f"{node.get('__module__')}.{node.get('__class__')}"
    if name.endswith(".TfidfVectorizer"):
        # With another value, it would open the files that the cells name.
        source = node["content"]["content"]["input"]["content"]
        return [name] if source == '"content"' else [f"{name}(input={source})"]
    return [name]
