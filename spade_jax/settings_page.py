"""Every setting as a Markdown page: ``python -m spade_jax.settings_page > docs/configs.md``."""

import dataclasses
import typing
from collections.abc import Iterator
from typing import Any

from spade_jax import config

INTRODUCTION = """# Settings

Generated from `spade_jax/config.py` by `python -m spade_jax.settings_page`. The files of `configs/`
start from these defaults and change some; the command line changes more:
`--config.learner.learning_rate=1e-5`. Their docstrings give command, topology and what to expect.
"""


def page() -> str:
    """The whole page; the settings that stand alone come first, then a section each."""
    parts = [INTRODUCTION, *_table(config.Config, "")]
    for field in dataclasses.fields(config.Config):
        if dataclasses.is_dataclass(field.type):
            parts += [f"\n## {field.name}\n"]
            parts += _table(typing.cast(type, field.type), f"{field.name}.")
    return "\n".join(parts) + "\n"


def _table(section: type, prefix: str) -> Iterator[str]:
    yield "| setting | default | meaning |\n|---|---|---|"
    for field in dataclasses.fields(section):
        if not dataclasses.is_dataclass(field.type):
            meaning = field.metadata["meaning"].replace("|", r"\|")
            yield f"| `{prefix}{field.name}` | `{_default(field)!r}` | {meaning} |"


def _default(field: dataclasses.Field) -> Any:
    if field.default is dataclasses.MISSING:
        return typing.cast(typing.Any, field.default_factory)()
    return field.default


if __name__ == "__main__":
    print(page(), end="")
