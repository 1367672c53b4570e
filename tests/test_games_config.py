"""configs/games.py: the published figures, and variants that change only what their name says."""

import itertools
import math
import runpy
from pathlib import Path

import pytest

from spade_jax import config

GAMES = runpy.run_path(str(Path(__file__).parents[1] / "configs" / "games.py"))

# arXiv 2608.19197 and its recipes: setting -> (4b, 8b, 30b), or one figure for all.
PUBLISHED = {
    "iterations": 400,
    "schedule.k": 4,
    "schedule.delay": 4,
    "schedule.slots": 24,
    "schedule.plain_plays": 16,
    "schedule.hinted_plays": 16,
    "schedule.active_skills": 3,
    "schedule.skills": (
        "Mathematical Reasoning",
        "Logical Deduction",
        "Spatial Reasoning",
        "Pattern Recognition",
        "Optimization",
        "Causal Inference",
    ),
    "model.source": (
        "Qwen/Qwen3-4B-Instruct-2507",
        "Qwen/Qwen3-8B",
        "Qwen/Qwen3-30B-A3B-Instruct-2507",
    ),
    "designer.attempts": 5,
    "designer.temperature": 0.6,
    "designer.top_p": 0.95,
    "designer.top_k": 20,
    "designer.max_tokens": (16384, 20000, 16384),
    "designer.difficulty": "medium",
    "designer.deadline": 900.0,
    "agent.temperature": 0.6,
    "agent.top_p": 0.95,
    "agent.top_k": 20,
    "agent.max_tokens": 8192,
    "agent.max_turns": 25,
    "agent.max_episode_tokens": 32768,
    "hints.temperature": 0.3,
    "hints.max_tokens": 4096,
    "rewards.regret_weight": 0.4,
    "rewards.regret_scale": 0.15,
    "rewards.anchor_weight": 0.6,
    "rewards.anchor_low": 0.4,
    "rewards.anchor_high": 0.6,
    "rewards.anchor_ramp": 0.25,
    "rewards.scale_cap": 50.0,
    "memory.capacity": 200,
    "memory.exemplars": 2,
    "memory.avoid": 1,
    "memory.low": 0.15,
    "memory.high": 0.85,
    "memory.top": 10,
    "memory.snippet": 2000,
    "learner.learning_rate": 1e-6,
    "learner.beta1": 0.9,
    "learner.beta2": 0.98,
    "learner.weight_decay": 0.1,
    "learner.clip_norm": 1.0,
    "learner.clip_low": 0.2,
    "learner.clip_high": 0.28,
    "learner.importance_cap": 2.0,
    "learner.kl_coefficient": (0.0, 0.005, 0.0),
    "learner.entropy_coefficient": 0.0,
    "model.thinking": (False, True, False),
    "checkpoint.keep_every": 16,
}
VARIANTS = {
    "no_memory": {"memory.capacity": 0},
    "no_corpus": {"corpus.source": ""},
    "no_designer_training": {"designer.trained": False},
    "two_skills": {
        "schedule.skills": ("Mathematical Reasoning", "Pattern Recognition"),
        "schedule.active_skills": 2,
    },
    "learning_potential": {"rewards.kind": "learning_potential"},
    "solve_rate": {"rewards.kind": "solve_rate"},
    "published": {
        "schedule.plain_plays": 8,
        "schedule.instances": 1,
        "schedule.top_up": False,
        "validation.preset": "published",
    },
}


def load(variant):
    return config.to_dict(config.from_config_dict(GAMES["get_config"](variant)))


def changes(variant, base):
    return {name: new for name, _, new in config.differences(load(base), load(variant))}


@pytest.mark.parametrize(("place", "size"), [(0, "4b"), (1, "8b"), (2, "30b")])
def test_every_published_figure_is_carried(place, size):
    values = load(size)
    for name, figure in PUBLISHED.items():
        expected = figure
        if isinstance(figure, tuple) and name != "schedule.skills":
            expected = figure[place]
        found = values
        for part in name.split("."):
            found = found[part]
        assert found == expected, name


def test_4b_is_the_default():
    assert load("") == load("4b") == load(",")


@pytest.mark.parametrize("size", ["4b", "8b", "30b"])
def test_a_slice_changes_the_mesh_and_fills_it(size):
    """The mesh has as many devices as the slice; each that has rows of its own has one."""
    first, *_ = GAMES["SLICES"][size].values()
    for topology, laid in GAMES["SLICES"][size].items():
        changed = changes(f"{topology},{size}", size)
        assert bool(changed) == (laid != first)
        assert all(name.startswith("mesh.") or name == "learner.rows" for name in changed)
        values = load(f"{size},{topology}")
        shape = [int(n) for n in topology.partition(":")[2].split("x")]
        assert math.prod(values["mesh"].values()) == math.prod(shape)
        mesh = values["mesh"]
        assert values["learner"]["rows"] == mesh["data"] * mesh["fsdp"] * mesh["expert"]


@pytest.mark.parametrize("size", ["4b", "8b", "30b"])
def test_variants_change_only_what_their_name_says(size):
    assert VARIANTS.keys() == GAMES["VARIANTS"].keys()
    for name, expected in VARIANTS.items():
        assert changes(f"{size},{name}", size) == expected


def test_variants_combine_in_any_order():
    for first, second in itertools.permutations(VARIANTS, 2):
        if VARIANTS[first].keys() & VARIANTS[second].keys():
            continue  # the designer is paid in one way
        combined = changes(f"30b,{first},{second}", "30b")
        assert combined == VARIANTS[first] | VARIANTS[second]
        assert load(f"{first},30b,{second}") == load(f"30b,{second},{first}")


@pytest.mark.parametrize(
    ("variant", "message"),
    [("70b", r"no variant '70b'; there are the sizes 4b, 8b, 30b, for 4b the slices v5p:2x2x2, "),
     ("4b,no_memmory", "no variant 'no_memmory'"),
     ("8b,v5e:8x8", "no variant 'v5e:8x8'.*for 8b the slices v5p:2x2x2"),
     ("4b,v5p:2x2x2,v6e:4x4", "name one slice"),
     ("4b,8b", "4b and 8b: name one size")],
)  # fmt: skip
def test_mistakes_are_named(variant, message):
    with pytest.raises(config.ConfigError, match=message):
        GAMES["get_config"](variant)
