"""The prompts of the setting ``tools``: the functions of the package, for tool environments.

The texts are in ``tools_full`` and ``tools_small``.
"""

import random
from collections.abc import Sequence

from spade_jax.selfplay import prompts
from spade_jax.selfplay.prompts import Document, Messages, Record, message, render, without_solution

SKILLS = {
    "API Orchestration": "chaining calls that each change the state and feed the next",
    "Data Retrieval": "finding the right record first, then acting on exactly that one",
    "State Modification": "a chain of changes, each possible only after the one before",
    "Error Recovery": "coping with calls that fail, and checking before acting",
    "Tool Selection": "choosing among similar tools by the state that is found",
    "Multi-Step Workflows": "a procedure of several steps whose order matters",
}
IDEAS = {
    "API Orchestration": (
        "move files into a folder made for them",
        "transfer money after a look at the balance",
        "check stock, reserve it, write the invoice",
        "search flights, book one, choose the seat",
    ),
    "Data Retrieval": (
        "find a file by what it says and read it",
        "go from a user to the user's orders to the newest of them",
        "find the setting that is wrong and put it right",
        "filter records, add something up, use the sum",
    ),
    "State Modification": (
        "open an account, give it rights, put it into a group",
        "rebuild a tree of folders",
        "start a machine whose parts depend on one another",
        "shift the holdings of a portfolio",
    ),
    "Error Recovery": (
        "a file is not where it should be",
        "a right has to be obtained before the action is allowed",
        "a thing to be made exists already",
        "something is checked before it is deleted for good",
    ),
    "Tool Selection": (
        "open what lies here, or go where it lies first",
        "one of three processors, by the kind of the item",
        "the reader that fits the format",
        "create or update, depending on what is there",
    ),
    "Multi-Step Workflows": (
        "a file is fetched, checked, converted and filed",
        "an order goes from cart to payment to shipping",
        "a system is set up part by part",
        "data are loaded, cleaned, joined and reported",
    ),
}
DOMAINS = {
    "Retail orders": "orders, their status, changes, returns and refunds",
    "Travel booking": "flights and hotels, reservations, seats, changes and cancellations",
    "Telecom accounts": "plans, lines, usage, faults and add-ons",
    "Banking": "accounts, transfers, cards, limits and standing orders",
    "Calendar": "meetings, invitations, free hours and reminders",
    "File system": "folders, files, what they contain, and moving them about",
    "Shopping cart": "a catalogue, a cart, vouchers, addresses and the checkout",
    "Support tickets": "tickets, customers, priorities, assignments and replies",
    "Smart home": "rooms, devices, sensors, scenes and schedules",
    "Project tracker": "tasks, owners, due dates, dependencies and boards",
}
VARIANTS = {
    "execute": (
        3,
        "Every instruction says what is to be done, and the assistant does it.",
    ),
    "read, then write": (
        2,
        "In at least one instruction what is to be done depends on something that must be read "
        "first: if the state is so, then this, else that. Both happen, by the seed.",
    ),
    "missing value": (
        1,
        "In one instruction the user leaves out a value that a call requires. It stands in the "
        "data, where a look-up finds it.",
    ),
    "irrelevant request": (
        1,
        "One instruction asks for something that none of the tools can do. The only right way is "
        "a tool that declines, with a reason out of a few; its criterion asks for that call.",
    ),
}
"""Name -> weight and text."""


def ideas(skill: str, rng: random.Random) -> tuple[str, str]:
    """A domain, and a kind of task by its weight."""
    weights = [weight for weight, _ in VARIANTS.values()]
    (variant,) = rng.choices(list(VARIANTS), weights)
    return rng.choice(list(DOMAINS)), variant


def designer(
    set_: str,
    *,
    skill: str,
    difficulty: str,
    document: Document | None,
    exemplars: Sequence[Record],
    avoid: Sequence[Record],
    max_turns: int,
    ideas: Sequence[str],
    hint_words: int = 0,
) -> Messages:
    """As :func:`spade_jax.selfplay.prompts.designer`; ``ideas`` are a domain and a variant."""
    domain, variant = ideas
    values = {
        "skill": skill,
        "skill_description": SKILLS[skill],
        "skill_ideas": IDEAS[skill],
        "domain": domain,
        "domain_description": DOMAINS[domain],
        "variant_name": variant,
        "variant": VARIANTS[variant][1],
        "difficulty": difficulty,
        "grounded": document is not None,
        "document": document,
        "exemplars": exemplars,
        "avoid": avoid,
        "max_turns": max_turns,
        "hint_words": hint_words,
    }
    if set_ == "full":
        values["example"] = render("tools_full/example.py", {})
    return [message("user", f"tools_{set_}/designer", values)]


def agent(set_: str, *, observation: str, hint: str | None = None) -> Messages:
    """Opens an episode with the first instruction, which ends in the hint if there is one."""
    return prompts.agent(f"tools_{set_}", observation=observation, hint=hint)


def hint(set_: str, *, skill: str, source: str, words: int) -> Messages:
    """As :func:`spade_jax.selfplay.prompts.hint`."""
    values = {"skill": skill, "source": without_solution(source), "words": words}
    user = message("user", f"tools_{set_}/hint", values)
    return [user] if set_ == "small" else [message("system", "tools_full/hint_system", {}), user]
