"""Fits that many tests use, computed once."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests.fit.commands import succeed
from tests.fit.tables import houses, line


@pytest.fixture(scope="session")
def houses_fit(tmp_path_factory):
    """The houses, fitted once: the file, the output, the table, which rows are wrong, and what was printed."""
    folder = tmp_path_factory.mktemp("houses")
    frame, wrong = houses()
    data, out = folder / "houses.csv", folder / "out"
    frame.to_csv(data, index=False)
    printed = succeed("fit", data, "--target", "price", "--out", out)
    return SimpleNamespace(data=data, out=out, frame=frame, wrong=wrong, printed=printed)


@pytest.fixture
def line_fit(tmp_path):
    """The arguments of a fit that takes a fraction of a second; its output is in the folder `out`."""
    line().to_csv(tmp_path / "line.csv", index=False)
    return (
        *("fit", tmp_path / "line.csv", "--target", "y"),
        *("--inlier-fraction", 0.9, "--out", tmp_path / "out"),
    )
