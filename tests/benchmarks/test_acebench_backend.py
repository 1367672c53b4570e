"""The wheel's services: calls dispatched by name, states judged."""

import asyncio

import pytest

from spade_jax.benchmarks import acebench_backend as backend
from spade_jax.sandbox.workers import Workers
from tests.benchmarks import acebench_items

PHONE = {
    "category": "agent_multi_step",
    "question": "Do it.",
    "function": [acebench_items.document("turn_on_wifi")],
    "involved_classes": ["BaseApi", "MessageApi", "FoodPlatform"],
    "initial_config": acebench_items.OFFLINE,
}
UNDEFINED = "Error during execution: name '{}' is not defined"


def answers(*messages):
    return backend.answer(PHONE, messages)


def test_calls_are_answered_after_those_before_them():
    assert "Wi-Fi is not enabled" in answers(acebench_items.LOGIN)
    assert "successfully logged in" in answers("[turn_on_wifi()]", acebench_items.LOGIN)
    both = answers(
        "[turn_on_wifi()]", f"{acebench_items.LOGIN[:-1]}, check_balance(user_name='Frank')]"
    )
    assert both.endswith("!'}, 300.0]")
    assert answers("[turn_on_wifi()]", "What now?") is None
    assert answers() is None


def test_a_call_reaches_every_service_that_knows_it():
    state = acebench_items.initial
    services, _ = backend._replay(PHONE, ["[turn_on_wifi()]"])
    assert [service.wifi for service in services.values()] == [True] * 3
    assert not state(PHONE["involved_classes"], PHONE["initial_config"])["BaseApi"]["wifi"]


@pytest.mark.parametrize(
    "name",
    [
        "fly",
        "_load_scenario",
        "__init__",
        "__class__",
        "inbox",
        "wifi",
        "api.turn_on_wifi",
        "users.pop",
    ],
)
def test_only_public_methods_are_called(name):
    assert answers(f"[{name}()]") == str([UNDEFINED.format(name)])


def test_what_a_call_raises_is_told():
    text = answers(
        "[delete_message(id=3), delete_message(message_id=3), delete_message(message_id='3')]"
    )
    assert text.startswith(
        '["Error during execution: MessageApi.delete_message() got an unexpected'
    )
    assert text.count("'status': True") == text.count("does not exist") == 1
    travel = PHONE | {"involved_classes": ["Travel"], "initial_config": {}}
    lost = [acebench_items.BOOK.replace("MU3561", "XX")]
    assert "Error during execution" in backend.answer(travel, lost)


def test_arguments_are_copied_for_every_service():
    class Keeps:
        def keep(self, items):
            self.kept = items

    services = {"a": Keeps(), "b": Keeps()}
    backend._call(services, backend.Call("keep", {"items": [1]}))
    assert services["a"].kept is not services["b"].kept


def judged(pair, *messages):
    question, answer = pair
    return backend.judge(question, answer["ground_truth"], answer["mile_stone"], messages)


@pytest.mark.parametrize(
    "pair", acebench_items.STEPS + acebench_items.TURNS, ids=lambda p: p[0]["id"]
)
def test_our_tasks_are_won_by_their_oracle_and_lost_by_less(pair):
    calls = [m for m in acebench_items.ORACLE[pair[0]["id"]] if backend.is_calls(m)]
    right = judged(pair, *calls)
    assert (right["called"], right["differences"], right["official"]) == (True, [], True)
    assert judged(pair, *calls[:-1], "[login_device()]")["differences"]
    # A list must be as it is in the truth, a mapping may hold more.
    twice = judged(pair, *calls, calls[-1])
    lists = "Travel", "FoodPlatform"
    assert bool(twice["differences"]) == any(name in lists for name in pair[0]["involved_classes"])


def test_no_call_is_no_state():
    nothing = acebench_items.rows("x", "Wait.", {}, ["Travel"], lambda truth: None, ["[wait()]"])
    silent = judged(nothing, "I am waiting.")
    assert (silent["called"], silent["differences"], silent["official"]) == (False, [], False)


def test_a_misspelt_class_counts():
    *_, pair = acebench_items.STEPS
    wrong = judged(pair, acebench_items.NOTE.replace("Plants", "plants"))
    (difference,) = wrong["differences"]
    assert difference.startswith("ReminderApi.reminder_list.4: {")
    assert wrong["official"]


def test_confined_workers_answer_alike_and_can_open_no_file():
    """Times are parsed by a module that a service imports late; none may be missing."""
    messages = ["[get_latest_message_id(), get_earliest_message_id()]"]
    travel = PHONE | {"involved_classes": ["Travel"], "initial_config": {}}
    flights = ["[find_transfer_flights(origin_city='Beijing', transfer_city='Nanjing', "
               "destination_city='Shenzhen'), cancel_reservation(user_id='user1', "
               "reservation_id='res_1', reason='other')]"]  # fmt: skip

    async def go():
        async with Workers("spade_jax.benchmarks.acebench_backend", count=1) as workers:
            return [
                await workers.run("answer", PHONE, messages),
                await workers.run("answer", travel, flights),
                await workers.run("agent_prompt", PHONE, "user:Do it.\n"),
            ]

    *said, prompt = asyncio.run(go())
    assert said == [backend.answer(PHONE, messages), backend.answer(travel, flights)]
    assert "Error" not in "".join(said)
    assert prompt == backend.agent_prompt(PHONE, "user:Do it.\n")
    assert "turn_on_wifi" in prompt[1]
    assert prompt[1].isascii()
