"""Reasoning-Gym hard: 100 tasks in four columns, eight items of each, one message an item.

Items are those of the published evaluation: of each task's data set of 500, seed 42, the ones that
``random.seed(episode)`` draws. They are made here, once for a version of the package, and kept; one
that the package cannot make in a minute is left out, and the protocol names it.
"""

import hashlib
import importlib.metadata
import json
import logging
import os
import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from spade_jax import cache
from spade_jax.benchmarks.interface import (
    WON,
    Absent,
    Figures,
    Item,
    Outcome,
    Policy,
    Unanswered,
)
from spade_jax.benchmarks.reasoning_gym_tasks import HARD, TASKS
from spade_jax.environments import parsing
from spade_jax.sampling.interface import SamplingParams
from spade_jax.sandbox import workers

PACKAGE, VERSION = "reasoning-gym", "0.1.25"
DEADLINE = 120.0  # seconds of one answer, among them a worker's start
COMMAND = f"pip install {PACKAGE}=={VERSION}"
BACKEND = "spade_jax.benchmarks.reasoning_gym_backend"
PROMPT = """\
Think step by step. Then write the final answer, and nothing else, between <answer> and </answer>, \
in exactly the form that the problem asks for or shows.

{question}"""
INDICES = tuple(random.Random(episode).randint(0, 499) for episode in range(8))


class ReasoningGym:
    """Items of the hard tasks; ends its worker processes when it is left.

    Args:
      seed: of the package's data sets.
      indices: of the items that are asked, in each.
    """

    params = SamplingParams(max_tokens=8192, temperature=0.6, top_p=0.8, top_k=20)

    def __init__(
        self,
        name: str,
        title: str,
        seed: int,
        indices: Sequence[int],
        tasks: Sequence[str] = tuple(TASKS),
    ):
        self.name, self.title = name, title
        self._seed, self._indices, self._tasks = seed, list(indices), list(tasks)
        self._workers = workers.Workers(BACKEND, deadline=DEADLINE)
        self._rows: list[dict[str, Any]] = []
        self._left_out: list[str] = []

    async def __aenter__(self) -> "ReasoningGym":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._workers.aclose()

    def items(self) -> list[Item]:
        rows = self._read()
        self._rows = [row for row in rows if "entry" in row]
        self._left_out = [_name(row) for row in rows if "entry" not in row]
        return [Item(_name(row), TASKS[row["task"]], row) for row in self._rows]

    def protocol(self) -> dict[str, Any]:
        digest = hashlib.sha256("\n".join(row["entry"] for row in self._rows).encode())
        return {
            "package": f"{PACKAGE} {VERSION}",
            "seed": self._seed,
            "indices": self._indices,
            "data": digest.hexdigest(),
            "left_out": self._left_out,
            "prompt": hashlib.sha256(PROMPT.encode()).hexdigest()[:16],
            "extraction": "last answer tags, a box in them unwrapped; without tags the last box",
            "rules": "the package's scorers; won at 1; formulas and literals only where they "
            "evaluate",
        }

    def floors(self) -> Figures:
        """No answer, and the gold answer that is most common among the task's other items."""
        columns = dict.fromkeys(TASKS[task] for task in self._tasks)
        rows = {name: [row for row in self._rows if TASKS[row["task"]] == name] for name in columns}
        return {
            title: {
                name: 100 * sum(row[key] for row in rows[name]) / len(rows[name]) for name in rows
            }
            for title, key in (("no answer", "empty"), ("constant answer", "constant"))
        }

    async def attempt(self, item: Item, policy: Policy) -> Outcome:
        name, score, verdict, fault = f"{self.name}/{item.name}", 0.0, "", ""
        record: dict[str, Any] = {}
        messages = [{"role": "user", "content": PROMPT.format(question=item.data["question"])}]
        try:
            async with policy.talk(name, self.params, messages) as talk:
                record["reply"] = await talk.reply()
            record["answer"] = answer(record["reply"])
            if record["answer"] is None:
                verdict = "no answer"
            else:
                asked = (item.data["task"], item.data["entry"], record["answer"])
                score, verdict = await self._workers.run("score", *asked)
                verdict = verdict or ("wrong" if score < WON else "")
        except (Unanswered, workers.Fault) as reason:
            verdict, fault = "not judged", str(reason)
        return Outcome(item.name, item.column, min(max(score, 0.0), 1.0), verdict, fault, record)

    def _read(self) -> list[dict[str, Any]]:
        """All items; made where they are not kept yet."""
        try:
            version = importlib.metadata.version(PACKAGE)
        except importlib.metadata.PackageNotFoundError as error:
            raise Absent(f"the package {PACKAGE} is not installed", COMMAND) from error
        if version != VERSION:
            raise Absent(f"{PACKAGE} is {version}, not {VERSION}, whose texts differ", COMMAND)
        asked = json.dumps([VERSION, self._seed, self._indices, self._tasks, HARD])
        digest = hashlib.sha256(asked.encode()).hexdigest()[:16]
        path = cache.folder("benchmarks") / f"{PACKAGE}-{digest}.jsonl"
        if not path.exists():
            count = len(self._indices) * len(self._tasks)
            logging.warning("making %d items of %s; they are kept in %s", count, PACKAGE, path)
            path.parent.mkdir(parents=True, exist_ok=True)
            self._make(path)
        with path.open(encoding="utf-8") as file:
            return [json.loads(line) for line in file]

    def _make(self, path: Path) -> None:
        """Some generators depend on the salt of hashes, so they run where it is fixed."""
        environment = {key: os.environ[key] for key in workers.ENVIRONMENT if key in os.environ}
        asked = [str(self._seed), json.dumps(self._indices), json.dumps(self._tasks)]
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        with temporary.open("wb") as file:
            subprocess.run(
                [sys.executable, "-m", BACKEND, *asked],
                stdout=file,
                check=True,
                env=environment | {"PYTHONHASHSEED": "0"},
            )
        temporary.replace(path)


def hard() -> ReasoningGym:
    """The published evaluation."""
    return ReasoningGym("reasoning_gym_hard", "Reasoning-Gym hard", 42, INDICES)


def development() -> ReasoningGym:
    """Two other items of each task, to choose checkpoints by."""
    return ReasoningGym("reasoning_gym_dev", "Reasoning-Gym hard, other items", 1042, (0, 1))


def answer(reply: str) -> str | None:
    """The last answer of a reply outside its thinking; None if there is none."""
    said = parsing.without_thinking(reply)
    before, tag, _ = said.rpartition("</answer>")
    inside = before.rpartition("<answer>") if tag else ("", "", "")
    if not inside[1]:
        return _boxed(said)
    found = inside[2].strip()
    content = _boxed(found)
    return content if content is not None and parsing.boxed(content) == found else found


def _boxed(text: str) -> str | None:
    """The last box's content; a JSON object keeps its braces, which are none of LaTeX's."""
    content = parsing.box_content(text)
    if content is None or parsing.boxed(f"{{{content}}}") not in text:
        return content
    try:
        json.loads(f"{{{content}}}")
    except ValueError:
        return content
    return f"{{{content}}}"


def _name(row: dict[str, Any]) -> str:
    return f"{row['task']}/{row['index']}"
