"""Rows of a data set by number, read when asked for: JSON Lines, Parquet, ArrayRecord, TFDS.

Every kind gives rows as dictionaries and names them, so that messages can say which row is meant.
"""

import array
import bisect
import glob
import itertools
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import grain
import pyarrow
import pyarrow.parquet

TFDS = "tfds:"
HUB = "hf:"


class SourceError(ValueError):
    """A data set that cannot be read: the message names it, the reason and the remedy."""


class RowError(ValueError):
    """A row that cannot be read; the message is the reason."""


class Rows(Protocol):
    """A table with random access."""

    def __len__(self) -> int: ...

    def name(self, index: int) -> str:
        """What a person may call the row; unique and stable within the data set."""

    def __getitem__(self, index: int) -> dict[str, Any]:
        """The row. Raises RowError if it cannot be read."""


def open_rows(source: str, data_dir: str = "") -> Rows:
    """The rows of a data set.

    Args:
      source: ``tfds:NAME`` or ``tfds:NAME@SPLIT`` (split ``train`` if none is named),
        ``hf:OWNER/NAME`` (all ``.jsonl`` or else ``.parquet`` files of a data set on the Hugging
        Face hub), or the path, possibly with wildcards, of ``.jsonl``, ``.parquet`` or
        ``.array_record`` files. The records of an ArrayRecord file are JSON objects in UTF-8.
      data_dir: where TFDS keeps its data sets; '' = TFDS's own default.

    Raises:
      SourceError: there is no such data set, it is of no known kind, or it is damaged.
    """
    if source.startswith(TFDS):
        return TfdsRows(source.removeprefix(TFDS), data_dir)
    if source.startswith(HUB):
        return folder_rows(_from_hub(source.removeprefix(HUB)))
    paths = [Path(path) for path in sorted(glob.glob(source, recursive=True))]
    if not paths:
        raise SourceError(f"{source!r}: no such file")
    parts = [_open(path) for path in paths]
    return parts[0] if len(parts) == 1 else Concatenated(parts)


def folder_rows(folder: Path) -> Rows:
    """All rows of the ``.jsonl`` or else ``.parquet`` files in ``folder`` and below.

    Raises:
      SourceError: there is none.
    """
    for suffix in ("jsonl", "parquet"):
        if any(folder.rglob(f"*.{suffix}")):
            return open_rows(f"{glob.escape(str(folder))}/**/*.{suffix}")
    raise SourceError(f"{str(folder)!r}: holds no .jsonl or .parquet file")


def _from_hub(repository: str) -> Path:
    """Where a data set of the hub lies on this machine; fetched if it is not there yet."""
    import huggingface_hub
    from huggingface_hub import errors

    try:
        return Path(huggingface_hub.snapshot_download(repository, repo_type="dataset"))
    except (OSError, ValueError, errors.HfHubHTTPError) as error:
        reason = str(error).partition("\n")[0]
        raise SourceError(
            f"'{HUB}{repository}': {reason}; name a data set of the hub (and log in if it is "
            "gated) or give the path of its files"
        ) from error


def _open(path: Path) -> Rows:
    # Writers of many files append -00000-of-00004 to the suffix.
    kind = path.suffix.partition("-")[0]
    if kind not in KINDS:
        raise SourceError(f"{str(path)!r}: of no known kind; there are {', '.join(KINDS)}")
    return KINDS[kind](path)


class JsonRows:
    """Lines of a JSON Lines file, numbered from 1. Only their offsets are held in memory."""

    def __init__(self, path: Path):
        self._path = path
        with path.open("rb") as file:
            lengths = array.array("Q", map(len, file))
        self._ends = array.array("Q", itertools.accumulate(lengths, initial=0))
        self._file = path.open("rb")

    def __len__(self) -> int:
        return len(self._ends) - 1

    def name(self, index: int) -> str:
        return f"{self._path.name}:{index + 1}"

    def __getitem__(self, index: int) -> dict[str, Any]:
        start, end = self._ends[index], self._ends[index + 1]
        return _object(os.pread(self._file.fileno(), end - start, start))


