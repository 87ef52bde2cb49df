"""Pretrained encoders of texts: to vectors, by weights that the user names.

Weights are read as safetensors only, and no code that comes with them runs.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from inlier._errors import InputError, quoted
from inlier.fit._columns import Array
from inlier.fit._image_encoders import ALEXNET_FILE, TIMM

__all__ = ["encode_texts", "is_image_encoder"]

SENTENCES = "sentence-transformers:"
BATCH = 64


def is_image_encoder(spec: str) -> bool:
    """Return whether an encoder is for images; raise if it is none at all.

    Example:
        >>> is_image_encoder("sentence-transformers:all-MiniLM-L6-v2"), is_image_encoder("timm:resnet18")
        (False, True)
    """
    if spec.startswith(SENTENCES):
        return False
    if not (spec.startswith(TIMM) or (Path(spec) / ALEXNET_FILE).is_file()):
        raise InputError(
            f"encoder {quoted(spec)} is unknown; choose {SENTENCES}NAME_OR_FOLDER for texts, {TIMM}NAME or a "
            f"folder with {ALEXNET_FILE} for images"
        )
    return True


def encode_texts(spec: str, texts: Sequence[str]) -> Array:
    """Return a vector of length one for each text.

    Args:
        spec: ``sentence-transformers:`` with a name on the Hugging Face hub, or a folder.
        texts: The texts.

    Raises:
        InputError: If the package is missing, or there is no such encoder.
    """
    try:
        from sentence_transformers import SentenceTransformer
        from transformers.utils import logging as transformers_logging
    except ModuleNotFoundError:
        raise InputError(
            f'encoder {quoted(spec)} needs one more package: pip install "inlier[texts]"'
        ) from None
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]  # The command has its own.
    name = spec.removeprefix(SENTENCES)
    local = Path(name).exists()
    try:
        if local:
            os.environ.setdefault("HF_HUB_OFFLINE", "1")
        encoder = SentenceTransformer(
            name, device="cpu", trust_remote_code=False, local_files_only=local,
            model_kwargs={"use_safetensors": True},
        )  # fmt: skip
    except Exception as error:  # Its errors have no common type.
        raise InputError(f"encoder {quoted(spec)} cannot be loaded: {quoted(error)}") from None
    vectors = encoder.encode(
        list(texts),
        batch_size=BATCH,
        show_progress_bar=False,
        normalize_embeddings=True,
        convert_to_numpy=True,
    )
    return np.asarray(vectors, dtype=np.float32)
