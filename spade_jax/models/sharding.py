"""Where parameters and activations live: one table from logical axes to mesh axes."""

import math
from typing import Any

import jax
from flax import nnx
from jax.experimental import mesh_utils
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from spade_jax import config as settings_
from spade_jax.models.config import ModelError

AXES = ("data", "fsdp", "expert", "context", "tensor")

RULES: dict[str, str | tuple[str, ...] | None] = {
    # parameters
    "layers": None,
    "embed": "fsdp",
    "heads": "tensor",
    "kv_heads": "tensor",
    "feed_forward": "tensor",
    "vocabulary": "tensor",
    "expert": "expert",
    # activations
    "batch": ("data", "fsdp", "expert"),
    "length": "context",
    "prediction": ("data", "fsdp", "expert", "context"),  # rows and lengths, flattened
}


def make_mesh(settings: settings_.Mesh, devices: Any = None) -> Mesh:
    """The mesh ``(data, fsdp, expert, context, tensor)`` over all devices, or over those given.

    Raises:
      ModelError: the product of the sizes is not the number of devices.
    """
    devices = jax.devices() if devices is None else devices
    shape = tuple(getattr(settings, axis) for axis in AXES)
    if math.prod(shape) != len(devices):
        sizes = " * ".join(f"{axis} {size}" for axis, size in zip(AXES, shape, strict=True))
        raise ModelError(
            f"config.mesh: {sizes} = {math.prod(shape)} devices, but there are {len(devices)}; "
            "make the product equal"
        )
    # Not jax.make_mesh: where no axes of the torus have a product of some size, it gives up.
    placed = mesh_utils.create_device_mesh(shape, devices, allow_split_physical_axes=True)
    return Mesh(placed, AXES, (AxisType.Auto,) * len(AXES))


def spec(*logical: str | None) -> PartitionSpec:
    """The partition of an array with these logical axes; None is an unsplit axis."""
    return PartitionSpec(*(RULES[axis] if axis is not None else None for axis in logical))


def ways(mesh: Any, logical: str) -> int:
    """Number of parts into which ``mesh``, or an abstract one, splits a logical axis."""
    rule = RULES[logical] or ()
    return math.prod(mesh.shape[axis] for axis in ((rule,) if isinstance(rule, str) else rule))


def shardings(params: nnx.State, mesh: Mesh) -> Any:
    """A NamedSharding for every parameter, as a tree of the structure of ``params``.

    Raises:
      ModelError: an axis does not divide, or two axes of a parameter want one mesh axis. The
        message names the parameter, the axis and sizes that would work.
    """
    flat = []
    for path, variable in nnx.to_flat_state(params):
        axes = variable.get_metadata("axes")
        _check(".".join(map(str, path)), variable.shape, axes, mesh)
        flat.append((path, variable.replace(NamedSharding(mesh, spec(*axes)))))
    return nnx.from_flat_state(flat)


def place(tree: Any) -> Any:
    """``tree`` of parameters, gradients or moments, each laid out on the mesh of ``jax.set_mesh``
    as its parameter is; as it is where none is set."""

    def placed(variable: Any) -> Any:
        axes = variable.get_metadata("axes")
        return variable.replace(constrain(variable.get_value(), *axes))

    return jax.tree.map(placed, tree, is_leaf=lambda x: isinstance(x, nnx.Variable))


def replicate(tree: Any) -> Any:
    """Every array whole on every device of the mesh of ``jax.set_mesh``."""
    return jax.tree.map(lambda x: constrain(x, *[None] * x.ndim), tree)


def constrain(x: jax.Array, *logical: str | None) -> jax.Array:
    """Places an activation on the mesh of ``jax.set_mesh``; as it is where none is set."""
    if jax.sharding.get_abstract_mesh().empty:
        return x
    return jax.lax.with_sharding_constraint(x, spec(*logical))


def _check(name: str, shape: tuple[int, ...], axes: tuple[str | None, ...], mesh: Mesh) -> None:
    taken: dict[str, str] = {}
    for size, axis in zip(shape, axes, strict=True):
        rule = RULES[axis] if axis is not None else None
        for mesh_axis in (rule,) if isinstance(rule, str) else rule or ():
            if mesh.shape[mesh_axis] == 1:
                continue
            if mesh_axis in taken:
                raise ModelError(
                    f"parameter {name}: axes {taken[mesh_axis]!r} and {axis!r} both map to mesh "
                    f"axis {mesh_axis!r}; change spade_jax.models.sharding.RULES"
                )
            taken[mesh_axis] = str(axis)
            if size % mesh.shape[mesh_axis]:
                works = [n for n in range(1, len(mesh.devices.flat) + 1) if size % n == 0]
                raise ModelError(
                    f"parameter {name}: axis {axis!r} of size {size} does not divide over "
                    f"config.mesh.{mesh_axis} = {mesh.shape[mesh_axis]}; sizes that work: "
                    f"{', '.join(map(str, works))}"
                )
