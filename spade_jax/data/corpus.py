"""Documents for the designer: an endless, seeded, checkpointable stream through grain."""

import dataclasses
import json
import logging
import pathlib
import pydoc_data.topics
import re
from collections.abc import Iterator
from typing import Any

import grain

log = logging.getLogger(__name__)


class CorpusError(ValueError):
    """A corpus that cannot be used: the message names the source, the reason and the remedy."""


@dataclasses.dataclass(frozen=True)
class Document:
    """One document. ``id`` names it within its corpus and across runs."""

    id: str
    title: str
    text: str


@dataclasses.dataclass(frozen=True)
class BadRow:
    """A row that holds no document. ``line`` counts from 1."""

    line: int
    reason: str


class Corpus:
    """Every document once in each pass, in an order that is drawn anew for each pass.

    The stream never ends. Its whole position is in :meth:`get_state`, a JSON-able dictionary.

    Attributes:
      documents: all documents, in the order of the source.
      bad_rows: the rows of the source that were skipped.
    """

    def __init__(self, documents: list[Document], seed: int, bad_rows: tuple[BadRow, ...] = ()):
        if not documents:
            raise CorpusError("the corpus holds no document; give it at least one")
        self.documents = documents
        self.bad_rows = bad_rows
        stream = grain.MapDataset.source(documents).seed(seed).shuffle().repeat()
        self._iterator = iter(stream.to_iter_dataset(grain.ReadOptions(num_threads=0)))

    def __iter__(self) -> Iterator[Document]:
        return self

    def __next__(self) -> Document:
        return next(self._iterator)

    def get_state(self) -> dict[str, Any]:
        """The position in the stream."""
        return self._iterator.get_state()

    def set_state(self, state: dict[str, Any]) -> None:
        """Goes to a position that :meth:`get_state` of an equal corpus gave."""
        self._iterator.set_state(state)


def load(source: str, seed: int) -> Corpus:
    """The corpus named by ``config.corpus.source``.

    Args:
      source: ``pydoc`` (topics of Python's own documentation, in the standard library) or a path
        to a ``.jsonl`` file whose rows have a text in ``orig_doc`` or ``text``.
      seed: seed of the order.

    Raises:
      CorpusError: unknown source, missing file, or no usable document in it.
    """
    if source == "pydoc":
        return Corpus(pydoc_documents(), seed)
    path = pathlib.Path(source)
    if path.suffix != ".jsonl":
        raise CorpusError(f"corpus source {source!r}: must be 'pydoc' or the path of a .jsonl file")
    if not path.is_file():
        raise CorpusError(f"corpus source {source!r}: no such file")
    documents, bad_rows = read_jsonl(path)
    if bad_rows:
        first = ", ".join(f"line {row.line} ({row.reason})" for row in bad_rows[:5])
        log.warning("%s: skipped %d bad rows: %s", source, len(bad_rows), first)
    if not documents:
        raise CorpusError(
            f"corpus source {source!r}: none of its {len(bad_rows)} rows holds a document; a row "
            'is a JSON object with a non-empty string in "orig_doc" or "text"'
        )
    return Corpus(documents, seed, tuple(bad_rows))


def pydoc_documents() -> list[Document]:
    """The topics that ``help()`` knows, such as ``lambda`` or ``booleans``, as plain text."""
    return [
        Document(f"pydoc/{name}", name.replace("-", " "), _plain(text))
        for name, text in sorted(pydoc_data.topics.topics.items())
    ]


def read_jsonl(path: pathlib.Path) -> tuple[list[Document], list[BadRow]]:
    """Documents of a JSON Lines file, and what is wrong with the other rows.

    The text is in ``orig_doc`` or else ``text``; the title is in ``title`` or else the text's first
    line. Blank lines are bad rows too: they are counted, never silently dropped.
    """
    documents, bad_rows = [], []
    with path.open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, 1):
            try:
                documents.append(_document(json.loads(line), f"{path.name}:{number}"))
            except json.JSONDecodeError as error:
                bad_rows.append(BadRow(number, f"not JSON: {error.msg}"))
            except CorpusError as error:
                bad_rows.append(BadRow(number, str(error)))
    return documents, bad_rows


def _document(row: Any, name: str) -> Document:
    if not isinstance(row, dict):
        raise CorpusError("not a JSON object")
    text = row.get("orig_doc") or row.get("text")
    if not isinstance(text, str) or not text.strip():
        raise CorpusError('no text in "orig_doc" or "text"')
    text = text.strip()
    title = row.get("title")
    if not isinstance(title, str) or not title.strip():
        title = text.splitlines()[0][:80]
    return Document(name, title.strip(), text)


_RULE = re.compile(r"^[*=\-~^]{3,}\n", re.MULTILINE)
_ROLE = re.compile(r":(?:[a-z]+:)?[a-z]+:`([^`]*)`")


def _plain(text: str) -> str:
    """What remains of reStructuredText after pydoc's own rendering, taken out."""
    text = _ROLE.sub(r"\1", _RULE.sub("", text)).replace("``", "`")
    return re.sub(r"\n{3,}", "\n\n", text).strip()
