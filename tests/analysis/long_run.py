"""A run directory as long and as wordy as a real one, made by the real writers.

The texts are as hard to compress as those of language models: lines of the standard library's own
programs and sentences of its documentation, drawn anew for every use.
"""

import hashlib
import inspect
import json
import random
from pydoc_data.topics import topics
from types import ModuleType

from spade_jax.data.corpus import Document
from spade_jax.environments.validation import NAMES, Check, Report
from spade_jax.selfplay.agent import Episode, Turn
from spade_jax.selfplay.designer import Attempt, Slot
from spade_jax.selfplay.records import Records
from spade_jax.selfplay.state import Environment

SKILLS = ("Mathematical Reasoning", "Logical Deduction", "Spatial Reasoning", "Optimization")
K = 4  # iterations of an epoch
CODE, PROSE, ACTIONS = 4_000, 700, 6  # characters of a program and of a reply; turns of an episode


def write(workdir, iterations=400, slots=12, plays=8, seed=0):
    """Of every accepted program there are ``plays`` episodes in each arm, in its first iteration;
    every other program is refused."""
    draw = random.Random(seed)
    texts = Texts(draw)
    records = Records(workdir)
    accepted, waiting = [], []
    for iteration in range(iterations):
        if iteration % K == 0:
            for environment in waiting:
                records.designer(iteration, environment, 0.5, 0.25, draw.random(), draw.gauss())
            waiting = [_written(records, texts, iteration, slot, accepted) for slot in range(slots)]
            accepted += waiting
            for environment in waiting:
                for arm in ("plain", "hinted"):
                    for play in range(plays):
                        records.episode(_played(texts, environment, iteration, arm, play))
        names = ("returns/plain", "regret/mean", "designer/reward", "designer/validity",
                 "grad_norm/agent", "logp_gap/mean", "entropy/agent", "time/play",
                 "refused/no_code", *(f"other/{number}" for number in range(90)))  # fmt: skip
        records.metrics(
            {"iteration": iteration, "environments/accepted": slots, "agent/trained": 1,
             "environments/learnable": draw.randint(0, slots)}
            | {name: draw.random() for name in names}
        )  # fmt: skip
    (workdir / "config.json").write_text(json.dumps({"iterations": iterations}))


class Texts:
    """Texts without an end, of parts that are not often the same."""

    def __init__(self, draw):
        modules = [module for module in globals().values() if isinstance(module, ModuleType)]
        self._code = [line for each in modules for line in inspect.getsource(each).splitlines()]
        self._words = " ".join(topics.values()).split()
        self.draw = draw

    def code(self, characters):
        return self._long(self._code, "\n", 4, characters)

    def prose(self, characters):
        return self._long(self._words, " ", 5, characters)

    def _long(self, parts, between, together, characters):
        """Neighbours by ``together``, from anywhere."""
        found = ""
        while len(found) < characters:
            start = self.draw.randrange(len(parts) - together)
            found += between.join(parts[start : start + together]) + between
        return found


def _written(records, texts, iteration, slot, accepted):
    draw = texts.draw
    skill = SKILLS[slot % len(SKILLS)]
    source = f"# {iteration} {slot}\n{texts.code(CODE)}"
    document = Document(f"{draw.random()}", texts.prose(20), "")
    environment = Environment(
        sha=hashlib.sha256(source.encode()).hexdigest(),
        name=f"{iteration:05d}_{slot:03d}_some_game",
        skill=skill,
        slot=slot,
        written=iteration,
        source=source,
        document=document.id,
        exemplars=[each.sha for each in draw.sample(accepted, min(2, len(accepted)))],
        sample=None,
        hint=texts.prose(400),
    )
    checks = tuple(Check(name, "passed", "") for name in NAMES)
    where = Slot(slot, skill)
    records.environment(
        environment,
        Attempt(where, 1, document, [], [], "accepted", source=source, report=Report(checks)),
    )
    refused, why = texts.code(CODE), texts.prose(80)
    records.rejection(
        iteration, Attempt(where, 0, document, [], [], "solvable", why, refused, refused)
    )
    return environment


def _played(texts, environment, iteration, arm, play):
    draw = texts.draw
    turns = [
        Turn(texts.prose(PROSE), "", texts.prose(PROSE // 3), 0.0)
        for _ in range(draw.randint(1, 2 * ACTIONS))
    ]
    turns.append(Turn(texts.prose(PROSE), "", "", float(draw.random() < 0.5)))
    return Episode(
        environment, iteration, arm, seed=play, play=play, status="terminated",
        observation=texts.prose(PROSE), turns=turns,
    )  # fmt: skip
