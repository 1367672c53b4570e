"""A run, or several, as one HTML page that needs nothing else.

    python -m spade_jax.report --workdir=runs/first
    python -m spade_jax.report --workdir=runs/first --workdir=runs/second --out=both.html
    python -m spade_jax.report --workdir=runs/first --watch=30

    python -m spade_jax.report --workdir=runs/sweep --figures

With ``--watch`` the page is written anew every so many seconds, and loads itself again, until the
runs have done their iterations. With ``--figures`` (extra ``notebooks``) the paper's figures are
drawn instead, as PNG, into ``--out``, by default ``figures`` in the first DIR: docs/report.md.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from spade_jax.analysis import page, run


def write(workdirs: Sequence[Path], out: Path, reload_seconds: int = 0) -> None:
    """Writes the page to ``out``, in one step: a browser never sees half of it."""
    text = page.build(workdirs, reload_seconds)
    out.parent.mkdir(parents=True, exist_ok=True)
    temporary = out.with_name(f".{out.name}.tmp")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(out)


def draw(workdirs: Sequence[Path], folder: Path) -> None:
    """Writes the paper's figures and says what they lack."""
    try:
        from spade_jax.analysis import evaluations, figures
    except ModuleNotFoundError as error:
        if error.name != "matplotlib":
            raise
        sys.exit("--figures draws with matplotlib: pip install 'matplotlib>=3.9,<4'")
    for name, missing in figures.write(evaluations.variants(workdirs), folder).items():
        print(f"{folder / name}.png: {f'NOT DRAWN. {missing}' if missing else 'drawn'}")


def main(arguments: Sequence[str] | None = None) -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        "python -m spade_jax.report", None, __doc__, formatter_class=raw
    )
    parser.add_argument("--workdir", type=Path, action="append", required=True, metavar="DIR")
    parser.add_argument("--out", type=Path, help="the page; else report.html in the first DIR")
    parser.add_argument("--figures", action="store_true", help="the paper's, of runs and sweeps")
    parser.add_argument("--watch", type=int, default=0, metavar="SECONDS")
    chosen = parser.parse_args(arguments)
    out = chosen.out or chosen.workdir[0] / "report.html"
    try:
        if chosen.figures:
            draw(chosen.workdir, chosen.out or chosen.workdir[0] / "figures")
            return
        while chosen.watch and not all(run.finished(workdir) for workdir in chosen.workdir):
            write(chosen.workdir, out, chosen.watch)
            print(f"{out}: written; again in {chosen.watch} s", flush=True)
            time.sleep(chosen.watch)
        write(chosen.workdir, out)
    except run.NoRunError as error:
        sys.exit(f"NoRunError: {error}")
    print(f"{out}: {out.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
