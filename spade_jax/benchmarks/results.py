"""The results of a policy on a benchmark, in a folder: resumable item by item.

``protocol.json`` says under what rules they were made, ``items.jsonl`` holds one outcome a line as
it was made, ``result.json`` the scores. Results of two protocols never meet in one folder.
"""

import dataclasses
import fcntl
import json
from pathlib import Path
from types import TracebackType
from typing import Any

from spade_jax.benchmarks.interface import Outcome


class Mixed(RuntimeError):
    """The folder holds results of another protocol, or another process writes there."""


class Results:
    """The folder of one policy and one benchmark; a context manager that holds it alone.

    Raises:
      Mixed: from ``with``.
    """

    def __init__(self, folder: Path, protocol: dict[str, Any]):
        self._folder = folder
        self.protocol: dict[str, Any] = json.loads(json.dumps(protocol))
        self.outcomes: dict[str, Outcome] = {}

    def __enter__(self) -> "Results":
        self._folder.mkdir(parents=True, exist_ok=True)
        self._file = (self._folder / "items.jsonl").open("a+b")
        try:
            self._claim()
        except BaseException:
            self._file.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    def add(self, outcome: Outcome) -> None:
        """Writes an outcome down; it is there even if the process is killed afterwards."""
        line = json.dumps(dataclasses.asdict(outcome), ensure_ascii=False) + "\n"
        self._file.write(line.encode("utf-8", "backslashreplace"))
        self._file.flush()
        self.outcomes[outcome.item] = outcome

    def finish(self, summary: dict[str, Any]) -> Path:
        """Writes the scores, and returns where."""
        return self._write("result.json", summary | {"protocol": self.protocol})

    def _claim(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise Mixed(
                f"{self._folder}: another process is evaluating here; wait for it or give --out"
            ) from error
        self._read()
        path = self._folder / "protocol.json"
        if self.outcomes:
            found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
            if found != self.protocol:
                keys = sorted(found.keys() | self.protocol.keys())
                differences = "\n".join(
                    f"  {key}: {found.get(key)!r} there, {self.protocol.get(key)!r} now"
                    for key in keys
                    if found.get(key) != self.protocol.get(key)
                )
                raise Mixed(
                    f"{self._folder} holds results made otherwise; give another --out, or move "
                    f"them away:\n{differences}"
                )
        self._write("protocol.json", self.protocol)

    def _read(self) -> None:
        """The outcomes so far; a line that a killed process left unfinished is cut off."""
        self._file.seek(0)
        whole = 0
        for line in self._file:
            if not line.endswith(b"\n"):
                break
            outcome = Outcome(**json.loads(line))
            self.outcomes[outcome.item] = outcome
            whole += len(line)
        self._file.truncate(whole)

    def _write(self, name: str, value: dict[str, Any]) -> Path:
        path = self._folder / name
        temporary = path.with_name(f".{name}.tmp")
        temporary.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", "utf-8")
        temporary.replace(path)
        return path
