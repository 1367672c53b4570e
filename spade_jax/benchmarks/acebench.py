"""ACEBench-Agent in English: phone, food and travel services, judged by the state they end in.

20 tasks of many steps, told at once, and 30 of many turns with a user. Prompts and services are
those of the ``evalscope`` wheel, the files a user's. A score is a column's share of right end
states, the benchmark's their plain mean; partial credit is the process accuracy, by milestones on
the way. docs/evaluation.md says where this differs from the official code.
"""

import dataclasses
import hashlib
import importlib.metadata
import importlib.util
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spade_jax.benchmarks import acebench_data, acebench_dialogue
from spade_jax.benchmarks.acebench_checker import ALIASES
from spade_jax.benchmarks.acebench_dialogue import Dialogue
from spade_jax.benchmarks.interface import WON, Absent, Figures, Item, Outcome, Policy, Unanswered
from spade_jax.benchmarks.user import SELF, User
from spade_jax.sampling.interface import SamplingParams
from spade_jax.sandbox.workers import Fault, Workers

PACKAGE, VERSION = "evalscope", "1.14.1"
COMMAND = f"pip install --no-deps {PACKAGE}=={VERSION}"
FILES = (
    "benchmarks/acebench/prompts.py",
    "benchmarks/acebench/scenarios.py",
    "third_party/acebench/en/base_api.py",
    "third_party/acebench/en/food_services.py",
    "third_party/acebench/en/message.py",
    "third_party/acebench/en/reminder.py",
    "third_party/acebench/en/travel.py",
)
DIGEST = "43c14c68dc5b6b2f00bf8bb5199ab75d85c72e3d45b8cfefd077baba000c60f3"
"""SHA-256 of those files of the wheel, one after the other."""
OFFICIAL_USER = re.compile(r"(.*/)?gpt-4o(-\d{4}-\d\d-\d\d)?")
"""Names of the model that plays the user officially; whose user the paper had, it does not say."""
ALMOST = math.nextafter(WON, 0)  # all milestones met, in the wrong state


class ACEBenchAgent:
    """The benchmark; ends its worker processes when it is left.

    Args:
      data: folder with ``acebench_agent``: the files, or a clone of their repository.
      user: who plays the user in the tasks of many turns.
    """

    name, title = acebench_data.NAME, "ACEBench-Agent"
    params = SamplingParams(max_tokens=4096, temperature=0.001)

    def __init__(self, data: Path, user: User = SELF):
        self._data, self._user = data, user
        self._workers = Workers("spade_jax.benchmarks.acebench_backend")
        self._digest = ""

    async def __aenter__(self) -> "ACEBenchAgent":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._workers.aclose()

    def items(self) -> list[Item]:
        _check_package()
        items, self._digest = acebench_data.read(self._data)
        return items

    def protocol(self) -> dict[str, Any]:
        user = self._user
        alike = OFFICIAL_USER.fullmatch(user.model)
        label = "" if alike else user.label or f"user simulator {user.model}"
        return {
            "package": f"{PACKAGE} {VERSION}",
            "services": DIGEST,
            "data": self._digest,
            "language": "en",
            "rules": "official dialogue and state rule; every class of the truth counts",
            "aliases": ALIASES,
            "messages": acebench_dialogue.MESSAGES,
            "extraction": "bracketed list of calls, literal arguments, outside thinking",
            "user_decoding": dataclasses.asdict(acebench_dialogue.USER),
            **user.protocol(),
            "label": label,
        }

    def floors(self) -> Figures:
        return {}

    async def attempt(self, item: Item, policy: Policy) -> Outcome:
        name, data = f"{self.name}/{item.name}", item.data
        dialogue = Dialogue(name, data["entry"], policy, self.params, self._user, self._workers)
        record: dict[str, Any] = {"said": dialogue.said}
        score, fault = 0.0, ""
        try:
            await dialogue.run()
            facts = data["entry"], data["truth"], data["milestones"], dialogue.executed
            record |= await self._workers.run("judge", *facts)
            verdict = verdict_of(record)
            score = min(record["process"], ALMOST) if verdict else 1.0
        except (Unanswered, Fault) as reason:
            verdict, fault = "not judged", str(reason)
        return Outcome(item.name, item.column, score, verdict, fault, record)


def verdict_of(judged: Mapping[str, Any]) -> str:
    """'' if the end state is right; of the wrong ones those are told apart that pass officially."""
    if not judged["called"]:
        return "no call"
    if not judged["differences"]:
        return ""
    return "wrong state, passed by the official rule" if judged["official"] else "wrong state"


def _check_package() -> None:
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise Absent(f"the package {PACKAGE} is not installed", COMMAND)
    if (version := importlib.metadata.version(PACKAGE)) != VERSION:
        raise Absent(f"{PACKAGE} is {version}, not {VERSION}", COMMAND)
    folder = Path(spec.submodule_search_locations[0])
    digest = hashlib.sha256()
    try:
        for name in FILES:
            digest.update((folder / name).read_bytes())
    except OSError as error:
        raise Absent(f"{PACKAGE} is not whole ({error})", COMMAND) from error
    if digest.hexdigest() != DIGEST:
        raise Absent(f"{folder} does not hold the files of {PACKAGE} {VERSION}", COMMAND)
