"""BFCL's backends and checker, in a worker process; calls are dispatched, never evaluated.

The official executor puts each call into a line of Python and evaluates it. Here a call is a name
and arguments that JSON can hold: the name must be that of a public method of an involved class,
which is called with them. The official checker runs as it is, with this executor in the place of
its own; ``tests/benchmarks/test_bfcl_backend.py`` holds the two to the same verdicts.

A call is ``[name, arguments]``; ``turns`` is for each turn its steps, each a list of calls.
"""

import ast
import copy
import functools
import json
from collections.abc import Sequence
from typing import Any

from bfcl_eval.constants.executable_backend_config import STATELESS_CLASSES
from bfcl_eval.eval_checker.multi_turn_eval import multi_turn_checker as official
from bfcl_eval.eval_checker.multi_turn_eval.func_source_code.gorilla_file_system import (
    GorillaFileSystem,
)
from bfcl_eval.eval_checker.multi_turn_eval.func_source_code.math_api import MathAPI
from bfcl_eval.eval_checker.multi_turn_eval.func_source_code.message_api import MessageAPI
from bfcl_eval.eval_checker.multi_turn_eval.func_source_code.posting_api import TwitterAPI
from bfcl_eval.eval_checker.multi_turn_eval.func_source_code.ticket_api import TicketAPI
from bfcl_eval.eval_checker.multi_turn_eval.func_source_code.trading_bot import TradingBot
from bfcl_eval.eval_checker.multi_turn_eval.func_source_code.travel_booking import TravelAPI
from bfcl_eval.eval_checker.multi_turn_eval.func_source_code.vehicle_control import (
    VehicleControlAPI,
)

from spade_jax.sandbox import worker

CLASSES = {
    kind.__name__: kind
    for kind in (
        GorillaFileSystem,
        MathAPI,
        MessageAPI,
        TwitterAPI,
        TicketAPI,
        TradingBot,
        TravelAPI,
        VehicleControlAPI,
    )
}
Step = Sequence[tuple[str, Any]]


def execute(entry: dict[str, Any], steps: Sequence[Step]) -> list[str]:
    """What the calls of the last step return, after those of the steps before it.

    Args:
      entry: ``id``, ``initial_config`` and ``involved_classes`` of a dialogue.
    """
    backends = _backends(entry)
    results: list[str] = []
    for step in steps:
        results = [_call(backends, name, arguments) for name, arguments in step]
    return results


def check(
    entry: dict[str, Any], truth: Sequence[Sequence[str]], turns: Sequence[Sequence[Step]]
) -> str:
    """The official verdict: '' if right, else the type of error.

    Args:
      truth: of each turn its calls, as the data has them.
    """
    if len(turns) != len(truth):
        return "multi_turn:force_terminated"
    instances: dict[str, dict[str, Any]] = {}
    official.execute_multi_turn_func_call = functools.partial(_execute, entry, instances)
    category = entry["id"].rsplit("_", 1)[0]
    wanted = [[_parse(call) for call in calls] for calls in truth]
    verdict = official.multi_turn_checker(turns, wanted, entry, category, "policy")
    return "" if verdict["valid"] else verdict["error_type"]


def _execute(
    entry: dict[str, Any],
    instances: dict[str, dict[str, Any]],
    func_call_list: Step,
    model_name: str,
    **_: Any,
) -> tuple[list[str], dict[str, Any]]:
    """In the place of the official executor; one set of backends for each ``model_name``."""
    backends = instances.setdefault(model_name, {})
    if not backends:
        backends |= _backends(entry)
    return [_call(backends, name, arguments) for name, arguments in func_call_list], backends


def _backends(entry: dict[str, Any]) -> dict[str, Any]:
    """New backends, in the state in which the dialogue begins."""
    long_context = "long_context" in entry["id"]
    backends = {}
    for name in entry["involved_classes"]:
        backend = CLASSES[name]()
        if name not in STATELESS_CLASSES:
            scenario = copy.deepcopy(entry["initial_config"].get(name, {}))
            backend._load_scenario(scenario, long_context=long_context)
        backends[name] = backend
    return backends


def _call(backends: dict[str, Any], name: str, arguments: Any) -> str:
    """What a call returns, in the words of the official executor.

    Args:
      arguments: keyword arguments, or a pair of positional and keyword arguments (in truths).
    """
    # Backends keep what they are given, and change it.
    given = copy.deepcopy(arguments)
    places, words = given if isinstance(given, tuple) else ((), given)
    method = None
    for backend in backends.values():  # of several, the last class's counts
        found = getattr(backend, name, None) if not name.startswith("_") else None
        method = found if getattr(found, "__self__", None) is backend else method
    try:
        if method is None:
            raise NameError(f"name '{name}' is not defined")
        value = method(*places, **words)
        if isinstance(value, dict):
            return _json(value)
        return value if type(value) is str else str(value)
    except Exception as error:
        return f"Error during execution: {error!s}"


def _json(value: dict[str, Any]) -> str:
    try:
        return json.dumps(value)
    except Exception:  # objects, numbers of too many digits
        return str(value)


def _parse(call: str) -> tuple[str, Any]:
    """A call of a truth: a name, and arguments that are literals."""
    node = ast.parse(call, mode="eval").body
    assert isinstance(node, ast.Call)
    assert isinstance(node.func, ast.Name)
    places = [ast.literal_eval(argument) for argument in node.args]
    words = {word.arg: ast.literal_eval(word.value) for word in node.keywords}
    return node.func.id, (places, words)


if __name__ == "__main__":
    worker.serve({"execute": execute, "check": check})
