"""The devices that sample as one: their mesh, and how weights and cache are laid out on them."""

import contextlib
import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from flax import nnx
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding

from spade_jax.models import sharding
from spade_jax.models.config import ModelConfig, ModelError
from spade_jax.sampling.native.forward import POOL_AXES, Forward, Pools, Weights


@dataclasses.dataclass(frozen=True)
class Replica:
    """One device, or a mesh of several that hold one copy of the weights and one cache.

    The mesh may span processes, which then all do everything that is done here.

    Attributes:
      device: the first.
      mesh: with the axes of :mod:`spade_jax.models.sharding`; None of one device.
    """

    device: jax.Device
    mesh: Mesh | None

    @classmethod
    def of(cls, config: ModelConfig, devices: Sequence[jax.Device]) -> "Replica":
        """Over ``devices``, laid out as :func:`layout` says."""
        split = layout(config, len(devices))
        mesh = make_mesh(devices, *split) if len(devices) > 1 else None
        return cls(devices[0], mesh)

    def entered(self) -> contextlib.AbstractContextManager[Any]:
        """Around everything that runs on it."""
        return contextlib.nullcontext() if self.mesh is None else jax.set_mesh(self.mesh)

    def pools(self, forward: Forward, pages: int) -> Pools:
        """An empty cache on it."""
        if self.mesh is None:
            return jax.device_put(forward.pools(pages), self.device)
        with self.entered():
            return forward.pools(pages)

    def weights(self, forward: Forward, params: Any) -> Weights:
        """A copy of ``params``, which may lie on any mesh, in the form that decoding reads.

        Where ``params`` lie on the devices of all processes, one jitted collective cuts them and
        brings each replica its copy; all processes call this. No device ever holds more than its
        share of a copy and a few layers.
        """
        if self.mesh is None:
            return forward.weights(whole_on(params, self.device))
        first = jax.tree.leaves(params)[0].sharding
        here = set(self.mesh.devices.flat)
        if not here <= first.device_set:
            params = jax.device_put(params, sharding.shardings(params, self.mesh))
        params, everywhere = self.alike(params)
        cut = cut_on(forward, jax.tree.leaves(params)[0].sharding.mesh, everywhere, params)
        if everywhere.size == self.mesh.size:
            return cut
        return jax.tree.map(functools.partial(_own, self.mesh), cut)

    def alike(self, params: Any) -> tuple[Any, Mesh]:
        """``params``, and the mesh of all replicas over their devices in the same order."""
        assert self.mesh is not None
        theirs = jax.tree.leaves(params)[0].sharding.mesh
        order = sorted(theirs.devices.flat, key=lambda device: device.process_index)
        replicas = len(order) // self.mesh.size
        split = self.mesh.shape["tensor"], self.mesh.shape["expert"]
        everywhere = make_mesh(order, *split, replicas)
        if order != list(theirs.devices.flat):  # one program has one order of devices
            same = Mesh(np.array(order).reshape(theirs.devices.shape), theirs.axis_names)
            params = jax.device_put(params, sharding.shardings(params, same))
        return params, everywhere


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def cut_on(forward: Forward, at: Mesh, to: Mesh, params: Any) -> Weights:
    """:meth:`Forward.cut` of params on ``at``, laid out on ``to``: the same devices in order."""

    def move(part: Any) -> Any:
        # First as it lies: else the partitioner would bring all layers over before it cuts them.
        for mesh in (at, to):
            part = jax.lax.with_sharding_constraint(part, placed(part, mesh))
        return part

    weights = forward.cut(params)
    layers: list[Any] = []
    for layer in weights.layers:
        if layers:  # one after another: what moving a layer takes is free for the next
            layer, _ = jax.lax.optimization_barrier((layer, layers[-1]))
        layers.append(move(layer))
    return Weights(move(weights.outer), layers)


def _own(mesh: Mesh, x: jax.Array) -> jax.Array:
    """What this process holds of an array on all replicas, as an array on its own."""
    assert isinstance(x.sharding, NamedSharding)
    shards = [shard.data for shard in x.addressable_shards]
    where = NamedSharding(mesh, x.sharding.spec)
    return jax.make_array_from_single_device_arrays(x.shape, where, shards)


def layout(config: ModelConfig, devices: int) -> tuple[int, int]:
    """Sizes of the axes ``tensor`` and ``expert`` of a replica; heads are split as far as they go.

    Raises:
      ModelError: the model does not divide over so many devices.
    """
    split = [config.heads, config.kv_heads, config.vocabulary, config.feed_forward]
    if config.experts:
        split[-1] = config.expert_feed_forward
    tensor = math.gcd(devices, *split)
    expert = devices // tensor
    if (config.experts or 1) % expert:
        works = [
            n for n in range(1, devices) if not (config.experts or 1) % (n // math.gcd(n, *split))
        ]
        raise ModelError(
            f"{devices} devices of a replica: kv heads, heads, feed-forward and vocabulary divide "
            f"over {tensor}, and {config.experts or 'no'} experts do not over the other {expert}; "
            f"numbers of devices that work: {', '.join(map(str, works))}"
        )
    return tensor, expert


def placed(weights: Any, mesh: Mesh | AbstractMesh) -> Any:
    """A NamedSharding for every weight of a tree, by the table of the learner's mesh."""

    def place(variable: Any) -> Any:
        # A layer's own weights are without the axis of layers, which their metadata still names.
        axes = variable.get_metadata("axes")[-len(variable.get_value().shape) :]
        return variable.replace(NamedSharding(mesh, sharding.spec(*axes)))

    return jax.tree.map(place, weights, is_leaf=lambda x: isinstance(x, nnx.Variable))


def pool_sharding(mesh: Mesh, axes: int) -> NamedSharding:
    """Of an array of the cache with so many axes."""
    keys = axes == len(POOL_AXES)  # or values; ids of experts are whole
    return NamedSharding(mesh, sharding.spec(*(POOL_AXES if keys else [None] * axes)))


def whole_on(params: Any, device: jax.Device) -> Any:
    """``params`` whole on one device of this process.

    Where other processes hold parts of them, one collective gathers them: all processes call this.
    """
    leaves = jax.tree.leaves(params)
    if all(leaf.is_fully_addressable for leaf in leaves):
        return jax.device_put(params, device)
    whole = jax.jit(
        _same, out_shardings=NamedSharding(leaves[0].sharding.mesh, jax.sharding.PartitionSpec())
    )
    return jax.tree.map(lambda x: jax.device_put(x.addressable_data(0), device), whole(params))


def _same(params: Any) -> Any:
    return params


def abstract_mesh(tensor: int, expert: int) -> AbstractMesh:
    """A replica's mesh, without devices."""
    return AbstractMesh(_shape(1, tensor, expert), sharding.AXES)


def make_mesh(devices: Sequence[jax.Device], tensor: int, expert: int, replicas: int = 1) -> Mesh:
    """Of the replicas that ``devices`` are, one after another."""
    shape = _shape(replicas, tensor, expert)
    kinds = (AxisType.Auto,) * len(shape)
    return Mesh(np.array(devices).reshape(shape), sharding.AXES, kinds)


def _shape(replicas: int, tensor: int, expert: int) -> tuple[int, ...]:
    sizes = {"data": replicas, "expert": expert, "tensor": tensor}
    return tuple(sizes.get(axis, 1) for axis in sharding.AXES)
