"""Checkpoints in the Hugging Face layout: a folder of safetensors files and ``config.json``."""

import concurrent.futures
import dataclasses
import functools
import itertools
import json
import math
import os
import pathlib
import shutil
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
import safetensors.numpy
from etils import epath
from flax import nnx

from spade_jax import config as settings_
from spade_jax.models import sharding
from spade_jax.models.config import ModelConfig, ModelError
from spade_jax.models.group import Group, Single, in_all
from spade_jax.models.tensor_files import INDEX, SINGLE, TensorFolder
from spade_jax.models.transformer import Transformer, abstract

# Parameter path -> tensor name and how many of our leading axes are inputs. Their matrices are
# [outputs, inputs]; None is a matrix stored alike, 0 a vector.
_TOP: dict[tuple[str, ...], tuple[str, int | None]] = {
    ("embedding",): ("model.embed_tokens.weight", None),
    ("norm",): ("model.norm.weight", 0),
    ("output",): ("lm_head.weight", None),
}
_LAYER = {
    "attention_norm": ("input_layernorm.weight", 0),
    "q": ("self_attn.q_proj.weight", 1),
    "k": ("self_attn.k_proj.weight", 1),
    "v": ("self_attn.v_proj.weight", 1),
    "o": ("self_attn.o_proj.weight", 2),
    "q_bias": ("self_attn.q_proj.bias", 0),
    "k_bias": ("self_attn.k_proj.bias", 0),
    "v_bias": ("self_attn.v_proj.bias", 0),
    "q_norm": ("self_attn.q_norm.weight", 0),
    "k_norm": ("self_attn.k_norm.weight", 0),
    "feed_forward_norm": ("post_attention_layernorm.weight", 0),
    "router": ("mlp.gate.weight", 1),
}
_FEED_FORWARD = {"gate": "gate_proj.weight", "up": "up_proj.weight", "down": "down_proj.weight"}
# Written by some savers and implied by the rest of the checkpoint.
_IMPLIED_SUFFIXES = ("rotary_emb.inv_freq",)


@dataclasses.dataclass(frozen=True)
class Tensor:
    """One tensor of the checkpoint and the slice of one parameter that it holds.

    Attributes:
      index: leading (layer, expert) indices into the stacked parameter.
      shape: shape of that slice of the parameter.
    """

    name: str
    path: tuple[str, ...]
    index: tuple[int, ...]
    shape: tuple[int, ...]
    inputs: int | None

    @property
    def stored_shape(self) -> tuple[int, ...]:
        """Shape in the file."""
        if self.inputs is None:
            return self.shape
        if self.inputs == 0:
            return (math.prod(self.shape),)
        return math.prod(self.shape[self.inputs :]), math.prod(self.shape[: self.inputs])

    def to_stored(self, value: np.ndarray) -> np.ndarray:
        """Our slice as the file holds it."""
        if self.inputs:
            value = value.reshape(self.stored_shape[::-1]).T
        return np.ascontiguousarray(value.reshape(self.stored_shape))

    def from_stored(self, value: np.ndarray) -> np.ndarray:
        """The file's tensor as our slice."""
        return (value.T if self.inputs else value).reshape(self.shape)

    def rows(self, part: tuple[slice, ...]) -> tuple[int, int]:
        """First and last + 1 of the file's rows that hold a part of our slice."""
        axis = self.inputs or 0
        start, stop, _ = part[axis].indices(self.shape[axis])
        each = self.stored_shape[0] // self.shape[axis]
        return start * each, stop * each

    def from_rows(self, value: np.ndarray, part: tuple[slice, ...]) -> np.ndarray:
        """That part of our slice, from those rows."""
        axis, shape = self.inputs or 0, list(self.shape)
        start, stop, _ = part[axis].indices(shape[axis])
        shape[axis] = stop - start
        whole = (value.T if self.inputs else value).reshape(shape)
        return whole[(*part[:axis], slice(None), *part[axis + 1 :])]


