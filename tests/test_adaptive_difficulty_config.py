"""configs/adaptive_difficulty.py differs from the full method in where environments come from."""

import runpy
from pathlib import Path

import pytest

from spade_jax import config

CONFIGS = Path(__file__).parents[1] / "configs"
FILE = runpy.run_path(str(CONFIGS / "adaptive_difficulty.py"))
MODULE = ("tasks.module", "", "spade_jax.environments.reasoning_gym")


def load(get_config, variant):
    return config.to_dict(config.from_config_dict(get_config(variant)))


@pytest.mark.parametrize(
    ("words", "file", "there", "expected"),
    [("30b", "games.py", "30b", [("schedule.delay", 4, 1), ("schedule.k", 4, 1), MODULE]),
     ("", "games.py", "4b", [("schedule.delay", 4, 1), ("schedule.k", 4, 1), MODULE]),
     ("8b,v6e:8x8,published", "games.py", "8b,v6e:8x8",
      [("agent.temperature", 0.6, 1.0), ("learner.kl_coefficient", 0.005, 0.0),
       ("schedule.delay", 4, 1), ("schedule.instances", 0, 1), ("schedule.k", 4, 1),
       ("schedule.slots", 24, 16), MODULE]),
     ("laptop", "laptop.py", "",
      [("schedule.delay", 2, 1), ("schedule.k", 2, 1), ("tasks.attempts", 128, 24),
       ("tasks.module", "", "spade_jax.warm_start.tasks")]),
     ],
)  # fmt: skip
def test_it_changes_only_what_its_name_says(words, file, there, expected):
    base = load(runpy.run_path(str(CONFIGS / file))["get_config"], there)
    assert config.differences(base, load(FILE["get_config"], words)) == expected


@pytest.mark.parametrize("words", ["30b,no_memory", "laptop,published", "two_skills"])
def test_words_about_environments_are_refused(words):
    with pytest.raises(config.ConfigError, match="does not go with the rest"):
        FILE["get_config"](words)


def test_a_pool_and_tasks_at_once_are_refused():
    values = FILE["get_config"]("laptop")
    values.pool.source = "laptop"
    with pytest.raises(config.ConfigError, match=r"tasks\.module.*one of them"):
        config.from_config_dict(values)
    values.pool.source, values.setting = "", "tools"
    values.schedule.skills = config.TOOL_SKILLS
    with pytest.raises(config.ConfigError, match="answered in words"):
        config.from_config_dict(values)
