"""Safetensors files, in a folder here or in a bucket, of which only the rows asked for are read.

The format: eight bytes with the length of a JSON header, the header, which says where after it
each tensor lies, and the tensors (https://huggingface.co/docs/safetensors).
"""

import functools
import json
import math
from typing import Any

import ml_dtypes
import numpy as np
from etils import epath

from spade_jax.models.config import ModelError

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
_DTYPES: dict[str, Any] = {
    "F64": np.float64,
    "F32": np.float32,
    "F16": np.float16,
    "BF16": ml_dtypes.bfloat16,
}


class TensorFile:
    """One file, its header read, its tensors not."""

    def __init__(self, path: epath.Path):
        """
        Raises:
          ModelError: the file is missing, damaged or too short.
        """
        self._path = path
        try:
            size = path.stat().length
            self._file = path.open("rb")
            length = int.from_bytes(self._file.read(8), "little")
            if length > size - 8:
                raise ValueError("its header is cut off")
            self._tensors = json.loads(self._file.read(length))
            self._tensors.pop("__metadata__", None)
            self._start = 8 + length
            ends = [tensor["data_offsets"][1] for tensor in self._tensors.values()]
            if size != self._start + max(ends, default=0):
                raise ValueError(f"it has {size} bytes, its header says {self._start + max(ends)}")
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ModelError(f"{path} cannot be read ({error}); download it again") from None

    @property
    def names(self) -> list[str]:
        return list(self._tensors)

    def shape(self, name: str) -> tuple[int, ...]:
        """
        Raises:
          ModelError: the file has no such tensor.
        """
        if name not in self._tensors:
            raise ModelError(f"{self._path}: {name}: no such tensor; the index names another file")
        return tuple(self._tensors[name]["shape"])

    def read(self, name: str, start: int, stop: int) -> np.ndarray:
        """Rows ``start`` to ``stop`` of a tensor; no other byte of it is read.

        Raises:
          ModelError: a dtype that weights do not have.
        """
        tensor = self._tensors[name]
        if tensor["dtype"] not in _DTYPES:
            raise ModelError(
                f"{self._path}: {name} is {tensor['dtype']}; weights must be one of "
                f"{', '.join(_DTYPES)}"
            )
        dtype = np.dtype(_DTYPES[tensor["dtype"]])
        shape = tensor["shape"]
        row = math.prod(shape[1:]) * dtype.itemsize
        self._file.seek(self._start + tensor["data_offsets"][0] + start * row)
        data = self._file.read((stop - start) * row)
        return np.frombuffer(data, dtype).reshape(stop - start, *shape[1:])


class TensorFolder:
    """The safetensors files of a folder, each opened once."""

    def __init__(self, folder: epath.Path):
        """
        Raises:
          ModelError: it holds no safetensors, or a damaged index.
        """
        self.folder = folder
        index = folder / INDEX
        if index.exists():
            try:
                self.file_of: dict[str, str] = json.loads(index.read_text())["weight_map"]
            except (ValueError, KeyError) as error:
                raise ModelError(f"{index} is damaged ({error!r}); download it again") from None
        elif (folder / SINGLE).exists():
            self.file_of = dict.fromkeys(self._open(SINGLE).names, SINGLE)
        else:
            raise ModelError(
                f"{folder} holds neither {SINGLE} nor {INDEX}; "
                "other formats must be saved as safetensors first"
            )

    @functools.cache  # noqa: B019  (lives as long as its folder is loaded)
    def _open(self, name: str) -> TensorFile:
        return TensorFile(self.folder / name)

    def place(self, name: str) -> epath.Path:
        """The file that holds a tensor."""
        return self.folder / self.file_of[name]

    def shape(self, name: str) -> tuple[int, ...]:
        """Of a tensor as it is stored."""
        return self._open(self.file_of[name]).shape(name)

    def read(self, name: str, start: int, stop: int) -> np.ndarray:
        """Rows of a tensor as it is stored."""
        return self._open(self.file_of[name]).read(name, start, stop)
