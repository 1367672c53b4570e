"""What the learner gets: every episode once, both roles at their scale."""

import dataclasses

import pytest

from spade_jax import config
from spade_jax.selfplay import batch
from spade_jax.selfplay.agent import Episode, Turn
from spade_jax.selfplay.state import Environment, Invalid, Sample

PAPER = config.Config(learner=config.Learner(role_weighting="paper"))
BALANCED = config.Config(learner=config.Learner(role_weighting="balanced"))


def sample(trained, fixed=2):
    """``trained`` sampled tokens behind ``fixed`` given ones."""
    count = fixed + trained
    return Sample(list(range(count)), [n >= fixed for n in range(count)], [-0.5] * count)


def environment(sha, skill="Optimization"):
    return Environment(sha, sha, skill, 0, 0, "", "", [], sample(3), hint="h")


def episode(sha, value, samples=(4,), arm="plain", status="terminated"):
    turns = [Turn("", "", "", value)]
    made = [sample(trained) for trained in samples]
    return Episode(environment(sha), 0, arm, 0, 0, status, turns=turns, samples=made)


def test_only_scored_plain_episodes_are_trained():
    episodes = [
        episode("a", 1.0),
        episode("a", 0.0),
        episode("a", 1.0, arm="hinted"),
        episode("a", 1.0, arm="placebo"),
        episode("a", 0.0, status="host_fault"),
        episode("b", 1.0),
    ]
    trajectories = batch.agent_trajectories(episodes, PAPER)
    assert [t.advantage for t in trajectories] == pytest.approx([1.0, -1.0, 0.0])


def test_an_episode_of_many_samples_counts_once():
    """Weights make the sum of token means the mean over all of the episode's tokens."""
    trajectories = batch.agent_trajectories(
        [episode("a", 1.0, (1, 5, 4)), episode("a", 0.0, (7,))], PAPER
    )
    assert [t.weight for t in trajectories] == pytest.approx([0.1, 0.5, 0.4, 1.0])
    assert [t.advantage for t in trajectories] == pytest.approx([1.0, 1.0, 1.0, -1.0])


def test_turns_without_a_sampled_token_carry_nothing():
    (trajectory,) = batch.agent_trajectories([episode("a", 1.0, (0, 5))], PAPER)
    assert trajectory.weight == 1.0


def test_designers_and_refused_programs_are_centred_together_and_scaled():
    due = [environment("a"), Invalid("Optimization", 0, sample(2)), environment("b", "Logic"),
           environment("c", "Logic"), environment("d")]  # fmt: skip
    paid = [0.9, 0.0, 0.2, 0.6, None]
    episodes = [episode("a", 1.0) for _ in range(10)]
    expected = [0.45, -0.45, -0.2, 0.2]
    scale = 4 * 10 / 4
    trajectories = batch.designer_trajectories(due, paid, episodes, PAPER)
    assert [t.advantage for t in trajectories] == pytest.approx([scale * x for x in expected])
    assert trajectories[1].tokens == due[1].sample.tokens
    unscaled = batch.designer_trajectories(due, paid, episodes, BALANCED)
    assert [t.advantage for t in unscaled] == pytest.approx(expected)


def test_no_environment_is_cut_from_the_batch():
    """Whatever order the episodes come in, all are trained with the same advantages."""
    episodes = [episode(sha, float(n % 3 == 0)) for sha in "abcdef" for n in range(4)]
    many = batch.agent_trajectories(episodes, PAPER)
    backwards = batch.agent_trajectories(episodes[::-1], PAPER)
    assert len(many) == len(backwards) == len(episodes)
    assert sorted(t.advantage for t in many) == pytest.approx(
        sorted(t.advantage for t in backwards)
    )
    assert dataclasses.asdict(many[0])["group"] == batch.ROLES.index("agent")
