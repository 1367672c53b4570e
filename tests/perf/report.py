"""How large the report of a long run is, how fast it is made, opens and filters, in Chromium.

    python tests/perf/report.py --json report.json

The run is made up (`tests/analysis/long_run.py`): 400 iterations, 12 slots, with programs and
episodes as long as real ones. Opening is counted from the navigation until the first view stands
and has been painted; a filter from the key until the rows have been painted.
"""

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

import figures
from playwright import sync_api

sys.path.insert(0, str(Path(__file__).parents[1] / "analysis"))
import long_run

from spade_jax import report

BROWSERS = ("chromium-headless-shell", "chromium", "google-chrome")
PAINTED = "() => new Promise((done) => requestAnimationFrame(() => setTimeout(done)))"
SEARCHED = "random"  # a word of many programs


def opened(tab: sync_api.Page, page: Path, view: str) -> float:
    """Seconds until the view is to be seen."""
    tab.goto("about:blank")
    tab.goto(f"file://{page}#{view}", wait_until="commit")
    tab.wait_for_selector("main h1")
    tab.evaluate(PAINTED)
    return tab.evaluate("performance.now()") / 1000


def filtered(tab: sync_api.Page) -> float:
    """Mean seconds from a key to the rows that it leaves."""
    tab.locator("input[name=text]").focus()
    taken = []
    for letter in SEARCHED:
        begun = time.perf_counter()
        tab.keyboard.press(letter)
        tab.evaluate(PAINTED)
        taken.append(time.perf_counter() - begun)
    assert "random" in tab.url
    return statistics.fmean(taken)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--iterations", type=int, default=400)
    parser.add_argument("--slots", type=int, default=12)
    parser.add_argument("--workdir", type=Path, help="a run to take instead")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        workdir = arguments.workdir
        if workdir is None:
            workdir = Path(folder, "run")
            long_run.write(workdir, arguments.iterations, arguments.slots)
        page = Path(folder, "report.html")
        begun = time.process_time()
        report.write([workdir], page)
        made = time.process_time() - begun
        size = page.stat().st_size / 1e6
        browser = next(filter(None, map(shutil.which, BROWSERS)), None)
        with sync_api.sync_playwright() as playwright:
            chromium = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"])
            tab = chromium.new_page()
            openings = {
                view: statistics.median(opened(tab, page, view) for _ in range(3))
                for view in ("curves", "refused", "environments")
            }
            key = filtered(tab)
            rows = tab.locator("[role=status]").inner_text()
            chromium.close()
    conditions = figures.conditions(iterations=arguments.iterations, slots=arguments.slots)
    result = {
        "size": figures.cost(size, 15, "MB", conditions),
        "made": figures.cost(made, None, "s of processor time", conditions),
        "filter_key": figures.cost(key, None, "s", conditions | {"left": rows}),
    }
    for view, seconds in openings.items():
        result[f"open_{view}"] = figures.cost(seconds, 2, "s", conditions)
    figures.write(result, arguments.json)


if __name__ == "__main__":
    main()
