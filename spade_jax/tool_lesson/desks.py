"""Tool environments of one family: desks, where a user asks for one thing after another.

Each thing can be done in two ways. Which one the user wants is a coin of the seed, the same for all
of an episode. No instruction says it: the answer to a call shows it, and so does, at no price, a
look into a certain place. The place is the desk's secret, and the hint tells it. A desk forgives
some wrong calls and is closed by the next.

What is handled belongs to the domain, what is done and its two ways to the skill; how many stages
there are, how much is forgiven and how things are worded is drawn apart from both, because a
designer combines what it was taught.
"""

import json
import random
import re
from collections.abc import Mapping, Sequence

from spade_jax.environments.calls import Call
from spade_jax.environments.tools import DONE
from spade_jax.sandbox.tool_env import CLOSING
from spade_jax.warm_start.families import Game

DEEDS: Mapping[str, tuple[str, tuple[str, str]]] = {
    "API Orchestration": ("route", ("direct", "queued")),
    "Data Retrieval": ("fetch", ("newest", "oldest")),
    "State Modification": ("switch", ("on", "off")),
    "Error Recovery": ("repair", ("retry", "reset")),
    "Tool Selection": ("open", ("here", "there")),
    "Multi-Step Workflows": ("process", ("whole", "parts")),
}
"""Skill -> the tool and its two ways."""
THINGS: Mapping[str, Sequence[str]] = {
    "Retail orders": ("lamp", "vase", "rug", "chair", "mirror"),
    "Travel booking": ("flight", "hotel", "train", "ferry", "visa"),
    "Telecom accounts": ("phone", "tablet", "modem", "roaming", "voicemail"),
    "Banking": ("rent", "salary", "loan", "pension", "mortgage"),
    "Calendar": ("lunch", "review", "meeting", "party", "holiday"),
    "File system": ("report", "photo", "letter", "budget", "notes"),
    "Shopping cart": ("apples", "bread", "milk", "rice", "soap"),
    "Support tickets": ("refund", "outage", "login", "invoice", "crash"),
    "Smart home": ("heater", "blinds", "oven", "fan", "alarm"),
    "Project tracker": ("design", "tests", "launch", "survey", "backup"),
}
"""Domain -> what is handled there."""
STAGES = (3, 4)
SLACK = (0, 1, 3)
"""Wrong calls that a desk forgives."""
PLACES = ("diary", "drawer", "inbox", "ledger", "manual", "shelf")
"""One of them tells the way."""
HINT = "look: '{}'"
VERDICTS = (("right", "wrong"), ("yes", "no"), ("good", "bad"))
CLOSED = "closed"
HEEDS = 0.5
"""Share of able players that learn from an answer: what self-play has to teach the agent."""

PURPOSES = (
    "One user, one taste, about",
    "The same way each time, in",
    "Ask little and look first, by",
    "Find out how it is wanted, for",
    "An answer tells the rest, of",
    "Somebody particular, with",
)
REQUESTS = ("{verb}: {{item}}", "please {verb}: {{item}}", "now {verb}: {{item}}")
ADVANCING = (
    """\
        if self.state["left"] < 0:
            return "closed"
        if fits:
            self.state["done"] += 1
            return "{right}"
        self.state["left"] -= 1
        return "{wrong}"
""",
    """\
        if self.state["left"] < 0:
            return "closed"
        self.state["done" if fits else "left"] += 1 if fits else -1
        return "{right}" if fits else "{wrong}"
""",
    """\
        state = self.state
        if state["left"] < 0:
            return "closed"
        step, verdict = (1, "{right}") if fits else (0, "{wrong}")
        state.update(done=state["done"] + step, left=state["left"] - 1 + step)
        return verdict
""",
)
SOLVING = (
    """\
        calls = [[("{verb}", {{"item": item, "way": self.way}})] for item in self.items]
        calls[0].insert(0, ("look", {{"place": self.place}}))
        return calls
""",
    """\
        first, *rest = [("{verb}", {{"item": item, "way": self.way}}) for item in self.items]
        return [[("look", {{"place": self.place}}), first], *([call] for call in rest)]
""",
)
SOURCE = '''\
class {name}Env(ToolEnv):
    """{purpose} '{noun}'"""

    def setup(self, rng):
        self.place = '{place}'
        self.way = rng.choice({ways})
        self.items = rng.sample({things}, {stages})
        self.state = {{"done": 0, "left": {slack}}}

    def stages(self):
        return [
            (f"{request}", lambda state, n=n: state["done"] > n)
            for n, item in enumerate(self.items)
        ]

    def judge(self, fits):
{advancing}
    def tool_{verb}(self, item: str, way: Literal{ways}):
        """Does it in one of two ways."""
        return self.judge((item, way) == (self.items[self.state["done"]], self.way))

    def tool_look(self, place: Literal{places}):
        """Looks into a place."""
        return self.way if place == self.place else self.judge(False)

    def tool_list(self):
        """Lists what has been done."""
        return self.items[: self.state["done"]]

    def solution(self):
{solving}'''


