"""Memory (appendix D.13) and the choice of exemplars."""

import random

from spade_jax import config
from spade_jax.selfplay.memory import Memory, Record


def record(name, win_rate=0.5, regret: float | None = 0.1, skill="Optimization"):
    return Record(name, skill, "x" * 3000, win_rate, regret)


def test_first_in_first_out_vector():
    memory = Memory(config.Memory())
    for number in range(210):
        memory.add(record(str(number)))
    assert len(memory.records) == 200
    assert memory.records[0].environment == "10"
    assert len(memory.records[0].snippet) == 2000


def test_exemplars_are_calibrated_ones_of_the_skill_with_high_regret():
    memory = Memory(config.Memory())
    for number in range(30):
        memory.add(record(f"good{number}", regret=number / 30))
    memory.add(record("easy", win_rate=0.86, regret=1.0))
    memory.add(record("hard", win_rate=0.14, regret=1.0))
    memory.add(record("other", regret=1.0, skill="Causal Inference"))
    seen = {
        shown.environment
        for seed in range(300)
        for shown in memory.exemplars("Optimization", random.Random(seed))
    }
    assert seen == {f"good{number}" for number in range(20, 30)}


def test_edges_of_the_band_are_inside():
    memory = Memory(config.Memory(), [record("low", 0.15), record("high", 0.85)])
    shown = memory.exemplars("Optimization", random.Random(0))
    assert {item.environment for item in shown} == {"low", "high"}


def test_unknown_regret_ranks_as_none():
    records = [record("unknown", regret=None), *(record(str(n), regret=0.5) for n in range(10))]
    memory = Memory(config.Memory(), records)
    shown = {
        item.environment
        for seed in range(100)
        for item in memory.exemplars("Optimization", random.Random(seed))
    }
    assert "unknown" not in shown


def test_avoid_names_the_extremes():
    memory = Memory(config.Memory(), [record("mid"), record("easy", 0.95), record("hard", 0.05)])
    seen = {
        item.environment
        for seed in range(50)
        for item in memory.avoid("Optimization", random.Random(seed))
    }
    assert seen == {"easy", "hard"}


def test_capacity_zero_is_no_memory():
    memory = Memory(config.Memory(capacity=0))
    memory.add(record("a"))
    assert memory.records == []
    assert memory.exemplars("Optimization", random.Random(0)) == []
