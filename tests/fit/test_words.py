"""Texts: what is found without an encoder, and which words speak against a label."""

from __future__ import annotations

import json
import re

import numpy as np
import pandas as pd

from tests.fit.commands import succeed


def test_the_words_that_speak_against_a_label_are_shown(tmp_path):
    random = np.random.default_rng(0)
    words = {"card": ("card", "plastic", "chip"), "rate": ("exchange", "rate", "currency")}
    filler = ("please", "help", "today", "my", "account", "question", "hello", "about", "need", "still")
    rows = []
    for k in range(240):
        kind = ("card", "rate")[k % 2]
        text = [*random.choice(words[kind], 2, replace=False), *random.choice(filler, 4, replace=False)]
        rows.append((" ".join(random.permutation(text)), kind))
    frame = pd.DataFrame(rows, columns=["text", "kind"])
    wrong = random.random(len(frame)) < 0.1
    truth = frame["kind"].to_numpy(object)
    frame["kind"] = np.where(wrong, np.where(truth == "card", "rate", "card"), truth)
    frame.to_csv(tmp_path / "a.csv", index=False)
    succeed(
        "fit", tmp_path / "a.csv", "--target", "kind", "--out", tmp_path / "out", "--inlier-fraction", 0.9
    )
    first = pd.read_parquet(tmp_path / "out" / "suspects.parquet")["index"][: wrong.sum()]
    assert wrong[first].mean() > 0.95
    page = (tmp_path / "out" / "report.html").read_text()
    data = json.loads(
        re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)[1]
    )
    place = data["columns"].index("text: words for the suggested label")
    for suspect in data["suspects"][: wrong.sum()]:
        telling = suspect["values"][place].split(", ")
        assert telling[0] in words[suspect["suggested"]]
        assert not set(telling) & set(words[suspect["given"]])
