"""One device and eight give the same update, and take over each other's checkpoints.

In a process of its own: devices are counted once.
"""

import json
import subprocess
import sys

import numpy as np
import pytest

SCRIPT = """
import json, sys
import jax
jax.config.update("jax_num_cpu_devices", 8)
import numpy as np
import optax
from learner_oracle import draw, gradient_of, settings, tiny_model
from spade_jax import config
from spade_jax.learner.checkpoint import Checkpoints
from spade_jax.learner.step import Learner
from spade_jax.models import sharding

results = []
for mesh in (None, config.Mesh(data=2, fsdp=2, tensor=2)):
    learner = Learner(
        tiny_model(vocabulary=64), settings(rows=4), ("agent", "designer"),
        None if mesh is None else sharding.make_mesh(mesh),
    )
    # One trajectory of a group: three of four devices have nothing to learn from.
    metrics = learner.update([*draw(0, 9, group=0), *draw(1, 1, group=1)])
    moments = optax.tree_utils.tree_get(learner.state["optimizer"], "mu")
    split = {len(x.sharding.device_set) for x in jax.tree.leaves(moments)}
    halved = [x for x in jax.tree.leaves(learner.params) if not x.sharding.is_fully_replicated]
    gradient = {name: x.tolist() for name, x in gradient_of(learner).items()}
    results.append([metrics, gradient, sorted(split), len(halved)])
try:
    Learner(tiny_model(vocabulary=64), settings(rows=3), ("a",), sharding.make_mesh(mesh))
except ValueError as error:
    results.append(str(error))

# What eight devices saved, as data 2 x fsdp 2 x tensor 2, goes to other layouts.
saved = jax.device_get(jax.tree.leaves(learner.state))
with Checkpoints(sys.argv[1], keep=1) as checkpoints:
    checkpoints.save(1, learner.state, {})
    for mesh in (config.Mesh(fsdp=4, tensor=2), config.Mesh(data=4, context=2), None):
        other = Learner(
            tiny_model(seed=1, vocabulary=64), settings(rows=4), ("agent", "designer"),
            None if mesh is None else sharding.make_mesh(mesh),
        )
        layout = [x.sharding for x in jax.tree.leaves(other.state)]
        other.state, _ = checkpoints.restore(1, other.state)
        found = jax.tree.leaves(other.state)
        equal = [bool((np.asarray(a) == b).all()) for a, b in zip(found, saved, strict=True)]
        pairs = zip(found, layout, strict=True)
        laid = [x.sharding.is_equivalent_to(where, x.ndim) for x, where in pairs]
        results.append([all(equal), all(laid), other.updates])
json.dump(results, sys.stdout)
"""


@pytest.fixture(scope="module")
def results(request, tmp_path_factory):
    here, folder = str(request.path.parent), tmp_path_factory.mktemp("checkpoints")
    run = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {here!r})\n{SCRIPT}", str(folder)],
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    assert "donated" not in run.stderr  # a refused donation doubles memory
    return json.loads(run.stdout)


def test_one_device_equals_eight(results):
    one, eight, error, *_ = results
    assert one[2:] == [[1], 0]
    assert eight[2] == [8]
    assert eight[3] > 0
    assert eight[0] == pytest.approx(one[0], rel=1e-4, abs=1e-5)
    scale = max(np.abs(x).max() for x in map(np.array, one[1].values()))
    for name, want in one[1].items():
        np.testing.assert_allclose(eight[1][name], want, rtol=1e-4, atol=1e-5 * scale)
    assert "rows = 3 cannot be spread over the 4 devices" in error


def test_a_checkpoint_goes_to_any_mesh(results):
    """Bit by bit, split as the new mesh wants it, and with the count of updates."""
    assert results[3:] == [[True, True, 1]] * 3
