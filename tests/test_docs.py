"""What the pages say works: their Python runs, their links lead somewhere, their examples run."""

from __future__ import annotations

import inspect
import os
import pkgutil
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from markdown.extensions.toc import slugify

import inlier.distributed
import inlier.report
import inlier.sklearn
from inlier import kernels

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
EXAMPLES = sorted(ROOT.glob("examples/*.py"))


def blocks(page: Path) -> str:
    """All Python of a page, in order (later blocks may use what earlier ones made), but no examples."""
    return "\n".join(
        re.findall(r"^```python\n(?!--8<--)(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    )


def run(*command: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run Python on one core: the other ones have tests of their own."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, *command], cwd=cwd, env=environment, capture_output=True, text=True, timeout=300
    )


def by_path(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def with_python(page: Path):
    """A recipe trains something, two or three times, and a guide imports a framework."""
    slow = page.parent.name in ("guides", "recipes")
    return pytest.param(page, marks=pytest.mark.slow) if slow else page


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


@pytest.mark.parametrize("page", sorted(ROOT.glob("*.md")), ids=by_path)
def test_links_of_a_page_that_is_not_on_the_site_lead_somewhere(page):
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


@pytest.mark.slow
def test_the_torchrun_example_works_as_printed():
    result = run("-m", "torch.distributed.run", "--nproc-per-node", "2", "examples/distributed.py")
    assert result.returncode == 0, result.stderr
    # Both write at the same time, so one may stand in the line of the other.
    said = re.findall(r"rank \d: (scale [\d.]+, inlier fraction [\d.]+, largest error [\d.]+)", result.stdout)
    assert len(said) == 2
    assert said[0] == said[1]


@pytest.mark.slow
def test_the_workers_of_the_ray_example_agree():
    pytest.importorskip("ray")
    result = run("examples/ray_train.py")
    assert result.returncode == 0, result.stderr
    first, second = re.findall(r"rank-\d: (scale .*)", result.stdout)
    assert first == second


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


@pytest.mark.slow
def test_the_site_builds_and_shows_docstrings_and_examples(tmp_path):
    # Zensical writes only below the folder of its configuration, where `make docs` may be at work.
    for name in ("docs", "examples", "inlier"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "zensical.toml", tmp_path)
    result = run("docs/tools/build.py", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    site = tmp_path / "site"
    assert len(list(site.rglob("index.html"))) == len(list(tmp_path.glob("docs/**/*.md")))
    reference = "".join(page.read_text() for page in (site / "reference").rglob("*.html"))
    assert not re.findall(r":(?:attr|class|data|func|meth|mod):", reference)
    assert "<blockquote>" not in reference  # which >>> outside of a code block would be
    for name in ("inlier.Robust", "inlier.fit_inliers", "inlier.sklearn.AdaptiveRegressor"):
        assert f'id="{name}"' in reference
    examples = (site / "examples" / "index.html").read_text()
    assert "--8&lt;--" not in examples
    assert "torch.distributed" in re.sub(r"<[^>]*>", "", examples)


SMALL_SITE = """
[project]
site_name = "small"
site_dir = "site"
docs_dir = "docs"
nav = ["index.md", { "Chapter" = [{ "Page" = "page.md" }] }]
theme.font = false
markdown_extensions.toc = {}
markdown_extensions.pymdownx.snippets = { check_paths = true }
plugins.mkdocstrings.handlers.python = { paths = ["."], inventories = [] }
"""

GOOD_PAGE = (
    "# Page\n\n[home](index.md#part) [self](#page) [there](https://example.org)\n\n::: module.double\n"
)


def build_small_site(folder: Path, page: str, doc: str = "x") -> str:
    """Build a site of two pages and a module; return what is wrong with it."""
    (folder / "docs").mkdir(exist_ok=True)
    (folder / "zensical.toml").write_text(SMALL_SITE)
    (folder / "docs" / "index.md").write_text("# Home\n\n## Part\n")
    (folder / "docs" / "page.md").write_text(page)
    (folder / "module.py").write_text(
        f'def double(x: int) -> int:\n    """Double.\n\n    Args:\n        {doc}: A number.\n    """\n'
    )
    result = run(str(ROOT / "docs" / "tools" / "build.py"), cwd=folder)
    assert result.returncode == (1 if result.stderr.replace("No issues found\n", "") else 0), result.stderr
    return result.stderr.replace("No issues found\n", "")


def test_a_site_without_problems_builds(tmp_path):
    assert not build_small_site(tmp_path, GOOD_PAGE)
    assert "double" in (tmp_path / "site" / "page" / "index.html").read_text()


def test_links_to_missing_pages_headings_and_names_fail_the_build(tmp_path):
    said = build_small_site(tmp_path, f"{GOOD_PAGE}\n[a](no.md) [b](index.md#no) [c][module.no]\n")
    for message in ("page does not exist", "anchor does not exist", "unresolved autoref"):
        assert message in said


@pytest.mark.parametrize("text", ["::: module.no", '--8<-- "no.py"'])
def test_what_cannot_be_included_fails_the_build(tmp_path, text):
    assert text.split()[1].strip('"') in build_small_site(tmp_path, f"{GOOD_PAGE}\n{text}\n")


def test_what_zensical_lets_pass_fails_the_build(tmp_path):
    page = """
![a](no.png) [b](../module.py) [c](/page/) <a href="no.html">d</a> ![e](https://example.org/e.png)
"""
    said = build_small_site(tmp_path, GOOD_PAGE + page, doc="y")
    for address in ("../no.png", "../../module.py", "/page/", "../no.html"):
        assert f"page/index.html: broken link: {address}\n" in said
    assert "page/index.html: loaded from another host: https://example.org/e.png\n" in said
    assert "Parameter 'y' does not appear in the function signature" in said


def test_a_page_that_the_navigation_does_not_name_fails_the_build(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "orphan.md").write_text("# Orphan\n")
    assert "orphan.md: the page is missing in the navigation" in build_small_site(tmp_path, GOOD_PAGE)


def test_a_page_of_the_navigation_that_does_not_exist_fails_the_build():
    tool = runpy.run_path(str(ROOT / "docs" / "tools" / "build.py"))
    problems = tool["navigation_problems"](
        [{"Home": "no.md"}, {"More": ["index.md"]}], ROOT / "docs" / "guides"
    )
    assert [problem for problem in problems if "does not exist: no.md" in problem]


def test_the_page_of_examples_shows_all_of_them():
    text = (ROOT / "docs" / "examples.md").read_text()
    names = [example.name for example in EXAMPLES]
    for pattern in (r"^\| \[`(\w+\.py)`\]", r"^## (\w+\.py)$", r"^--8<-- \"examples/(\w+\.py)\"$"):
        assert sorted(re.findall(pattern, text, re.MULTILINE)) == names


def test_tables_and_images_of_the_kernels_are_those_of_the_code():
    tool = runpy.run_path(str(ROOT / "docs" / "tools" / "kernels.py"))
    page = ROOT / "docs" / "kernels.md"
    assert tool["page"](page.read_text()) == page.read_text(), "run python docs/tools/kernels.py"
    assert all(f"| `{name}`" in page.read_text() for name in kernels.names())
    for name in kernels.names():
        drawn = (ROOT / "docs" / "img" / "kernels" / f"{name}.svg").read_text()
        new = tool["drawing"](kernels.get(name))
        assert numbers(drawn) == pytest.approx(numbers(new), abs=0.11), "run python docs/tools/kernels.py"


def numbers(svg: str) -> list[float]:
    return [
        float(number)
        for points in re.findall(r'points="([^"]*)"', svg)
        for number in re.split("[ ,]", points)
    ]


def test_every_public_name_is_in_the_reference():
    text = "".join(page.read_text() for page in (ROOT / "docs" / "reference").glob("*.md"))
    written = {
        pkgutil.resolve_name(name)
        for name in re.findall(r"^::: (inlier\.(?!integr)\S+)$", text, re.MULTILINE)
    }
    modules = (inlier.distributed, inlier.fraction, inlier.kernels, inlier.nn, inlier.report, inlier.sklearn)
    for module in (inlier, *modules):
        public = {name: getattr(module, name) for name in module.__all__}
        names = [
            name for name, value in public.items() if not inspect.ismodule(value) and value not in written
        ]
        assert not names, f"missing in docs/reference: {names} of {module.__name__}"


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
