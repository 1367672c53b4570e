"""What sampling a model natively on a TPU slice would take: the sampler's own programs, compiled.

A replica is the smallest group of hosts that holds the weights, and of the cache one context at
least, beside what the learner keeps there while it waits.
"""

import dataclasses
import math
import re
import time
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from spade_jax import aot
from spade_jax import config as config_lib
from spade_jax.chips import CHIPS, Chip
from spade_jax.hlo import Program
from spade_jax.models.config import ModelConfig, ModelError
from spade_jax.models.transformer import abstract
from spade_jax.sampling.native import memory, replica
from spade_jax.sampling.native.programs import Programs

HOST_CHIPS = 4
"""Chips of one host in a slice of several, as libtpu has them for v5e, v5p and v6e."""
FULL = 0.85
"""Share of the memory that the estimate fills with cache; the rest is for the calls themselves."""


@dataclasses.dataclass(frozen=True)
class Group:
    """Hosts that sample as one; all bytes are a device's.

    Attributes:
      resting: of the learner, while it waits.
      cache_mb: of the cache, on all devices: as configured, or what fits if that is less.
      short: bytes that are missing for one context; 0 if it fits.
    """

    hosts: int
    tensor: int
    expert: int
    weights: int
    resting: int
    cache_mb: int
    short: int


def compile_sampler(
    settings: config_lib.Config, model: ModelConfig, topology: str
) -> dict[str, Any]:
    """Figures of the sampler's largest programs; keys in docs/compile.md.

    Raises:
      CompileError: no libtpu, an unknown topology, or no group of hosts that holds the model.
    """
    chip, devices = aot.devices(topology)
    devices = sorted(devices, key=lambda device: device.process_index)
    per_host = sum(device.process_index == devices[0].process_index for device in devices)
    if per_host != min(HOST_CHIPS, len(devices)):
        raise aot.CompileError(f"{topology}: {per_host} chips a host, not {HOST_CHIPS}")
    group = planned(settings, model, topology)
    if group.short:
        raise aot.CompileError(
            f"{topology}: no group of its hosts holds the weights ({group.weights / 1e9:.1f} GB a "
            f"device), the learner at rest ({group.resting / 1e9:.1f} GB) and a cache for one "
            f"context: {group.short / 1e9:.1f} GB a device are missing on {group.hosts} hosts; "
            "take a larger slice, or lower sampler.context"
        )
    sampler = dataclasses.replace(settings.sampler, cache_mb=group.cache_mb)
    settings = dataclasses.replace(settings, sampler=sampler)
    _, devices = aot.devices(_slice(topology, devices[: group.hosts * per_host]))
    devices = sorted(devices, key=lambda device: device.process_index)
    mesh = replica.make_mesh(devices, group.tensor, group.expert)
    programs = Programs.lower(model, settings, mesh)
    held, seconds, parsed = {}, {}, {}
    for name in ("prefill", "decode"):
        start = time.perf_counter()
        program = aot.compiled(getattr(programs, name), name, "lower sampler.cache_mb or slots")
        seconds[name] = time.perf_counter() - start
        held[name] = aot.memory(program, group.resting)
        parsed[name] = Program.parse(program.as_text() or "")
    cost = parsed["decode"].cost(sampler.decode_steps)
    drawn = programs.rows["decode"] * sampler.decode_steps
    experts = touched_experts(model, programs.rows["decode"])
    times = {
        "compiler": cost.cycles / chip.clock,
        "collectives": aot.collective_seconds(cost.exposed, chip),
        "kernels": 0.0,
    }
    if cost.kernels:  # grouped matmuls of a few rows wait for the weights alone
        read = experts * _expert_bytes(model, settings) / mesh.size
        times["kernels"] = sampler.decode_steps * read / chip.hbm_bandwidth
    return plan(settings, model, topology) | {
        "rows": programs.rows,
        "lengths": programs.lengths,
        "memory_bytes": held,
        "hbm_bytes": chip.hbm,
        "hbm_fraction": max(kinds["total"] for kinds in held.values()) / chip.hbm,
        "decode_seconds": times,
        "decode_tokens_per_second": drawn / sum(times.values()),
        "collective_bytes": dict(cost.bytes),
        "compile_seconds": seconds,
    }


def _slice(topology: str, devices: Sequence[Any]) -> str:
    """The topology that some of its devices are by themselves: libtpu takes no part of one."""
    kind, _, shape = topology.partition(":")
    axes = zip(*(device.coords for device in devices), strict=True)
    sizes = [max(axis) - min(axis) + 1 for axis in axes][: shape.count("x") + 1]
    return f"{kind}:{'x'.join(map(str, sizes))}"


