"""The words of a text that speak against its label: those that move a linear model most to the suggested one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline
from skrub import StringEncoder

__all__ = ["telling_words"]

MOST = 5
WORD = re.compile(r"\w[\w'’-]*")


def telling_words(
    pipeline: Pipeline,
    column: str,
    texts: Sequence[str | None],
    given: Sequence[str],
    suggested: Sequence[str],
) -> list[str]:
    """Return the words of each text that speak most for the suggested label and against the given one.

    TF-IDF, SVD and the logistic regression are linear, so that the weight of an n-gram for a class is the product
    of their matrices; that of a word is the sum over its n-grams.

    Args:
        pipeline: A fitted pipeline.
        column: A column of free text.
        texts: Some of its cells.
        given: Their labels.
        suggested: The labels that are suggested.

    Returns:
        The words, most telling first, with commas between them; empty where the labels are equal, or the model
        does not read this column so.
    """
    nothing = [""] * len(texts)
    vectorizer, model = pipeline.named_steps["transform"], pipeline.named_steps["model"]
    part = next((part for part in vectorizer.transformers_ if part[2] == column), None)
    if part is None or not isinstance(part[1], StringEncoder) or not isinstance(model, LogisticRegression):
        return nothing
    encoder, places = part[1], vectorizer.output_indices_[part[0]]
    if not hasattr(encoder, "tsvd_"):
        return nothing
    coefficients = model.coef_[:, places]
    if len(model.classes_) == 2:
        coefficients = np.vstack((-coefficients, coefficients)) / 2
    weights = coefficients @ encoder.tsvd_.components_
    number = {name: place for place, name in enumerate(model.classes_)}
    found = []
    for text, old, new in zip(texts, given, suggested, strict=True):
        words = list(dict.fromkeys(match[0].lower() for match in WORD.finditer(text or "")))
        if old == new or not words:
            found.append("")
            continue
        scores = np.asarray(_counts(encoder, words) @ (weights[number[new]] - weights[number[old]]))
        best = [place for place in np.argsort(-scores)[:MOST] if scores[place] > 0]
        found.append(", ".join(words[place] for place in best))
    return found


def _counts(encoder: Any, words: Sequence[str]) -> Any:
    """Return the TF-IDF of each word's n-grams, not normalized: a long word has more of them."""
    tfidf = encoder.vectorizer_
    occurs = tfidf.transform(words)
    occurs.data[:] = 1.0
    return occurs.multiply(tfidf.idf_).tocsr()
