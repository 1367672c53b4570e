"""Nested frozen dataclasses of settings: read from nested dictionaries, named, compared."""

import dataclasses
import difflib
import typing
from collections.abc import Mapping
from typing import Any


class ConfigError(ValueError):
    """A setting that cannot be used: the message names the key, the reason and the remedy."""


def differences(old: Mapping, new: Mapping, prefix: str = "") -> list[tuple[str, Any, Any]]:
    """(dotted name, old value, new value) of every setting in which two dictionaries differ."""
    found: list[tuple[str, Any, Any]] = []
    for key in sorted(old.keys() | new.keys()):
        before, after = old.get(key), new.get(key)
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            found += differences(before, after, f"{prefix}{key}.")
        elif before != after:
            found.append((prefix + key, before, after))
    return found


def require_known(name: str, section: type) -> None:
    """Raises ConfigError, with the nearest name, if ``section`` has no setting or part ``name``."""
    names = setting_names(section)
    if name in names or any(known.startswith(name + ".") for known in names):
        return
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.0)[0]
    raise ConfigError(f"config.{name}: no such setting; did you mean config.{near}?")


def setting_names(section: type, prefix: str = "") -> list[str]:
    """Dotted names of all settings, for messages."""
    names = []
    for field in dataclasses.fields(section):
        name = prefix + field.name
        if dataclasses.is_dataclass(field.type):
            names += setting_names(typing.cast(type, field.type), name + ".")
        else:
            names.append(name)
    return names


def build(section: type, values: Mapping) -> Any:
    """An instance of ``section``; what ``values`` lacks takes its default.

    Raises:
      ConfigError: unknown key or wrong type.
    """
    return _build(section, values, "", section)


def _build(section: type, values: Mapping, prefix: str, root: type) -> Any:
    fields = {field.name: field for field in dataclasses.fields(section)}
    for key in values:
        if key not in fields:
            require_known(prefix + key, root)
    built = {
        key: _convert(fields[key].type, value, prefix + key, root) for key, value in values.items()
    }
    return section(**built)


def _convert(kind: Any, value: Any, name: str, root: type) -> Any:
    if dataclasses.is_dataclass(kind):
        if not isinstance(value, Mapping):
            raise ConfigError(f"config.{name}: is a section of settings, got {value!r}")
        return _build(typing.cast(type, kind), value, name + ".", root)
    if kind is Mapping:
        if not isinstance(value, Mapping):
            raise ConfigError(f"config.{name}: must be a mapping, got {value!r}")
        return dict(value)
    if typing.get_origin(kind) is tuple:
        if isinstance(value, str) or not isinstance(value, tuple | list):
            raise ConfigError(f"config.{name}: must be a tuple, got {value!r}")
        return tuple(_convert(typing.get_args(kind)[0], item, name, root) for item in value)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise ConfigError(f"config.{name}: must be {kind.__name__}, got {value!r}")
    return value
