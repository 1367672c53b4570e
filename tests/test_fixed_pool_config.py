"""configs/fixed_pool.py differs from the full method in where environments come from alone."""

import runpy
from pathlib import Path

import pytest

from spade_jax import config

CONFIGS = Path(__file__).parents[1] / "configs"
FIXED = runpy.run_path(str(CONFIGS / "fixed_pool.py"))["get_config"]


def load(get_config, variant):
    return config.to_dict(config.from_config_dict(get_config(variant)))


@pytest.mark.parametrize(
    ("words", "file", "there", "delay"),
    [("30b", "games.py", "30b", 4),
     ("8b,v6e:8x8,published,balanced", "games.py", "8b,v6e:8x8,published", 4),
     ("", "games.py", "4b", 4),
     ("laptop", "laptop.py", "", 2)],
)  # fmt: skip
def test_it_changes_only_what_its_name_says(words, file, there, delay):
    base = load(runpy.run_path(str(CONFIGS / file))["get_config"], there)
    pool = "laptop" if words == "laptop" else "hf:spade-rl/SPADE-Environment-Pool-GPT5.5-Games"
    expected = [("pool.source", "", pool), ("schedule.delay", delay, 1), ("schedule.k", delay, 1)]
    if "balanced" in words:
        expected.insert(0, ("pool.balanced", False, True))
    assert config.differences(base, load(FIXED, words)) == expected


@pytest.mark.parametrize("words", ["30b,no_memory", "laptop,30b", "two_skills"])
def test_words_about_the_designer_are_refused(words):
    with pytest.raises(config.ConfigError, match="does not go with the rest"):
        FIXED(words)