def tensors(config: ModelConfig, state: nnx.State) -> Iterator[Tensor]:
    """All tensors of a checkpoint of this model, in the order of layers."""
    shapes = {path: variable.shape for path, variable in _variables(state).items()}
    for path, (name, inputs) in _TOP.items():
        if path in shapes:
            yield Tensor(name, path, (), shapes[path], inputs)
    for layer in range(config.layers):
        for path, shape in shapes.items():
            if path[0] != "layers":
                continue
            prefix, short = f"model.layers.{layer}.", path[1]
            if short in _LAYER:
                name, inputs = _LAYER[short]
                yield Tensor(prefix + name, path, (layer,), shape[1:], inputs)
            elif not config.experts:
                name = f"{prefix}mlp.{_FEED_FORWARD[short]}"
                yield Tensor(name, path, (layer,), shape[1:], 1)
            else:
                for expert in range(config.experts):
                    name = f"{prefix}mlp.experts.{expert}.{_FEED_FORWARD[short]}"
                    yield Tensor(name, path, (layer, expert), shape[2:], 1)


def read_config(folder: str | os.PathLike) -> ModelConfig:
    """The model of a folder.

    Raises:
      ModelError: no readable ``config.json``, or a model that is not supported.
    """
    file = epath.Path(folder) / "config.json"
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ModelError(f"{file} is missing; {folder} is no model folder") from None
    except ValueError as error:
        raise ModelError(f"{file} is not JSON ({error}); download it again") from None
    try:
        return ModelConfig.from_hf(values)
    except ModelError as error:
        raise ModelError(f"{file}: {error}") from None


def load(
    folder: str | os.PathLike, settings: settings_.Model, mesh: jax.sharding.Mesh | None = None
) -> Transformer:
    """The model in a folder, weights cast to ``settings.parameter_dtype``.

    Each process reads only the rows of those tensors that its devices hold a part of: splits of
    layers, experts, and a matrix's outputs (or words) make it read less; splits of inputs do not,
    as each row of the file has them all.

    Args:
      folder: here, or in a bucket (``gs://...``, with ``pip install gcsfs``).
      mesh: where weights are placed; None is the default device.

    Raises:
      ModelError: the weights do not divide over the mesh, or a file or tensor is missing, damaged,
        unexpected or of the wrong shape.
    """
    config = read_config(folder)
    graph, state = nnx.split(abstract(config, settings))
    source = TensorFolder(epath.Path(folder))
    expected = {tensor.name: tensor for tensor in tensors(config, state)}
    _check(source, expected, config)
    of_slice = {(tensor.path, tensor.index): tensor for tensor in expected.values()}

    def read(path: tuple[str, ...], leading: tuple[int, ...], part: tuple[slice, ...]):
        tensor = of_slice[path, leading]
        return tensor.from_rows(source.read(tensor.name, *tensor.rows(part)), part)

    return nnx.merge(graph, fill(state, read, mesh))


def fill(
    state: nnx.State,
    read: Callable[[tuple[str, ...], tuple[int, ...], tuple[slice, ...]], np.ndarray],
    mesh: jax.sharding.Mesh | None = None,
) -> nnx.State:
    """An abstract state made real on a mesh, in its own dtypes.

    Args:
      read: (path, leading indices, part) -> that part of one (layer, expert) of a parameter.
    """
    placed = {} if mesh is None else _variables(sharding.shardings(state, mesh))
    default = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
    filled = []
    for path, variable in _variables(state).items():
        axes = variable.get_metadata("axes")
        leading = sum(axis in ("layers", "expert") for axis in axes)

        def part(
            index: Any,
            path: tuple[str, ...] = path,
            variable: nnx.Variable = variable,
            leading: int = leading,
        ) -> np.ndarray:
            read_here = functools.partial(read, path)
            return _assemble(read_here, variable.shape, variable.dtype, leading, index)

        place: Any = placed[path].get_value() if placed else default
        value = jax.make_array_from_callback(variable.shape, place, part)
        filled.append((path, variable.replace(value)))
    return nnx.from_flat_state(filled)


def _variables(state: nnx.State) -> dict[tuple[str, ...], nnx.Variable]:
    return {tuple(map(str, path)): variable for path, variable in nnx.to_flat_state(state)}


