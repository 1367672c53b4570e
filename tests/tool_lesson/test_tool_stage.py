"""The name of a lesson follows what decides it. tests/test_train_tools.py has one taught."""

import dataclasses

import pytest

from spade_jax import config
from spade_jax.tool_lesson import stage
from spade_jax.warm_start import stage as games


def settings(cache="", **changes):
    own = config.Config(
        setting="tools",
        schedule=config.Schedule(skills=config.TOOL_SKILLS, active_skills=0),
        designer=config.Designer(prompts="small"),
        agent=config.Agent(max_turns=8),
        warm_start=config.WarmStart(cache=str(cache)),
    )
    return dataclasses.replace(own, **changes)


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
