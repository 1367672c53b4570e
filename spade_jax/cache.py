"""What runs share on one machine: taught models and compiled programs."""

import os
from pathlib import Path


def folder(name: str) -> Path:
    """``$XDG_CACHE_HOME/spade_jax/name``, or the same under ``~/.cache``. Not created."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "spade_jax" / name