def create(rng: random.Random, skill: str, domain: str, noun: str) -> Game:
    """A desk of the skill in the domain; ``noun`` is the title of its document.

    Stages, slack, place and wordings are drawn from ``rng``.
    """
    verb, ways = DEEDS[skill]
    things = THINGS[domain]
    place = rng.choice(PLACES)
    right, wrong = rng.choice(VERDICTS)
    source = SOURCE.format(
        name=domain.title().replace(" ", ""),
        purpose=rng.choice(PURPOSES),
        noun=noun,
        place=place,
        ways=_listed(ways),
        things=_listed(things),
        stages=rng.choice(STAGES),
        slack=rng.choice(SLACK),
        request=rng.choice(REQUESTS).format(verb=verb),
        advancing=rng.choice(ADVANCING).format(right=right, wrong=wrong),
        verb=verb,
        places=_listed(PLACES),
        solving=rng.choice(SOLVING).format(verb=verb),
    )

    def player(skill_: float, rng: random.Random, hint: str | None) -> DeskPlayer:
        return DeskPlayer(verb, ways, things, skill_, rng, hint)

    return Game(domain, skill, source, HINT.format(place), player)


def _listed(words: Sequence[str]) -> str:
    return json.dumps(list(words))


class DeskPlayer:
    """Looks first where the hint says so. Without one tosses a coin, then heeds answers or not.

    Who does not heed them tosses again before every call. A desk that forgives nothing is then won
    half of the time at best, one that forgives a little by those who heed, one that forgives much
    by most. At a closed desk it tells the user so.
    """

    def __init__(
        self,
        verb: str,
        ways: tuple[str, str],
        things: Sequence[str],
        skill: float,
        rng: random.Random,
        hint: str | None,
    ):
        self._verb, self._ways, self._things = verb, ways, things
        self._skill, self._rng = skill, rng
        self._places = [place for place in PLACES if hint == HINT.format(place)]
        self._heeds = hint is not None or rng.random() < HEEDS
        self._sure, self._meant = False, True
        self._way = self._item = ""

    def act(self, observation: str) -> str:
        """The message for what was answered and told since the last one."""
        answer = observation.partition("\n")[0]
        if pending := re.search(r": (\w+)$", observation):
            self._item = pending[1]
        if CLOSING in observation:
            return DONE
        if answer == CLOSED or "still to be done" in answer:
            return "\\boxed{" + CLOSED + "}"
        if self._places:
            return Call("look", {"place": self._places.pop()}).render()
        self._learn(answer)
        if not self._sure:
            self._way = self._rng.choice(self._ways)
        self._meant = self._rng.random() < self._skill
        item = self._item if self._meant else self._rng.choice(self._things)
        return Call(self._verb, {"item": item, "way": self._way}).render()

    def _learn(self, answer: str) -> None:
        if answer in self._ways:
            self._way, self._sure = answer, True
        elif self._heeds and self._meant and self._way and not self._sure:
            if any(answer == wrong for _, wrong in VERDICTS):
                self._way = next(way for way in self._ways if way != self._way)
            self._sure = True
