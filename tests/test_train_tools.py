"""Two iterations of configs/laptop.py:tools, whole, with a tiny model.

Everything is real (prompts, sandbox, checks, sampler, learner, records) but what no untaught model
can do: programs and hints are those of the lesson, and half of the dialogues are a scripted
player's.
"""

import asyncio
import json
import random
import re
import runpy
from pathlib import Path

import jax
import numpy as np
import pytest
from rich.console import Console

from spade_jax import config, policy, train
from spade_jax.environments.calls import Call
from spade_jax.learner.step import Learner
from spade_jax.sampling.interface import Completion
from spade_jax.sampling.native.sampler import NativeSampler
from spade_jax.sampling.rendering import Renderer
from spade_jax.warm_start import desks, stage

LAPTOP = runpy.run_path(str(Path(__file__).parents[1] / "configs" / "laptop.py"))
TINY = {
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 8,
    "intermediate_size": 32,
    "moe_intermediate_size": 16,
}


def settings(cache):
    values = LAPTOP["get_config"]("tools")
    values.iterations = 2
    values.model.architecture.update(TINY)
    values.schedule.update(k=1, delay=1, slots=6, plain_plays=4, hinted_plays=2)
    values.designer.attempts = 1
    values.validation.random_episodes = 4
    values.agent.max_tokens = 8
    values.sampler.update(slots=12, cache_mb=16, decode_steps=8)
    values.learner.learning_rate = 1e-2
    values.warm_start.update(programs=60, hints=4, plays=60, steps=1, vocabulary=3072)
    values.warm_start.cache = cache
    return config.from_config_dict(values)


class Helped(NativeSampler):
    """Its own text in dialogues of even number; a scripted text for the rest."""

    renderer: Renderer
    sampled = 0

    async def generate(self, requests):
        own = [request for request in requests if not self._text(request)]
        drawn = iter(await super().generate(own))
        type(self).sampled += len(own)
        return [
            self._scripted(text) if (text := self._text(request)) else next(drawn)
            for request in requests
        ]

    def _scripted(self, text):
        tokens = self.renderer.reply(text)
        return Completion(tokens, [-0.5] * len(tokens), "stop", 0)

    def _text(self, request):
        prompt = self.renderer.decode(request.tokens)
        if "/slot/" in request.uid:
            skill, domain = re.search(r"\n([\w ]+), [\w, ]+\nWrite ([\w -]+)", prompt).group(2, 1)
            desk = desks.create(random.Random(request.uid), skill, domain, "a")
            return f"```python\n{desk.source}```"
        if request.uid.endswith("/hint"):
            return desks.HINT.format(re.search(r"self\.place = '(\w+)'", prompt)[1])
        *_, arm, play, _ = request.uid.split("/")
        return self._played(prompt, arm) if arm == "hinted" or int(play) % 2 else ""

    def _played(self, dialogue, arm):
        """What a player says next who knows only what stands in the dialogue."""
        if desks.CLOSED in dialogue:
            return "\\boxed{closed}"
        if "That is all." in dialogue:
            return "\\boxed{done}"
        if arm == "hinted" and '"look", "arg' not in dialogue:
            place = re.search(r"HINT: look: '(\w+)'", dialogue)[1]
            return Call("look", {"place": place}).render()
        return self._done(dialogue)

    def _done(self, dialogue):
        """The task asked for last, in the way that was told, else that of the call before."""
        task = re.findall(r": (\w+)(?=<tool_call>|\n|$)", dialogue)[-1]
        ways = next(w for _, w in desks.DEEDS.values() if f'"enum": ["{w[0]}"' in dialogue)
        said = re.findall(r'"way": "(\w+)"', dialogue)
        told = re.findall(rf"</tool_call>({'|'.join(ways)}), still", dialogue)
        return Call(task, {"way": [*ways[:1], *said, *told][-1]}).render()


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    place = tmp_path_factory.mktemp("run")
    start = {}

    async def prepare(*arguments):
        model, tokenizer = await policy_prepare(*arguments)
        Helped.renderer = Renderer(tokenizer)
        return model, tokenizer

    class Remembering(Learner):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            start["before"] = jax.tree.map(np.array, jax.tree.leaves(self.params))
            start["learner"] = self

    policy_prepare = policy.prepare
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(policy, "prepare", prepare)
        patch.setattr(train, "NativeSampler", Helped)
        patch.setattr(train, "Learner", Remembering)
        own = settings(str(place / "cache"))
        asyncio.run(train.train(own, place / "run", Console(quiet=True)))
    return place, start


def test_two_iterations(finished):
    place, start = finished
    rows = [json.loads(line) for line in (place / "run/metrics.jsonl").read_text().splitlines()]
    assert [row["environments/accepted"] for row in rows] == [6, 6]
    assert [row["hints/written"] for row in rows] == [6, 6]
    assert [row["returns/hinted"] for row in rows] == [1.0, 1.0]
    assert all(0 < row["returns/plain"] < 1 for row in rows)
    assert all(row["regret/mean"] > 0 for row in rows)
    assert Helped.sampled >= 2 * 6 * 2
    assert {row["checks/solvable"] for row in rows} == {1.0}
    assert rows[1]["designer/trained"] >= 6
    assert all(0 < row["agent/trained"] < 24 for row in rows)  # dialogues cut short are masked
    after = jax.tree.leaves(start["learner"].params)
    moved = [np.abs(a - b).max() for a, b in zip(start["before"], after, strict=True)]
    assert max(moved) > 1e-4
    skills = {
        json.loads(path.read_text())["skill"]
        for path in (place / "run").glob("environments/*/*ment.json")
    }
    assert skills == set(config.TOOL_SKILLS)


def test_the_lesson_is_taught_once(finished, tmp_path):
    place, _ = finished

    class Untold:
        """No phase begins."""

    stage.taught(settings(str(place / "cache")), tmp_path / "again", Untold())
    first, again = (
        {path.name: path.read_bytes() for path in folder.iterdir()}
        for folder in (place / "run" / policy.INITIAL, tmp_path / "again")
    )
    assert first == again
