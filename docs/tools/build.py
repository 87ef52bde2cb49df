"""Build the site of the zensical.toml in this folder, strictly: `python docs/tools/build.py`, or `make docs`.

Zensical's strict mode fails on a link to a missing page or heading and on an unknown name in the reference.
What it does not look at is checked here: the navigation, links to images and other files, absolute links,
warnings about docstrings, and that the site loads nothing from another host.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import sys
import tomllib
from collections.abc import Iterable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import zensical

CONFIG = Path("zensical.toml")


class Warnings(logging.Handler):
    """Collect what is logged as a warning or worse, such as docstrings that do not fit their function."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one message."""
        self.messages.append(record.getMessage())


class Page(HTMLParser):
    """The links of a built page, the files that a browser loads with it, and the anchors in it."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.links, self.files, self.anchors = set[str](), set[str](), set[str]()
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Sort the addresses of one tag."""
        values = {name: value for name, value in attrs if value}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.add(values["href"])
        elif tag in ("iframe", "img", "link", "script", "source", "video"):
            self.files |= {values[name] for name in ("href", "src") if name in values}


def pages_of(nav: Iterable[Any]) -> Iterator[str]:
    """Yield the pages of the navigation: an entry is a page, or a title with a page or with entries."""
    for entry in nav:
        for value in entry.values() if isinstance(entry, dict) else [entry]:
            yield from [value] if isinstance(value, str) else pages_of(value)


def navigation_problems(nav: Iterable[Any], docs: Path) -> list[str]:
    """Return the entries of the navigation without a page, and the pages without an entry."""
    listed = set(pages_of(nav))
    written = {page.relative_to(docs).as_posix() for page in docs.rglob("*.md")}
    return [
        *(
            f"{CONFIG}: the navigation names a page that does not exist: {page}"
            for page in sorted(listed - written)
        ),
        *(f"{page}: the page is missing in the navigation of {CONFIG}" for page in sorted(written - listed)),
    ]


def is_remote(address: str) -> bool:
    """Whether an address leads to another host."""
    parts = urlsplit(address)
    return bool(parts.netloc) or parts.scheme not in ("", "data")


def is_broken(address: str, path: Path, site: Path, pages: dict[Path, Page]) -> bool:
    """Whether an address on the page at a path leads to no file of the site, or to no anchor of its page."""
    parts = urlsplit(address)
    if parts.scheme == "data":
        return False
    if parts.path.startswith("/"):  # Nobody knows under which path the site will be published.
        return True
    target = Path(os.path.normpath(path.parent / unquote(parts.path))) if parts.path else path
    target = target / "index.html" if target.is_dir() else target
    if target not in pages:
        return not target.is_relative_to(site) or not target.exists()
    return bool(parts.fragment) and unquote(parts.fragment) not in pages[target].anchors


def site_problems(site: Path) -> list[str]:
    """Return the broken links of a built site, and what its pages and styles load from another host."""
    # The page of an error is shown at any address, so its links are absolute.
    paths = [path for path in sorted(site.rglob("*.html")) if path.name != "404.html"]
    pages = {path: Page(path.read_text()) for path in paths}
    problems = []
    for path, page in pages.items():
        name = path.relative_to(site).as_posix()
        problems += [
            f"{name}: loaded from another host: {file}" for file in sorted(page.files) if is_remote(file)
        ]
        local = sorted(address for address in page.links | page.files if not is_remote(address))
        problems += [
            f"{name}: broken link: {address}" for address in local if is_broken(address, path, site, pages)
        ]
    for path in sorted(site.rglob("*.css")):
        loaded = re.findall(r"url\([\"']?((?:https?:)?//[^)]*?)[\"']?\)", path.read_text())
        problems += [f"{path.relative_to(site)}: loaded from another host: {address}" for address in loaded]
    return problems


def main() -> int:
    """Build the site, print all problems, and return the exit code."""
    project = tomllib.loads(CONFIG.read_text())["project"]
    site = Path(project["site_dir"])
    shutil.rmtree(site, ignore_errors=True)
    warnings = Warnings()
    logging.getLogger().addHandler(warnings)
    problems = navigation_problems(project["nav"], Path(project["docs_dir"]))
    if not problems:  # else every page would repeat them, as a broken link
        try:
            # A page from the cache would not repeat its warnings.
            zensical.build(str(CONFIG.resolve()), {"clean": True, "strict": True})
            problems += site_problems(site)
        except RuntimeError as error:
            problems.append(str(error).partition("\nTraceback")[0])
        problems += warnings.messages
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