class ParquetRows:
    """Rows of a Parquet file, numbered from 1; the file is held in memory as Arrow columns."""

    def __init__(self, path: Path):
        self._path = path
        try:
            self._table = pyarrow.parquet.read_table(path).combine_chunks()
        except (OSError, pyarrow.ArrowException) as error:
            raise SourceError(f"{str(path)!r}: not a Parquet file ({error})") from error

    def __len__(self) -> int:
        return self._table.num_rows

    def name(self, index: int) -> str:
        return f"{self._path.name}:{index + 1}"

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self._table.slice(index, 1).to_pylist()[0]


class ArrayRecordRows:
    """Records of an ArrayRecord file, numbered from 1, each a JSON object in UTF-8."""

    def __init__(self, path: Path):
        self._path = path
        try:
            self._source = grain.sources.ArrayRecordDataSource([str(path)])
            self._count = len(self._source)
        except (OSError, ValueError, RuntimeError) as error:
            raise SourceError(f"{str(path)!r}: not an ArrayRecord file ({error})") from error

    def __len__(self) -> int:
        return self._count

    def name(self, index: int) -> str:
        return f"{self._path.name}:{index + 1}"

    def __getitem__(self, index: int) -> dict[str, Any]:
        return _object(self._source[index])


class TfdsRows:
    """Examples of a TFDS data set that exists on disk, through ``tfds.data_source``.

    TensorFlow is never imported. Bytes, which is how TFDS gives text, become str.
    """

    def __init__(self, name: str, data_dir: str):
        try:
            import tensorflow_datasets as tfds
        except ImportError as error:
            raise SourceError(
                f"'{TFDS}{name}': needs TFDS; pip install 'spade-jax[tfds]'"
            ) from error
        self._name, _, split = name.partition("@")
        try:
            self._source = tfds.data_source(
                self._name, split=split or "train", data_dir=data_dir or None, download=False
            )
        except Exception as error:  # TFDS raises a kind of its own for every cause
            reason = str(error).partition("\n")[0].rstrip(".")
            raise SourceError(
                f"'{TFDS}{name}' in {data_dir or 'the default data_dir of TFDS'}: {reason}; build "
                "it there in the format array_record (docs/data.md)"
            ) from error

    def __len__(self) -> int:
        return len(self._source)

    def name(self, index: int) -> str:
        return f"{self._name}:{index + 1}"

    def __getitem__(self, index: int) -> dict[str, Any]:
        row = self._source[index]
        return {key: _text(value) for key, value in row.items()}


KINDS: dict[str, Callable[[Path], Rows]] = {
    ".jsonl": JsonRows,
    ".parquet": ParquetRows,
    ".array_record": ArrayRecordRows,
}


class Concatenated:
    """Several tables, one after the other."""

    def __init__(self, parts: Sequence[Rows]):
        self._parts = parts
        self._ends = list(itertools.accumulate(map(len, parts)))

    def __len__(self) -> int:
        return self._ends[-1]

    def _place(self, index: int) -> tuple[Rows, int]:
        part = bisect.bisect_right(self._ends, index)
        return self._parts[part], index - (self._ends[part - 1] if part else 0)

    def name(self, index: int) -> str:
        part, inner = self._place(index)
        return part.name(inner)

    def __getitem__(self, index: int) -> dict[str, Any]:
        part, inner = self._place(index)
        return part[inner]


def _object(data: bytes) -> dict[str, Any]:
    try:
        row = json.loads(data)
    except UnicodeDecodeError as error:
        raise RowError("not UTF-8") from error
    except json.JSONDecodeError as error:
        raise RowError(f"not JSON: {error.msg}") from error
    if not isinstance(row, dict):
        raise RowError("not a JSON object")
    return row


def _text(value: Any) -> Any:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
