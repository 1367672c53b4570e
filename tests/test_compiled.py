"""Budgets of the sizes in configs/games.py, held to what has been compiled: tests/compiled/*.json.

The compiler needs minutes for each; ``python -m pytest -m slow tests/test_compiled.py`` runs it
again and compares. Without it, the files must still be those of the configs, and the docs those of
the files.
"""

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from spade_jax import compile_sampler, compile_table, config
from spade_jax.models import published
from spade_jax.models.config import ModelConfig

ROOT = Path(__file__).parents[1]
GAMES = runpy.run_path(str(ROOT / "configs" / "games.py"))
FILES = sorted((ROOT / "tests" / "compiled").glob("*.json"))
PLANNED = {
    "4b": ("v5p:2x2x2", "v6e:4x4", "v5e:4x4"),
    "8b": ("v5p:2x2x2", "v6e:8x8", "v5e:8x8"),
    "30b": ("v5p:4x4x4", "v6e:8x8", "v5e:16x16", "v5e:4x4"),
}


def named(file):
    """Variant and topology of ``30b-v5p-4x4x4.json``."""
    size, chip, shape = file.stem.split("-")
    return f"{size},{chip}:{shape}", f"{chip}:{shape}"


@pytest.fixture(params=FILES, ids=lambda file: file.stem)
def compiled(request):
    return request.param, json.loads(request.param.read_text())


def test_each_is_of_a_slice_that_the_config_names():
    assert FILES
    for file in FILES:
        size, chip, shape = file.stem.split("-")
        assert f"{chip}:{shape}" in GAMES["SLICES"][size]


MESHES = """
import json, sys
from spade_jax import aot, config
from spade_jax.models import sharding

for topology, sizes in json.load(sys.stdin):
    sharding.make_mesh(config.Mesh(**sizes), aot.devices(topology)[1])
    print(topology)
"""


def test_each_slice_takes_its_mesh():
    """Sizes of which no axes of a torus are the product, too: 4 of 8x8."""
    slices = [[topology, mesh] for of in GAMES["SLICES"].values() for topology, mesh in of.items()]
    assert ["v6e:8x8", {"fsdp": 16, "tensor": 4}] in slices
    for_tpu = {"JAX_PLATFORMS": "cpu", "TPU_SKIP_MDS_QUERY": "1", "ALLOW_MULTIPLE_LIBTPU_LOAD": "1"}
    environment = os.environ | for_tpu | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", MESHES],
        input=json.dumps(slices),
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.splitlines() == [topology for topology, _ in slices]


def test_they_are_of_the_configs_as_they_are(compiled):
    file, values = compiled
    variant, topology = named(file)
    settings = config.from_config_dict(GAMES["get_config"](variant))
    assert values["model"] == settings.model.source
    assert values["topology"] == topology
    assert values["mesh"] == config.to_dict(settings)["mesh"]
    assert values["row_length"] == settings.learner.row_length
    assert values["tokens_per_step"] == settings.learner.rows * settings.learner.row_length


def test_budgets(compiled):
    _, values = compiled
    assert values["hbm_fraction"] <= 0.85
    assert values["logits_share"] <= 0.25
    assert 0 < values["estimated_mfu"] <= 0.75
    for kinds in values["memory_bytes"].values():
        assert kinds["outputs"] <= 0.01 * kinds["arguments"]


def test_the_page_shows_them():
    page = (ROOT / "docs" / "compile.md").read_text()
    assert compile_table.markdown(compile_table.read([ROOT / "tests" / "compiled"])) in page


def test_the_page_shows_where_each_size_can_be_sampled():
    """By shapes alone, as ``python -m spade_jax.compile --plan`` says it."""
    page = (ROOT / "docs" / "compile.md").read_text()
    plans = []
    for size, topologies in PLANNED.items():
        settings = config.from_config_dict(GAMES["get_config"](size))
        model = ModelConfig.from_hf(published.CONFIGS[settings.model.source])
        plans += [compile_sampler.plan(settings, model, topology) for topology in topologies]
    assert compile_table.markdown_plans(plans) in page
    short = {(one["model"], one["topology"]) for one in plans if one["short_bytes"]}
    assert short == {("Qwen/Qwen3-30B-A3B-Instruct-2507", "v5e:4x4")}
    for one in plans:
        if not one["short_bytes"]:
            assert one["cache_tokens"] >= 32768


def compile_again(variant, topology, folder, *flags):
    """Figures of the compiler, run now."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "spade_jax.compile", f"--topology={topology}", *flags),
            *(f"--config={ROOT}/configs/games.py:{variant}", f"--json={folder}/again.json"),
        ],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert "nvoluntary full rematerialization" not in done.stderr
    return json.loads((folder / "again.json").read_text())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "topology"),
    [(size, topology) for size, all_of in PLANNED.items() for topology in all_of[:3]],
)
def test_the_sampler_of_each_size_compiles(size, topology, tmp_path):
    values = compile_again(size, topology, tmp_path, "--sampler")
    assert values["hosts_per_replica"] == (2 if (size, topology) == ("30b", "v5e:16x16") else 1)
    assert values["hbm_fraction"] <= 0.9
    for kinds in values["memory_bytes"].values():
        assert kinds["outputs"] <= 0.01 * kinds["arguments"]


@pytest.mark.slow
def test_compiled_again_they_are_the_same(compiled, tmp_path):
    """Collective bytes within 5 %, memory within 2 %."""
    file, values = compiled
    variant, topology = named(file)
    again = compile_again(variant, topology, tmp_path)
    assert again["collective_bytes"] == pytest.approx(values["collective_bytes"], rel=0.05)
    assert again["hbm_fraction"] == pytest.approx(values["hbm_fraction"], rel=0.02)
