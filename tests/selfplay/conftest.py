"""A small but whole loop: real sandbox and checks, scripted policy, recorded batches."""

import random

import pytest

from spade_jax import config
from spade_jax.data import corpus
from spade_jax.selfplay.cycle import Cycle
from spade_jax.selfplay.records import Records
from spade_jax.selfplay.state import State
from spade_jax.warm_start.families import FAMILIES

SKILLS = config.GAME_SKILLS


class ScriptedPolicy:
    """Writes valid games most of the time, hints, and commands; a function of the uid alone."""

    def __init__(self, broken=0.3):
        self.broken = broken

    def __call__(self, request, prompt):
        rng = random.Random(request.uid)
        if "/slot/" in request.uid:
            if rng.random() < self.broken:
                return rng.choice(["no program at all", "```python\nclass XEnv(\n```\n"])
            skill = next(skill for skill in SKILLS if prompt.rstrip("\n").find(skill) >= 0)
            family = rng.choice([family for family in FAMILIES if family.skill == skill])
            return f"```python\n{family.create(rng, rng.choice('abc')).source}```"
        if request.uid.endswith("/hint"):
            return "Look closely."
        return "\\boxed{" + rng.choice(["0", "1", "2", "up", "left", "yes"]) + "}"


class RecordingLearner:
    """Takes note of what it is to learn."""

    def __init__(self):
        self.params = "params"
        self.batches = []

    def update(self, trajectories):
        self.batches.append(list(trajectories))
        return {"grad_norm/agent": 1.0, "grad_norm/designer": 0.0}


class Silent:
    """No progress shown."""

    def phase(self, name, total):
        pass

    def advance(self):
        pass


@pytest.fixture
def settings():
    return config.Config(
        iterations=4,
        schedule=config.Schedule(
            k=2, delay=2, slots=6, active_skills=3, plain_plays=4, hinted_plays=4, top_up=False
        ),
        designer=config.Designer(prompts="small", max_tokens=4096, attempts=3, temperature=1.0),
        agent=config.Agent(max_tokens=64, max_turns=8, max_episode_tokens=2048, temperature=1.0),
        hints=config.Hints(max_tokens=64),
        corpus=config.Corpus(max_tokens=64),
        sampler=config.Sampler(context=16384),
    )


@pytest.fixture
def make_cycle(renderer, scripted, tmp_path):
    """``make_cycle(host, settings)`` with any part replaced by keyword."""

    def make(host, settings, **parts):
        parts.setdefault("state", State.fresh(settings.memory))
        parts.setdefault("learner", RecordingLearner())
        parts.setdefault("sampler", scripted(renderer, ScriptedPolicy()))
        parts.setdefault("corpus", corpus.load("pydoc", settings.seed))
        parts.setdefault("records", Records(tmp_path))
        return Cycle(settings, host=host, renderer=renderer, progress=Silent(), **parts)

    return make


@pytest.fixture
def scripted_policy():
    return ScriptedPolicy
