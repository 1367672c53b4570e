"""Tool environments of one family: desks, where a user asks for one thing after another.

Everything can be done in two ways. Which one the user wants is a coin of the seed, the same for all
of an episode. No instruction says it: the answer to a call shows it, and so does, at no price, a
look into a certain place. The place is the desk's secret, and the hint tells it. A desk forgives
some wrong calls and is closed by the next.

What is done, and in which ways, belongs to the skill, what it is done with to the domain; how many
stages there are, how much is forgiven and how things are worded is drawn apart from both, because a
designer combines what it was taught. Whatever a desk says ends in what is still to be done: a model
this small finds a word only at a fixed place.
"""

import json
import random
from collections.abc import Mapping, Sequence

from spade_jax.environments.calls import Call
from spade_jax.environments.tools import DONE
from spade_jax.sandbox.tool_env import CLOSING
from spade_jax.warm_start.families import Game

Pair = tuple[str, str]
DEEDS: Mapping[str, tuple[Pair, Pair]] = {
    "API Orchestration": (("reserve", "notify"), ("direct", "queued")),
    "Data Retrieval": (("find", "read"), ("newest", "oldest")),
    "State Modification": (("create", "rename"), ("public", "private")),
    "Error Recovery": (("repair", "restore"), ("retry", "reset")),
    "Tool Selection": (("open", "convert"), ("local", "remote")),
    "Multi-Step Workflows": (("start", "finish"), ("whole", "parts")),
}
"""Skill -> two tasks, each with a tool, and the two ways to do them. A user wants them in turn."""
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
"""Domain -> what a user may have in mind."""
STAGES = (3, 4)
SLACK = (0, 1, 2)
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
REQUESTS = (
    "{thing}, now: {task}",
    "{thing}, please: {task}",
    "{thing}, next: {task}",
)
TELLING = (
    """\
        return [
            (f"{request}", lambda state, n=n: state["done"] > n)
            for n, (task, thing) in enumerate(zip(self.tasks, self.things))
        ]
""",
    """\
        told = []
        for number, task in enumerate(self.tasks):
            thing = self.things[number]
            told.append((f"{request}", lambda state, number=number: number < state["done"]))
        return told
""",
    """\
        def reached(count):
            return lambda state: state["done"] >= count

        pairs = zip(self.things, self.tasks)
        return [(f"{request}", reached(n)) for n, (thing, task) in enumerate(pairs, 1)]
""",
)
ADVANCING = (
    """\
        if self.state["left"] < 0:
            return "closed"
        if (task, way) == (self.tasks[self.state["done"]], self.way):
            self.state["done"] += 1
            return "{right}"
        self.state["left"] -= 1
        return self.again("{wrong}")
""",
    """\
        fits = way == self.way and task == self.tasks[self.state["done"]]
        if self.state["left"] < 0:
            return "closed"
        self.state["done" if fits else "left"] += 1 if fits else -1
        return "{right}" if fits else self.again("{wrong}")
""",
    """\
        state = self.state
        if state["left"] < 0:
            return "closed"
        if way != self.way or task != self.tasks[state["done"]]:
            state["left"] -= 1
            return self.again("{wrong}")
        state["done"] += 1
        return "{right}"
""",
)
SOLVING = (
    """\
        calls = [[(task, {"way": self.way})] for task in self.tasks]
        calls[0].insert(0, ("look", {"place": self.place}))
        return calls
""",
    """\
        first, *rest = [(task, {"way": self.way}) for task in self.tasks]
        return [[("look", {"place": self.place}), first], *([call] for call in rest)]
""",
)
SPARE = (
    '''\
    def tool_count(self):
        """Counts what has been done."""
        return self.state["done"]
''',
    '''\
    def tool_history(self):
        """Lists the calls so far."""
        return [call["name"] for call in self.history]
''',
    '''\
    def tool_recall(self):
        """Tells what it is about."""
        return self.things
''',
)
"""A tool that is not needed."""
SOURCE = '''\
class {name}Env(ToolEnv):
    """{purpose} '{noun}'"""

    def setup(self, rng):
        self.place = '{place}'
        self.way = rng.choice({ways})
        self.tasks = (rng.sample({tasks}, 2) * 2)[:{stages}]
        self.things = rng.sample({things}, 4)
        self.state = {{"done": 0, "left": {slack}}}

    def stages(self):
{telling}
    def again(self, answer):
        task = self.tasks[self.state["done"]]
        return f"{{answer}}, still: {{task}}"

    def judge(self, task, way):
{advancing}
    def tool_{first}(self, way: Literal{ways}):
        """Does it in one of two ways."""
        return self.judge("{first}", way)

    def tool_{second}(self, way: Literal{ways}):
        """Does it in one of two ways."""
        return self.judge("{second}", way)

    def tool_look(self, place: Literal{places}):
        """Looks into a place."""
        return self.again(self.way) if place == self.place else self.judge("look", "")

{spare}
    def solution(self):
{solving}'''


def create(rng: random.Random, skill: str, domain: str, noun: str) -> Game:
    """A desk of the skill in the domain; ``noun`` is the title of its document.

    Stages, slack, place and wordings are drawn from ``rng``.
    """
    tasks, ways = DEEDS[skill]
    place = rng.choice(PLACES)
    right, wrong = rng.choice(VERDICTS)
    source = SOURCE.format(
        name=domain.title().replace(" ", ""),
        purpose=rng.choice(PURPOSES),
        noun=noun,
        place=place,
        ways=_listed(ways),
        tasks=_listed(tasks),
        things=_listed(THINGS[domain]),
        stages=rng.choice(STAGES),
        slack=rng.choice(SLACK),
        telling=rng.choice(TELLING).format(request=rng.choice(REQUESTS)),
        advancing=rng.choice(ADVANCING).format(right=right, wrong=wrong),
        first=tasks[0],
        second=tasks[1],
        places=_listed(PLACES),
        spare=rng.choice(SPARE),
        solving=rng.choice(SOLVING),
    )

    def player(ability: float, rng: random.Random, hint: str | None) -> DeskPlayer:
        return DeskPlayer(tasks, ways, ability, rng, hint)

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
        tasks: Pair,
        ways: Pair,
        ability: float,
        rng: random.Random,
        hint: str | None,
    ):
        self._tasks, self._ways = tasks, ways
        self._ability, self._rng = ability, rng
        self._places = [place for place in PLACES if hint == HINT.format(place)]
        self._heeds = hint is not None or rng.random() < HEEDS
        self._sure, self._meant = False, True
        self._way = ""

    def act(self, observation: str) -> str:
        """The message for what was answered and told since the last one."""
        answer = observation.partition("\n")[0].partition(", ")[0]
        if CLOSING in observation:
            return DONE
        if answer == CLOSED or "still to be done" in answer:
            return "\\boxed{" + CLOSED + "}"
        if self._places:
            return Call("look", {"place": self._places.pop()}).render()
        self._learn(answer)
        if not self._sure:
            self._way = self._rng.choice(self._ways)
        task = observation.rpartition(": ")[2]
        self._meant = self._rng.random() < self._ability
        if not self._meant:
            task = next(other for other in self._tasks if other != task)
        return Call(task, {"way": self._way}).render()

    def _learn(self, answer: str) -> None:
        if answer in self._ways:
            self._way, self._sure = answer, True
        elif self._heeds and self._meant and self._way and not self._sure:
            if any(answer == wrong for _, wrong in VERDICTS):
                self._way = next(way for way in self._ways if way != self._way)
            self._sure = True