def _assemble(
    read: Callable[[tuple[int, ...], tuple[slice, ...]], np.ndarray],
    shape: tuple[int, ...],
    dtype: np.dtype,
    leading: int,
    index: tuple[slice, ...],
) -> np.ndarray:
    """The part ``index`` of a parameter, filled slice by slice along its ``leading`` first axes."""
    ranges = [range(*index[axis].indices(shape[axis])) for axis in range(leading)]
    lengths = [len(range(*part.indices(size))) for part, size in zip(index, shape, strict=True)]
    whole = np.empty(lengths, dtype)
    for at in itertools.product(*(range(len(r)) for r in ranges)):
        first = tuple(r[i] for r, i in zip(ranges, at, strict=True))
        whole[at] = read(first, index[leading:])
    return whole


def _check(source: TensorFolder, expected: dict[str, Tensor], config: ModelConfig) -> None:
    """Raises ModelError unless every tensor exists in its shape, and no other does."""
    for tensor in expected.values():
        if tensor.name not in source.file_of:
            raise ModelError(
                f"{source.folder}: tensor {tensor.name} of shape {tensor.stored_shape} is missing; "
                "config.json and weights do not belong together, or the download is incomplete"
            )
        shape = source.shape(tensor.name)
        if shape != tensor.stored_shape:
            raise ModelError(
                f"{source.place(tensor.name)}: tensor {tensor.name} has shape {shape}, config.json "
                f"asks for {tensor.stored_shape}; they do not belong together"
            )
    for name in source.file_of:
        implied = name.endswith(_IMPLIED_SUFFIXES) or (config.tied and name == "lm_head.weight")
        if name not in expected and not implied:
            raise ModelError(
                f"{source.place(name)}: tensor {name} has no place in a {config.model_type} "
                "with this config.json; they do not belong together"
            )


def save(
    folder: str | os.PathLike,
    config: ModelConfig,
    params: nnx.State,
    tokenizer: Any = None,
    dtype: str = "",
    shard_bytes: int = 5_000_000_000,
    group: Group | None = None,
) -> None:
    """Writes a folder that transformers, SGLang and :func:`load` read; complete or not at all.

    Args:
      params: the state of a :class:`Transformer`, every array addressable by this process or, with
        a group, laid out over the devices of its processes.
      tokenizer: a ``PreTrainedTokenizerFast``, chat template included, or None.
      dtype: dtype of the file; empty keeps that of the parameters.
      shard_bytes: largest file, unless one tensor is larger; with a group also at most each
        process's share.
      group: the processes that all call this and see ``folder``. Files are dealt out and written
        at the same time; the first process adds what belongs to all and gives the folder its name.

    Raises:
      ModelError: the folder exists.
      Exception: another process of the group failed.
    """
    folder, group = pathlib.Path(folder), group or Single()
    first = group.index == 0

    def made() -> str:
        if not first:
            return ""
        if folder.exists():
            raise ModelError(f"{folder} exists; name a new folder or remove it")
        folder.parent.mkdir(parents=True, exist_ok=True)
        return tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent)

    def finish() -> None:
        if not first:
            return
        held = dtype or str(params["embedding"].dtype)
        _write_json(unfinished / "config.json", {**config.to_hf(), "torch_dtype": held})
        _write_json(unfinished / "generation_config.json", _generation_config(config))
        if tokenizer is not None:
            tokenizer.save_pretrained(unfinished)
        unfinished.chmod(0o755)
        unfinished.rename(folder)

    unfinished = pathlib.Path(in_all(group, "the folder of weights", made)[0])
    try:
        in_all(
            group,
            "weights",
            lambda: _write_weights(unfinished, config, params, dtype, shard_bytes, group),
        )
        in_all(group, "the name of the folder of weights", finish)
    except BaseException:
        if first:
            shutil.rmtree(unfinished, ignore_errors=True)
        raise


def with_tokens(config: ModelConfig, tokenizer: Any) -> ModelConfig:
    """The config with special ids that it leaves open taken from the tokenizer."""
    if tokenizer is None:
        return config
    eos = () if tokenizer.eos_token_id is None else (tokenizer.eos_token_id,)
    return dataclasses.replace(
        config,
        bos_token=tokenizer.bos_token_id if config.bos_token is None else config.bos_token,
        eos_tokens=config.eos_tokens or eos,
        pad_token=tokenizer.pad_token_id if config.pad_token is None else config.pad_token,
    )


