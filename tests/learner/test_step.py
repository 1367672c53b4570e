import dataclasses
import math

import jax
import jax.monitoring
import numpy as np
import optax
import pytest
from flax import nnx
from learner_oracle import (
    TorchOracle,
    draw,
    gradient_of,
    settings,
    tiny_model,
    to_torch_layout,
)

from spade_jax.learner import step
from spade_jax.learner.packing import Trajectory
from spade_jax.learner.step import Learner

GROUPS = ("agent", "designer")


@pytest.fixture(scope="module", autouse=True)
def quick_compilation():
    """Compiling is most of this file's time; the mathematics stays."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


@pytest.fixture(scope="module")
def model():
    return tiny_model()


@pytest.fixture(scope="module")
def oracle(model):
    return TorchOracle(model)


def assert_gradients_equal(got, want, tolerance=2e-5):
    scale = max(np.abs(x).max() for x in want.values())
    for name, x in want.items():
        np.testing.assert_allclose(
            got[name], x, rtol=1e-4, atol=tolerance * max(scale, 1e-3), err_msg=name
        )


def check(model, oracle, trajectories, learner_settings=None, reference=None):
    """Loss, gradient and finiteness of one update against the oracle."""
    learner_settings = learner_settings or settings()
    learner = Learner(model, learner_settings, GROUPS)
    metrics = learner.update(trajectories)
    loss = oracle.policy_loss(trajectories, learner_settings, reference)
    np.testing.assert_allclose(metrics["loss"], loss.item(), rtol=1e-4, atol=1e-5)
    assert_gradients_equal(gradient_of(learner), oracle.gradient(loss))
    assert all(math.isfinite(value) for value in metrics.values())
    return metrics


def test_ragged_batch_equals_one_by_one_in_float64(model, oracle):
    metrics = check(model, oracle, draw(0, 23))
    assert metrics["trained_tokens"] == sum(sum(t.trained) for t in draw(0, 23))


def test_kl_and_entropy_against_float64(model):
    other = tiny_model(seed=1)
    learner_settings = settings(kl_coefficient=0.3, entropy_coefficient=0.1, learning_rate=0.0)
    trajectories = draw(1, 8)
    learner = Learner(model, learner_settings, GROUPS)
    assert learner.update(trajectories)["kl"] == 0  # the reference is the initial policy
    moved = Learner(model, learner_settings, GROUPS)
    moved.state = moved.state | {"params": jax.tree.map(lambda p: p, nnx.state(other))}
    oracle, reference = TorchOracle(other), TorchOracle(model)
    metrics = moved.update(trajectories)
    loss = oracle.policy_loss(trajectories, learner_settings, reference)
    np.testing.assert_allclose(metrics["loss"], loss.item(), rtol=1e-4)
    assert_gradients_equal(gradient_of(moved), oracle.gradient(loss))
    assert metrics["kl"] > 0


def test_supervised_step_against_float64(model, oracle):
    trajectories = draw(2, 9)
    learner = Learner(model, settings(), GROUPS)
    metrics = learner.supervise(trajectories, learning_rate=1e-3)
    loss = oracle.supervised_loss(trajectories)
    np.testing.assert_allclose(metrics["loss"], loss.item(), rtol=1e-5)
    assert_gradients_equal(gradient_of(learner), oracle.gradient(loss))


def test_number_and_shape_of_micro_batches_change_nothing(model):
    trajectories = draw(3, 30)
    runs = []
    for row_length, rows in ((64, 1), (128, 2)):
        learner = Learner(model, settings(row_length=row_length, rows=rows), GROUPS)
        metrics = learner.update(trajectories)
        runs.append((metrics, gradient_of(learner)))
    for metrics, gradient in runs[1:]:
        assert metrics == pytest.approx(runs[0][0], rel=1e-4, abs=1e-5)
        assert_gradients_equal(gradient, runs[0][1], tolerance=1e-5)


def first(n, **changes):
    """``n`` random trajectories; the first is changed."""
    trajectories = draw(7, n)
    return [dataclasses.replace(trajectories[0], **changes), *trajectories[1:]]


ALL_LOGP = [float("-inf")] * 40
HARD = {
    "one group absent": draw(4, 5, group=1),
    "one trajectory": draw(5, 1),
    "zero variance": draw(6, 6, advantage=0.0),
    "some without variance": first(6, advantage=0.0),
    "advantage 50": draw(8, 6, advantage=50.0),
    "length 1": [Trajectory([3], [False], [0.0], 2.0), *draw(9, 4)],
    "empty completion": [Trajectory([7, 8, 9], [False] * 3, [0.0] * 3, 2.0), *draw(35, 4)],
    "first sampled token is the stop token, whose id is that of padding": [
        Trajectory([4, 5, 6, 0], [False, False, False, True], [0.0, 0, 0, -2.0], 1.5),
        *draw(10, 3),
    ],
    "all tokens the same id": [Trajectory([0] * 9, [False] + [True] * 8, [-1.0] * 9, 1.0)],
    "sampler wrote -inf": [
        dataclasses.replace(t, sampler_logp=[float("-inf")] * len(t.tokens)) for t in draw(11, 4)
    ],
    "sampler wrote -3.4e38": [
        dataclasses.replace(t, sampler_logp=[-3.4e38] * len(t.tokens)) for t in draw(12, 4)
    ],
    "a row exactly full": [
        dataclasses.replace(
            t, tokens=(t.tokens * 65)[:65], trained=[False] + [True] * 64, sampler_logp=[-2.0] * 65
        )
        for t in draw(13, 3)
    ],
    "some all masked": first(6, trained=[False] * len(draw(7, 6)[0].tokens)),
    "weights of 0": first(6, weight=0.0),
}


@pytest.mark.parametrize("case", HARD)
def test_hard_case_equals_the_slow_way(model, oracle, case):
    metrics = check(model, oracle, HARD[case])
    if case == "one group absent":
        assert metrics["grad_norm/agent"] == metrics["trained_tokens/agent"] == 0
        assert metrics["grad_norm/designer"] > 0


@pytest.mark.parametrize(
    "trajectories",
    [
        [],
        [Trajectory([1], [False], [0.0], 1.0)],
        [dataclasses.replace(t, trained=[False] * len(t.tokens)) for t in draw(14, 3)],
        draw(14, 3, weight=0.0),
    ],
    ids=["empty batch", "only length 1", "all masked", "no weight"],
)
def test_nothing_trained_is_a_no_op(model, trajectories):
    learner = Learner(model, settings(learning_rate=1.0), GROUPS)
    before = jax.device_get(learner.state)
    metrics = learner.update(trajectories)
    assert metrics["loss"] == metrics["grad_norm"] == 0
    assert all(math.isfinite(value) for value in metrics.values())
    jax.tree.map(np.testing.assert_array_equal, before, jax.device_get(learner.state))


def test_balanced_clips_each_group_and_paper_the_sum(model, oracle):
    trajectories = draw(15, 8)
    designer = [t.group == 1 for t in trajectories]
    trajectories = [
        dataclasses.replace(t, advantage=t.advantage * (300 if loud else 1))
        for t, loud in zip(trajectories, designer, strict=True)
    ]
    silent = [
        [dataclasses.replace(t, advantage=0.0) if t.group != g else t for t in trajectories]
        for g in (0, 1)
    ]
    parts = [oracle.gradient(oracle.policy_loss(s, settings())) for s in silent]
    norms = [math.sqrt(sum((x**2).sum() for x in part.values())) for part in parts]
    assert norms[1] > 10 * norms[0] > 1e-3
    clip = norms[0] / 2

    def scaled(scales):
        return {k: sum(s * p[k] for s, p in zip(scales, parts, strict=True)) for k in parts[0]}

    total = math.sqrt(sum((x**2).sum() for x in scaled((1, 1)).values()))
    expected = {
        "paper": scaled((clip / total, clip / total)),
        "balanced": scaled((clip / norms[0], clip / norms[1])),
    }
    for role_weighting, want in expected.items():
        learner = Learner(model, settings(clip_norm=clip, role_weighting=role_weighting), GROUPS)
        metrics = learner.update(trajectories)
        assert_gradients_equal(gradient_of(learner), want)
        np.testing.assert_allclose(
            [metrics["grad_norm/agent"], metrics["grad_norm/designer"]], norms, rtol=1e-4
        )


def test_metrics_against_float64(model, oracle):
    trajectories = [
        dataclasses.replace(t, sampler_logp=[-4.0] * len(t.tokens)) for t in draw(16, 9)
    ]
    metrics = Learner(model, settings(), GROUPS).update(trajectories)
    for name, chosen in (("", trajectories), ("/designer", [t for t in trajectories if t.group])):
        parts = [
            [x.detach().numpy()[np.array(t.trained[1:])] for x in oracle.logp(t)] for t in chosen
        ]
        logp, entropy = (np.concatenate(x) for x in zip(*parts, strict=True))
        gap, weight = np.abs(logp + 4.0), np.minimum(np.exp(logp + 4.0), 2.0)
        expected = {
            f"entropy{name}": entropy.mean(),
            f"logp_gap{name}/mean": gap.mean(),
            f"logp_gap{name}/max": gap.max(),
            f"logp_gap{name}/p50": np.quantile(gap, 0.5),
            f"logp_gap{name}/p99": np.quantile(gap, 0.99),
            f"importance{name}/mean": weight.mean(),
            f"importance{name}/clipped": (weight == 2.0).mean(),
            f"importance{name}/ess": weight.sum() ** 2 / (weight**2).sum() / len(weight),
            f"trained_tokens{name}": len(weight),
        }
        assert {k: metrics[k] for k in expected} == pytest.approx(expected, rel=1e-4)
    assert 0 < metrics["importance/clipped"] < 1
    assert metrics["tokens/agent"] == sum(len(t.tokens) for t in trajectories if not t.group)


def test_second_step_on_a_batch_is_clipped_against_the_old_policy(model, oracle):
    trajectories = draw(30, 8, advantage=1.0) + draw(31, 8, advantage=-1.0)
    first = Learner(model, settings(learning_rate=2e-2), GROUPS)
    both = Learner(model, settings(learning_rate=2e-2, steps=2), GROUPS)
    one = first.update(trajectories)
    metrics = both.update(trajectories)
    assert {key: metrics[key] for key in one} == pytest.approx(one, rel=1e-4, abs=1e-6)
    assert 0 < metrics["ratio_clipped"] < 1
    assert both.updates == 2
    moved = TorchOracle(model, first.params)
    want = moved.gradient(moved.policy_loss(trajectories, settings(), old=oracle))
    means = (
        to_torch_layout(optax.tree_utils.tree_get(x.state["optimizer"], "mu"))
        for x in (first, both)
    )
    before, after = means
    got = {name: (after[name] - 0.9 * before[name]) / 0.1 for name in after}
    assert_gradients_equal(got, want, tolerance=1e-4)


def test_offloaded_state_rests_in_host_memory_and_changes_nothing(model):
    runs = []
    for offload in (False, True):
        learner = Learner(model, settings(offload=offload, kl_coefficient=0.1), GROUPS)
        metrics = [learner.update(draw(seed, 5)) for seed in (32, 33)]
        moments = optax.tree_utils.tree_get(learner.state["optimizer"], "mu")
        kinds = {leaf.sharding.memory_kind for leaf in jax.tree.leaves(moments)}
        runs.append((metrics, to_torch_layout(learner.params), kinds))
    (plain, params, _), (offloaded, offloaded_params, kinds) = runs
    assert kinds == {"pinned_host"}
    assert offloaded == plain
    jax.tree.map(np.testing.assert_array_equal, offloaded_params, params)


def test_donated_arrays_are_reused(model):
    """Each step writes gradients, parameters and moments where the old ones were."""
    learner = Learner(model, settings(), GROUPS)
    params, state = learner.params, learner.state["optimizer"]
    grads = step._zeros(params)
    (batch,) = step.pack(draw(34, 1), 64, 4, 1)[0]

    def size(tree):
        return sum(leaf.nbytes for leaf in jax.tree.leaves(tree))

    accumulate = step._accumulate.lower(
        learner._policy, settings(), params, None, grads, batch
    ).compile()
    assert accumulate.memory_analysis().alias_size_in_bytes == size(grads)
    apply = step._apply.lower(settings(), params, state, grads, np.float32(1)).compile()
    assert apply.memory_analysis().alias_size_in_bytes == size((params, state))
    add = step._add_group.lower(settings(), grads, grads).compile()
    assert add.memory_analysis().alias_size_in_bytes == size(grads)


def test_a_gradient_that_is_not_finite_changes_nothing(model):
    learner = Learner(model, settings(learning_rate=1.0), GROUPS)
    before = jax.device_get(learner.state)
    bad = [dataclasses.replace(t, advantage=3e38) for t in draw(17, 4)]
    with pytest.raises(FloatingPointError, match="group agent: gradient norm"):
        learner.update(bad)
    jax.tree.map(np.testing.assert_array_equal, before, jax.device_get(learner.state))


def test_the_callers_model_survives_donation_and_learning_learns(model):
    before = jax.device_get(nnx.state(model))
    learner = Learner(model, settings(clip_norm=1.0), GROUPS)
    trajectories = draw(18, 6)
    losses = [learner.supervise(trajectories, 1e-2)["loss"] for _ in range(20)]
    assert losses[-1] < losses[0] - 0.5
    jax.tree.map(np.testing.assert_array_equal, before, jax.device_get(nnx.state(model)))


def test_nothing_compiles_after_warm_up_and_no_implicit_transfer_happens(model):
    learner = Learner(model, settings(row_length=128, rows=2), GROUPS)
    long, short = draw(19, 40, longest=127), draw(20, 4, longest=30)
    for trajectories in (long, short, short):
        learner.update(trajectories)
        learner.supervise(trajectories, 1e-3)
    compiled = []

    def listen(event, duration, **_):
        if "backend_compile" in event:
            compiled.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        with jax.transfer_guard("disallow"):
            for seed in range(21, 27):
                trajectories = draw(seed, seed * 2 - 40, longest=(30, 64, 127)[seed % 3])
                learner.update(trajectories)
                learner.supervise(trajectories, 2e-3)
        assert compiled == []
        jax.jit(lambda x: x + 0.123)(1.0)
        assert compiled  # the counter counts
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)


def test_nothing_is_read_from_the_device_before_the_last_step_is_launched(model, monkeypatch):
    """The transfer guard does not see reads on a CPU, whose arrays are the host's already."""
    learner = Learner(model, settings(steps=3, kl_coefficient=0.1), GROUPS)
    array = type(jax.numpy.zeros(1))
    read, device_get = array._value, jax.device_get
    reads, reads_before_get = [], []

    def counted_get(tree):
        reads_before_get.append(len(reads))
        return device_get(tree)

    monkeypatch.setattr(array, "_value", property(lambda x: reads.append(x) or read.fget(x)))
    monkeypatch.setattr(jax, "device_get", counted_get)
    learner.update(draw(36, 5))
    assert reads_before_get[0] == 0
    assert len(reads_before_get) == 2  # all outputs, then the count of updates
    assert len(reads) > learner.updates == 3  # reads are seen


