"""What the pages say works: their Python runs, their links lead somewhere, their examples run."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
EXAMPLES = sorted(ROOT.glob("examples/*.py"))


def blocks(page: Path) -> str:
    """All Python of a page, in order: later blocks may use what earlier ones made."""
    return "\n".join(re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE))


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=lambda page: page.name)
def test_python_on_a_page_runs(page, tmp_path):
    script = tmp_path / "page.py"
    script.write_text(blocks(page))
    result = run(str(script))
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_within_the_project_lead_somewhere(page):
    targets = re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text())
    broken = [t for t in targets if not t.startswith(("http:", "https:")) and not (page.parent / t).exists()]
    assert not broken


@pytest.mark.parametrize(
    "example", [e for e in EXAMPLES if "torchrun" not in e.read_text()], ids=lambda example: example.name
)
def test_an_example_runs_and_is_short(example):
    assert len(example.read_text().splitlines()) < 60
    result = run(str(example))
    assert result.returncode == 0, result.stderr
    assert result.stdout


def test_the_torchrun_example_works_as_printed():
    result = run("-m", "torch.distributed.run", "--nproc-per-node", "2", "examples/distributed.py")
    assert result.returncode == 0, result.stderr
    ranks = sorted(
        line for line in result.stdout.replace("rank 1", "\nrank 1").splitlines() if line.startswith("rank")
    )
    assert len(ranks) == 2
    assert ranks[0].split(":")[1].strip() == ranks[1].split(":")[1].strip()


def test_importing_the_package_imports_nothing_heavy():
    """`inlier --help` and the workers of a sweep need no torch; `Robust` needs torch and nothing heavier."""
    heavy = ("torch", "pandas", "sklearn", "matplotlib")
    listing = f"import sys, inlier; inlier.{{}}; print([m for m in {heavy} if m in sys.modules])"
    assert run("-c", listing.format("__version__")).stdout.strip() == "[]"
    assert run("-c", listing.format("Robust")).stdout.strip() == "['torch']"
