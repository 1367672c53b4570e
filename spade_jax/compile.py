"""Compiles a training step, or sampling, for a TPU slice that is not there, and what it would cost.

    python -m spade_jax.compile --config=configs/games.py --topology=v5p:2x2x2 --json=step.json
    python -m spade_jax.compile --config=configs/games.py --topology=v5p:2x2x2 --sampler

Needs libtpu (``pip install 'spade-jax[aot]'``), no TPU and no weights. docs/compile.md explains the
table and its keys.
"""

import os
import sys

# Before jax starts: look for no TPU here, and mind no other process that has libtpu open.
os.environ |= {"JAX_PLATFORMS": "cpu", "TPU_SKIP_MDS_QUERY": "1", "ALLOW_MULTIPLE_LIBTPU_LOAD": "1"}

import dataclasses
import json
import math
import time
from pathlib import Path
from typing import Any

import jax
from absl import app, flags
from ml_collections import config_flags
from rich.console import Console

from spade_jax import aot, compile_sampler, compile_table
from spade_jax import config as config_lib
from spade_jax.chips import Chip
from spade_jax.hlo import Cost, Program
from spade_jax.learner import logprobs
from spade_jax.learner.programs import Programs
from spade_jax.models import flops, huggingface, loading, published, sharding
from spade_jax.models.config import ModelConfig, ModelError
from spade_jax.sampling.native.memory import sampler_bytes
from spade_jax.sampling.native.replica import layout

_CONFIG = config_flags.DEFINE_config_file("config", None, "a file of configs/", lock_config=True)
_TOPOLOGY = flags.DEFINE_string("topology", "v5p:2x2x2", "chip and shape of the slice")
_JSON = flags.DEFINE_string("json", None, "file to write the figures to")
_LENGTH = flags.DEFINE_integer("sequence-length", None, "tokens of a row; else learner.row_length")
_SAMPLER = flags.DEFINE_bool(
    "sampler", False, "compile the native sampler's programs instead of the learner's"
)
_PLAN = flags.DEFINE_multi_string(
    "plan", [], "compile nothing; print what sampling would take on these topologies, as Markdown"
)
_TABLE = flags.DEFINE_multi_string(
    "table", [], "compile nothing; print these files of --json, or folders of such, as Markdown"
)
_TOKENS = flags.DEFINE_integer("tokens-per-step", None, "tokens of a step; else one micro-batch")

LARGEST_MFU = 0.75
"""Above this the estimate is at fault: no published training run comes near."""
GROUPED_MATMUL_EFFICIENCY = 0.526
"""Of the peak, for experts, whose kernel's cycles the compiler does not know: the MFU published for
Mixtral 8x7B on v5p (MaxText, docs/reference/models/tiering.md), most of whose FLOPs are such."""

REMEDY = (
    "use fewer learner.rows, a shorter learner.row_length, learner.remat, learner.offload, or a "
    "mesh or topology with more devices in fsdp"
)
ATTENTION_EFFICIENCY = 0.6
"""Of the peak, for splash attention: the MFU published for an 8B Llama at 64k tokens on v5p, where
attention is most of the work (MaxText, pull request 4720)."""


