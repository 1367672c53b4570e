"""Two processes write one version together: what one writes, or nothing at all."""

import json
import os
import socket
import subprocess
import sys

import numpy as np
import pytest
import safetensors.numpy
from flax import nnx
from test_versions import DENSE, EXPERTS

from spade_jax import config
from spade_jax.models.config import ModelConfig
from spade_jax.models.transformer import build
from spade_jax.sampling.versions import Versions

SCRIPT = """
import json, pathlib, sys
import jax
jax.config.update("jax_num_cpu_devices", 1)
jax.config.update("jax_cpu_collectives_implementation", "gloo")
from spade_jax import config, processes
index, folder = int(sys.argv[1]), pathlib.Path(sys.argv[3])
processes.join(sys.argv[2], 2, index)
from flax import nnx
from spade_jax.models import huggingface, sharding
from spade_jax.models.config import ModelConfig
from spade_jax.models.transformer import build
from spade_jax.sampling.versions import Versions

group = processes.group(config.Processes(deadline=120.0))
write_file, told = huggingface._write_file, {}

def full(path, values):
    raise OSError(f"no space for {path.name}")

for name, axis in (("dense", "tensor"), ("experts", "expert")):
    known = ModelConfig.from_hf(json.loads(sys.argv[4])[name])
    params = nnx.split(build(known, config.Model(), 0))[1]
    mesh = sharding.make_mesh(config.Mesh(**{axis: 2}))
    params = jax.device_put(params, sharding.shardings(params, mesh))
    versions = Versions(folder / name, "", known, None, "bfloat16", group)
    told[name] = versions.write(params, 0).label
    huggingface._write_file = full if index == 1 else write_file
    try:
        versions.write(params, 1)
    except Exception as error:
        told[name + " failed"] = f"{type(error).__name__}: {error}"
    huggingface._write_file = write_file
    versions.write(params, 2)
(folder / f"{index}.json").write_text(json.dumps(told))
"""
# Sizes that two devices can share.
VALUES = {
    name: values | {"vocab_size": 62, "num_key_value_heads": 2}
    for name, values in (("dense", DENSE), ("experts", EXPERTS))
}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """The folder, and what each process told."""
    folder = tmp_path_factory.mktemp("versions")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    running = [
        subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(index), address, str(folder), json.dumps(VALUES)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "JAX_PLATFORMS": "cpu"},
        )
        for index in range(2)
    ]
    outputs = [process.communicate(timeout=600)[0] for process in running]
    for process, text in zip(running, outputs, strict=True):
        assert process.returncode == 0, text
    return folder, [json.loads((folder / f"{index}.json").read_text()) for index in range(2)]


@pytest.mark.parametrize("name", VALUES)
def test_two_processes_write_what_one_writes(results, tmp_path, name):
    folder, told = results
    assert told[0][name] == told[1][name]
    known = ModelConfig.from_hf(VALUES[name])
    params = nnx.split(build(known, config.Model(), 0))[1]
    alone = Versions(tmp_path, "", known, None, "bfloat16")
    one = tmp_path / alone.write(params, 0).label
    two = folder / name / told[0][name]
    files = sorted(two.glob("*.safetensors"))
    assert len(files) >= 2  # each wrote some
    found = {}
    for file in files:
        found |= safetensors.numpy.load_file(file)
    index = json.loads((two / "model.safetensors.index.json").read_text())
    assert index["weight_map"].keys() == found.keys()
    assert index["metadata"]["total_size"] == sum(value.nbytes for value in found.values())
    expected = safetensors.numpy.load_file(one / "model.safetensors")
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        assert found[key].dtype == value.dtype
        np.testing.assert_array_equal(found[key].view(np.uint16), value.view(np.uint16))
    assert (two / "config.json").read_text() == (one / "config.json").read_text()


@pytest.mark.parametrize("name", VALUES)
def test_what_one_cannot_write_is_an_error_of_both_and_leaves_nothing(results, name):
    """The next version is written all the same."""
    folder, told = results
    assert told[1][f"{name} failed"].startswith("OSError: no space for model-")
    reason = "ProcessFault: process 1 failed: OSError: no space for model-"
    assert told[0][f"{name} failed"].startswith(reason)
    found = sorted(path.name[:14] for path in (folder / name).iterdir())
    assert found == ["version-000000", "version-000002"]
