"""ACEBench's services and prompts, those of the ``evalscope`` wheel, in a worker process.

The wheel has the benchmark's own classes (its repository is no package) and its prompts. Of it only
they are imported, not the package, which needs half the ecosystem. Calls are dispatched by name to
public methods, never evaluated. A request is answered by replaying the dialogue so far.
"""

import _strptime
import copy
import importlib.util
import json
import sys
import types
from collections.abc import Mapping, Sequence
from typing import Any

from spade_jax.benchmarks import acebench_calls, acebench_checker
from spade_jax.environments.calls import Call
from spade_jax.sandbox import worker

LANGUAGE = "en"
Entry = Mapping[str, Any]


def _wheel() -> list[Any]:
    """Modules of the wheel: prompts, scenarios, services; its packages' ``__init__`` left out."""
    for name in ("evalscope", "evalscope.benchmarks", "evalscope.third_party"):
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.submodule_search_locations is not None
        package = types.ModuleType(name)
        package.__spec__, package.__path__ = spec, spec.submodule_search_locations
        sys.modules[name] = package
    from evalscope.benchmarks.acebench import prompts, scenarios
    from evalscope.third_party.acebench.en import (
        base_api,
        food_services,
        message,
        reminder,
        travel,
    )

    return [prompts, scenarios, base_api, food_services, message, reminder, travel]


PROMPTS, SCENARIOS, *SERVICES = _wheel()
PRELOADED = (*SERVICES, _strptime)
"""What is imported by name, or by a service's method: a confined process can open no file."""


def agent_prompt(entry: Entry, history: str) -> list[str]:
    """System and user message that have the agent say what is next.

    Args:
      entry: ``category``, ``function`` and ``involved_classes`` of an item.
    """
    return list(
        PROMPTS.build_agent_prompts(
            history, entry["function"], entry["involved_classes"], entry["category"], LANGUAGE
        )
    )


def user_prompt(entry: Entry) -> list[str]:
    """System message of who plays the user, and what is said to it first.

    Args:
      entry: ``question`` and ``involved_classes`` of an item.
    """
    system = PROMPTS.build_user_simulator_prompt(
        entry["question"], entry["involved_classes"], LANGUAGE
    )
    return [system, PROMPTS.agent_prompt_set(LANGUAGE)["user_opening"]]


def is_calls(message: str) -> bool:
    """Whether a message is for the executor."""
    return _calls(message) is not None


def answer(entry: Entry, messages: Sequence[str]) -> str | None:
    """What the last message's calls return, after those before it; None if it is no calls.

    Args:
      entry: ``initial_config`` and ``involved_classes`` of an item.
    """
    return _replay(entry, messages)[1]


def judge(
    entry: Entry,
    truth: acebench_checker.Truth,
    milestones: Sequence[str] | Sequence[Sequence[str]],
    messages: Sequence[str],
) -> dict[str, Any]:
    """What became of a dialogue.

    Returns:
      ``called``: whether any message was calls; ``differences`` of the state from the truth;
      ``official``, the verdict of the official rule, by which a dialogue without a call is lost;
      ``process`` accuracy by milestones alone.
    """
    services, _ = _replay(entry, messages)
    state = {
        name: each for one in SCENARIOS.snapshot_states(services) for name, each in one.items()
    }
    called = any(map(is_calls, messages))
    return {
        "called": called,
        "differences": acebench_checker.differences(state, truth),
        "official": called and acebench_checker.passes_officially(state, truth),
        "process": acebench_checker.process(messages, milestones),
    }


def _replay(entry: Entry, messages: Sequence[str]) -> tuple[dict[str, Any], str | None]:
    """The services after the messages, and what the last one's calls returned."""
    services = SCENARIOS.load_scenario_instances(
        entry["initial_config"], entry["involved_classes"], LANGUAGE
    )
    returned = None
    for message in messages:
        calls = _calls(message)
        returned = None if calls is None else str([_call(services, call) for call in calls])
    return services, returned


def _calls(message: str) -> list[Call] | None:
    try:
        return acebench_calls.parse(message)
    except acebench_calls.Unreadable:
        return None


def _call(services: Mapping[str, Any], call: Call) -> Any:
    """What a call returns, as the official executor shows it.

    All services that know the method are called, since each has a state of its own of what they
    share; what the last one returns is shown.
    """
    methods = (
        []
        if call.name.startswith("_")
        else [
            method
            for service in services.values()
            if isinstance(method := getattr(service, call.name, None), types.MethodType)
        ]
    )
    if not methods:
        return f"Error during execution: name '{call.name}' is not defined"
    value: Any = None
    try:
        for method in methods:
            value = method(**copy.deepcopy(call.arguments))
        text = value if isinstance(value, str) else _json(value)
    except Exception as error:
        return f"Error during execution: {error!s}"
    try:
        return json.loads(text)
    except ValueError:
        return text


def _json(value: Any) -> str:
    if isinstance(value, dict):
        try:
            return json.dumps(value)
        except (TypeError, ValueError):  # objects
            pass
    return str(value)


if __name__ == "__main__":
    worker.serve(
        {
            "agent_prompt": agent_prompt,
            "user_prompt": user_prompt,
            "is_calls": is_calls,
            "answer": answer,
            "judge": judge,
        }
    )
