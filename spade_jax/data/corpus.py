"""Documents for the designer: an endless, seeded, checkpointable stream through grain."""

import dataclasses
import logging
import pydoc_data.topics
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, overload

import grain

from spade_jax.data import rows as row_sources

log = logging.getLogger(__name__)

FIELDS = ("orig_doc", "text")
"""Fields that hold a document's text in the published corpora, the preferred one first."""
TOGETHER = "+"
"""Joins the names of fields that make up one text."""


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
    """A row that holds no document."""

    name: str
    reason: str


class Documents(Sequence[Document]):
    """The usable rows of a data set; read when asked for, not held in memory.

    Attributes:
      bad_rows: the other rows, none of them dropped silently: blank lines count too.
    """

    def __init__(self, rows: row_sources.Rows, fields: Sequence[str] = FIELDS):
        """``fields``: see :func:`load`."""
        self._rows, self._fields = rows, fields
        self._good: list[int] = []
        bad_rows = []
        for index in range(len(rows)):
            try:
                self._read(index)
            except row_sources.RowError as error:
                bad_rows.append(BadRow(rows.name(index), str(error)))
            else:
                self._good.append(index)
        self.bad_rows = tuple(bad_rows)

    def __len__(self) -> int:
        return len(self._good)

    @overload
    def __getitem__(self, index: int) -> Document: ...

    @overload
    def __getitem__(self, index: slice) -> list[Document]: ...

    def __getitem__(self, index: int | slice) -> Document | list[Document]:
        if isinstance(index, slice):
            return [self._read(row) for row in self._good[index]]
        return self._read(self._good[index])

    def _read(self, index: int) -> Document:
        return _document(self._rows[index], self._rows.name(index), self._fields)


class Corpus:
    """Every document once in each pass, in an order that is drawn anew for each pass.

    The stream never ends. All processes of a run see the same order and deal it out: with shard
    (i, n) this one gives the documents i, i + n, i + 2n, … of it.

    Attributes:
      documents: all documents, in the order of the source.
      bad_rows: the rows of the source that were skipped.
    """

    def __init__(
        self,
        documents: Sequence[Document],
        seed: int,
        bad_rows: tuple[BadRow, ...] = (),
        shard: tuple[int, int] = (0, 1),
    ):
        if not documents:
            raise CorpusError("the corpus holds no document; give it at least one")
        self.documents = documents
        self.bad_rows = bad_rows
        self._shard, self._shards = shard
        self._stream = grain.MapDataset.source(documents).seed(seed).shuffle().repeat()
        self._position = 0

    def __iter__(self) -> Iterator[Document]:
        return self

    def __next__(self) -> Document:
        document = self._stream[self._position + self._shard]
        self._position += self._shards
        return document

    def get_state(self) -> dict[str, int]:
        """The position in the stream of all processes, which have drawn equally many.

        It can be set on another number of processes.
        """
        return {"position": self._position}

    def set_state(self, state: Mapping[str, int]) -> None:
        """Goes to a position that :meth:`get_state` of an equal corpus gave."""
        self._position = state["position"]


def load(
    source: str,
    seed: int,
    fields: Sequence[str] = FIELDS,
    data_dir: str = "",
    shard: tuple[int, int] = (0, 1),
) -> Corpus:
    """The corpus named by ``config.corpus.source``.

    Args:
      source: ``pydoc`` (topics of Python's own documentation, in the standard library) or a data
        set for :func:`spade_jax.data.rows.open_rows`.
      seed: seed of the order.
      fields: where a row's text may be; the first that the row has is taken. ``question+answer``
        is the text of both, a blank line between them.
      data_dir: where TFDS keeps its data sets; '' = TFDS's own default.
      shard: index of this process and number of processes.

    Raises:
      CorpusError: unknown source, missing file, or no usable document in it.
    """
    if source == "pydoc":
        return Corpus(pydoc_documents(), seed, shard=shard)
    try:
        documents = Documents(row_sources.open_rows(source, data_dir), fields)
    except row_sources.SourceError as error:
        raise CorpusError(
            f"config.corpus.source: {error}. It is 'pydoc', the path of .jsonl, .parquet or "
            ".array_record files, tfds:NAME or hf:OWNER/NAME"
        ) from error
    bad_rows = documents.bad_rows
    if bad_rows:
        first = ", ".join(f"{row.name} ({row.reason})" for row in bad_rows[:5])
        log.warning("%s: skipped %d bad rows: %s", source, len(bad_rows), first)
    if not documents:
        raise CorpusError(
            f"config.corpus.source: {source!r}: none of its {len(bad_rows)} rows holds a document; "
            f"a row has a non-empty string in {_either(fields)} (config.corpus.fields)"
        )
    return Corpus(documents, seed, bad_rows, shard)


def pydoc_documents() -> list[Document]:
    """The topics that ``help()`` knows, such as ``lambda`` or ``booleans``, as plain text."""
    return [
        Document(f"pydoc/{name}", name.replace("-", " "), _plain(text))
        for name, text in sorted(pydoc_data.topics.topics.items())
    ]


def _document(row: Mapping[str, Any], name: str, fields: Sequence[str]) -> Document:
    """The title is in ``title`` or else the text's first line."""
    text = next(filter(None, (_text(row, field.split(TOGETHER)) for field in fields)), None)
    if text is None:
        raise row_sources.RowError(f"no text in {_either(fields)}")
    title = row.get("title")
    if not isinstance(title, str) or not title.strip():
        title = text.splitlines()[0][:80]
    return Document(name, title.strip(), text)


def _text(row: Mapping[str, Any], fields: Sequence[str]) -> str | None:
    parts = [row.get(field) for field in fields]
    texts = [part.strip() for part in parts if isinstance(part, str) and part.strip()]
    return "\n\n".join(texts) if len(texts) == len(fields) else None


def _either(fields: Sequence[str]) -> str:
    return " or ".join(f'"{field}"' for field in fields)


_RULE = re.compile(r"^[*=\-~^]{3,}\n", re.MULTILINE)
_ROLE = re.compile(r":(?:[a-z]+:)?[a-z]+:`([^`]*)`")


def _plain(text: str) -> str:
    """What remains of reStructuredText after pydoc's own rendering, taken out."""
    text = _ROLE.sub(r"\1", _RULE.sub("", text)).replace("``", "`")
    return re.sub(r"\n{3,}", "\n\n", text).strip()
