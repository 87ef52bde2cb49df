"""What the report says, and that it is one self-contained file."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace

import numpy as np
import pytest
import torch

from inlier import FractionEstimate, fit_inliers
from inlier.fraction import GivenFraction
from inlier.report import Deviation, Suspect, write
from inlier.report._page import render
from tests.report.examples import HOSTILE, Reader, findings


def test_it_is_complete_and_loads_nothing():
    text = render(findings())
    page = Reader(text)
    assert page.open == []
    assert not {"iframe", "object", "embed", "base", "audio", "video"} & {tag for tag, _ in page.tags}
    loaded = [
        value
        for _, attributes in page.tags
        for key, value in attributes.items()
        if key in ("src", "href", "srcset", "action", "data", "xlink:href")
    ]
    assert loaded == ["data:,"]
    assert "url(" not in text
    assert "@import" not in text
    policy = next(a["content"] for _, a in page.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'; img-src data:;")
    assert "unsafe" not in policy


def test_a_trusted_estimate_is_the_headline_with_its_interval_and_reason():
    shown = findings()
    page = Reader(render(shown))
    assert re.search(r"About 1\d % \(1\d to 1\d %\) of 2,000 rows look wrong", page.text)
    assert "The estimate is trusted" in page.text
    assert shown.estimate.reason in page.text
    assert page.has_class("shares")
    assert "linear" in page.text


def test_an_untrusted_number_never_stands_alone():
    estimate = FractionEstimate(0.44, 0.03, False, "Heavy tails and errors look alike here.")
    page = Reader(render(findings(estimate=estimate)))
    assert "Cannot tell how many of 2,000 rows are wrong" in page.text
    assert "The estimate is not trusted" in page.text
    assert "Heavy tails and errors look alike here." in page.text
    assert not page.has_class("shares")
    assert "56 %" not in page.text
    assert page.text.count("44.0") == page.text.count("44.0 ± 3.0 %, not trusted") == 1


@pytest.mark.parametrize(
    ("estimate", "words"),
    [
        (FractionEstimate(1.0, 0.0, True), "No errors found in 2,000 rows"),
        (FractionEstimate(0.998, 0.0, True), "About 0.2 % of 2,000 rows look wrong"),
        (FractionEstimate(0.99999, 0.0, True), "Less than 0.1 % of 2,000 rows look wrong"),
        (FractionEstimate(0.0, 0.0, True), "About 100 % of 2,000 rows look wrong"),
        (FractionEstimate(0.97, 0.02, True), "Less than 6.9 % of 2,000 rows look wrong"),
        (FractionEstimate(1.0, 0.0, False), "Cannot tell how many of 2,000 rows are wrong"),
        (GivenFraction(0.8).estimate(), "20 % of 2,000 rows were assumed to be wrong, as given"),
    ],
    ids=str,
)
def test_the_headline_says_what_is_known(estimate, words):
    heading = re.search(r"<h1>(.*)</h1>", render(findings(estimate=estimate)))
    assert heading[1] == words


def test_hostile_texts_stay_texts():
    suspect = Suspect(
        1, 0.1, 2.0, HOSTILE, HOSTILE, {HOSTILE: HOSTILE}, [Deviation(HOSTILE, HOSTILE, HOSTILE, 3.0)]
    )
    estimate = FractionEstimate(0.9, reason=HOSTILE)
    hostile = findings(
        title=HOSTILE, facts={HOSTILE: HOSTILE}, suspects=[suspect], unit=HOSTILE, estimate=estimate
    )
    page, calm = Reader(render(hostile)), Reader(render(findings(suspects=[replace(suspect, given="a")])))
    count = [[tag for tag, _ in reader.tags].count("script") for reader in (page, calm)]
    assert count == [2, 2]
    assert "img" not in {tag for tag, _ in page.tags}
    data = json.loads(page.data)
    assert data["columns"] == [HOSTILE]
    assert data["suspects"][0]["given"] == HOSTILE
    assert data["suspects"][0]["deviations"] == [[HOSTILE, HOSTILE, HOSTILE, 3.0]]
    assert not set("<>&\u2028") & set(page.data)


def test_long_cells_many_columns_and_lone_surrogates(tmp_path):
    wide = {f"c{k}": "x" for k in range(5000)} | {"half": "\ud800"}
    suspects = [Suspect(0, 0.1, 2.0, given="\ud83d" + "y" * 100_000, values=wide)]
    path = write(tmp_path / "r.html", findings(suspects=suspects))
    data = json.loads(Reader(path.read_text("utf-8")).data)
    assert path.stat().st_size < 200_000
    assert data["more"] == 4801
    assert data["suspects"][0]["given"].endswith("y… (100,001 characters)")


@pytest.mark.parametrize(
    "losses",
    [
        [1.0],
        [0.0],
        [math.nan],
        [2.0] * 50,
        [0.0] * 50,
        [math.inf, 1.0, math.nan, 3.0],
        [1e-300, 1e300],
        [5e-324, 1.0],
        [],
    ],
    ids=lambda losses: f"{len(losses)} from {losses[:1]}",
)
def test_any_losses_can_be_shown(losses):
    tensor = torch.tensor(losses, dtype=torch.float64)
    estimate = fit_inliers(tensor) if any(map(math.isfinite, losses)) else FractionEstimate(1.0)
    suspects = [Suspect(0, math.nan, loss) for loss in losses[:1]]
    for scale in (1.0, math.inf, 0.0):
        text = render(
            findings(
                losses=tensor,
                inlier_probability=torch.full((len(losses),), 0.5),
                estimate=estimate,
                scale=scale,
                history=[(0, math.inf, 1.0), (1, math.inf, math.nan)],
                suspects=suspects,
            )
        )
        svg = "".join(re.findall(r"<svg.*?</svg>", text, re.DOTALL))
        assert not re.search(r'="[^"]*\b(nan|inf)\b', svg)
        json.loads(Reader(text).data)


def test_without_suspects_and_history_there_is_still_a_page():
    text = render(findings(suspects=[], history=[]))
    assert "No rows are listed" in text
    assert {"losses", "weights"} == set(re.findall(r'id="figure-(\w+)"', text))


def test_arrays_are_accepted_and_must_agree():
    some = findings()
    arrays = replace(some, losses=some.losses.numpy(), inlier_probability=some.inlier_probability.numpy())
    assert render(arrays) == render(some)
    with pytest.raises(ValueError, match="have 2000, 3 and 3 entries: pass one of each"):
        render(replace(some, inlier_probability=np.ones(3)))


def test_the_densities_of_a_mixture_are_drawn_and_have_the_area_of_the_bars():
    text = render(findings())
    assert {"losses", "weights", "scale", "fraction"} == set(re.findall(r'id="figure-(\w+)"', text))
    histogram = text.split('id="figure-losses"')[1].split("</figure>")[0]
    bars = re.findall(r": ([\d,]+) rows, ", histogram)
    assert sum(int(x.replace(",", "")) for x in bars[::2]) == 2000
    area = [0.0, 0.0]
    for k, kind in enumerate(("inliers", "outliers")):
        path = re.search(rf'class="line {kind}" d="M([^"]*)"', histogram)
        area[k] = sum(226 - float(point.split()[1]) for point in path[1].split("L"))
    drawn = sum(float(h) for h in re.findall(r'<rect class="bar[^>]*height="([\d.]+)"', histogram))
    assert sum(area) / 240 == pytest.approx(drawn / 56, rel=0.03)
    assert area[1] / sum(area) == pytest.approx(0.15, abs=0.03)


def test_an_estimate_without_densities_has_none_drawn():
    estimate = FractionEstimate(0.85, 0.01, True, "From margins.")
    histogram = render(findings(estimate=estimate)).split('id="figure-losses"')[1].split("</figure>")[0]
    assert "bar outliers" in histogram
    assert 'class="line' not in histogram


def test_without_a_kernel_no_curve_is_drawn():
    text = render(findings(kernel=None))
    assert "Scale c</dt>" not in text
    assert 'class="line kernel"' not in text.split('id="figure-weights"')[1].split("</figure>")[0]


def test_an_old_report_is_kept_where_the_new_one_fails(tmp_path):
    path = write(tmp_path / "r.html", findings())
    before = path.read_bytes()
    with pytest.raises(ValueError, match="entries"):
        write(path, findings(losses=torch.ones(3)))
    assert path.read_bytes() == before
    with pytest.raises(FileNotFoundError, match=r"folder .* does not exist; create it first"):
        write(tmp_path / "none" / "r.html", findings())
    with pytest.raises(TypeError, match=r"\['title'\] apply to a training"):
        write(path, findings(), title="x")
