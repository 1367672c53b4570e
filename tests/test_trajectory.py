"""Which checkpoint is chosen: by the benchmarks, by the held-out split, the last."""

from spade_jax import trajectory
from spade_jax.trajectory import DEVELOPMENT, Chosen, choices


def results(**means):
    return {name: {"mean": {"mean": value}, "partial": False} for name, value in means.items()}


def test_rules_choose_differently_and_report_the_same_average():
    found = {
        16: results(a=0.5, b=0.1, **{DEVELOPMENT: 0.2}),
        32: results(a=0.6, b=0.4, **{DEVELOPMENT: 0.3}),
        48: results(a=0.4, b=0.2, **{DEVELOPMENT: 0.5}),
        64: results(a=0.1, b=0.1, **{DEVELOPMENT: 0.5}),
    }
    paper, split, last = choices(found)
    assert (paper.step, paper.average) == (32, 0.5)
    assert paper.rule.startswith("best on the benchmarks themselves")
    assert (split.step, split.rule) == (48, f"best on {DEVELOPMENT}")  # the earlier of equal ones
    assert abs(split.average - 0.3) < 1e-12
    assert last == Chosen("last", 64, 0.1)


def test_only_what_every_step_has_is_averaged():
    found = {1: results(a=0.5, b=1.0), 2: results(a=0.7) | {"b": "the file is not here"}}
    found[2]["c"] = {"mean": None, "partial": True}
    assert trajectory.averages(found[2]) == {"a": 0.7}
    best, last = choices(found)
    assert (best.step, best.average) == (last.step, last.average) == (2, 0.7)
    assert choices({1: results(), 2: results(a=1.0)}) == []
