"""What the learner gets: every episode once, both roles at their scale."""

import dataclasses
import json

import numpy as np
import pytest

from spade_jax import config
from spade_jax.sampling import experts
from spade_jax.selfplay import batch
from spade_jax.selfplay.agent import Episode, Turn
from spade_jax.selfplay.state import Environment, Invalid, Sample, State

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


def test_recorded_experts_go_with_the_tokens():
    """Of both roles, also after a checkpoint; where none are recorded there are none."""
    ids = np.arange(10).reshape(5, 1, 2)
    recorded = dataclasses.replace(sample(4), experts=experts.encode(ids))
    played = [episode("a", 1.0), episode("a", 0.0)]
    played[0].samples[:] = [recorded]
    first, second = batch.agent_trajectories(played, PAPER)
    np.testing.assert_array_equal(first.expert_tlk, ids)
    assert second.expert_tlk is None
    state = State.fresh(config.Memory())
    state.parked += [Invalid("Optimization", 0, recorded), environment("a")]
    due = State.from_json(json.loads(json.dumps(state.to_json())), config.Memory()).parked
    first, second = batch.designer_trajectories(due, [0.0, 1.0], [], PAPER)
    np.testing.assert_array_equal(first.expert_tlk, ids)
    assert second.expert_tlk is None


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