def test_rows_of_49152_tokens_lower(model):
    """Positions, segments and gradients of the longest trajectory; nothing is allocated."""
    longest = 49152
    learner_settings = settings(row_length=longest, rows=1)
    learner = Learner(model, learner_settings, GROUPS)
    trajectory = Trajectory(
        [1] * (longest + 1), [False] + [True] * longest, [-1.0] * (longest + 1), 1.0
    )
    (batch,) = step.pack([trajectory], longest, 1, 1)[0]
    assert batch.token_bt.shape == (1, longest)
    assert batch.position_bt[0, -1] == longest - 1
    grads = step._zeros(learner.params)
    lowered = step._accumulate.lower(
        learner._policy, learner_settings, learner.params, None, grads, batch
    )
    new, output = lowered.out_info
    assert output["logp"].shape == (1, longest)
    jax.tree.map(lambda a, b: np.testing.assert_equal(a.shape, b.shape), new, grads)


def test_state_restores_exactly(model):
    trajectories = [draw(seed, 5) for seed in range(3)]
    straight = Learner(model, settings(learning_rate=1e-2, warmup=3), GROUPS)
    resumed = Learner(model, settings(learning_rate=1e-2, warmup=3), GROUPS)
    straight.update(trajectories[0])
    resumed.state = jax.tree.map(jax.numpy.copy, straight.state)
    for batch in trajectories[1:]:
        assert straight.update(batch) == resumed.update(batch)
    jax.tree.map(
        np.testing.assert_array_equal,
        to_torch_layout(straight.params),
        to_torch_layout(resumed.params),
    )
    assert straight.updates == resumed.updates == 3
