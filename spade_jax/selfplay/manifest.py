"""Tables of a run in Parquet, joined by ``sha``: what was written, played and paid.

``manifest/TABLE/ITERATION.parquet``: each iteration adds a part to the tables in which it has rows.
Any reader of Parquet takes a folder for one table; :func:`read` is ours. docs/data.md shows how to
join them.
"""

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

_CHECK = pa.struct(
    [("name", pa.string()), ("status", pa.string()), ("reason", pa.string()),
     ("measurements", pa.string())]
)  # fmt: skip
SCHEMAS = {
    "attempts": pa.schema(
        {
            "written": pa.int32(),
            "slot": pa.int32(),
            "attempt": pa.int32(),
            "skill": pa.string(),
            "document": pa.string(),
            "exemplars": pa.list_(pa.string()),
            "outcome": pa.string(),
            "reason": pa.string(),
            "sha": pa.string(),
            "tokens": pa.int32(),
            "checks": pa.list_(_CHECK),
        }
    ),
    "environments": pa.schema(
        {
            "sha": pa.string(),
            "name": pa.string(),
            "skill": pa.string(),
            "written": pa.int32(),
            "slot": pa.int32(),
            "attempt": pa.int32(),
            "document": pa.string(),
            "exemplars": pa.list_(pa.string()),
            "hint": pa.string(),
        }
    ),
    "plays": pa.schema(
        {
            "sha": pa.string(),
            "iteration": pa.int32(),
            "arm": pa.string(),
            "seed": pa.int64(),
            "play": pa.int32(),
            "status": pa.string(),
            "return": pa.float64(),
            "turns": pa.int32(),
            "tokens": pa.int32(),
        }
    ),
    "designers": pa.schema(
        {
            "sha": pa.string(),
            "trained": pa.int32(),
            "win_rate": pa.float64(),
            "regret": pa.float64(),
            "reward": pa.float64(),
            "advantage": pa.float64(),
        }
    ),
}
"""Column -> type of every table. ``written`` and ``trained`` are iterations, ``measurements`` is
JSON; a ``return`` is null where the episode was dropped, a ``regret`` where there was no hint."""
_MADE = {"attempts": "written", "environments": "written", "plays": "iteration",
         "designers": "trained"}  # fmt: skip
"""Column with the iteration in which a row was made."""


class Manifest:
    """Collects the rows of an iteration, then writes them; some of the next may be among them."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._rows: dict[str, list[dict[str, Any]]] = {table: [] for table in SCHEMAS}

    def add(self, table: str, **row: Any) -> None:
        self._rows[table].append(row)

    def flush(self, iteration: int) -> None:
        """Writes the rows of ``iteration`` as its part, in place of one that is there."""
        for table, waiting in self._rows.items():
            rows = [row for row in waiting if row[_MADE[table]] == iteration]
            self._rows[table] = [row for row in waiting if row[_MADE[table]] != iteration]
            if rows:
                path = self._part(table, iteration)
                path.parent.mkdir(parents=True, exist_ok=True)
                temporary = path.with_name(f".{path.name}.tmp")
                pq.write_table(pa.Table.from_pylist(rows, SCHEMAS[table]), temporary)
                os.replace(temporary, path)

    def drop_from(self, iteration: int) -> None:
        """Removes the parts of iterations that a resumed run is about to repeat."""
        for path in self._folder.glob("*/*.parquet"):
            if int(path.stem) >= iteration:
                path.unlink()

    def _part(self, table: str, iteration: int) -> Path:
        return self._folder / table / f"{iteration:05d}.parquet"


def read(workdir: Path, table: str) -> pa.Table:
    """A table of the run in ``workdir``, in the order in which it was written; maybe empty."""
    parts = sorted((workdir / "manifest" / table).glob("*.parquet"))
    tables = [pq.read_table(part, schema=SCHEMAS[table]) for part in parts]
    return pa.concat_tables(tables) if tables else SCHEMAS[table].empty_table()
