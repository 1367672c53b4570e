"""Placement: a sharded model computes what one device computes; bad meshes are refused."""

import json
import os
import subprocess
import sys

import pytest

MESHES = {
    "data": {"data": 8},
    "fsdp": {"fsdp": 8},
    "tensor": {"tensor": 2, "data": 4},
    "expert": {"expert": 4, "data": 2},
    "context": {"context": 4, "fsdp": 2},
    "all": {"fsdp": 2, "expert": 2, "tensor": 2},
}

# A process has one number of devices for life, so the meshes run in their own.
SCRIPT = """
import json, sys
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
meshes, result = json.loads(sys.argv[1]), {}
for kind, config in MODELS.items():
    graph, params = nnx.split(build(config, settings_.Model(experts=sys.argv[2]), 0))

    def loss(params):
        model = nnx.merge(graph, params)
        h_btd = model.hidden(token_bt, position_bt, segment_bt)
        logp_btv = jax.nn.log_softmax(h_btd @ model.head().T)
        picked_bt = jnp.take_along_axis(logp_btv, token_bt[..., None], -1)[..., 0]
        return -(picked_bt * (segment_bt > 0)).sum()

    expected = jax.jit(jax.value_and_grad(loss))(params)
    for name, sizes in meshes.items():
        mesh = sharding.make_mesh(settings_.Mesh(**sizes))
        placement = sharding.shardings(params, mesh)
        with jax.set_mesh(mesh):
            actual = jax.jit(jax.value_and_grad(loss))(jax.device_put(params, placement))
        split = sum(not leaf.sharding.is_fully_replicated for leaf in jax.tree.leaves(
            jax.device_put(params, placement)))
        difference = jax.tree.map(
            lambda a, b: float(np.abs(np.asarray(a) - np.asarray(b)).max() / (np.abs(b).max() + 1e-9)),
            actual, expected)
        result[f"{kind}/{name}"] = [max(jax.tree.leaves(difference)), split]
for sizes in ({"tensor": 8}, {"fsdp": 7}):
    try:
        sharding.shardings(params, sharding.make_mesh(settings_.Mesh(**sizes)))
    except ModelError as error:
        result[json.dumps(sizes)] = str(error)
print(json.dumps(result))
"""


@pytest.fixture(scope="module", params=["ragged_dot", "blocks"])
def result(request):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(MESHES), request.param],
        env={**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def test_loss_and_gradients_equal_one_device(result):
    for name in MESHES:
        for kind in ("dense", "moe"):
            difference, split = result[f"{kind}/{name}"]
            assert difference < 1e-5, (kind, name, difference)
            assert (split > 0) == (name not in ("data",) and (kind, name) != ("dense", "expert"))


def test_refusals_name_parameter_axis_and_remedy(result):
    message = result[json.dumps({"tensor": 8})]
    for word in ("layers.k", "'kv_heads'", "size 2", "config.mesh.tensor = 8", "work: 1, 2"):
        assert word in message
    assert "config.mesh" in result[json.dumps({"fsdp": 7})]
    assert "8" in result[json.dumps({"fsdp": 7})]
