"""The rooms of the package: CONTRIBUTING.md lists them in the order that import-linter enforces."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_the_table_of_rooms_matches_the_order_of_imports():
    linter = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    order = [set(re.findall(r"\w+", layer)) for layer in reversed(linter["contracts"][0]["layers"])]
    table = re.findall(r"^\| (`inlier/.*?) \|", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE)
    rooms = [re.sub(r"`|inlier/|\.py|/", "", room) for line in table for room in line.split(", ")]
    assert set(rooms) == set().union(*order)
    position = {room: number for number, layer in enumerate(order) for room in layer}
    assert [position[room] for room in rooms] == sorted(position.values())
