"""Tasks of ours on ACEBench's services, written for these tests, in the benchmark's format.

A truth is what the services begin with, edited by hand: no call has a part in it.
"""

import copy
import json

from spade_jax.benchmarks import acebench_backend


def initial(classes, config):
    services = acebench_backend.SCENARIOS.load_scenario_instances(config, classes, "en")
    states = acebench_backend.SCENARIOS.snapshot_states(services)
    return {name: each for state in states for name, each in state.items()}


def document(name, *required):
    properties = {key: {"type": "string", "description": key} for key in required}
    parameters = {"type": "dict", "required": list(required), "properties": properties}
    return {"name": name, "description": f"Does {name}.", "parameters": parameters}


def rows(name, text, config, classes, edit, milestones, rename=lambda name: name):
    """A question and its answer."""
    truth = copy.deepcopy(initial(classes, config))
    edit(truth)
    question = {
        "id": name,
        "question": text,
        "initial_config": config,
        "path": [],
        "function": [document("turn_on_wifi"), document("delete_message", "message_id")],
        "involved_classes": classes,
    }
    answer = {
        "id": name,
        "ground_truth": [{rename(key): each} for key, each in truth.items()],
        "mile_stone": milestones,
    }
    return question, answer


OFFLINE = {"BaseApi": {"wifi": False, "logged_in": True}}
TEA = "Four Seasons Spring Milk Tea"


def order(truth):
    truth["BaseApi"]["wifi"] = True
    food = truth["FoodPlatform"]
    food["users"]["Frank"]["balance"] = 256.0
    food["logged_in_users"] = ["Frank"]
    cups = {"product": TEA, "quantity": 2, "price_per_unit": 22.0}
    bill = {"user_name": "Frank", "merchant_name": "Heytea", "items": [cups], "total_price": 44.0}
    food["orders"] = [bill]


def swap(truth):
    truth["BaseApi"]["wifi"] = True
    inbox = truth["MessageApi"]["inbox"]
    del inbox["2"]
    inbox["7"] = {"sender_id": "USR105", "receiver_id": "USR100", "message": "It's done."}


def note(truth):
    added = {"reminder_id": 4, "title": "Plants", "description": "Water them.", "time": "now"}
    truth["ReminderApi"]["reminder_list"]["4"] = added | {"notified": False}


def book(truth):
    truth["Travel"]["users"]["user3"]["bank_balance"] = 3500.0
    seat = {"reservation_id": "res_5", "user_id": "user3", "flight_no": "MU3561"}
    seat |= {"payment_method": "bank", "cabin": "Economy Class", "baggage": 2}
    truth["Travel"]["reservations"].append(seat)


def misspelt(name):
    return {"BaseApi": "BaseAPI", "ReminderApi": "Reminderpi"}.get(name, name)


LOGIN = "[login_food_platform(username='Frank', password='password456')]"
ORDER = (
    "[add_food_delivery_order(username='Frank', merchant_name='Heytea', "
    f"items=[{{'product': '{TEA}', 'quantity': 2}}])]"
)
SEND = "[send_message(sender_name='Jack', receiver_name='Eve', message=\"It's done.\")]"
NOTE = "[add_reminder(title='Plants', description='Water them.', time='now')]"
BOOK = (
    "[reserve_flight(user_id='user3', password='password789', flight_no='MU3561', "
    "cabin='Economy Class', payment_method='bank', baggage_count=2)]"
)
DONE = "finish conversation"
STEPS = [
    rows(
        "agent_multi_step_0",
        "I am Frank. Two cups of the cheaper tea, please.",
        OFFLINE,
        ["BaseApi", "FoodPlatform"],
        order,
        ["[turn_on_wifi()]", LOGIN, ORDER],
    ),
    rows(
        "agent_multi_step_1",
        "I am Jack. Make room by dropping message 2, then tell Eve that it's done.",
        OFFLINE,
        ["BaseApi", "MessageApi"],
        swap,
        [
            ["[delete_message(message_id=2)]", "[turn_on_wifi()]", SEND],
            ["[turn_on_wifi()]", "[delete_message(message_id=2)] ", SEND],
        ],
    ),
    rows(
        "agent_multi_step_2",
        "Remind me now to water the plants.",
        {"BaseApi": {"wifi": True, "logged_in": True}},
        ["BaseApi", "ReminderApi"],
        note,
        [NOTE],
        misspelt,
    ),
]
TURNS = [
    rows(
        "agent_multi_turn_0",
        "You are Grace (user3, password789) and want an early flight to Nanjing with two bags.",
        {},
        ["Travel"],
        book,
        ["[get_flight_details(origin='Beijing', destination='Nanjing')]", BOOK],
    ),
    rows(
        "agent_multi_turn_1",
        "You are Jack. Have message 2 dropped and Eve told that it's done.",
        OFFLINE,
        ["BaseApi", "MessageApi"],
        swap,
        ["[turn_on_wifi()]", SEND],
    ),
]
ORACLE = {
    "agent_multi_step_0": ["[turn_on_wifi()]", LOGIN, ORDER, DONE],
    "agent_multi_step_1": ["[turn_on_wifi(), delete_message(message_id=2)]", SEND, DONE],
    "agent_multi_step_2": [NOTE, DONE],
    "agent_multi_turn_0": [
        "Where to?",
        "[get_flight_details(origin='Beijing', destination='Nanjing')]",
        "MU3561 is early. Shall I?",
        BOOK,
        DONE,
    ],
    "agent_multi_turn_1": [
        "[turn_on_wifi()]",
        "[delete_message(message_id=2)]",
        SEND,
        "Sent.",
    ],
}
USERS = {
    "agent_multi_turn_0": ["A flight, please.", "Nanjing.", "Yes."],
    "agent_multi_turn_1": ["Drop message 2 and tell Eve that it's done.", DONE],
}


def write(folder):
    """The files, as in a clone of the benchmark's repository."""
    place = folder / "acebench_agent" / "data_all" / "data_en"
    (place / "possible_answer").mkdir(parents=True)
    for name, pairs in (("multi_step", STEPS), ("multi_turn", TURNS)):
        file = f"data_agent_{name}.json"
        questions, answers = zip(*pairs, strict=True)
        for path, these in ((place / file, questions), (place / "possible_answer" / file, answers)):
            path.write_text("".join(json.dumps(row) + "\n" for row in these), "utf-8")
    return place
