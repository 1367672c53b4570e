"""Placement: a sharded model computes what one device computes; bad meshes are refused."""

import json
import os
import subprocess
import sys

import pytest

CASES = {
    "data": ("dense", "ragged_dot", {"data": 8}),
    "fsdp": ("dense", "ragged_dot", {"fsdp": 8}),
    "expert": ("moe", "ragged_dot", {"expert": 4}),
    "context": ("dense", "ragged_dot", {"context": 8}),
    "tensor": ("moe", "ragged_dot", {"tensor": 2}),
    "dense fsdp context tensor": ("dense", "ragged_dot", {"fsdp": 2, "context": 2, "tensor": 2}),
    "moe data expert": ("moe", "blocks", {"data": 2, "expert": 4}),
    "moe fsdp expert tensor": ("moe", "ragged_dot", {"fsdp": 2, "expert": 2, "tensor": 2}),
}

# A process has one number of devices for life, so the meshes run in their own.
SCRIPT = """
import json, math, sys
import jax, jax.numpy as jnp, numpy as np
from flax import nnx
from spade_jax import config as settings_
from spade_jax.models import sharding
from spade_jax.models.config import ModelConfig, ModelError
from spade_jax.models.transformer import build

jax.config.update("jax_num_cpu_devices", 8)
COMMON = dict(vocabulary=64, hidden=32, layers=2, heads=4, kv_heads=2, head_dim=8,
              feed_forward=48, max_positions=64, qk_norm=True, initial_std=0.2)
MODELS = {
    "dense": ModelConfig(model_type="qwen3", **COMMON),
    "moe": ModelConfig(model_type="qwen3_moe", experts=4, experts_per_token=2,
                       expert_feed_forward=16, **COMMON),
}
rng = np.random.default_rng(0)
token_bt = jnp.asarray(rng.integers(0, 64, (8, 16)))
segment_bt = jnp.asarray(np.repeat([[1] * 6 + [2] * 7 + [0] * 3], 8, 0))
position_bt = jnp.asarray(np.repeat([[*range(6), *range(7), 0, 0, 0]], 8, 0))
result = {}


def run(kind, kernel, mesh=None):
    graph, params = nnx.split(build(MODELS[kind], settings_.Model(experts=kernel), 0))

    def loss(params):
        model = nnx.merge(graph, params)
        h_btd = model.hidden(token_bt, position_bt, segment_bt)
        logp_btv = jax.nn.log_softmax(h_btd @ model.head().T)
        picked_bt = jnp.take_along_axis(logp_btv, token_bt[..., None], -1)[..., 0]
        return -(picked_bt * (segment_bt > 0)).sum()

    step = jax.jit(jax.value_and_grad(loss))
    if mesh is None:
        return step(params), params
    params = jax.device_put(params, sharding.shardings(params, mesh))
    with jax.set_mesh(mesh):
        return step(params), params


def difference(a, b):
    return float(np.abs(np.asarray(a) - np.asarray(b)).max() / (np.abs(b).max() + 1e-9))


expected = {kind: run(kind, "ragged_dot") for kind in MODELS}
for name, (kind, kernel, sizes) in json.loads(sys.argv[1]).items():
    devices = jax.devices()[: math.prod(sizes.values())]
    actual, params = run(kind, kernel, sharding.make_mesh(settings_.Mesh(**sizes), devices))
    split = sum(not leaf.sharding.is_fully_replicated for leaf in jax.tree.leaves(params))
    differences = jax.tree.leaves(jax.tree.map(difference, actual, expected[kind][0]))
    result[name] = [max(differences), split]
params = expected["moe"][1]
for sizes in ({"tensor": 8}, {"fsdp": 7}):
    try:
        sharding.shardings(params, sharding.make_mesh(settings_.Mesh(**sizes)))
    except ModelError as error:
        result[json.dumps(sizes)] = str(error)
sharding.RULES["heads"] = "fsdp"
try:
    sharding.shardings(params, sharding.make_mesh(settings_.Mesh(fsdp=4), jax.devices()[:4]))
except ModelError as error:
    result["twice"] = str(error)
print(json.dumps(result))
"""


@pytest.fixture(scope="module")
def result():
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(CASES)],
        env={
            **os.environ,
            "JAX_PLATFORMS": "cpu",
            "PYTHONPATH": os.pathsep.join(sys.path),
            "XLA_FLAGS": "--xla_backend_optimization_level=0",  # compile faster, run slower
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.mark.parametrize("case", CASES)
def test_loss_and_gradients_equal_one_device(case, result):
    difference, split = result[case]
    assert difference < 1e-5
    assert bool(split) == (case not in ("data", "context"))  # these split no weight


def test_refusals_name_parameter_axis_and_remedy(result):
    message = result[json.dumps({"tensor": 8})]
    for word in ("layers.k", "'kv_heads'", "size 2", "config.mesh.tensor = 8", "work: 1, 2"):
        assert word in message
    assert "config.mesh" in result[json.dumps({"fsdp": 7})]
    assert "8" in result[json.dumps({"fsdp": 7})]
    for word in ("layers.o", "'heads' and 'embed'", "mesh axis 'fsdp'", "RULES"):
        assert word in result["twice"]