def compile_step(
    settings: config_lib.Config, topology: str, tokens_per_step: int | None = None
) -> dict[str, Any]:
    """Figures of one training step; keys in docs/compile.md.

    Raises:
      CompileError: no libtpu, an unknown topology, a program that does not fit the memory, or an
        estimate that cannot be true.
      ModelError, ValueError: the mesh does not suit the model, the rows or the topology.
    """
    chip, devices = aot.devices(topology)
    mesh = sharding.make_mesh(settings.mesh, devices)
    model = model_config(settings.model)
    programs = Programs.lower(model, settings, mesh)
    compiled: dict[str, jax.stages.Compiled] = {}
    seconds: dict[str, float] = {}
    memory: dict[str, dict[str, int]] = {}
    for name in ("accumulate", "add_group", "apply"):
        start = time.perf_counter()
        compiled[name] = aot.compiled(getattr(programs, name), name, REMEDY)
        seconds[name] = time.perf_counter() - start
        memory[name] = aot.memory(compiled[name], programs.resident[name])
    rows, length = settings.learner.rows, settings.learner.row_length
    predictions = rows * length * mesh.shape["tensor"] // len(devices)
    trips = -(-predictions // logprobs.CHUNK)  # every token is trained: the dearest case
    parsed = {name: Program.parse(c.as_text() or "") for name, c in compiled.items()}
    costs = {name: program.cost(trips) for name, program in parsed.items()}
    tokens = tokens_per_step or rows * length
    micro_batches = -(-tokens // (rows * length))
    step = Cost()
    step.add(costs["accumulate"], micro_batches)
    step.add(costs["add_group"], 2)
    step.add(costs["apply"], 1)
    times = _times(step, settings, model, chip, tokens, len(devices))
    forward = flops.Forward.of(model, length)
    needed = 3 * tokens * forward.total
    total = sum(times.values())
    mfu = needed / (total * chip.flops * len(devices))
    if mfu > LARGEST_MFU:
        raise aot.CompileError(
            f"estimated MFU {mfu:.2f} is above {LARGEST_MFU}: the estimate misses a cost; "
            "please report this with the configuration"
        )
    largest = max(memory, key=lambda name: memory[name]["total"])
    sampler = sampler_bytes(model, settings, *_replica(settings, model, devices))
    beside = sampler["weights"] + sampler["cache"]
    sampling = programs.resident["add_group"] + beside + sampler["gathered"]
    return {
        "model": settings.model.source,
        "topology": topology,
        "devices": len(devices),
        "mesh": dict(mesh.shape),
        "tokens_per_step": tokens,
        "row_length": length,
        "micro_batches": micro_batches,
        "memory_bytes": memory,
        "hbm_bytes": chip.hbm,
        "hbm_fraction": memory[largest]["total"] / chip.hbm,
        "largest_program": largest,
        "sampler_bytes": sampler,
        "hbm_fraction_with_sampler": max(memory[largest]["total"] + beside, sampling) / chip.hbm,
        "logits_share": _logits_share(parsed["accumulate"], model, mesh, predictions),
        "largest_gather_bytes": parsed["accumulate"].largest("all-gather"),
        "collective_bytes": dict(step.bytes),
        "model_flops": needed,
        "attention_flops_share": forward.attention / forward.total,
        "seconds": times,
        "estimated_step_seconds": total,
        "estimated_mfu": mfu,
        "charged_share": times["kernels"] / total,
        "compile_seconds": seconds,
    }


def _replica(settings: config_lib.Config, model: ModelConfig, devices: Any) -> tuple[int, int]:
    """Sizes of tensor and expert of what samples: the first device, or all of its host or hosts."""
    first = [device for device in devices if device.process_index == devices[0].process_index]
    return layout(model, settings.sampler.hosts_per_replica * len(first) or 1)


def in_rows(
    settings: config_lib.Config, length: int | None, tokens_per_step: int | None
) -> config_lib.Config:
    """Rows of ``length``, and a micro-batch of as many tokens as before, or as the step has."""
    learner = settings.learner
    length = length or learner.row_length
    tokens = learner.rows * learner.row_length
    rows = max(1, min(tokens, tokens_per_step or tokens) // length)
    learner = dataclasses.replace(learner, row_length=length, rows=rows)
    return dataclasses.replace(settings, learner=learner)


def model_config(settings: config_lib.Model) -> ModelConfig:
    """Dimensions of the policy, without its weights.

    Those of the published checkpoints are known; of any other hub id config.json is fetched.
    """
    if settings.source == "scratch":
        return loading.scratch_config(settings.architecture)
    if settings.source in published.CONFIGS:
        return ModelConfig.from_hf(published.CONFIGS[settings.source])
    if Path(settings.source).is_dir():
        return huggingface.read_config(settings.source)
    import huggingface_hub

    try:
        file = huggingface_hub.hf_hub_download(settings.source, "config.json")
    except (OSError, ValueError, huggingface_hub.errors.HfHubHTTPError) as error:
        raise ModelError(
            f"config.model.source={settings.source!r} is no folder here, and the hub did not give "
            "its config.json; offline, put it into config.model.architecture and set source to "
            "'scratch': nothing but dimensions is needed"
        ) from error
    return huggingface.read_config(Path(file).parent)


def _logits_share(program: Program, model: ModelConfig, mesh: Any, predictions: int) -> float:
    """Largest array with an axis of words, as a share of all logits of a device's predictions."""
    words = model.vocabulary // mesh.shape["tensor"]
    axes = {model.vocabulary, words, words // logprobs.blocks(words, logprobs.BLOCK)}
    sizes = [math.prod(shape) for shape in program.arrays() if axes & set(shape)]
    return max(sizes, default=0) / (predictions * words)


def _times(
    step: Cost,
    settings: config_lib.Config,
    model: ModelConfig,
    chip: Chip,
    tokens: int,
    devices: int,
) -> dict[str, float]:
    """Seconds of a step by cause; they do not overlap by construction."""
    forward = flops.Forward.of(model, settings.learner.row_length)
    again, kernels = int(settings.learner.remat), 0.0
    if step.kernels and model.experts:
        kernels += (3 + again) * forward.experts / GROUPED_MATMUL_EFFICIENCY
    if settings.model.attention == "splash":  # five matmuls backward for two forward
        kernels += (3.5 + again) * forward.attention / ATTENTION_EFFICIENCY
    kernels *= tokens / devices / chip.flops
    return {
        "compiler": step.cycles / chip.clock,
        "collectives": aot.collective_seconds(step.exposed, chip),
        "kernels": kernels,
    }


def main(argv: list[str]) -> None:
    del argv
    console = Console()
    if _TABLE.value:
        print(compile_table.markdown(compile_table.read(_TABLE.value)))
        return
    try:
        if _CONFIG.value is None:
            raise aot.CompileError("--config is missing; name a file of configs/")
        settings = config_lib.from_config_dict(_CONFIG.value)
        model = model_config(settings.model)
        if _PLAN.value:
            plans = [compile_sampler.plan(settings, model, topology) for topology in _PLAN.value]
            print(compile_table.markdown_plans(plans))
            return
        if _SAMPLER.value:
            figures = compile_sampler.compile_sampler(settings, model, _TOPOLOGY.value)
        else:
            settings = in_rows(settings, _LENGTH.value, _TOKENS.value)
            figures = compile_step(settings, _TOPOLOGY.value, _TOKENS.value)
    except (aot.CompileError, ModelError, config_lib.ConfigError, ValueError) as error:
        console.print(
            f"{type(error).__name__}: {error}", markup=False, highlight=False, soft_wrap=True
        )
        sys.exit(1)
    (compile_table.show_sampler if _SAMPLER.value else compile_table.show)(figures, console)
    if _JSON.value:
        Path(_JSON.value).write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    app.run(main)