def plan(settings: config_lib.Config, model: ModelConfig, topology: str) -> dict[str, Any]:
    """What is known of sampling on a topology before anything is compiled; needs no libtpu."""
    group, chip, sampler = planned(settings, model, topology), _chip(topology)[0], settings.sampler
    figures = {
        "model": settings.model.source,
        "topology": topology,
        "hosts_per_replica": group.hosts,
        "mesh": {"tensor": group.tensor, "expert": group.expert},
        "weights_bytes": group.weights,
        "resting_bytes": group.resting,
        "short_bytes": group.short,
    }
    if group.short:
        return figures
    held = dataclasses.replace(sampler, cache_mb=group.cache_mb)
    pages = memory.cache_pages(held, memory.token_bytes(model, settings))
    tokens = pages * memory.PAGE_SIZE
    in_flight = min(sampler.slots, tokens // (sampler.context // 2))
    return figures | {
        "slots": sampler.slots,
        "cache_mb": group.cache_mb,
        "cache_tokens": tokens,
        "sequences_in_flight": in_flight,
        "tokens_in_flight": in_flight * sampler.context // 2,
        "ceiling_tokens_per_second": ceiling(settings, model, chip, group, in_flight),
    }


def planned(settings: config_lib.Config, model: ModelConfig, topology: str) -> Group:
    """The smallest group that fits, of 1, 2, 4 … hosts; else the one that lacks least.

    Raises:
      CompileError: an unknown topology, or a model that divides over no group.
    """
    chip, count = _chip(topology)
    per_host = min(HOST_CHIPS, count)
    hosts, resting = count // per_host, learner_at_rest(settings, model) // count
    tried: list[Group] = []
    for together in (1 << power for power in range(hosts.bit_length())):
        try:
            tensor, expert = replica.layout(model, together * per_host)
        except ModelError:
            continue
        held = memory.sampler_bytes(model, settings, tensor, expert)
        room = int(FULL * chip.hbm) - resting - held["weights"]
        token = memory.token_bytes(model, settings, tensor)
        context = -(-settings.sampler.context // memory.PAGE_SIZE) * memory.PAGE_SIZE
        short = max(0, 2 * context * token - room)  # a call gathers at most as much again
        tokens = max(room, 0) // (2 * token)
        cache_mb = tokens * memory.token_bytes(model, settings) // 2**20
        cache_mb = min(settings.sampler.cache_mb, cache_mb)
        tried.append(Group(together, tensor, expert, held["weights"], resting, cache_mb, short))
        if not short:
            return tried[-1]
    if not tried:
        raise aot.CompileError(
            f"the model does not divide over any group of hosts with {per_host} devices each"
        )
    return min(tried, key=lambda group: group.short)


def learner_at_rest(settings: config_lib.Config, model: ModelConfig) -> int:
    """Bytes on all devices that stay there while sampling: parameters, moments, the reference."""
    count = sum(math.prod(x.shape) for x in _leaves(model, settings))
    params = count * jnp.dtype(settings.model.parameter_dtype).itemsize
    moments = 2 * count * jnp.dtype(settings.learner.moments_dtype).itemsize
    reference = params if settings.learner.kl_coefficient else 0
    return params if settings.learner.offload else params + moments + reference


def ceiling(
    settings: config_lib.Config, model: ModelConfig, chip: Chip, group: Group, rows: int
) -> float:
    """Tokens a second of a replica if all it does is read: each step reads the weights that it
    uses once, and the keys and values of ``rows`` sequences of half a context each."""
    width = jnp.dtype(settings.model.compute_dtype).itemsize
    unread = (model.experts - touched_experts(model, rows)) * (
        _expert_bytes(model, settings) / (group.tensor * group.expert)
    )
    if not model.tied:  # of the table of embeddings a row a token
        unread += model.vocabulary * model.hidden * width / group.tensor
    token = memory.token_bytes(model, settings, group.tensor)
    cached = rows * settings.sampler.context / 2 * token
    return rows * chip.hbm_bandwidth / (group.weights - unread + cached)


def touched_experts(model: ModelConfig, rows: int) -> float:
    """Experts of a layer that ``rows`` tokens use on average if each chooses evenly."""
    if not model.experts:
        return 0.0
    return model.experts * (1 - (1 - model.experts_per_token / model.experts) ** rows)


def _expert_bytes(model: ModelConfig, settings: config_lib.Config) -> float:
    """Of one expert in all layers, as the sampler holds it."""
    width = jnp.dtype(settings.model.compute_dtype).itemsize
    return 3.0 * model.layers * model.hidden * model.expert_feed_forward * width


def _leaves(model: ModelConfig, settings: config_lib.Config) -> list[Any]:
    return jax.tree.leaves(nnx.state(abstract(model, settings.model)))


def _chip(topology: str) -> tuple[Chip, int]:
    """Kind and number of the chips of ``v5p:2x2x2``."""
    kind, _, shape = topology.partition(":")
    if kind not in CHIPS or not re.fullmatch(r"\d+(x\d+)*", shape):
        raise aot.CompileError(
            f"{topology!r} is no topology of {', '.join(CHIPS)}; write v5p:2x2x2"
        )
    return CHIPS[kind], math.prod(map(int, shape.split("x")))
