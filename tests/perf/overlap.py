"""What `schedule.overlap` saves: one tiny run on a slow server, with it and without.

    python tests/perf/overlap.py --json overlap.json

The server (`tests/sampling/fake_sglang.py`) waits before each token, as one elsewhere does; the
learner makes several steps on a batch, so that it takes about as long. The first two iterations
compile and do not count.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import figures

sys.path.insert(0, str(Path(__file__).parents[1] / "sampling"))
from fake_sglang import FakeSGLang

PROGRAM = Path(__file__).parents[1] / "tiny_run.py"


def seconds(folder: Path, overlap: str, arguments: argparse.Namespace) -> dict[str, float]:
    """Mean seconds of an iteration, and of its play and its learning."""
    server = FakeSGLang(259, seconds_a_token=arguments.delay)
    workdir = folder / overlap
    changes = [f"schedule.overlap={overlap!r}", f"iterations={arguments.iterations}"]
    changes += [f"learner.steps={arguments.steps}", "schedule.k=16", "schedule.delay=16"]
    command = [sys.executable, str(PROGRAM), str(workdir), "--urls", server.url, "--set", *changes]
    try:
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    finally:
        server.close()
    text = (workdir / "metrics.jsonl").read_text()
    # The last iteration has no next one to overlap with.
    rows = [json.loads(line) for line in text.splitlines()][2:-1]
    names = ("time/iteration", "time/play", "time/learn")
    return {name: statistics.fmean(row[name] for row in rows) for name in names}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--delay", type=float, default=1.0, help="seconds a token")
    parser.add_argument("--steps", type=int, default=8, help="of the optimizer on a batch")
    parser.add_argument("--iterations", type=int, default=8)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        alone = seconds(Path(folder), "none", arguments)
        both = seconds(Path(folder), "next_iteration", arguments)
    conditions = figures.conditions(
        delay=arguments.delay,
        iterations=arguments.iterations - 3,
        **{f"{name} without": round(value, 2) for name, value in alone.items()},
        **{f"{name} with": round(value, 2) for name, value in both.items()},
    )
    figure = figures.cost(both["time/iteration"], alone["time/iteration"], "s", conditions)
    figures.write({"overlap: an iteration with it, and without": figure}, arguments.json)


if __name__ == "__main__":
    main()
