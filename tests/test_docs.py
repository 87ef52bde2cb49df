"""What the pages say works: their Python runs, their links lead somewhere, their examples run."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from markdown.extensions.toc import slugify

from inlier import kernels

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
EXAMPLES = sorted(ROOT.glob("examples/*.py"))


def blocks(page: Path) -> str:
    """All Python of a page, in order: later blocks may use what earlier ones made."""
    return "\n".join(re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE))


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, text=True, timeout=300)


def by_path(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def with_python(page: Path):
    """A recipe trains something, two or three times."""
    return pytest.param(page, marks=pytest.mark.slow) if page.parent.name == "recipes" else page


@pytest.mark.parametrize("page", [with_python(page) for page in PAGES if blocks(page)], ids=by_path)
def test_python_on_a_page_runs(page, tmp_path):
    script = tmp_path / "page.py"
    script.write_text(blocks(page))
    result = run(str(script))
    assert result.returncode == 0, result.stderr


def prose(page: Path) -> str:
    """A page without its code blocks, whose comments look like headings."""
    return re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """Where a link into a page can lead: its headings, and what the reference writes there."""
    text = prose(page)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {slugify(heading, "-") for heading in headings} | set(
        re.findall(r"^::: (\S+)$", text, re.MULTILINE)
    )


def broken_links(page: Path) -> list[str]:
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)[^)]*\)", prose(page)):
        if target.startswith(("http:", "https:")):
            continue
        name, _, anchor = target.partition("#")
        path = page.parent / name if name else page
        if not path.exists() or (anchor and anchor not in anchors(path)):
            broken.append(target)
    return broken


@pytest.mark.parametrize("page", PAGES, ids=by_path)
def test_links_within_the_project_lead_somewhere(page):
    assert not broken_links(page)


def test_the_link_checker_notices_a_missing_page_and_a_missing_heading(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# A `title`: 10^4\n[a](page.md#a-title-104) [b](#a-title-104) [c](no.md) [d](#no)\n")
    assert broken_links(page) == ["no.md", "#no"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "example",
    [e for e in EXAMPLES if not {"torchrun", "--data"} & set(re.findall(r"[\w-]+", e.read_text()))],
    ids=lambda example: example.name,
)
def test_an_example_runs_and_is_short(example):
    assert len(example.read_text().splitlines()) < 60
    result = run(str(example))
    assert result.returncode == 0, result.stderr
    assert result.stdout


def test_the_torchrun_example_works_as_printed():
    result = run("-m", "torch.distributed.run", "--nproc-per-node", "2", "examples/distributed.py")
    assert result.returncode == 0, result.stderr
    # Both write at the same time, so one may stand in the line of the other.
    said = re.findall(r"rank \d: (scale [\d.]+, inlier fraction [\d.]+, largest error [\d.]+)", result.stdout)
    assert len(said) == 2
    assert said[0] == said[1]


@pytest.mark.slow
def test_the_accelerate_example_runs_on_two_processes():
    example = "examples/accelerate_two_processes.py"
    result = run("-m", "torch.distributed.run", "--nproc-per-node", "2", example)
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("2 processes: inlier fraction") == 1


def test_importing_the_package_imports_nothing_heavy():
    """`inlier --help` and the workers of a sweep need no torch; `Robust` needs torch and nothing heavier."""
    heavy = ("torch", "pandas", "sklearn", "matplotlib")
    listing = f"import sys, inlier; inlier.{{}}; print([m for m in {heavy} if m in sys.modules])"
    assert run("-c", listing.format("__version__")).stdout.strip() == "[]"
    assert run("-c", listing.format("Robust")).stdout.strip() == "['torch']"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    result = run("-m", "mkdocs", "build", "--strict", "--site-dir", str(folder))
    assert result.returncode == 0, result.stderr
    return folder


class Links(HTMLParser):
    """The addresses that a page of the site asks for or leads to, and the places in it."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.asked, self.led, self.places = set[str](), set[str](), set[str]()
        self.feed(page.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        if named.get("id"):
            self.places.add(named["id"])
        if tag in ("img", "link", "script", "source"):
            self.asked.update(named[name] for name in ("href", "src") if named.get(name))
        elif tag == "a" and named.get("href"):
            self.led.add(named["href"])


@pytest.mark.slow
def test_the_site_builds_and_every_link_in_it_leads_to_a_page_and_a_place(site):
    pages = {page: Links(page) for page in site.rglob("*.html") if page.name != "404.html"}
    assert len(pages) > 30
    broken = []
    for page, links in pages.items():
        for address in links.asked | links.led:
            parts = urlsplit(address)
            if parts.scheme:
                continue
            path = Path(os.path.normpath(page.parent / unquote(parts.path))) if parts.path else page
            path = path / "index.html" if path.is_dir() else path
            missing = unquote(parts.fragment) not in ("", *pages[path].places) if path in pages else False
            if not path.exists() or missing:
                broken.append((page.relative_to(site).as_posix(), address))
    assert not broken


@pytest.mark.slow
def test_the_site_asks_the_network_for_nothing(site):
    asked = {address for page in site.rglob("*.html") for address in Links(page).asked}
    assert not [address for address in asked if urlsplit(address).scheme not in ("", "data")]
    styles = "".join(path.read_text() for path in site.rglob("*.css"))
    assert not re.findall(r"url\([\"']?(?:https?:)?//[^)]*\)", styles)


@pytest.mark.slow
def test_docstrings_are_rendered_not_quoted(site):
    text = "".join(page.read_text() for page in (site / "reference").rglob("*.html"))
    assert not re.findall(r":(?:attr|class|data|func|meth|mod):", text)
    assert "<blockquote>" not in text  # which >>> outside of a code block would be
    for name in ("inlier.Robust", "inlier.fit_inliers", "inlier.sklearn.AdaptiveRegressor"):
        assert f'id="{name}"' in text


@pytest.mark.slow
def test_the_examples_stand_on_the_site(site):
    page = (site / "examples" / "index.html").read_text()
    assert all(f'id="{example.stem}"' in page for example in EXAMPLES)


def test_the_page_of_examples_lists_all_of_them():
    text = (ROOT / "docs" / "examples.md").read_text()
    assert sorted(re.findall(r"\]\(\.\./examples/(\w+\.py)\)", text)) == [
        example.name for example in EXAMPLES
    ]


def test_tables_and_pictures_of_the_kernels_are_those_of_the_code():
    tool = runpy.run_path(str(ROOT / "docs" / "tools" / "kernels.py"))
    page = ROOT / "docs" / "kernels.md"
    assert tool["page"](page.read_text()) == page.read_text(), "run python docs/tools/kernels.py"
    assert all(f"| `{name}`" in page.read_text() for name in kernels.names())
    for name in kernels.names():
        drawn = (ROOT / "docs" / "img" / "kernels" / f"{name}.svg").read_text()
        new = tool["picture"](kernels.get(name))
        assert numbers(drawn) == pytest.approx(numbers(new), abs=0.11), "run python docs/tools/kernels.py"


def numbers(svg: str) -> list[float]:
    return [
        float(number)
        for points in re.findall(r'points="([^"]*)"', svg)
        for number in re.split("[ ,]", points)
    ]


def test_the_page_of_the_command_line_names_every_command_and_option():
    import typer

    from inlier.cli import app

    text = (ROOT / "docs" / "reference" / "command-line.md").read_text()
    # Lower case is the name of a command, or of one command inside another.
    found = re.findall(r"^## `inlier ((?:[a-z]+ ?)+).*?`$(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    sections = {name.strip(): section for name, section in found}
    commands = {}
    for name, command in typer.main.get_command(app).commands.items():
        inner = getattr(command, "commands", None)
        commands |= {name: command} if inner is None else {f"{name} {key}": c for key, c in inner.items()}
    assert sections.keys() == commands.keys()
    for name, command in commands.items():
        options = {flag for part in command.params for flag in part.opts if flag.startswith("--")}
        assert set(re.findall(r"^\| `(--[\w-]+)`", sections[name], re.MULTILINE)) == options - {"--help"}
