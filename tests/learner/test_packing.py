import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from learner_oracle import draw

from spade_jax.learner.packing import LOGP_FLOOR, Trajectory, pack, row_lengths


def unpack(packed):
    """{(tokens read, targets)} with per-token values, from the packed rows alone."""
    found = []
    for group, batches in enumerate(packed):
        for batch in batches:
            for row in range(batch.token_bt.shape[0]):
                segments = batch.segment_bt[row]
                for segment in range(1, segments.max() + 1):
                    (at,) = np.nonzero(segments == segment)
                    assert (np.diff(at) == 1).all()
                    values = [array[row, at] for array in batch if array is not None]
                    found.append((group, *values))
    return found


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 40), st.integers(1, 3))
def test_every_trajectory_is_in_one_place_with_its_own_values(seed, count, rows):
    trajectories = draw(seed, count, longest=128)
    packed = pack(trajectories, 128, rows, 2)
    found = unpack(packed)
    total = sum(t.weight for t in trajectories)

    def key(group, token, target):
        return (group, tuple(token.tolist()), tuple(target.tolist()))

    expected = {}
    for t in trajectories:
        last = max(np.flatnonzero(t.trained))
        tokens = np.array(t.tokens)
        expected.setdefault(key(t.group, tokens[:last], tokens[1 : last + 1]), []).append(t)
    assert len(found) == count
    for group, token, target, _, position, weight, advantage, logp, temperature in found:
        t = expected[key(group, token, target)].pop()
        n = len(token)
        mask = np.array(t.trained[1 : n + 1])
        np.testing.assert_array_equal(position, np.arange(n))
        np.testing.assert_allclose(weight, mask * t.weight / sum(t.trained) / total, rtol=1e-6)
        np.testing.assert_allclose(advantage[mask], t.advantage, rtol=1e-6)
        np.testing.assert_allclose(logp[mask], np.array(t.sampler_logp[1 : n + 1])[mask], rtol=1e-6)
        np.testing.assert_allclose(temperature, t.temperature, rtol=1e-6)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 60), st.integers(1, 4))
def test_shapes_are_few_and_weights_sum_to_one(seed, count, rows):
    trajectories = draw(seed, count, longest=256)
    packed = pack(trajectories, 256, rows, 2)
    shapes = {(rows * 256 // length, length) for length in row_lengths(256)}
    assert {batch.token_bt.shape for group in packed for batch in group} <= shapes
    weights = [batch.loss_weight_bt.sum(dtype=np.float64) for group in packed for batch in group]
    np.testing.assert_allclose(sum(weights), 1, rtol=1e-5)


def test_at_most_one_micro_batch_of_a_group_is_part_empty():
    packed = pack(draw(3, 300, longest=256, group=0), 256, 2, 1)
    part_empty = [(batch.segment_bt[:, 0] == 0).any() for batch in packed[0]]
    assert sum(part_empty) <= 1


def test_short_trajectories_do_not_pay_for_long_rows():
    packed = pack(draw(0, 64, longest=32, group=0), 512, 1, 1)
    assert {batch.token_bt.shape for batch in packed[0]} == {(8, 64)}


@pytest.mark.parametrize(("longest", "fill"), [(136, 0.75), (266, 0.75)])
def test_equal_lengths_above_half_a_row_fill_longer_rows(longest, fill):
    """Alone, 266 tokens would leave a half of a row of 512 empty."""
    tokens = longest + 1
    alike = Trajectory([3] * tokens, [False] + [True] * longest, [-1.0] * tokens, 1.0)
    batches = pack([alike] * 120, 2048, 1, 1)[0]
    filled = sum((batch.segment_bt > 0).sum() for batch in batches)
    assert filled == 120 * longest
    assert filled / sum(batch.segment_bt.size for batch in batches) > fill


def test_row_lengths():
    assert row_lengths(32768) == [32768, 16384, 8192, 4096]
    assert row_lengths(49152) == [49152, 24576, 12288, 6144]
    assert row_lengths(256) == [256, 128, 64]
    assert row_lengths(50) == [50]


def test_what_follows_the_last_trained_token_takes_no_place():
    trajectory = Trajectory([5, 6, 7, 8, 9], [0, 1, 1, 0, 0], [0, -1, -2, 0, 0], 1.0)
    (batch,) = pack([trajectory], 8, 1, 1)[0]
    np.testing.assert_array_equal(batch.token_bt, [[5, 6, 0, 0, 0, 0, 0, 0]])
    np.testing.assert_array_equal(batch.target_bt, [[6, 7, 0, 0, 0, 0, 0, 0]])
    np.testing.assert_array_equal(batch.segment_bt, [[1, 1, 0, 0, 0, 0, 0, 0]])
    np.testing.assert_array_equal(batch.loss_weight_bt[0, :3], [0.5, 0.5, 0])


def test_untrained_trajectories_keep_their_share_of_the_mean():
    trajectories = draw(1, 4, weight=1.0)
    silent = dataclasses.replace(
        trajectories[0], trained=[False] * len(trajectories[0].tokens), advantage=9.0
    )
    packed = pack([silent, *trajectories[1:]], 128, 1, 2)
    total = sum(batch.loss_weight_bt.sum() for group in packed for batch in group)
    np.testing.assert_allclose(total, 3 / 4, rtol=1e-6)


def test_nothing_to_train_gives_no_micro_batch():
    assert pack([], 128, 1, 2) == [[], []]
    assert pack([Trajectory([3], [False], [0.0], 1.0)], 128, 1, 2) == [[], []]


def test_impossible_sampler_logp_is_floored():
    for written in (float("-inf"), -3.4e38, -1e4):
        (batch,) = pack([Trajectory([1, 2], [False, True], [0.0, written], 1.0)], 4, 1, 1)[0]
        assert batch.sampler_logp_bt[0, 0] == LOGP_FLOOR


GOOD = Trajectory([1, 2, 3], [False, True, True], [0.0, -1.0, -1.0], 1.0)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"tokens": [], "trained": [], "sampler_logp": []}, "no tokens"),
        ({"trained": [False, True]}, "aligned"),
        ({"trained": [True, True, True]}, "first token"),
        ({"sampler_logp": [0.0, float("nan"), -1.0]}, "NaN"),
        ({"sampler_logp": [0.0, 0.5, -1.0]}, "positive"),
        ({"advantage": float("inf")}, "advantage"),
        ({"weight": -1.0}, "weight"),
        ({"group": 2}, "group"),
        ({"temperature": 0.0}, "temperature"),
        (
            {"tokens": [1] * 6, "trained": [False] + [True] * 5, "sampler_logp": [-1.0] * 6},
            "row_length",
        ),
    ],
)
def test_what_cannot_be_learnt_from_is_named(change, reason):
    with pytest.raises(ValueError, match=rf"trajectory 1: .*{reason}"):
        pack([GOOD, dataclasses.replace(GOOD, **change)], 4, 1, 2)
