"""The wheel's own run of tasks whose agent and user say what is written: a program of its own.

Reads ``[[domain, task, {"agent": [...], "user": [...]}], ...]`` from standard input, a message is
``[text, calls]``; writes, for each, the official reward, how it ended, and the system message and
functions of each side with all that it was told last. Nothing of ``spade_jax`` takes part. Stood in
for are only the packages that the wheel wants and a dialogue does not need.
"""

# ruff: noqa: E402 (the stand-ins come before the imports that want them)

import json
import sys
import types

for name, names in {
    "dotenv": {"load_dotenv": lambda: True},
    "pandas": {"DataFrame": object},
    "tau2.utils.llm_utils": {"generate": None, "get_cost": lambda messages: None},
}.items():
    sys.modules[name] = types.ModuleType(name)
    vars(sys.modules[name]).update(names)

from loguru import logger

logger.remove()

from tau2 import config
from tau2.agent import llm_agent
from tau2.data_model.message import AssistantMessage, ToolCall
from tau2.data_model.tasks import Task
from tau2.evaluator import evaluator
from tau2.orchestrator.orchestrator import Orchestrator
from tau2.registry import registry
from tau2.user import user_simulator


class Spoken:
    """In the place of a model: says what is written and keeps what it was shown."""

    def __init__(self, messages):
        self.left, self.shown, self.tools = list(messages), [], []

    def generate(self, model, messages, tools=None, **_):
        self.shown = [message.model_dump() for message in messages]
        self.tools = [tool.openai_schema for tool in tools or []]
        text, calls = self.left.pop(0)
        made = [
            ToolCall(id=f"{len(self.left)}/{i}", name=name, arguments=arguments)
            for i, (name, arguments) in enumerate(calls)
        ]
        return AssistantMessage(role="assistant", content=text, tool_calls=made or None)


def run(domain, data, said):
    task = Task.model_validate(data)
    environment = registry.get_env_constructor(domain)()
    sides = {side: Spoken(messages) for side, messages in said.items()}
    llm_agent.generate, user_simulator.generate = sides["agent"].generate, sides["user"].generate
    user_tools = environment.get_user_tools() if environment.user_tools else None
    agent = llm_agent.LLMAgent(environment.get_tools(), environment.get_policy())
    user = user_simulator.UserSimulator(user_tools, str(task.user_scenario))
    limits = {"max_steps": config.DEFAULT_MAX_STEPS, "max_errors": config.DEFAULT_MAX_ERRORS}
    simulation = Orchestrator(domain, agent, user, environment, task, **limits).run()
    kind = evaluator.EvaluationType.ALL
    found = evaluator.evaluate_simulation(simulation, task, kind, False, domain)
    return {
        "reward": found.reward,
        "termination": simulation.termination_reason.value,
        "limits": limits,
        "sides": {
            name: {
                "tools": side.tools,
                "told": [
                    [message["role"], message["content"]]
                    for message in side.shown
                    if message["role"] != "assistant"
                ],
                "own": [
                    message["content"] for message in side.shown if message["role"] == "assistant"
                ],
            }
            for name, side in sides.items()
        },
    }


if __name__ == "__main__":
    print(json.dumps([run(*case) for case in json.load(sys.stdin)]))
