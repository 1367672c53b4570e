"""Data that a user brings: the rows of a benchmark's file."""

import csv
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet

from spade_jax.benchmarks.interface import Absent


def read(folder: Path, name: str, command: str) -> list[dict[str, Any]]:
    """The rows of ``folder/name``, a folder with data files, or of ``folder/name.SUFFIX``.

    Raises:
      Absent: there is no such file, or it cannot be read; ``command`` gets it.
    """
    paths = [folder / f"{name}{suffix}" for suffix in READERS] + sorted((folder / name).rglob("*"))
    found = [path for path in paths if path.is_file() and path.suffix in READERS]
    if not found:
        raise Absent(f"no {', '.join(READERS)} file {folder / name} or in it", command)
    try:
        return [row for path in found for row in READERS[path.suffix](path)]
    except (ValueError, csv.Error, OSError) as error:
        raise Absent(f"{found[0]} cannot be read ({error})", command) from error


def command_for(folder: Path, name: str, repository: str, file: str = "") -> str:
    """What gets the data.

    Args:
      repository: data set on the Hugging Face hub.
      file: the one file of it that is needed; '' = all.
    """
    asked = f"{repository} {file}" if file else repository
    return f"hf download {asked} --repo-type dataset --local-dir {folder / name}"


def _json(path: Path) -> Iterator[dict[str, Any]]:
    rows = json.loads(path.read_text("utf-8"))
    if not isinstance(rows, list):
        raise ValueError("no list of rows")
    yield from rows


def _json_lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        yield from (json.loads(line) for line in file if line.strip())


def _csv(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file)


def _parquet(path: Path) -> Iterator[dict[str, Any]]:
    yield from pyarrow.parquet.read_table(path).to_pylist()


READERS: dict[str, Callable[[Path], Iterator[dict[str, Any]]]] = {
    ".jsonl": _json_lines,
    ".json": _json,
    ".csv": _csv,
    ".parquet": _parquet,
}
