"""The documentation: its links lead somewhere, its settings are the code's, and it builds."""

import pathlib
import re
import subprocess
import sys

import pytest

from spade_jax import settings_page

ROOT = pathlib.Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs").glob("*.md"))
LINK = re.compile(r"\]\(([^)\s]+)\)")


def prose(text):
    """Without code, in which brackets are no links."""
    return re.sub(r"```.*?```|`[^`]*`", "", text, flags=re.DOTALL)


def anchors(text):
    """Anchors of the headings, as mkdocs and GitHub make them."""
    heads = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).strip().replace(" ", "-") for head in heads}


@pytest.mark.parametrize("path", [ROOT / "README.md", *PAGES], ids=lambda path: path.name)
def test_links_lead_somewhere(path):
    broken = []
    for link in LINK.findall(prose(path.read_text())):
        if re.match(r"https?://", link):
            continue
        target, _, anchor = link.partition("#")
        there = path.parent / target if target else path
        if not there.exists() or (anchor and anchor not in anchors(there.read_text())):
            broken.append(link)
    assert broken == []


def test_the_readme_names_every_page():
    named = set(LINK.findall((ROOT / "README.md").read_text()))
    assert {f"docs/{path.name}" for path in PAGES} <= named


def test_settings_are_those_of_the_code():
    stale = "run python -m spade_jax.settings_page > docs/configs.md"
    assert (ROOT / "docs" / "configs.md").read_text() == settings_page.page(), stale


def test_the_site_builds_without_a_warning(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "-q", "--strict", f"--site-dir={tmp_path}"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "index.html").exists()
    assert {path.parent.name for path in tmp_path.glob("*/index.html")} >= {
        path.stem for path in PAGES if path.stem != "index"
    }
