"""The report: what the page says, that it is one whole file, and how it behaves in a real browser."""

from __future__ import annotations

import copy
import io
import json
import math
import re
import shutil
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
import torch

from inlier import Robust, kernels
from inlier.fraction import fit_inliers
from inlier.history import MOST, History
from inlier.report import Deviation, Findings, Suspect, findings_of, write
from inlier.report.page import render
from inlier.report.pictures import SIDE, thumbnail
from inlier.report.svg import Axis
from inlier.report.words import headline, trust

pytest.importorskip("jinja2")
Image = pytest.importorskip("PIL.Image")

HOSTILE = "</script><script>window.broken = 1</script><!--<img src=x onerror='window.broken = 1'>&\u2028\"'"
KERNEL = kernels.get("geman-mcclure")


def findings(n: int = 2000, listed: int = 120, seed: int = 0, **changes) -> Findings:
    """A table of which 15 % of the rows have errors ten times as large."""
    generator = torch.Generator().manual_seed(seed)
    bad = torch.rand(n, generator=generator) < 0.15
    losses = (torch.randn(n, generator=generator) * torch.where(bad, 10.0, 1.0)) ** 2
    fit = fit_inliers(losses)
    belief = fit.posterior(losses)
    suspects = [
        Suspect(
            row,
            float(belief[row]),
            float(losses[row]),
            given=f"{row / 10:.1f}",
            suggested=("ten", "Nine", "eight")[row % 3],
            values={"age": str(row % 90), "city": "Paris" if row % 2 else "Ürümqi"},
            deviations=[Deviation("age", str(row % 90), "41", 9 - row / n), Deviation("city", "x", "y", 1.5)],
        )
        for row in losses.argsort(descending=True)[:listed].tolist()
    ]
    history = [(k, 30 - k, 1 - 0.015 * k) for k in range(10)]
    made = Findings(
        "houses.csv", losses, belief, KERNEL, 20.0, 0.85, fit, history, suspects, {"Model": "linear"}
    )
    return replace(made, **changes)


