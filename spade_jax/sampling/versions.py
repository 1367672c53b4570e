"""Versions of the policy on disk, for servers to load."""

import dataclasses
import secrets
import shutil
from pathlib import Path
from typing import Any

from flax import nnx

from spade_jax.models import huggingface
from spade_jax.models.config import ModelConfig

KEPT = 2
"""Folders that stay: a server may still be reading the one before the newest."""


@dataclasses.dataclass(frozen=True)
class Version:
    """One version of the weights.

    Attributes:
      number: its number in the run.
      label: its name at the servers, unlike that of any other process's versions.
      path: its folder as servers see it.
      bytes: size of the folder.
    """

    number: int
    label: str
    path: str
    bytes: int


class Versions:
    """Writes versions as Hugging Face folders, complete or not at all; keeps the newest two.

    Args:
      folder: of this run alone; what earlier processes left there is removed.
      seen_as: the same folder as servers see it; empty = by the same path.
      dtype: of the files.
    """

    def __init__(self, folder: Path, seen_as: str, config: ModelConfig, tokenizer: Any, dtype: str):
        self._folder = folder.absolute()
        self._seen_as = seen_as or str(self._folder)
        # SGLang's Qwen3-MoE (0.5.23) does not tie: without a head of its own its logits are all 0.
        self._untie = config.tied and bool(config.experts)
        known = huggingface.with_tokens(config, tokenizer)
        self._config = dataclasses.replace(known, tied=config.tied and not self._untie)
        self._tokenizer, self._dtype = tokenizer, dtype
        # A run that is killed and continued makes other weights under the same number.
        self._process = secrets.token_hex(4)
        self._written: list[Path] = []

    def write(self, params: nnx.State, number: int) -> Version:
        """Writes ``params``, arrays that this process can address, and drops what is too old.

        Raises:
          ModelError: this number was written before.
        """
        label = f"version-{number:06d}-{self._process}"
        folder = self._folder / label
        if self._untie:
            head = (("output",), params["embedding"])
            params = nnx.from_flat_state([*nnx.to_flat_state(params), head])
        huggingface.save(folder, self._config, params, self._tokenizer, self._dtype)
        self._written = [*self._written, folder][-KEPT:]
        for path in [*self._folder.glob("version-*"), *self._folder.glob(".version-*")]:
            if path not in self._written:
                shutil.rmtree(path)
        size = sum(file.stat().st_size for file in folder.iterdir())
        return Version(number, label, f"{self._seen_as.rstrip('/')}/{label}", size)
