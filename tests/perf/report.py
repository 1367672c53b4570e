"""How large the report of a long run is, how fast it is made, opens and filters, in Chromium.

    python tests/perf/report.py --json report.json

The run is made up (`tests/analysis/long_run.py`): 400 iterations, 12 slots, with programs and
episodes as long as real ones. Opening is counted from the navigation until the first view stands
and has been painted; a filter from the key until the rows have been painted. Beside these seconds
stand those of the processor, of all of Chromium's processes together: they depend little on what
else the machine does.
"""

import argparse
import shutil
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


class Tab:
    """A page of Chromium, and the clocks."""

    def __init__(self, chromium: sync_api.Browser, path: Path):
        self._page, self._path = chromium.new_page(), path
        self._page.set_default_timeout(600_000)
        self._session = chromium.new_browser_cdp_session()

    def opened(self, view: str) -> tuple[float, float]:
        """Seconds until the view is to be seen; those of the processor."""
        self._page.goto("about:blank")
        before = self._processor()
        begun = time.perf_counter()
        self._page.goto(f"file://{self._path}#{view}", wait_until="commit")
        self._page.wait_for_selector("main h1")
        self._page.evaluate(PAINTED)
        return time.perf_counter() - begun, self._processor() - before

    def filtered(self) -> tuple[float, float, str]:
        """Mean seconds from a key to the rows that it leaves, and what is left."""
        self._page.locator("input[name=text]").focus()
        before = self._processor()
        begun = time.perf_counter()
        for letter in SEARCHED:
            self._page.keyboard.press(letter)
            self._page.evaluate(PAINTED)
        taken = time.perf_counter() - begun
        processor = self._processor() - before
        assert f"text={SEARCHED}" in self._page.url
        left = self._page.locator("[role=status]").inner_text()
        return taken / len(SEARCHED), processor / len(SEARCHED), left

    def _processor(self) -> float:
        processes = self._session.send("SystemInfo.getProcessInfo")["processInfo"]
        return sum(process["cpuTime"] for process in processes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--iterations", type=int, default=400)
    parser.add_argument("--slots", type=int, default=12)
    parser.add_argument("--times", type=int, default=3, help="openings of a view; the best counts")
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
            tab = Tab(chromium, page)
            openings = {
                view: min(tab.opened(view) for _ in range(arguments.times))
                for view in ("curves", "refused", "environments")
            }
            key, key_processor, left = tab.filtered()
            chromium.close()
    conditions = figures.conditions(iterations=arguments.iterations, slots=arguments.slots)
    result = {
        "size": figures.cost(size, 15, "MB", conditions),
        "made": figures.cost(made, None, "s of processor time", conditions),
        "filter_key": figures.cost(
            key, None, "s", conditions | {"processor": key_processor, "left": left}
        ),
    }
    for view, (seconds, processor) in openings.items():
        result[f"open_{view}"] = figures.cost(
            seconds, 2, "s", conditions | {"processor": processor}
        )
    figures.write(result, arguments.json)


if __name__ == "__main__":
    main()
