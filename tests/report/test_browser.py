"""The report in a real browser: the table, the keyboard, light and dark mode, phones and paper."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest
import torch

from inlier import FractionEstimate
from inlier.fraction import GivenFraction
from inlier.report import Deviation, Suspect, write
from inlier.report._thumbnails import thumbnail
from tests.report.examples import HOSTILE, findings


def column(page, name: str) -> list[str]:
    return page.locator(f'tr.suspect td[data-label="{name}"]').all_inner_texts()


def head(page, name: str):
    return page.get_by_role("columnheader", name=name)


def test_sorting_by_every_column(show):
    shown = findings(listed=40)
    page = show(shown)
    by_rank = [str(s.row) for s in shown.suspects]
    assert column(page, "Row") == by_rank
    keys = {
        "Row": lambda s: s.row,
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
                assert [key(seen[row]) for row in column(page, "Row")] == [key(s) for s in wanted]
            else:
                assert column(page, "Row") == [str(s.row) for s in wanted]
        assert page.locator("th[aria-sort]").count() == 1


def test_missing_and_infinite_numbers_sort_last_and_first(show):
    losses = [3.0, math.nan, math.inf, 10.0, 2.0]
    page = show(findings(suspects=[Suspect(k, 0.1, loss) for k, loss in enumerate(losses)]))
    head(page, "Loss").get_by_role("button").click()
    assert column(page, "Loss") == ["∞", "10", "3", "2", "–"]
    head(page, "Loss").get_by_role("button").click()
    assert column(page, "Loss") == ["2", "3", "10", "∞", "–"]


def test_filtering(show):
    suspects = [
        Suspect(k, k / 100, 1.0, given=name, values={"city": city})
        for k, (name, city) in enumerate(
            [("cat", "Oslo"), ("dog", "Oslo"), ("cat", "Ürümqi"), ("a+(b", "x")] * 20
        )
    ]
    page = show(findings(suspects=suspects))
    status = page.get_by_role("status")
    assert status.inner_text() == "1–50 of 80 rows"
    page.get_by_label("Search").fill("CAT üRÜ")
    assert status.inner_text() == "1–20 of 20 rows, filtered from 80"
    assert column(page, "Row") == [str(k) for k in range(2, 80, 4)]
    page.get_by_label("to", exact=True).fill("0.3")
    assert column(page, "Row") == [str(k) for k in range(2, 31, 4)]
    page.get_by_label("from", exact=True).fill("0.1")
    assert column(page, "Row") == [str(k) for k in range(10, 31, 4)]
    page.get_by_label("Search").fill("a+(b")
    assert column(page, "Row") == [str(k) for k in range(11, 31, 4)]
    page.get_by_label("Search").fill("nowhere")
    assert page.get_by_text("Nothing matches.").is_visible()
    assert status.inner_text() == "0 rows, filtered from 80"
    page.get_by_role("button", name="Clear").click()
    page.locator("tr.suspect").nth(49).wait_for()
    assert status.inner_text() == "1–50 of 80 rows"


def test_opening_a_suspect(show):
    image = thumbnail(torch.zeros(8, 8))
    shown = findings(listed=3)
    shown = replace(shown, suspects=[replace(shown.suspects[0], image=image), *shown.suspects[1:]])
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
    drawn = panel.locator("img")
    assert drawn.evaluate("image => image.decode().then(() => image.naturalWidth)") == 8
    assert drawn.evaluate("image => getComputedStyle(image).imageRendering") == "pixelated"
    head(page, "Loss").get_by_role("button").click()  # It stays open where it goes.
    assert page.locator("tr.open + tr.details").count() == 1
    page.locator("tr.suspect.open").click()
    assert panel.count() == 0


def test_with_the_keyboard_alone(show):
    page = show(findings(listed=5))
    page.get_by_label("Search").focus()
    for _ in range(4):
        page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Row"
    page.keyboard.press("Enter")
    assert head(page, "Row").get_attribute("aria-sort") == "ascending"
    for _ in range(6):
        page.keyboard.press("Tab")
    rows = column(page, "Row")
    assert page.evaluate("document.activeElement.textContent") == rows[0]
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert page.locator("tr.open .opener").inner_text() == rows[1]
    page.keyboard.press("Space")
    assert page.locator("tr.open").count() == 0


def test_hostile_cells_stay_text(show):
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


def test_the_policy_of_the_page_stops_what_would_be_slipped_in(browser, tmp_path):
    path = write(tmp_path / "r.html", findings())
    slipped = "<script>window.broken = 1</script><img src='https://example.org/x' onerror='broken = 1'>"
    path.write_text(path.read_text("utf-8").replace("<main>", f"<main>{slipped}"), "utf-8")
    page = browser.new_page()
    page.goto(path.as_uri())
    assert page.evaluate("window.broken") is None
    page.close()


def test_ten_thousand_suspects_are_paged(show):
    suspects = [Suspect(k, k / 10_000, 1.0, values={"a": f"value {k}"}) for k in range(10_000)]
    page = show(findings(suspects=suspects))
    assert page.locator("tr.suspect").count() == 50
    page.get_by_role("button", name="Next").click()
    assert column(page, "Row") == [str(k) for k in range(50, 100)]
    assert page.locator("#page").inner_text() == "Page 2 of 200"
    page.get_by_label("Search").fill("value 9999")
    assert column(page, "Row") == ["9999"]
    assert page.locator("#pager").is_hidden()


ESTIMATES = {
    "trusted": FractionEstimate(0.85, 0.01, True, "Two groups fit, and lie far apart."),
    "untrusted": FractionEstimate(0.5, 0.1, False, "Too few losses."),
    "given": GivenFraction(0.8).estimate(),
}


@pytest.mark.parametrize("status", ESTIMATES)
def test_light_and_dark_can_be_read(show, status):
    page = show(findings(listed=5, estimate=ESTIMATES[status]))
    assert page.locator(f".verdict.{status}").is_visible()
    page.locator("tr.suspect").first.click()
    backgrounds = []
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        backgrounds.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
        assert page.evaluate(LOW_CONTRAST) == []
    light, dark = ([int(x) for x in re.findall(r"\d+", color)[:3]] for color in backgrounds)
    assert min(light) > 200
    assert max(dark) < 60


def test_an_untrusted_estimate_is_said_at_the_top(show):
    page = show(findings(listed=5, estimate=ESTIMATES["untrusted"]))
    assert page.locator("h1").inner_text() == "Cannot tell how many of 2,000 rows are wrong"
    verdict = page.locator(".verdict")
    assert verdict.inner_text().split("\n") == ["The estimate is not trusted", "Too few losses."]
    below = page.locator("h1").bounding_box()["y"]
    assert below < verdict.bounding_box()["y"] < 400
    assert page.locator(".shares").count() == 0


def test_a_phone_shows_cards_without_scrolling_sideways(show):
    shown = findings(listed=5)
    long = replace(shown.suspects[0], given="x" * 300, values={"y" * 200: "z" * 300})
    shown = replace(shown, title="t" * 200, suspects=[long, *shown.suspects[1:]], facts={"f" * 90: "g" * 90})
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


def test_on_paper_it_is_light_and_without_controls(show):
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


def test_without_scripts_the_most_suspect_are_listed(browser, tmp_path):
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


def test_decisions_are_downloaded_as_the_file_that_fit_and_fix_take(show, tmp_path):
    from inlier.fit._decisions import Decision, read_decisions

    labels = [("cat", "dog"), ("=1+1", "-x"), ('two "words", here', "owl"), ("emu", ""), ("ant", "bee")]
    page = show(findings(suspects=[Suspect(k, 0.1, 1.0, a, b) for k, (a, b) in enumerate(labels)]))
    button = page.get_by_role("button", name="Download decisions")
    assert button.is_disabled()
    for row, action in ((0, "Fix"), (1, "Fix"), (2, "Drop"), (3, "Keep"), (4, "Drop")):
        page.get_by_role("button", name=f"Details of {row}", exact=True).click()
        page.locator("tr.details").last.get_by_role("button", name=action).click()
        page.get_by_role("button", name=f"Details of {row}", exact=True).click()
    page.get_by_role("button", name="Details of 4").click()
    page.get_by_role("button", name="Drop").click()  # Pressed again: not decided.
    assert button.inner_text() == "Download decisions (4)"
    page.get_by_role("button", name="Details of 0").click()
    page.get_by_label("Corrected value of 0").fill("wolf")
    with page.expect_download() as download:
        button.click()
    assert download.value.suggested_filename == "decisions.csv"
    download.value.save_as(tmp_path / "decisions.csv")
    assert read_decisions(tmp_path / "decisions.csv") == [
        Decision(0, "fix", "cat", "wolf"),
        Decision(1, "fix", "=1+1", "-x"),
        Decision(2, "drop", 'two "words", here', ""),
        Decision(3, "keep", "emu", ""),
    ]


def test_decisions_about_images_name_their_files(show, tmp_path):
    from inlier.fit._decisions import Decision, read_decisions

    page = show(findings(unit="images", suspects=[Suspect(7, 0.1, 1.0, "cat", "dog", {"file": "cat/7.png"})]))
    assert column(page, "file") == ["cat/7.png"]
    page.locator("tr.suspect").click()
    page.get_by_role("button", name="Fix").click()
    with page.expect_download() as download:
        page.get_by_role("button", name="Download decisions").click()
    download.value.save_as(tmp_path / "decisions.csv")
    assert read_decisions(tmp_path / "decisions.csv") == [Decision(7, "fix", "cat", "dog", "cat/7.png")]


def test_numbers_as_people_write_them_sort_as_numbers(show):
    prices = [(900.0, "$900"), (1234.0, "$1,234"), (75.0, "$75")]
    suspects = [Suspect(k, 0.1, 1e9, text, text, numbers=(x, x)) for k, (x, text) in enumerate(prices)]
    page = show(findings(suspects=suspects))
    head(page, "Given").get_by_role("button").click()
    assert column(page, "Given") == ["$75", "$900", "$1,234"]
    assert column(page, "Loss")[0] == "1 × 10⁹"


def test_a_long_text_leaves_the_table_in_the_page_and_most_cells_wait(show):
    name = "wrong_exchange_rate_for_cash_withdrawal"
    suspects = [Suspect(k, 0.1, 1.0, name, name, {"text": "word " * 60}) for k in range(3)]
    cells = [(k, "a_long_name_of_a_column", "x", "y", "not a number") for k in range(50)]
    page = show(findings(suspects=suspects, cells=cells))
    assert page.evaluate(
        "document.querySelector('.scroller').scrollWidth <= document.querySelector('.scroller').clientWidth"
    )
    assert page.locator("section[aria-labelledby=cells] tbody tr:visible").count() == 20
    page.get_by_text("30 more").click()
    assert page.locator("section[aria-labelledby=cells] tbody tr:visible").count() == 50


def test_labels_and_columns_have_tables_of_their_own(show):
    columns = [("size", "number, unit kg", f"3 cells: not a number (row 7: {HOSTILE!r})")]
    page = show(replace(findings(), columns=columns, confusion=[("cat", "dog", 1200), (HOSTILE, "owl", 3)]))
    assert page.locator("section[aria-labelledby=confusion] tbody tr").all_inner_texts()[0].split() == [
        *("cat", "dog", "1,200"),
    ]
    assert HOSTILE in page.locator("section[aria-labelledby=confusion] tbody tr").nth(1).inner_text()
    assert "number, unit kg" in page.locator("section[aria-labelledby=columns] tbody").inner_text()
