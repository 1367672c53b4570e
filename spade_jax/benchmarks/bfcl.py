"""BFCL v4 multi-turn: dialogues over mock services, by the rules of the ``bfcl-eval`` wheel.

Four categories of 200 dialogues; a score is a category's accuracy, the benchmark's their plain
mean. As the official handler of local Qwen models has it: the functions' descriptions stand in the
prompt as they are, with a hint at Python's syntax; in ``miss_func`` some are held out, and
described in a user message at their turn. A turn lasts until a reply makes no call; after more than
20 steps the dialogue ends there. ``excluded_function`` is not read. docs/evaluation.md says where
this differs.
"""

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
from spade_jax.environments.calls import Call, parse_calls
from spade_jax.sampling.interface import SamplingParams
from spade_jax.sandbox.workers import Fault, Workers

VERSION = "2026.3.23"
COMMAND = f"pip install 'mpmath>=1.3,<1.4' && pip install --no-deps bfcl-eval=={VERSION}"
DIGEST = "7ec9f6e48a2a5869d6cde7aaaf2a9b1c5d12d41366b5df3538e436448c51407e"
"""SHA-256 of that version's questions, answers and descriptions of functions."""
CATEGORIES = ("base", "miss_func", "miss_param", "long_context")
DOCUMENTS = {
    "GorillaFileSystem": "gorilla_file_system",
    "MathAPI": "math_api",
    "MessageAPI": "message_api",
    "TwitterAPI": "posting_api",
    "TicketAPI": "ticket_api",
    "TradingBot": "trading_bot",
    "TravelAPI": "travel_booking",
    "VehicleControlAPI": "vehicle_control",
}
HINT = " Note that the provided function is in Python 3 syntax."
MORE = "I have updated some more functions you can choose from. What about now?"
MAX_STEPS = 20  # of one turn
MAX_CALLS = 256  # of one reply; the official rules have no limit, and the longest truth makes 34

Turns = list[list[list[tuple[str, dict[str, Any]]]]]
"""Of each turn its steps, of each step its calls: names and arguments."""


class BFCLMultiTurn:
    """The benchmark; ends its worker processes when it is left."""

    name = "bfcl_multi_turn"
    title = "BFCL v4 multi-turn"
    params = SamplingParams(max_tokens=4096, temperature=0.001)

    def __init__(self) -> None:
        self._workers = Workers("spade_jax.benchmarks.bfcl_backend")

    async def __aenter__(self) -> "BFCLMultiTurn":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._workers.aclose()

    def items(self) -> list[Item]:
        folder = _data()
        documents = {name: _rows(_document(folder, name)) for name in DOCUMENTS}
        return [
            Item(entry["id"], category, _dialogue(entry, answer["ground_truth"], documents))
            for category in CATEGORIES
            for entry, answer in zip(*map(_rows, _files(folder, category)), strict=True)
        ]

    def protocol(self) -> dict[str, Any]:
        return {
            "package": f"bfcl-eval {VERSION}",
            "data": DIGEST,
            "rules": "official, those for local Qwen models with function calling",
            "steps": MAX_STEPS,
            "extraction": "environments.calls; what cannot be read is no call",
        }

    def floors(self) -> Figures:
        return {}

    async def attempt(self, item: Item, policy: Policy) -> Outcome:
        data = item.data
        name, question = f"{self.name}/{item.name}", data["question"]
        turns: Turns = []
        said: list[Message] = []
        verdict = fault = ""
        try:
            async with policy.talk(name, self.params, question[0], data["tools"]) as talk:
                await self._talk(item, talk, turns, said)
            verdict = await self._workers.run("check", data["entry"], data["truth"], turns)
        except (Unanswered, Fault) as reason:
            verdict, fault = "not judged", str(reason)
        record = {"calls": turns, "said": said}
        return Outcome(item.name, item.column, float(not verdict), verdict, fault, record)

    async def _talk(self, item: Item, talk: Talk, turns: Turns, said: list[Message]) -> None:
        """The dialogue; fills in what was called and said, so that a fault leaves a record."""
        schemas = {tool["name"]: tool["parameters"] for tool in item.data["tools"]}
        for turn, messages in enumerate(item.data["question"]):
            if turn:
                talk.tell(messages)
            said += messages
            turns.append([])
            steps = turns[-1]
            while True:
                reply = await talk.reply()
                said.append({"role": "assistant", "content": reply})
                found = parse_calls(reply, schemas, MAX_CALLS)
                calls = [(call.name, call.arguments) for call in found if isinstance(call, Call)]
                if not calls:
                    break
                steps.append(calls)
                every = [step for steps in turns for step in steps]
                outputs = await self._workers.run("execute", item.data["entry"], every)
                if len(steps) > MAX_STEPS:
                    return
                answers = [{"role": "tool", "content": output} for output in outputs]
                talk.tell(answers)
                said += answers


def _dialogue(
    entry: Mapping[str, Any], truth: list[list[str]], documents: Mapping[str, list[Any]]
) -> dict[str, Any]:
    """What the backends need of an entry, its user messages by turn, and its functions."""
    functions = [document for name in entry["involved_classes"] for document in documents[name]]
    question = list(entry["question"])
    for turn, names in entry.get("missed_function", {}).items():
        held = [document for name in names for document in functions if document["name"] == name]
        functions = [document for document in functions if document not in held]
        question[int(turn)] = [{"role": "user", "content": f"{held}\n{MORE}"}]
    kept = ("id", "initial_config", "involved_classes")
    return {
        "entry": {key: entry[key] for key in kept},
        "question": question,
        "tools": [tool | {"description": tool["description"] + HINT} for tool in functions],
        "truth": truth,
    }


def _data() -> Path:
    """The data of the wheel, checked; nothing of it is imported here."""
    spec = importlib.util.find_spec("bfcl_eval")
    if spec is None or not spec.submodule_search_locations:
        raise Absent("the package bfcl-eval is not installed", COMMAND)
    if importlib.util.find_spec("mpmath") is None:
        raise Absent("the package mpmath, which bfcl-eval needs, is not installed", COMMAND)
    if (version := importlib.metadata.version("bfcl-eval")) != VERSION:
        raise Absent(f"bfcl-eval is {version}, not {VERSION}", COMMAND)
    folder = Path(spec.submodule_search_locations[0]) / "data"
    digest = hashlib.sha256()
    paths = [path for category in CATEGORIES for path in _files(folder, category)]
    for path in [*paths, *(_document(folder, name) for name in DOCUMENTS)]:
        digest.update(path.read_bytes())
    if digest.hexdigest() != DIGEST:
        raise Absent(f"{folder} does not hold the data of bfcl-eval {VERSION}", COMMAND)
    return folder


def _files(folder: Path, category: str) -> Sequence[Path]:
    """Questions and answers of a category."""
    name = f"BFCL_v4_multi_turn_{category}.json"
    return folder / name, folder / "possible_answer" / name


def _document(folder: Path, name: str) -> Path:
    return folder / "multi_turn_func_doc" / f"{DOCUMENTS[name]}.json"


def _rows(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
