"""Weights are read from buckets too, and only those rows that are wanted."""

import json
import pathlib

import fsspec
import jax
import numpy as np
import pytest
import safetensors.numpy
from etils import epath
from flax import nnx
from fsspec.implementations.local import LocalFileOpener, LocalFileSystem
from test_loading import ARCHITECTURE, leaves

from spade_jax import config as settings_
from spade_jax.models import huggingface, loading
from spade_jax.models.config import ModelError
from spade_jax.models.tensor_files import TensorFile

SPLIT = ("heads", "kv_heads", "vocabulary", "expert")


class Bucket(LocalFileSystem):
    """Google Cloud Storage as far as epath uses it: folders of a local one, and a count."""

    protocol = ("gcs", "gs")
    cachable = False
    root = ""
    bytes_read = 0

    @classmethod
    def _strip_protocol(cls, path):
        path = str(path)
        if path.startswith(("gs://", "gcs://")):
            name = "/" + path.partition("://")[2].lstrip("/")
            path = name if name.startswith(cls.root) else cls.root + name  # what glob gives
        return super()._strip_protocol(path)

    def open(self, path, mode="rb", **options):
        file = super().open(path, mode=mode, **options)
        if isinstance(file, LocalFileOpener):
            read = file.f.read
            opened = file

            class Counted:
                def __getattr__(self, name):
                    return getattr(opened, name)

                def __enter__(self):
                    return self

                def __exit__(self, *_):
                    opened.close()

                def read(self, size=-1):
                    data = read(size)
                    Bucket.bytes_read += len(data)
                    return data

            return Counted()
        return file


@pytest.fixture
def bucket(tmp_path, monkeypatch):
    """A folder that is gs://weights."""
    (tmp_path / "weights").mkdir()
    monkeypatch.setattr(Bucket, "root", str(tmp_path))
    monkeypatch.setattr(Bucket, "bytes_read", 0)
    fsspec.register_implementation("gcs", Bucket, clobber=True)
    epath.backend.fsspec_backend._get_filesystem.cache_clear()
    yield tmp_path / "weights"
    epath.backend.fsspec_backend._get_filesystem.cache_clear()


def test_a_bucket_gives_model_and_tokenizer(bucket, byte_tokenizer):
    settings = settings_.Model(architecture={**ARCHITECTURE, "vocab_size": 259})
    model, _ = loading.load(settings, 0)
    huggingface.save(bucket / "m", model.config, nnx.state(model), byte_tokenizer, shard_bytes=9999)
    again, tokenizer = loading.load(settings_.Model(source="gs://weights/m"), 1)
    for a, b in zip(leaves(again), leaves(model), strict=True):
        np.testing.assert_array_equal(a, b)
    assert tokenizer.chat_template == byte_tokenizer.chat_template
    assert tokenizer("Say it.").input_ids == byte_tokenizer("Say it.").input_ids
    assert Bucket.bytes_read > 0
    with pytest.raises(ModelError, match=r"gs://weights/none.*is no folder"):
        loading.load(settings_.Model(source="gs://weights/none"), 0)


def test_one_of_eight_reads_an_eighth(bucket, monkeypatch):
    """Rows of every matrix but one split eight ways; that one has them split by experts."""
    wide = {**ARCHITECTURE, "num_key_value_heads": 8, "num_attention_heads": 8, "num_experts": 8}
    model, _ = loading.load(settings_.Model(architecture=wide), 0)
    huggingface.save(bucket / "m", model.config, nnx.state(model))
    state = {tuple(path): x for path, x in nnx.to_flat_state(nnx.state(model))}
    order = iter(state.values())

    def ours(shape, sharding, read):
        """Of eight processes, what the last one does."""
        original = next(order)
        part = tuple(
            slice(n - n // 8, n) if axis in SPLIT else slice(None)
            for n, axis in zip(shape, original.get_metadata("axes"), strict=True)
        )
        np.testing.assert_array_equal(read(part), np.asarray(original[...])[part])
        return jax.numpy.zeros(shape)

    monkeypatch.setattr(jax, "make_array_from_callback", ours)
    huggingface.load("gs://weights/m", settings_.Model())
    header = int.from_bytes((bucket / "m" / "model.safetensors").read_bytes()[:8], "little")
    everything = sum(x.nbytes for x in leaves(model))
    whole = sum(  # norms and the router are everywhere; o's rows are its inputs' columns
        x.nbytes for path, x in state.items() if path[-1] in ("o", "router") or "norm" in path[-1]
    )
    config = (bucket / "m" / "config.json").stat().st_size
    assert Bucket.bytes_read == 8 + header + config + whole + (everything - whole) / 8


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_rows_equal_what_safetensors_reads(tmp_path, dtype):
    values = {
        name: np.random.default_rng(0).normal(size=shape).astype(jax.numpy.dtype(dtype))
        for name, shape in {"a": (7, 5), "b": (6,), "c": (4, 2, 3)}.items()
    }
    safetensors.numpy.save_file(values, tmp_path / "x.safetensors")
    file = TensorFile(epath.Path(tmp_path / "x.safetensors"))
    assert sorted(file.names) == sorted(values)
    for name, value in values.items():
        assert file.shape(name) == value.shape
        np.testing.assert_array_equal(file.read(name, 1, 4), value[1:4])
        assert file.read(name, 1, 4).dtype == value.dtype


def damaged(path: pathlib.Path, how):
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header, rest = json.loads(content[8 : 8 + length]), content[8 + length :]
    path.write_bytes(how(header, content, rest))


@pytest.mark.parametrize(
    "how",
    [
        lambda header, content, rest: b"",
        lambda header, content, rest: content[:20],
        lambda header, content, rest: content[:-1],
        lambda header, content, rest: content + b"\0",
        lambda header, content, rest: content[:8] + b"{" * (len(content) - 8),
    ],
)
def test_damage_is_named(tmp_path, how):
    path = tmp_path / "x.safetensors"
    safetensors.numpy.save_file({"a": np.ones((3, 2), np.float32)}, path)
    damaged(path, how)
    with pytest.raises(ModelError, match=r"x\.safetensors cannot be read .*download it again"):
        TensorFile(epath.Path(path))


def test_integers_are_no_weights(tmp_path):
    safetensors.numpy.save_file({"a": np.ones((3, 2), np.int32)}, tmp_path / "x.safetensors")
    with pytest.raises(ModelError, match="a is I32"):
        TensorFile(epath.Path(tmp_path / "x.safetensors")).read("a", 0, 1)
