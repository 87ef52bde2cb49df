"""One browser for all tests of the report."""

from __future__ import annotations

import shutil

import pytest

from inlier.report import Findings, write


@pytest.fixture(scope="session")
def browser():
    """Debian's Chromium: `apt-get install chromium`."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("needs the program `chromium`: apt-get install chromium")
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture
def show(browser, tmp_path):
    """Open a report; the test fails on any console message and on any request except for the file."""
    problems, pages = [], []

    def open_report(findings: Findings, **options):
        path = write(tmp_path / f"report{len(pages)}.html", findings)
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
                if request.url == address or request.url.startswith(("data:", "blob:"))
                else problems.append(request.url)
            ),
        )
        page.goto(address)
        return page

    yield open_report
    for page in pages:
        page.close()
    assert problems == []
