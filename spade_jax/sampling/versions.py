"""Versions of the policy on disk, for servers to load."""

import dataclasses
import secrets
import shutil
from pathlib import Path
from typing import Any

from flax import nnx

from spade_jax.models import huggingface
from spade_jax.models.config import ModelConfig
from spade_jax.models.group import Group, Single

KEPT = 2
"""Folders that stay: a server may still be reading the one before the newest."""


@dataclasses.dataclass(frozen=True)
class Version:
    """One version of the weights.

    Attributes:
      number: its number in the run.
      label: its name at the servers, unlike that of any other process's versions.
      path: its folder as servers see it.
      bytes: size of the folder; of several processes the first one knows.
    """

    number: int
    label: str
    path: str
    bytes: int


class Versions:
    """Writes versions as Hugging Face folders, complete or not at all; keeps the newest two.

    All processes of a group write each version together.

    Args:
      folder: of this run alone; what earlier processes left there is removed.
      seen_as: the same folder as servers see it; empty = by the same path.
      dtype: of the files.
    """

    def __init__(
        self,
        folder: Path,
        seen_as: str,
        config: ModelConfig,
        tokenizer: Any,
        dtype: str,
        group: Group | None = None,
    ):
        self._group = group or Single()
        self._folder = folder.absolute()
        self._seen_as = seen_as or str(self._folder)
        # SGLang's Qwen3-MoE (0.5.23) does not tie: without a head of its own its logits are all 0.
        self._untie = config.tied and bool(config.experts)
        known = huggingface.with_tokens(config, tokenizer)
        self._config = dataclasses.replace(known, tied=config.tied and not self._untie)
        self._tokenizer, self._dtype = tokenizer, dtype
        # A run that is killed and continued makes other weights under the same number.
        self._start = self._group.gather("the name of this start", secrets.token_hex(4))[0]
        self._written: list[Path] = []

    def write(self, params: nnx.State, number: int) -> Version:
        """Writes ``params`` and drops what is too old.

        Raises:
          ModelError: this number was written before.
          Exception: another process could not write its part.
        """
        folder = self._folder / self.label(number)
        if self._untie:
            head = (("output",), params["embedding"])
            params = nnx.from_flat_state([*nnx.to_flat_state(params), head])
        parts = self._config, params, self._tokenizer, self._dtype
        huggingface.save(folder, *parts, group=self._group)
        size = self._tidy(folder) if self._group.index == 0 else 0
        return Version(number, folder.name, f"{self._seen_as.rstrip('/')}/{folder.name}", size)

    def label(self, number: int) -> str:
        """Label of a version of this start of the run."""
        return f"version-{number:06d}-{self._start}"

    def _tidy(self, folder: Path) -> int:
        """Removes all but the newest versions; size of this one."""
        self._written = [*self._written, folder][-KEPT:]
        for path in [*self._folder.glob("version-*"), *self._folder.glob(".version-*")]:
            if path not in self._written:
                shutil.rmtree(path)
        return sum(file.stat().st_size for file in folder.iterdir())
