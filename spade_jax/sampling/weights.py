"""The policy's weights on their way from the learner to a sampler."""

from typing import Any

import jax
from jax.sharding import NamedSharding, PartitionSpec


def on_device(params: Any, device: jax.Device) -> Any:
    """``params`` whole on one device of this process.

    Where other processes hold parts of them, one collective gathers them: all processes call this.
    """
    leaves = jax.tree.leaves(params)
    if all(leaf.is_fully_addressable for leaf in leaves):
        return jax.device_put(params, device)
    whole = jax.jit(_same, out_shardings=NamedSharding(leaves[0].sharding.mesh, PartitionSpec()))
    return jax.tree.map(lambda x: jax.device_put(x.addressable_data(0), device), whole(params))


def _same(params: Any) -> Any:
    return params
