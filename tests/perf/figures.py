"""The form in which a benchmark reports: name -> ours, theirs, ratio, unit, conditions."""

import json
import os
import pathlib
import platform
from typing import Any


def conditions(**more: Any) -> dict[str, Any]:
    """Where and how figures were taken: the machine, its load, and what the benchmark adds."""
    return {
        "cores": len(os.sched_getaffinity(0)),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "load": round(os.getloadavg()[0], 1),
    } | more


def rate(ours: float, theirs: float | None, unit: str, conditions: dict) -> dict[str, Any]:
    """A figure of which more is better; ``theirs`` a competitor's in the same run, or the goal."""
    return _figure(ours, theirs, None if theirs is None else ours / theirs, unit, conditions)


def cost(ours: float, theirs: float | None, unit: str, conditions: dict) -> dict[str, Any]:
    """A figure of which less is better."""
    return _figure(ours, theirs, None if theirs is None else theirs / ours, unit, conditions)


def _figure(
    ours: float, theirs: float | None, ratio: float | None, unit: str, conditions: dict
) -> dict[str, Any]:
    """``ratio`` above 1 says that ours is better."""
    rounded = [None if each is None else float(f"{each:.4g}") for each in (ours, theirs, ratio)]
    return dict(zip(("ours", "theirs", "ratio"), rounded, strict=True)) | {
        "unit": unit,
        "conditions": conditions,
    }


def write(figures: dict[str, dict[str, Any]], path: pathlib.Path | None) -> None:
    """Prints the figures as JSON and, where asked, writes them to a file."""
    text = json.dumps(figures, indent=2)
    print(text)
    if path is not None:
        path.write_text(text + "\n")
