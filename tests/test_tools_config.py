"""configs/tools.py: the published figures of the tool-use recipes."""

import runpy
from pathlib import Path

import pytest

from spade_jax import config

TOOLS = runpy.run_path(str(Path(__file__).parents[1] / "configs" / "tools.py"))
# arXiv 2608.19197 and its recipes, the same at every size.
FIGURES = {
    "setting": "tools",
    "iterations": 400,
    "schedule.k": 8,
    "schedule.delay": 8,
    "schedule.slots": 24,
    "schedule.hinted_plays": 16,
    "designer.attempts": 5,
    "designer.temperature": 0.6,
    "agent.temperature": 0.6,
    "agent.max_turns": 25,
    "agent.max_tokens": 8192,
    "agent.max_episode_tokens": 32768,
    "agent.mask_truncated": True,
    "agent.mask_malformed": True,
    "hints.max_tokens": 2048,
    "hints.temperature": 0.3,
    "rewards.kind": "blend",
    "memory.capacity": 200,
    "learner.learning_rate": 1e-6,
    "learner.kl_coefficient": 0.005,
    "learner.importance_cap": 2.0,
}
OLDER = {
    "iterations": 500,
    "schedule.k": 32,
    "schedule.delay": 32,
    "schedule.slots": 16,
    "schedule.plain_plays": 16,
    "schedule.hinted_plays": 4,
    "rewards.kind": "regret",
    "hints.max_tokens": 512,
}


def load(variant):
    return config.from_config_dict(TOOLS["get_config"](variant))


def figures(settings, names):
    found = {}
    for name in names:
        found[name] = settings
        for part in name.split("."):
            found[name] = getattr(found[name], part)
    return found


@pytest.mark.parametrize("size", ["4b", "8b", "30b"])
def test_every_published_figure_is_carried(size):
    settings = load(size)
    assert figures(settings, FIGURES) == FIGURES
    skills = settings.schedule.active_skills or len(settings.schedule.skills)
    assert (skills, settings.schedule.slots // skills) == (6, 4)
    assert settings.schedule.skills == config.TOOL_SKILLS
    assert settings.designer.max_tokens == (20000 if size == "8b" else 16384)
    assert settings.model.thinking == (size == "8b")


def test_published_is_the_older_recipe_for_4b_alone():
    assert figures(load("4b,published"), OLDER) == OLDER
    assert figures(load("30b,published"), ["schedule.k"]) == {"schedule.k": 8}
    assert load("8b,published").validation.preset == "published"
    assert [load(words).review.enabled for words in ("8b", "8b,published")] == [False, True]
    assert load("") == load("4b")


@pytest.mark.parametrize("words", ["", "30b", "4b,v6e:4x4", "8b,published"])
def test_devices_are_those_of_games(words):
    """A recipe without a mesh would ask one chip to hold a model of 30B."""
    games = runpy.run_path(str(Path(__file__).parents[1] / "configs" / "games.py"))
    there = config.from_config_dict(games["get_config"](words))
    here = load(words)
    assert (here.mesh, here.model, here.sampler) == (there.mesh, there.model, there.sampler)
    assert here.learner.rows == there.learner.rows > 1


def test_ablations_are_those_of_games():
    assert load("no_memory").memory.capacity == 0
    assert load("no_corpus").corpus.source == ""
    assert load("30b,solve_rate").rewards.kind == "solve_rate"


@pytest.mark.parametrize("variant", ["70b", "4b,8b", "4b,publish"])
def test_mistakes_are_named(variant):
    with pytest.raises(config.ConfigError, match="size"):
        TOOLS["get_config"](variant)


def test_skills_of_games_are_refused():
    with pytest.raises(config.ConfigError, match="two_skills"):
        TOOLS["get_config"]("4b,two_skills")


def test_skills_belong_to_their_setting():
    values = config.default_config()
    values.setting = "tools"
    with pytest.raises(config.ConfigError, match="no skill of the setting 'tools'"):
        config.from_config_dict(values)