def _shards(every: list[Tensor], sizes: list[int], limit: int) -> dict[str, list[Tensor]]:
    """File name -> what it holds, ``limit`` bytes at most unless one tensor is larger."""
    shards: list[list[Tensor]] = [[]]
    filled = 0
    for tensor, size in zip(every, sizes, strict=True):
        if shards[-1] and filled + size > limit:
            shards.append([])
            filled = 0
        shards[-1].append(tensor)
        filled += size
    if len(shards) == 1:
        return {SINGLE: shards[0]}
    return {
        f"model-{number:05d}-of-{len(shards):05d}.safetensors": shard
        for number, shard in enumerate(shards, 1)
    }


def _write_weights(
    folder: pathlib.Path,
    config: ModelConfig,
    params: nnx.State,
    dtype: str,
    shard_bytes: int,
    group: Group,
) -> None:
    """This process's files, and the first one's index. A file is written while the next is read."""
    variables, every = _variables(params), list(tensors(config, params))
    kept = {path: jax.numpy.dtype(dtype or value.dtype) for path, value in variables.items()}
    sizes = [math.prod(tensor.shape) * kept[tensor.path].itemsize for tensor in every]
    share = -(-sum(sizes) // group.count)
    shards = _shards(every, sizes, shard_bytes if group.count == 1 else min(shard_bytes, share))
    if group.index == 0 and len(shards) > 1:
        file_of = {tensor.name: name for name, shard in shards.items() for tensor in shard}
        index = {"metadata": {"total_size": sum(sizes)}, "weight_map": file_of}
        _write_json(folder / INDEX, index)
    whole = _Whole(variables)
    writing: list[concurrent.futures.Future[None]] = []
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        for number, (name, shard) in enumerate(shards.items()):
            mine = number % group.count == group.index
            values = {}
            for tensor in shard:
                value = whole(tensor)  # all processes come here, even if they could not write
                if mine:
                    stored = tensor.to_stored(np.asarray(value).astype(kept[tensor.path]))
                    values[tensor.name] = stored
            if mine:
                concurrent.futures.wait(writing)
                writing.append(thread.submit(_write_file, folder / name, values))
    for file in writing:
        file.result()


class _Whole:
    """(layer, expert) slices of parameters, whole in this process; it takes all to ask for one."""

    def __init__(self, variables: dict[tuple[str, ...], nnx.Variable]):
        self._variables = variables
        self._read: tuple[Any, Any] = None, None  # experts of a layer are gathered together

    def __call__(self, tensor: Tensor) -> Any:
        x: Any = self._variables[tensor.path][...]
        if x.is_fully_addressable:
            return x[tensor.index]
        layer, rest = tensor.index[:1], tensor.index[1:]
        if self._read[0] != (tensor.path, layer):
            gathered = _gathered(x.sharding.mesh, x, *layer)
            self._read = (tensor.path, layer), gathered.addressable_data(0)
        return self._read[1][rest]


@functools.partial(jax.jit, static_argnums=0)
def _gathered(mesh: jax.sharding.Mesh, x: jax.Array, *layer: int) -> jax.Array:
    """``x``, or one layer of it, on every device."""
    part = jax.lax.dynamic_index_in_dim(x, *layer, keepdims=False) if layer else x
    everywhere = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    return jax.lax.with_sharding_constraint(part, everywhere)


def _write_file(path: pathlib.Path, values: dict[str, np.ndarray]) -> None:
    safetensors.numpy.save_file(values, path, metadata={"format": "pt"})
    path.chmod(0o644)  # made for its owner alone; the servers that read it may be somebody else


def _generation_config(config: ModelConfig) -> dict[str, Any]:
    values = {key: config.to_hf()[key] for key in ("bos_token_id", "eos_token_id", "pad_token_id")}
    return {key: value for key, value in values.items() if value is not None}


def _write_json(file: pathlib.Path, values: dict[str, Any]) -> None:
    file.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
