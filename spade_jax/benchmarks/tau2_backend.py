"""tau2-bench's domains, orchestrator and evaluator, in a worker process.

The official orchestrator runs as it is, with an agent and a user that read out what was said so
far; where that ends, so does the request. No tool of a domain executes what a model wrote but the
calculator, which evaluates a line of digits and operators.

Modules of packages that a dialogue does not need are stood in for, before the wheel is imported.

``said`` is what agent and user said, in turn: each ``[text, calls]``, a call ``[name, arguments]``.
"""

# ruff: noqa: E402 (the stand-ins come before the imports that want them)

import copy
import functools
import sys
import types
from collections.abc import Sequence
from typing import Any

from loguru import logger

from spade_jax.sandbox import worker


def _stand_in(name: str, **names: Any) -> None:
    """A module of these names in the place of one that has no part in the rules."""
    module = types.ModuleType(name)
    vars(module).update(names)
    sys.modules[name] = module


_stand_in("dotenv", load_dotenv=lambda: True)
_stand_in("pandas", DataFrame=object)
_stand_in("tau2.utils.llm_utils", generate=None, get_cost=lambda _: None)
logger.remove()

from tau2 import config
from tau2.agent.llm_agent import LLMAgent
from tau2.data_model.message import (
    AssistantMessage,
    MultiToolMessage,
    ToolCall,
    UserMessage,
)
from tau2.data_model.simulation import SimulationRun
from tau2.data_model.tasks import Task
from tau2.evaluator.evaluator import EvaluationType, evaluate_simulation
from tau2.orchestrator.orchestrator import DEFAULT_FIRST_AGENT_MESSAGE, Orchestrator
from tau2.registry import registry
from tau2.user import user_simulator

DOMAINS = ("retail", "airline", "telecom")
LIVE = 4  # dialogues kept, so that one that goes on is not begun anew
Said = Sequence[tuple[str, Sequence[tuple[str, dict[str, Any]]]]]


class _Unsaid(Exception):
    """Nothing more was said: whose turn it is, and what they are told."""

    def __init__(self, turn: str, told: list[dict[str, str]]):
        super().__init__(turn)
        self.turn, self.told = turn, told


class _Agent(LLMAgent):
    dialogue: "_Dialogue"

    def generate_next_message(self, message: Any, state: Any) -> tuple[AssistantMessage, Any]:
        said = self.dialogue.next("agent", "assistant", message)
        return AssistantMessage(role="assistant", **said), state


class _User(user_simulator.UserSimulator):
    dialogue: "_Dialogue"

    def generate_next_message(self, message: Any, state: Any) -> tuple[UserMessage, Any]:
        return UserMessage(role="user", **self.dialogue.next("user", "user", message)), state


class _Dialogue(Orchestrator):
    """An official dialogue that can be run again when more was said."""

    def __init__(self, domain: str, task: Task):
        environment = _environment(domain)
        agent = _Agent(tools=[], domain_policy=environment.get_policy())
        user = _User(instructions=str(task.user_scenario))
        limits = (config.DEFAULT_MAX_STEPS, config.DEFAULT_MAX_ERRORS)
        super().__init__(domain, agent, user, environment, task, *limits)
        agent.dialogue = user.dialogue = self
        self.said: list[Any] = []
        self._begun, self._place = False, 0

    def initialize(self) -> None:
        if not self._begun:
            super().initialize()
        self._begun = True

    def next(self, turn: str, requestor: str, message: Any) -> dict[str, Any]:
        """Content and calls of what is said next."""
        if self._place == len(self.said):
            raise _Unsaid(turn, _told(message))
        text, calls = self.said[self._place]
        made = [
            ToolCall(id=f"{self._place}/{i}", name=name, arguments=words, requestor=requestor)
            for i, (name, words) in enumerate(calls)
        ]
        self._place += 1
        return {"content": text, "tool_calls": made or None}


_live: dict[tuple[str, str], _Dialogue] = {}


def brief(domain: str, task: dict[str, Any]) -> dict[str, Any]:
    """What is told before a dialogue: the two system messages, tools, the agent's greeting."""
    asked = Task.model_validate(task)
    tools, user_tools = _tools[domain]
    policy = _environment(domain).get_policy()
    agent = LLMAgent(tools=[], domain_policy=policy)
    user = user_simulator.UserSimulator(user_tools, str(asked.user_scenario))
    return {
        "agent": agent.system_prompt,
        "user": user.system_prompt,
        "tools": {"agent": tools, "user": user_tools or []},
        "greeting": DEFAULT_FIRST_AGENT_MESSAGE.content,
    }


def advance(domain: str, task: dict[str, Any], said: Said) -> dict[str, Any]:
    """What follows what was said.

    Returns:
      Either ``turn`` (``agent`` or ``user``) and ``told``, the messages to it since it last spoke,
      or, at the end, ``reward``, ``termination`` and ``breakdown`` of the official evaluation.

    Raises:
      ValueError: something that was said is empty.
    """
    key = domain, task["id"]
    dialogue = _live.pop(key, None)
    if dialogue is None or dialogue.said != said[: len(dialogue.said)]:
        dialogue = _Dialogue(domain, Task.model_validate(task))
    dialogue.said += said[len(dialogue.said) :]
    try:
        simulation = dialogue.run()
    except _Unsaid as unsaid:
        _live[key] = dialogue
        if len(_live) > LIVE:
            del _live[next(iter(_live))]
        return {"turn": unsaid.turn, "told": unsaid.told}
    simulation.messages = dialogue.trajectory  # in their order, not their clock's
    return _evaluate(domain, dialogue.task, simulation)


def _evaluate(domain: str, task: Task, simulation: SimulationRun) -> dict[str, Any]:
    found = evaluate_simulation(simulation, task, EvaluationType.ALL, False, domain)
    breakdown = found.reward_breakdown or {}
    return {
        "reward": found.reward,
        "termination": simulation.termination_reason.value,
        "breakdown": {basis.value: value for basis, value in breakdown.items()},
    }


def _told(message: Any) -> list[dict[str, str]]:
    """A message as its receiver sees it: the other one is the user, the rest are tools."""
    if isinstance(message, MultiToolMessage):
        return [{"role": "tool", "content": each.content} for each in message.tool_messages]
    return [{"role": "tool" if message.role == "tool" else "user", "content": message.content}]


def _described(environment: Any) -> tuple[list[dict[str, Any]], list[dict[str, Any]] | None]:
    """Descriptions of the agent's tools and of the user's, if it has any."""
    tools = [tool.openai_schema for tool in environment.get_tools()]
    if environment.user_tools is None:
        return tools, None
    return tools, [tool.openai_schema for tool in environment.get_user_tools()]


def _environment(domain: str, solo_mode: bool = False) -> Any:
    """A new environment of a domain; in the place of the official one, which reads files."""
    assert not solo_mode
    return copy.deepcopy(_pristine[domain])


def _load() -> None:
    """Makes every domain. All files are read here, before none can be opened."""
    guidelines = {
        tools: user_simulator.get_global_user_sim_guidelines(tools) for tools in (False, True)
    }
    user_simulator.get_global_user_sim_guidelines = lambda use_tools: guidelines[use_tools]
    for domain in DOMAINS:
        environment = registry.get_env_constructor(domain)()
        _pristine[domain], _tools[domain] = environment, _described(environment)
        registry._domains[domain] = functools.partial(_environment, domain)


_pristine: dict[str, Any] = {}
_tools: dict[str, tuple[list[dict[str, Any]], list[dict[str, Any]] | None]] = {}
_load()

if __name__ == "__main__":
    worker.serve({"brief": brief, "advance": advance})
