"""The whole loop in the setting ``tools``: real sandbox, checks and rewards, a scripted policy."""

import asyncio
import dataclasses
import json
import random

from spade_jax import config
from spade_jax.data import corpus
from spade_jax.environments.calls import Call
from spade_jax.sampling.rendering import Renderer
from spade_jax.sandbox.host import EnvironmentHost
from spade_jax.selfplay.cycle import Cycle
from spade_jax.selfplay.records import Records
from spade_jax.selfplay.state import State
from tests.selfplay.conftest import RecordingLearner, Silent
from tests.selfplay.test_tool_agent import SOURCE
from tests.selfplay.tool_templates import make_tool_tokenizer

SETTINGS = config.Config(
    setting="tools",
    iterations=3,
    schedule=config.Schedule(
        k=2, delay=2, slots=3, skills=config.TOOL_SKILLS, active_skills=3, plain_plays=4,
        hinted_plays=4,
    ),
    designer=config.Designer(prompts="small", max_tokens=4096, attempts=2, temperature=1.0),
    agent=config.Agent(
        max_tokens=512, max_turns=6, max_episode_tokens=8192, mask_truncated=True,
        mask_malformed=True,
    ),
    hints=config.Hints(max_tokens=64),
    corpus=config.Corpus(max_tokens=32),
    validation=config.Validation(off=("novel",), random_episodes=4),
    sampler=config.Sampler(context=16384),
)  # fmt: skip
BAD = SOURCE.replace('{"lit": [],', '{"lit": ["a"],')  # its first criterion holds at reset


def policy(request, prompt):
    """A function of the uid and the dialogue: wins when the dice say so, always with the hint."""
    if "/slot/" in request.uid:
        *_, slot, attempt = request.uid.split("/")
        text = BAD if (slot, attempt) == ("1", "0") else SOURCE
        return f"```python\n{text.replace('Three lamps', request.uid)}```"
    if request.uid.endswith("/hint"):
        return "Read the code first."
    turn = int(request.uid.rsplit("/", 1)[1])
    rng = random.Random(request.uid.rsplit("/", 1)[0])
    if "HINT" not in prompt and rng.random() < 0.5:
        return "<tool_call>\n{lamp a}\n</tool_call>" if turn == 0 else "I do not know."
    if turn == 0:
        return Call("read_code", {}).render()
    if turn == 4:
        return "\\boxed{done}"
    code = prompt.split("<tool_response>\n")[1][:3]
    return Call("light", {"lamp": "abc"[turn - 1], "code": code}).render()


def test_three_iterations(scripted, tmp_path):
    renderer = Renderer(make_tool_tokenizer())
    learner = RecordingLearner()

    async def go():
        async with EnvironmentHost(SETTINGS.sandbox) as host:
            cycle = Cycle(
                SETTINGS, State.fresh(SETTINGS.memory), learner, scripted(renderer, policy), host,
                renderer, corpus.load("pydoc", 0), Records(tmp_path), Silent(),
            )  # fmt: skip
            return [await cycle.run_iteration() for _ in range(3)]

    rows = asyncio.run(go())
    assert [row["environments/accepted"] for row in rows] == [3, 3, 3]
    assert rows[0]["refused/unmet_at_reset"] == 1
    assert rows[0]["checks/unmet_at_reset"] == 0.75
    assert rows[0]["checks/solvable"] > 0.7
    assert rows[0]["returns/hinted"] == 1.0
    assert 0 < rows[0]["returns/plain"] < 1
    assert rows[0]["regret/mean"] > 0
    assert [row["designer/trained"] for row in rows] == [0, 0, 6]  # the last pays what is left
    lost = rows[1]["episodes/turn_limit"]
    assert rows[1]["agent/trained"] == 12 - lost  # masked
    assert rows[1]["calls/malformed"] == lost
    assert rows[1]["calls/ok"] == 4 * (12 - lost)
    refusal = json.loads(next(tmp_path.glob("rejections/*.json")).read_text())
    assert "criterion 1 (Light a.)" in refusal["reason"]
    for trajectory in learner.batches[1]:
        assert sum(trajectory.trained) > 0


def test_the_published_preset_lets_a_criterion_hold_at_reset(scripted, tmp_path):
    settings = dataclasses.replace(SETTINGS, validation=config.Validation(preset="published"))
    renderer = Renderer(make_tool_tokenizer())

    async def go():
        async with EnvironmentHost(settings.sandbox) as host:
            cycle = Cycle(
                settings, State.fresh(settings.memory), RecordingLearner(),
                scripted(renderer, policy), host, renderer, None, Records(tmp_path), Silent(),
            )  # fmt: skip
            return await cycle.run_iteration()

    assert asyncio.run(go())["designer/validity"] == 1.0
