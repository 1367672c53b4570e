"""The lesson, from settings to the folder a run begins with; its name follows what decides it."""

import dataclasses

import pytest

from spade_jax import config
from spade_jax.models import loading
from spade_jax.sampling.rendering import Renderer
from spade_jax.selfplay.tool_agent import check_template
from spade_jax.tool_lesson import stage
from spade_jax.warm_start import stage as games

TINY = {
    "model_type": "qwen3",
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 8,
    "intermediate_size": 32,
    "max_position_embeddings": 512,
    "tie_word_embeddings": True,
}


class Progress:
    def __init__(self):
        self.phases = []

    def phase(self, name, total):
        self.phases.append([name, total, 0])

    def advance(self):
        self.phases[-1][2] += 1


def settings(cache="", **changes):
    own = config.Config(
        setting="tools",
        model=config.Model(architecture=TINY),
        schedule=config.Schedule(skills=config.TOOL_SKILLS, active_skills=0),
        designer=config.Designer(prompts="small"),
        agent=config.Agent(max_turns=8),
        learner=config.Learner(remat=False),
        warm_start=config.WarmStart(
            programs=12, hints=4, plays=12, vocabulary=400, batch_tokens=1500, steps=2,
            cache=str(cache),
        ),
    )  # fmt: skip
    return dataclasses.replace(own, **changes)


def test_the_taught_model_is_made_once_and_can_be_played(tmp_path):
    progress = Progress()
    stage.taught(settings(tmp_path / "cache"), tmp_path / "a", progress)
    assert progress.phases == [["writing examples", 1, 1], ["teaching", 2, 2]]
    stage.taught(settings(tmp_path / "cache"), tmp_path / "b", progress)
    assert len(progress.phases) == 2
    first, second = (
        {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in "ab"
    )
    assert first == second
    _, tokenizer = loading.load(config.Model(source=str(tmp_path / "a")), 0)
    check_template(Renderer(tokenizer))


@pytest.mark.parametrize(
    "changes",
    [
        {"seed": 1},
        {"schedule": config.Schedule(skills=config.TOOL_SKILLS[:3], active_skills=0)},
        {"agent": config.Agent(max_turns=9)},
    ],
)
def test_the_fingerprint_follows_what_decides(changes, tmp_path):
    own = stage.fingerprint(settings())
    assert own == stage.fingerprint(settings(tmp_path, iterations=3))
    assert own != stage.fingerprint(settings(**changes))
    assert own != games.fingerprint(settings())
