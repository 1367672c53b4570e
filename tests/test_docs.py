"""The documentation: its links lead somewhere, its settings are the code's, and it builds."""

import asyncio
import pathlib
import re
import subprocess
import sys

import pytest

from spade_jax import settings_page
from tests.benchmarks.scripted_policy import ScriptedPolicy

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


def test_the_example_of_a_benchmark_can_be_typed_in():
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs/extending.md").read_text(), re.DOTALL)
    [example] = [block for block in blocks if "class Sums" in block]
    made: dict = {}
    exec(compile(example, "sums.py", "exec"), made)
    benchmark = made["Sums"]()
    items = benchmark.items()
    sums = {f"sums/{item.name}": item.data["a"] + item.data["b"] for item in items}
    wrong = {name: number % 2 for number, name in enumerate(sums)}
    policy = ScriptedPolicy(lambda name: [f"It is {sums[name] + wrong[name]}."])

    async def play():
        async with benchmark:
            return [await benchmark.attempt(item, policy) for item in items]

    outcomes = asyncio.run(play())
    assert [outcome.score for outcome in outcomes] == [1.0, 0.0] * 50
    assert len({outcome.item for outcome in outcomes}) == 100


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
