"""One device and eight give the same update. In a process of its own: devices are counted once."""

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
json.dump(results, sys.stdout)
"""


def test_one_device_equals_eight(request):
    here = str(request.path.parent)
    run = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {here!r})\n{SCRIPT}"],
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    assert "donated" not in run.stderr  # a refused donation doubles memory
    one, eight, error = json.loads(run.stdout)
    assert one[2:] == [[1], 0]
    assert eight[2] == [8]
    assert eight[3] > 0
    assert eight[0] == pytest.approx(one[0], rel=1e-4, abs=1e-5)
    scale = max(np.abs(x).max() for x in map(np.array, one[1].values()))
    for name, want in one[1].items():
        np.testing.assert_allclose(eight[1][name], want, rtol=1e-4, atol=1e-5 * scale)
    assert "rows = 3 cannot be spread over the 4 devices" in error
