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
    assert {value for value in loaded if value[0] != "#"} == {"data:,"}
    assert not any("style" in attributes for _, attributes in page.tags)
    identifiers = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(identifiers) == len(set(identifiers))
    assert {value[1:] for value in loaded if value[0] == "#"} <= set(identifiers)
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


@pytest.mark.parametrize(
    ("confusion", "words"),
    [
        ([("ax", "al", 3)], "Few errors, if any: 3 of 2,000 rows have an unlikely label"),
        ([], "No errors found in 2,000 rows"),  # A regression: large errors may be its tails.
    ],
)
def test_labels_that_are_unlikely_are_not_passed_over_where_noise_as_a_whole_is_ruled_out(confusion, words):
    clean = FractionEstimate(1.0, 0.0, True)
    page = render(findings(estimate=clean, total=2000, doubtful=3, confusion=confusion))
    assert re.search(r"<h1>(.*)</h1>", page)[1] == words


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
    area = [curve_area(histogram, colour) for colour in ("right", "wrong")]
    drawn = sum(map(bar_area, re.findall(r'<path d="([^"]*)" fill="var\(--\w+-fill\)"', histogram)))
    assert sum(area) == pytest.approx(drawn / 0.93, rel=0.03)  # There are gaps between bars.
    assert area[1] / sum(area) == pytest.approx(0.15, abs=0.03)


def points(path: str) -> list[tuple[float, float]]:
    return [tuple(map(float, point.split())) for point in path.strip("Mz").split("L")]


def curve_area(figure: str, colour: str) -> float:
    path = re.search(rf'<path d="([^"]*)" fill="none" stroke="var\(--{colour}\)"', figure)[1]
    x, y = np.array(points(path)).T
    return float(np.trapezoid(226 - y, x))


def bar_area(path: str) -> float:
    x, y = np.array(points(path)).T
    return float(np.ptp(x) * np.ptp(y))


def test_an_estimate_without_densities_has_none_drawn():
    estimate = FractionEstimate(0.85, 0.01, True, "From margins.")
    histogram = render(findings(estimate=estimate)).split('id="figure-losses"')[1].split("</figure>")[0]
    assert 'fill="var(--wrong-fill)"' in histogram
    assert 'stroke="var(--right)"' not in histogram


def test_without_a_kernel_no_curve_is_drawn():
    text = render(findings(kernel=None))
    assert "Scale c</dt>" not in text
    weights = text.split('id="figure-weights"')[1].split("</figure>")[0]
    assert 'stroke="var(--kernel)" stroke-width="2.2"' not in weights
    assert 'stroke="var(--kernel)" stroke-width="2.2"' in render(findings())


def test_charts_are_the_same_each_time_whatever_the_settings_of_matplotlib():
    import matplotlib

    once = render(findings())
    with matplotlib.rc_context({"font.size": 30, "svg.fonttype": "path", "axes.facecolor": "red"}):
        assert render(findings()) == once


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
