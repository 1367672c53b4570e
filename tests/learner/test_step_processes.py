"""Two processes, each with half of the devices, make the update that one device makes."""

import json
import os
import socket
import subprocess
import sys

import numpy as np
import pytest

SCRIPT = """
import json, sys
import jax
jax.config.update("jax_num_cpu_devices", 2)
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(sys.argv[2], 2, int(sys.argv[1]))
import optax
from jax.experimental import multihost_utils
from learner_oracle import draw, settings, tiny_model, to_torch_layout
from spade_jax import config
from spade_jax.learner.step import Learner
from spade_jax.models import sharding

results = []
for sizes in (None, {"fsdp": 2, "context": 2}):
    mesh = None if sizes is None else sharding.make_mesh(config.Mesh(**sizes))
    learner = Learner(
        tiny_model(vocabulary=64, mesh=mesh),
        settings(rows=4, kl_coefficient=0.1, steps=2),
        ("agent", "designer"),
        mesh,
    )
    # One trajectory of a group: the other process has nothing to learn from.
    metrics = learner.update([*draw(0, 9, group=0), *draw(1, 1, group=1)])
    mean = optax.tree_utils.tree_get(learner.state["optimizer"], "mu")
    devices = {len(leaf.sharding.device_set) for leaf in jax.tree.leaves(mean)}
    if mesh is not None:
        mean = multihost_utils.process_allgather(mean, tiled=True)
    mean = {name: x.tolist() for name, x in to_torch_layout(mean).items()}
    results.append([metrics, mean, sorted(devices)])
with open(sys.argv[3], "w") as file:
    json.dump(results, file)
"""


@pytest.fixture(scope="module")
def results(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("processes")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    script = f"import sys; sys.path.insert(0, {str(request.path.parent)!r})\n{SCRIPT}"
    running = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(index), address, str(folder / f"{index}.json")],
            stderr=(folder / f"{index}.log").open("w"),
            env={
                **os.environ,
                "JAX_PLATFORMS": "cpu",
                "XLA_FLAGS": "--xla_backend_optimization_level=0",  # compiles faster
            },
        )
        for index in range(2)
    ]
    for index, process in enumerate(running):
        assert process.wait() == 0, (folder / f"{index}.log").read_text()[-3000:]
    return [json.loads((folder / f"{index}.json").read_text()) for index in range(2)]


def test_both_processes_see_the_same_update(results):
    assert results[0][1:] == results[1][1:]


def test_loss_metrics_and_gradients_equal_one_device(results):
    """Adam's mean after two steps is a sum of both gradients."""
    (want_metrics, want, alone), (metrics, mean, devices) = results[0]
    assert (alone, devices) == ([1], [4])
    assert metrics == pytest.approx(want_metrics, rel=1e-4, abs=1e-5)
    scale = max(np.abs(x).max() for x in map(np.array, want.values()))
    for name, x in want.items():
        np.testing.assert_allclose(mean[name], x, rtol=1e-4, atol=1e-5 * scale)
