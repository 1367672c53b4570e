"""Who writes hints, what is measured of them, and what a placebo is."""

import asyncio
import dataclasses

import pytest

from spade_jax import config
from spade_jax.environments import checks
from spade_jax.selfplay import hints
from spade_jax.selfplay.state import Environment, Sample

SETTINGS = config.Config(
    hints=config.Hints(max_tokens=200, words=6), sampler=config.Sampler(context=32768)
)
SOURCE = 'HINT = "Mind the tide."\nclass AEnv:\n    HINT = "not this"\n'


def environment(sha="a", skill="Optimization", source=SOURCE, hint=None):
    return Environment(sha, sha, skill, 0, 0, source, "", [], Sample([], [], []), hint=hint)


def with_hints(settings, **changes):
    return dataclasses.replace(settings, hints=dataclasses.replace(settings.hints, **changes))


def written(renderer, scripted, reply, settings=SETTINGS, solutions=()):
    sampler = scripted(renderer, lambda *_: reply)
    found, tokens = asyncio.run(
        hints.write_hints([environment()], {"a": solutions}, sampler, renderer, settings)
    )
    return found[0], tokens


def test_the_policy_is_asked_once_and_its_words_are_counted(renderer, scripted):
    found, tokens = written(renderer, scripted, " one two\nthree  four five six seven")
    assert found.hint == "one two\nthree  four five six"
    assert tokens == len(renderer.reply(" one two\nthree  four five six seven"))
    assert found.hint_leaks is None


@pytest.mark.parametrize(
    "reply",
    ["", "  \n", ("cut sho", "length"), ("too long", "refused"), "<think>the tide turns"],
)
def test_a_failed_hint_is_none(renderer, scripted, reply):
    assert written(renderer, scripted, reply)[0].hint is None


def test_thinking_is_no_part_of_the_hint(renderer, scripted):
    assert written(renderer, scripted, "<think>say 417</think>\nLook up.")[0].hint == "Look up."


def test_a_hint_that_holds_the_solution_is_refused_kept_or_not_looked_at(renderer, scripted):
    def leak(**validation):
        settings = dataclasses.replace(SETTINGS, validation=config.Validation(**validation))
        found, _ = written(renderer, scripted, "Go up, then left.", settings, [["up", "left"]])
        return found.hint, found.hint_leaks

    assert leak() == (None, True)
    assert leak(scored=("hint_keeps_secret",)) == ("Go up, then left.", True)
    assert leak(off=("hint_keeps_secret",)) == ("Go up, then left.", None)
    assert leak(preset="published") == ("Go up, then left.", None)


@pytest.mark.parametrize(
    ("text", "solutions", "leaks"),
    [
        ("Go up, then left.", [["up", "left"], ["down", "up"]], True),
        ("Left and up lead on.", [["up", "left"]], False),
        ("The number is 417.", [["417"], ["22"]], True),
        ("Say 4175.", [["417"], ["22"]], False),
        ("Answer yes or no.", [["yes"], ["no"], ["yes"]], False),
        ("Answer yes.", [["yes"], ["yes"]], True),
        ("Do UP LEFT", [["up left"]], True),
        ("Anything.", [], False),
        ("Anything.", [[""]], False),
    ],
)
def test_what_gives_a_solution_away(text, solutions, leaks):
    assert checks.gives_away(text, solutions) is leaks


def test_a_program_may_carry_its_own_hint(renderer, scripted):
    found, tokens = written(renderer, scripted, "x", with_hints(SETTINGS, author="environment"))
    assert (found.hint, tokens) == ("Mind the tide.", 0)
    assert hints.own_hint("class AEnv:\n    HINT = 'inside'\n") == ""
    assert hints.own_hint("HINT = 3\nOTHER = 'no'\n") == ""


def test_placebos_are_as_long_and_from_others_of_the_skill():
    own = {"a": "one two three four five", "b": "red green", "c": "blue", "d": None}
    environments = [environment(sha, hint=hint) for sha, hint in own.items()]
    environments.append(environment("z", "Causal Inference", hint="from another skill"))
    settings = with_hints(SETTINGS, placebo=9)
    found = {item.sha: item for item in hints.with_placebos(environments, settings, 4)}
    assert found["d"].placebo is found["z"].placebo is None
    for sha in "abc":
        words = found[sha].placebo.split()
        assert len(words) == len(own[sha].split())
        others = {w for o in "abc" if o != sha for w in own[o].split()}
        assert set(words) <= others


def test_the_placebo_sample_is_fixed_by_seed_and_iteration():
    environments = [environment(str(n), hint=f"word{n}") for n in range(12)]
    settings = with_hints(SETTINGS, placebo=3)

    def sample(iteration):
        found = hints.with_placebos(environments, settings, iteration)
        return [item.sha for item in found if item.placebo]

    assert len(sample(0)) == 3
    assert sample(0) == sample(0)
    assert len({tuple(sample(iteration)) for iteration in range(5)}) > 1
    assert not any(item.placebo for item in hints.with_placebos(environments, SETTINGS, 0))
