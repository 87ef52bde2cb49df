"""Tables of which a known part is wrong, for tests."""

from __future__ import annotations

import numpy as np
import pandas as pd


def houses(n=500, rate=0.15, seed=0):
    """Prices by size, rooms, city and date, with missing cells; and which of the prices are wrong."""
    random = np.random.default_rng(seed)
    size, rooms = random.gamma(4, 30, n).round(2), random.integers(1, 7, n).astype(float)
    city = random.choice(["Bonn", "Köln", "Ulm", "=1+1", "<script>alert(1)</script>"], n).astype(object)
    sold = pd.Timestamp("2019-01-01") + pd.to_timedelta(random.integers(0, 1500, n), "D")
    # Missing cells must not make a row look wrong: all effects but that of the size are small.
    price = 50 + 2 * size + 3 * rooms + 8 * (city == "Köln") + 8 * np.isin(sold.month, (6, 7))
    price = price + 0.01 * (sold - sold.min()).days + random.normal(0, 5, n)
    wrong = np.zeros(n, dtype=bool)
    wrong[random.permutation(n)[: round(rate * n)]] = True
    price = np.where(wrong, price * random.choice((0.1, 3.0, 10.0), n), price)
    frame = pd.DataFrame(
        {
            "id": np.arange(n),
            "size": size,
            "rooms": rooms,
            "city": city,
            "sold": sold.strftime("%Y-%m-%d"),
            "note": [f"seen on {i}" for i in range(n)],
            "nothing": np.nan,
            "country": "DE",
            "price": price.round(2),
        }
    )
    for column in ("rooms", "city", "sold"):
        frame.loc[random.permutation(n)[: n // 20], column] = None
    return frame, wrong


def flowers(n=300, rate=0.2, seed=0):
    """Three kinds by two measures, a part of the kinds wrong; the true kinds; and which are wrong."""
    random = np.random.default_rng(seed)
    truth = random.integers(0, 3, n)
    centers = np.array([[0.0, 0.0], [4.0, 0.0], [0.0, 4.0]])[truth]
    a, b = (centers + random.normal(size=(n, 2))).T
    wrong = random.random(n) < rate
    label = np.where(wrong, (truth + random.integers(1, 3, n)) % 3, truth)
    names = np.array(["=rose", "tulip", "daisy"], dtype=object)
    return pd.DataFrame({"a": a, "b": b, "kind": names[label]}), names[truth], wrong


def line(n=40):
    """The smallest table that can be fitted: y is about 2 x."""
    x = np.arange(float(n))
    return pd.DataFrame({"x": x, "y": 2 * x + np.sin(x)})
