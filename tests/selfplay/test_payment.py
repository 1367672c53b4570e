"""From the ledger to the designer's reward, against the published vectors and by hand."""

import dataclasses
import statistics

import pytest

from spade_jax import config
from spade_jax.selfplay import advantages, payment
from spade_jax.selfplay.ledger import Play
from spade_jax.selfplay.state import Environment, Invalid, Sample, State

PAPER = config.Rewards()
NOTHING = Sample([], [], [])
# Appendix D.2: win rate of each of four iterations (8 binary plays each) and mean hinted return.
WINDOWS = {
    "a": ("M", (0.5, 0.5, 0.5, 0.5), 0.75),
    "b": ("M", (0.25, 0.5, 0.625, 0.75), 0.25),
    "c": ("M", (1.0, 1.0, 1.0, 1.0), 1.0),
    "d": ("L", (0.0, 0.0, 0.0, 0.125), 0.5),
    "e": ("L", (0.5, 0.625, 0.75, 0.75), 0.5625),
}


def environment(sha, skill="M"):
    return Environment(sha, sha, skill, 0, 4, "", "", [], NOTHING)


def binary(mean, count):
    return [1.0] * round(count * mean) + [0.0] * round(count * (1 - mean))


@pytest.fixture
def state():
    """The five environments, played: seed i is the i-th play, hinted plays share the seeds."""
    state = State.fresh(config.Memory())
    for sha, (_, means, hinted) in WINDOWS.items():
        for offset, mean in enumerate(means):
            for seed, value in enumerate(binary(mean, 8)):
                state.ledger.add(Play(sha, 4 + offset, "plain", seed, value))
        for play, value in enumerate(binary(hinted, 16)):
            state.ledger.add(Play(sha, 4, "hinted", play // 2, value))
    return state


def due():
    return [environment(sha, skill) for sha, (skill, _, _) in WINDOWS.items()]


def test_published_blend(state):
    assert payment.pay(due(), state, PAPER) == pytest.approx(
        [1.0, 0.6, 0.0, 0.4, 0.631667], abs=1e-6
    )


def test_published_regret_variant_with_a_hanging_environment(state):
    state.faulty.add("c")
    raw = payment.pay(due(), state, config.Rewards(kind="regret", fault=-0.5))
    centred = advantages.centre(raw, [item.skill for item in due()])
    assert [50 * value for value in centred] == pytest.approx(
        [16.6667, 4.1667, -20.8333, 11.7188, -11.7188], abs=1e-4
    )


def test_published_learning_potential_updates_before_it_scores(state):
    settings = config.Rewards(kind="learning_potential")
    raw = payment.pay(due(), state, settings)
    skills = [item.skill for item in due()]
    assert [32 * value for value in advantages.centre(raw, skills)] == pytest.approx(
        [-1.2222, -2.2222, 3.4444, 0, 0], abs=1e-4
    )
    assert state.averages["M"].slow == pytest.approx(0.677083, abs=1e-6)
    flipped = [
        dataclasses.replace(play, environment=sha + "'", episode_return=1 - play.episode_return)
        for sha in WINDOWS
        for play in state.ledger.plays(sha)
    ]
    for play in flipped:
        state.ledger.add(play)
    again = [dataclasses.replace(item, sha=item.sha + "'") for item in due()]
    raw = payment.pay(again, state, settings)
    assert [32 * value for value in advantages.centre(raw, skills)] == pytest.approx(
        [-2.3556, -3.3556, 5.7111, 1.5, -1.5], abs=1e-4
    )
    assert state.averages["L"].fast == pytest.approx(0.65)


def test_nobody_is_paid_for_what_nobody_played_and_invalid_programs_earn_nothing(state):
    items = [environment("unplayed"), Invalid("M", 4, NOTHING), environment("a")]
    assert payment.pay(items, state, PAPER) == [None, 0.0, pytest.approx(1.0)]


def test_an_environment_without_hint_has_no_regret(state):
    state.ledger.add(Play("plain only", 4, "plain", 0, 0.5))
    assert payment.regret(environment("plain only"), state.ledger) is None
    (reward,) = payment.pay([environment("plain only")], state, PAPER)
    assert reward == pytest.approx(1.0)


def test_regret_of_the_placebo_arm_is_kept_apart(state):
    for seed in range(8):
        state.ledger.add(Play("a", 4, "placebo", seed, 0.5))
    assert payment.regret(environment("a"), state.ledger, "placebo") == pytest.approx(0.0)
    assert payment.regret(environment("a"), state.ledger) == pytest.approx(0.25)
    assert payment.pay(due(), state, PAPER)[0] == pytest.approx(1.0)


def test_shrinking_happens_within_a_skill(state):
    plain = payment.windows(due(), state.ledger, PAPER)
    drawn = payment.windows(due(), state.ledger, config.Rewards(shrink=True))
    for skill in "ML":
        members = [item.sha for item in due() if item.skill == skill]
        mean = statistics.fmean(plain[sha].regret for sha in members)
        for sha in members:
            low, high = sorted((plain[sha].regret, mean))
            assert low - 1e-12 <= drawn[sha].regret <= high + 1e-12
    assert any(drawn[sha].regret != plain[sha].regret for sha in WINDOWS)
    assert all(drawn[sha].returns == plain[sha].returns for sha in WINDOWS)