class Reader(HTMLParser):
    """The elements, texts and embedded data of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text, self.data = "", ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "link", "input", "br", "img"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        tag, attributes = self.tags[-1] if self.tags else ("", {})
        if tag == "script" and attributes.get("id") == "data" and self.open[-1] == "script":
            self.data += data
        elif self.open and self.open[-1] not in ("script", "style"):
            self.text += data


class TestThePage:
    def test_it_is_whole_and_loads_nothing(self):
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

    def test_it_says_what_was_found_and_whether_to_trust_it(self):
        page = Reader(render(findings()))
        assert "About 15 % of 2,000 rows look wrong" in page.text
        assert "The estimate can be trusted" in page.text
        assert "Two groups fit, and lie far apart." in page.text
        assert "linear" in page.text

    @pytest.mark.parametrize(
        ("fraction", "words"),
        [
            (1.0, "None of the 2,000 rows look wrong"),
            (0.998, "About 0.2 % of 2,000 rows look wrong"),
            (0.99999, "Less than 0.1 % of 2,000 rows looks wrong"),
            (0.0, "About 100 % of 2,000 rows look wrong"),
        ],
    )
    def test_headline(self, fraction, words):
        assert headline(findings(inlier_fraction=fraction), 2000) == words

    def test_doubt_is_shown(self):
        kind, verdict, why = trust(findings(inlier_fraction=0.6))
        assert (kind, verdict) == ("doubted", "Treat the estimate with caution")
        assert "speak for 85 % right; 60 % was in force" in why
        few = torch.rand(20)
        assert trust(findings(fit=fit_inliers(few)))[0] == "doubted"
        assert trust(findings(fit=None))[0] == "unknown"

    def test_hostile_texts_stay_texts(self):
        suspect = Suspect(
            1, 0.1, 2.0, HOSTILE, HOSTILE, {HOSTILE: HOSTILE}, [Deviation(HOSTILE, HOSTILE, HOSTILE, 3.0)]
        )
        hostile = findings(title=HOSTILE, facts={HOSTILE: HOSTILE}, suspects=[suspect], unit=HOSTILE)
        page, calm = Reader(render(hostile)), Reader(render(findings(suspects=[replace(suspect, given="a")])))
        count = [[tag for tag, _ in reader.tags].count("script") for reader in (page, calm)]
        assert count == [2, 2]
        assert "img" not in {tag for tag, _ in page.tags}
        data = json.loads(page.data)
        assert data["columns"] == [HOSTILE]
        assert data["suspects"][0]["given"] == HOSTILE
        assert data["suspects"][0]["deviations"] == [[HOSTILE, HOSTILE, HOSTILE, 3.0]]
        assert not set("<>&\u2028") & set(page.data)

    def test_long_cells_many_columns_and_broken_letters(self, tmp_path):
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
        ids=str,
    )
    def test_any_losses_can_be_shown(self, losses):
        fit = fit_inliers(torch.tensor(losses)) if any(map(math.isfinite, losses)) else None
        suspects = [Suspect(0, math.nan, loss) for loss in losses[:1]]
        for scale in (1.0, math.inf, 0.0):
            text = render(
                findings(
                    losses=torch.tensor(losses),
                    inlier_probability=torch.full((len(losses),), 0.5),
                    scale=scale,
                    fit=fit,
                    history=[(0, math.inf, 1.0), (1, math.inf, math.nan)],
                    suspects=suspects,
                )
            )
            svg = "".join(re.findall(r"<svg.*?</svg>", text, re.DOTALL))
            assert not re.search(r'="[^"]*\b(nan|inf)\b', svg)
            json.loads(Reader(text).data)

    def test_nothing_suspect(self):
        page = Reader(render(findings(suspects=[], history=[])))
        assert "No rows are listed as suspects" in page.text
        assert "No rounds were kept" in page.text

    def test_arrays_are_taken_and_must_agree(self):
        some = findings()
        arrays = replace(some, losses=some.losses.numpy(), inlier_probability=some.inlier_probability.numpy())
        assert render(arrays) == render(some)
        with pytest.raises(ValueError, match="have 2000, 3 and 3 entries: give one of each"):
            render(replace(some, inlier_probability=np.ones(3)))

    def test_the_fitted_groups_and_the_kernel_are_drawn(self):
        text = render(findings())
        assert {"losses", "weights", "scale", "fraction"} == set(re.findall(r'id="figure-(\w+)"', text))
        histogram = text.split('id="figure-losses"')[1].split("</figure>")[0]
        assert 'class="line inliers"' in histogram
        assert 'class="line outliers"' in histogram
        bars = re.findall(r": ([\d,]+) rows, ", histogram)
        assert sum(int(x.replace(",", "")) for x in bars[::2]) == 2000
        # Both laws together have the area of the bars: curves are expected counts.
        area = [0.0, 0.0]
        for k, kind in enumerate(("inliers", "outliers")):
            path = re.search(rf'class="line {kind}" d="M([^"]*)"', histogram)
            area[k] = sum(226 - float(point.split()[1]) for point in path[1].split("L"))
        drawn = sum(float(h) for h in re.findall(r'<rect class="bar[^>]*height="([\d.]+)"', histogram))
        assert sum(area) / 240 == pytest.approx(drawn / 56, rel=0.03)
        assert area[1] / sum(area) == pytest.approx(0.15, abs=0.03)

    def test_an_old_report_is_kept_where_the_new_one_fails(self, tmp_path):
        path = write(tmp_path / "r.html", findings())
        before = path.read_bytes()
        with pytest.raises(ValueError, match="entries"):
            write(path, findings(losses=torch.ones(3)))
        assert path.read_bytes() == before
        with pytest.raises(FileNotFoundError, match=r"there is no folder .*; make it first"):
            write(tmp_path / "none" / "r.html", findings())
        with pytest.raises(TypeError, match=r"\['title'\] go with a Robust"):
            write(path, findings(), title="x")

    @pytest.mark.parametrize(("low", "high"), [(0, 1.05), (0, 3), (-0.5, 0.5), (0, 1e7), (99, 101)])
    def test_ticks_are_round_few_and_inside(self, low, high):
        ticks = Axis(low, high, "").ticks()
        assert 2 <= len(ticks) <= 8
        assert all(low - 1e-9 <= tick <= high + 1e-9 for tick in ticks)
        logs = Axis(1 + abs(low), 2 + abs(low) + 7 * high, "", log=True).ticks()
        assert 1 <= len(logs) <= 8


def trained(groups: bool = False) -> tuple[Robust, torch.Tensor]:
    """A Robust that saw 600 samples, of which each fifth has a large loss."""
    torch.manual_seed(0)
    robust = Robust(inlier_fraction=0.8, warmup=5, update_every=1, samples=610)
    index = torch.arange(600)
    bad = index % 5 == 0
    for _ in range(10):
        losses = (torch.randn(600) * torch.where(bad, 15.0, 1.0)) ** 2
        robust(losses, index, index % 3 if groups else None)
    return robust, bad


class TestATraining:
    def test_its_suspects_come_with_labels_values_and_pictures(self, tmp_path):
        robust, bad = trained()
        about = {
            "labels": torch.ones(610, dtype=torch.long),
            "suggested": np.zeros(610, dtype=int),
            "class_names": [HOSTILE, "dog"],
            "values": {"camera": [f"camera {k}" for k in range(610)], "angle": torch.linspace(0, 1, 610)},
            "images": torch.randint(256, (610, 3, 8, 8), dtype=torch.uint8),
        }
        found = findings_of(robust, most=50, **about)
        assert len(found.suspects) == 50
        assert all(bad[s.row] for s in found.suspects)
        probabilities = [s.inlier_probability for s in found.suspects]
        assert probabilities == sorted(probabilities)
        first = found.suspects[0]
        assert (first.given, first.suggested) == ("dog", HOSTILE)
        assert first.values == {"camera": f"camera {first.row}", "angle": f"{first.row / 609:.6g}"}
        picture = Image.open(io.BytesIO(first.image))
        assert (np.array(picture).transpose(2, 0, 1) == about["images"][first.row].numpy()).all()
        text = write(tmp_path / "r.html", robust, title="Photos", most=50, **about).read_text("utf-8")
        page = Reader(text)
        assert "About 20 % of 600 samples look wrong" in page.text
        assert "10 samples: not seen" in page.text
        assert [x for x, _, _ in found.history] == list(range(1, 11))

    def test_groups_have_a_curve_each(self, tmp_path):
        robust, _ = trained(groups=True)
        found = findings_of(robust)
        assert found.group_scales == pytest.approx(robust.scale.tolist())
        assert found.inlier_fraction == pytest.approx(0.8, abs=0.01)
        text = write(tmp_path / "r.html", robust).read_text("utf-8")
        assert text.count('class="line kernel thin"') == 3

    def test_a_data_frame_is_read_by_position(self):
        pandas = pytest.importorskip("pandas")
        robust, _ = trained()
        frame = pandas.DataFrame({"k": range(610)}, index=range(610, 0, -1))
        assert all(s.values["k"] == str(s.row) for s in findings_of(robust, values=frame).suspects)

    def test_wrong_arguments(self):
        robust, _ = trained()
        with pytest.raises(ValueError, match="labels has 3 entries for 610 samples"):
            findings_of(robust, labels=[1, 2, 3])
        with pytest.raises(RuntimeError, match="train with"):
            findings_of(Robust())

    def test_before_the_first_update_nothing_is_suspect(self, tmp_path):
        robust = Robust()
        robust(torch.rand(40), torch.arange(40))
        found = findings_of(robust)
        assert found.suspects == []
        assert found.scale == math.inf
        assert "None of the 40 samples" in write(tmp_path / "r.html", robust).read_text("utf-8")


class TestPictures:
    @pytest.mark.parametrize(
        ("shape", "size"),
        [
            ((1, 5, 7), (7, 5)),
            ((5, 7), (7, 5)),
            ((5, 7, 3), (7, 5)),
            ((4, 5, 7), (7, 5)),
            ((3, 300, 100), (21, 64)),
        ],
    )
    def test_shapes(self, shape, size):
        for picture in (torch.rand(shape), np.zeros(shape, np.uint8), torch.zeros(shape, dtype=torch.bool)):
            assert Image.open(io.BytesIO(thumbnail(picture))).size == size

    def test_normalised_pixels_are_stretched_and_others_are_not(self):
        def grey(pixels):
            return np.array(Image.open(io.BytesIO(thumbnail(pixels))))[..., 0].tolist()

        assert grey(torch.tensor([[0.0, 0.2]])) == [[0, 51]]
        assert grey(torch.tensor([[-2.0, 0.0, 2.0]])) == [[0, 128, 255]]
        assert grey(torch.tensor([[math.nan, 1.0]])) == [[0, 255]]

    def test_files_and_pillow_images(self, tmp_path):
        Image.new("RGBA", (900, 300), (1, 2, 3, 255)).save(tmp_path / "a.png")
        for picture in (tmp_path / "a.png", str(tmp_path / "a.png"), Image.open(tmp_path / "a.png")):
            small = Image.open(io.BytesIO(thumbnail(picture)))
            assert small.size == (SIDE, 21)
            assert small.getpixel((0, 0)) == (1, 2, 3, 255)
        (tmp_path / "b.png").write_text("no picture")
        for name in ("b.png", "missing.png"):
            with pytest.raises(ValueError, match=f"{name}' cannot be read as an image"):
                thumbnail(tmp_path / name)
        with pytest.raises(ValueError, match=r"shape \(2, 2, 2\) is no picture"):
            thumbnail(torch.zeros(2, 2, 2))


class TestHistory:
    def test_it_stays_short_and_evenly_spread(self):
        history = History()
        for call in range(10_000):
            history.offer(call, torch.tensor([float(call + 1)]), torch.tensor([0.5]), 3e38)
            assert len(history) < MOST
        calls = [call for call, _, _ in history]
        assert len(history) >= MOST / 2
        assert set(np.diff(calls)) == {history.stride}
        assert (calls[0], calls[-1]) == (0, 9984)
        assert all(scale == pytest.approx(call + 1) for call, scale, _ in history)

    def test_unseen_groups_are_left_out(self):
        history = History()
        history.offer(1, torch.tensor([3e38, 2.0, 8.0]), torch.tensor([1.0, 0.5, 0.6]), 3e38)
        history.offer(2, torch.tensor([3e38]), torch.tensor([1.0]), 3e38)
        assert history[0] == (1, pytest.approx(4.0), pytest.approx(0.7))
        assert history[1] == (2, math.inf, 1.0)

    def test_a_resumed_training_has_the_same(self):
        robust, _ = trained()
        resumed = Robust(inlier_fraction=0.8, warmup=5, update_every=1, samples=610)
        resumed.load_state_dict(robust.state_dict())
        for other in (resumed, copy.deepcopy(robust)):
            assert other.history == robust.history
            assert (other.history.stride, other.history.offered) == (1, 10)
            other(torch.rand(5), torch.arange(5))
            assert len(other.history) == 11
        assert len(robust.history) == 10

    def test_a_checkpoint_from_before_there_was_one_loads(self):
        robust, _ = trained()
        state = {key: value for key, value in robust.state_dict().items() if key != "history"}
        old = Robust(inlier_fraction=0.8, samples=610)
        old.load_state_dict(state, strict=True)
        assert old.history == []


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api")
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("needs Chromium, as the program `chromium`")
    with playwright.sync_playwright() as p:
        running = p.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture
def show(browser, tmp_path):
    """Open a report; the test fails on any message of the console and on any request but for the file."""
    problems, pages = [], []

    def open_report(shown: Findings, **options):
        path = write(tmp_path / f"report{len(pages)}.html", shown)
        page = browser.new_page(**({"viewport": {"width": 1100, "height": 800}} | options))
        pages.append(page)
        page.on("console", lambda message: problems.append(message.text))
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("dialog", lambda dialog: (problems.append("a dialog opened"), dialog.dismiss()))
        address = path.as_uri()
        page.on(
            "request",
            lambda request: (
                None
                if request.url == address or request.url.startswith("data:")
                else problems.append(request.url)
            ),
        )
        page.goto(address)
        return page

    yield open_report
    for page in pages:
        page.close()
    assert problems == []


def column(page, name: str) -> list[str]:
    return page.locator(f'tr.suspect td[data-label="{name}"]').all_inner_texts()


def head(page, name: str):
    return page.get_by_role("columnheader", name=name)


class TestInABrowser:
    def test_sorting_by_every_column(self, show):
        shown = findings(listed=40)
        page = show(shown)
        by_rank = [str(s.row) for s in shown.suspects]
        assert column(page, "Number") == by_rank
        keys = {
            "Number": lambda s: s.row,
            "Given": lambda s: float(s.given),
            "Suggested": lambda s: s.suggested.lower(),
            "Inlier probability": lambda s: s.inlier_probability,
            "Loss": lambda s: s.loss,
            "Largest deviation": lambda s: s.deviations[0].score,
        }
        for name, key in keys.items():
            for _ in range(2):
                head(page, name).get_by_role("button").click()
                direction = head(page, name).get_attribute("aria-sort")
                wanted = sorted(shown.suspects, key=key, reverse=direction == "descending")
                if name in ("Suggested", "Inlier probability"):  # Equal ones stay in the order of suspicion.
                    seen = {str(s.row): s for s in shown.suspects}
                    assert [key(seen[row]) for row in column(page, "Number")] == [key(s) for s in wanted]
                else:
                    assert column(page, "Number") == [str(s.row) for s in wanted]
            assert page.locator("th[aria-sort]").count() == 1

    def test_missing_and_infinite_numbers_sort_last_and_first(self, show):
        losses = [3.0, math.nan, math.inf, 10.0, 2.0]
        page = show(findings(suspects=[Suspect(k, 0.1, loss) for k, loss in enumerate(losses)]))
        head(page, "Loss").get_by_role("button").click()
        assert column(page, "Loss") == ["∞", "10", "3", "2", "–"]
        head(page, "Loss").get_by_role("button").click()
        assert column(page, "Loss") == ["2", "3", "10", "∞", "–"]

    def test_filtering(self, show):
        suspects = [
            Suspect(k, k / 100, 1.0, given=name, values={"city": city})
            for k, (name, city) in enumerate(
                [("cat", "Oslo"), ("dog", "Oslo"), ("cat", "Ürümqi"), ("a+(b", "x")] * 20
            )
        ]
        page = show(findings(suspects=suspects))
        status = page.get_by_role("status")
        assert status.inner_text() == "1–50 of 80 suspects"
        page.get_by_label("Search").fill("CAT üRÜ")
        assert status.inner_text() == "1–20 of 20 suspects, filtered from 80"
        assert column(page, "Number") == [str(k) for k in range(2, 80, 4)]
        page.get_by_label("to", exact=True).fill("0.3")
        assert column(page, "Number") == [str(k) for k in range(2, 31, 4)]
        page.get_by_label("from", exact=True).fill("0.1")
        assert column(page, "Number") == [str(k) for k in range(10, 31, 4)]
        page.get_by_label("Search").fill("a+(b")
        assert column(page, "Number") == [str(k) for k in range(11, 31, 4)]
        page.get_by_label("Search").fill("nowhere")
        assert page.get_by_text("No suspect matches.").is_visible()
        assert status.inner_text() == "0 suspects, filtered from 80"
        page.get_by_role("button", name="Clear").click()
        page.locator("tr.suspect").nth(49).wait_for()
        assert status.inner_text() == "1–50 of 80 suspects"

    def test_opening_a_suspect(self, show):
        picture = thumbnail(torch.zeros(8, 8))
        shown = findings(listed=3)
        shown = replace(shown, suspects=[replace(shown.suspects[0], image=picture), *shown.suspects[1:]])
        page = show(shown)
        first = shown.suspects[0]
        opener = page.get_by_role("button", name=f"Details of {first.row}", exact=True)
        assert opener.get_attribute("aria-expanded") == "false"
        page.locator("tr.suspect").first.click()
        assert opener.get_attribute("aria-expanded") == "true"
        panel = page.locator("tr.details")
        for text in (first.given, first.suggested, first.values["city"], "age", "41"):
            assert text in panel.inner_text()
        widths = panel.locator(".deviation b").evaluate_all("bars => bars.map(b => b.offsetWidth)")
        ratio = first.deviations[1].score / first.deviations[0].score
        assert widths[1] / widths[0] == pytest.approx(ratio, abs=0.02)
        image = panel.locator("img")
        assert image.evaluate("image => image.decode().then(() => image.naturalWidth)") == 8
        assert image.evaluate("image => getComputedStyle(image).imageRendering") == "pixelated"
        head(page, "Loss").get_by_role("button").click()  # It stays open where it goes.
        assert page.locator("tr.open + tr.details").count() == 1
        page.locator("tr.suspect.open").click()
        assert panel.count() == 0

    def test_with_the_keyboard_alone(self, show):
        page = show(findings(listed=5))
        page.get_by_label("Search").focus()
        for _ in range(4):
            page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Number"
        page.keyboard.press("Enter")
        assert head(page, "Number").get_attribute("aria-sort") == "ascending"
        for _ in range(6):
            page.keyboard.press("Tab")
        rows = column(page, "Number")
        assert page.evaluate("document.activeElement.textContent") == rows[0]
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Enter")
        assert page.locator("tr.open .opener").inner_text() == rows[1]
        page.keyboard.press("Space")
        assert page.locator("tr.open").count() == 0

    def test_hostile_cells_stay_text(self, show):
        suspect = Suspect(
            0, 0.1, 2.0, HOSTILE, HOSTILE, {HOSTILE: HOSTILE}, [Deviation(HOSTILE, HOSTILE, HOSTILE, 3.0)]
        )
        page = show(findings(title=HOSTILE, facts={HOSTILE: HOSTILE}, suspects=[suspect], unit=HOSTILE))
        page.locator("tr.suspect").first.click()
        assert page.evaluate("window.broken") is None
        assert page.locator("body > script").count() == 2
        assert page.locator("img").count() == 0
        assert page.title().startswith("</script><script>window.broken")
        shown = page.locator("tr.details dd").all_inner_texts()
        assert shown.count(HOSTILE) == 3

    def test_the_policy_of_the_page_stops_what_would_be_slipped_in(self, browser, tmp_path):
        path = write(tmp_path / "r.html", findings())
        slipped = "<script>window.broken = 1</script><img src='https://example.org/x' onerror='broken = 1'>"
        path.write_text(path.read_text("utf-8").replace("<main>", f"<main>{slipped}"), "utf-8")
        page = browser.new_page()
        page.goto(path.as_uri())
        assert page.evaluate("window.broken") is None
        page.close()

    def test_ten_thousand_suspects_are_paged(self, show):
        suspects = [Suspect(k, k / 10_000, 1.0, values={"a": f"value {k}"}) for k in range(10_000)]
        page = show(findings(suspects=suspects))
        assert page.locator("tr.suspect").count() == 50
        page.get_by_role("button", name="Next").click()
        assert column(page, "Number") == [str(k) for k in range(50, 100)]
        assert page.locator("#page").inner_text() == "Page 2 of 200"
        page.get_by_label("Search").fill("value 9999")
        assert column(page, "Number") == ["9999"]
        assert page.locator("#pager").is_hidden()

    @pytest.mark.parametrize("fit", ["trusted", "doubted", "unknown"])
    def test_light_and_dark_can_be_read(self, show, fit):
        shown = findings(listed=5)
        shown = {
            "trusted": shown,
            "doubted": replace(shown, inlier_fraction=0.5),
            "unknown": replace(shown, fit=None),
        }[fit]
        pages = [show(shown, color_scheme=scheme) for scheme in ("light", "dark")]
        backgrounds = []
        for page in pages:
            page.locator("tr.suspect").first.click()
            backgrounds.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
            assert page.evaluate(LOW_CONTRAST) == []
        light, dark = ([int(x) for x in re.findall(r"\d+", colour)[:3]] for colour in backgrounds)
        assert min(light) > 200
        assert max(dark) < 60

    def test_a_phone_shows_cards_without_scrolling_sideways(self, show):
        shown = findings(listed=5)
        long = replace(shown.suspects[0], given="x" * 300, values={"y" * 200: "z" * 300})
        shown = replace(
            shown, title="t" * 200, suspects=[long, *shown.suspects[1:]], facts={"f" * 90: "g" * 90}
        )
        page = show(shown, viewport={"width": 375, "height": 700})
        page.locator("tr.suspect .opener").first.click()
        assert page.evaluate("document.documentElement.scrollWidth") <= 375
        assert page.locator("tr.suspect").first.evaluate("row => getComputedStyle(row).display") == "grid"
        ends = "[...document.querySelectorAll('main *')].map(e => e.getBoundingClientRect().right)"
        assert max(page.evaluate(ends)) <= 375
        head(page, "Loss").get_by_role("button").click()
        assert head(page, "Loss").get_attribute("aria-sort") == "descending"
        text = page.locator(".plot text").first.evaluate("t => t.getBoundingClientRect().height")
        assert text > 9

    def test_on_paper_it_is_light_and_without_controls(self, show):
        page = show(findings(listed=230), color_scheme="dark")
        page.emulate_media(media="print", color_scheme="dark")
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert page.evaluate(LOW_CONTRAST) == []
        assert page.locator("#controls").is_hidden()
        assert page.locator("#pager").is_hidden()
        assert page.locator("figure svg").count() == 4
        page.evaluate("""() => addEventListener("beforeprint", () => {
            window.printed = document.querySelectorAll("tr.suspect").length;
        })""")
        assert page.pdf(format="A4")[:4] == b"%PDF"
        assert page.evaluate("window.printed") == 200
        assert page.locator("tr.suspect").count() == 50

    def test_without_scripts_the_most_suspect_are_listed(self, browser, tmp_path):
        shown = findings(listed=40)
        page = browser.new_page(java_script_enabled=False)
        page.goto(write(tmp_path / "r.html", shown).as_uri())
        assert page.locator("noscript li, ol li").count() == 30
        assert str(shown.suspects[0].row) in page.locator("ol li").first.inner_text()
        page.close()


LOW_CONTRAST = """() => {
  const parse = colour => {
    const x = colour.match(/[\\d.]+/g).map(Number);
    return x.length < 4 ? [...x, 1] : x;
  };
  const channel = v => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const behind = e => {
    for (; e; e = e.parentElement) {
      const colour = parse(getComputedStyle(e).backgroundColor);
      if (colour[3] === 1) return colour;
    }
  };
  const found = [];
  for (const e of document.querySelectorAll("body *")) {
    const written = [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
    if (!written || !e.checkVisibility() || e.disabled) continue;
    if (["SCRIPT", "TITLE", "title"].includes(e.tagName)) continue;
    const style = getComputedStyle(e);
    const a = light(parse(e instanceof SVGElement ? style.fill : style.color)), b = light(behind(e));
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) found.push([e.tagName, e.className, e.textContent.slice(0, 20), ratio]);
  }
  return found;
}"""
"""The texts of a page whose contrast is below 4.5, what WCAG 2.2 asks for at level AA."""
