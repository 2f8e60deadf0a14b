"""Settings: one frozen dataclass per component, one TOML table each.

A value comes from the flag, else the environment (RANKER_<TABLE>_<KEY>), else the file, else the default.
"""

from __future__ import annotations

import dataclasses
import os
import sys
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from ranker.errors import ConfigError, nearest

if sys.version_info >= (3, 11):
    import tomllib
else:  # pragma: no cover - the same parser under its older name
    import tomli as tomllib

T = TypeVar("T")


def read_toml(path: Path) -> dict[str, Any]:
    """A TOML file's tables. Raises ConfigError where it is missing or malformed."""
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"no such file: {path}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from error


def settings(
    cls: type[T],
    table: str,
    *,
    file: Path | None = None,
    flags: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
) -> T:
    """An instance of the settings dataclass `cls`, whose TOML table is called `table`.

    `flags` that are None count as not given; a missing `file` as empty.
    """
    found: dict[str, Any] = {}
    if file is not None and file.is_file():
        found = read_toml(file).get(table, {})
        if not isinstance(found, dict):
            raise ConfigError(f"[{table}] in {file} must be a table")
    values = _values(cls, found, source=f"[{table}] in {file}")
    environ = os.environ if environ is None else environ
    for name, kind in _fields(cls).items():
        variable = f"RANKER_{table}_{name}".upper().replace(".", "_")
        if variable in environ:
            values[name] = _from_text(environ[variable], kind, variable)
    given = {name: value for name, value in (flags or {}).items() if value is not None}
    values |= _values(cls, given, source=f"the flags of {table}")
    return _built(cls, values, source=f"the settings of {table}")


def from_table(cls: type[T], table: Mapping[str, Any], *, source: str) -> T:
    """Build a settings dataclass from a TOML table, refusing unknown keys and wrong types."""
    return _built(cls, _values(cls, table, source=source), source=source)


def _values(cls: type[Any], table: Mapping[str, Any], *, source: str) -> dict[str, Any]:
    """The table's values by field name, each of the field's type."""
    fields = _fields(cls)
    values: dict[str, Any] = {}
    for key, value in table.items():
        if key not in fields:
            near = nearest(key, fields)
            hint = f"Did you mean {near!r}?" if near else f"Known keys: {', '.join(fields)}"
            raise ConfigError(f"unknown key {key!r} in {source}", fix=hint)
        values[key] = _checked(value, fields[key], f"{key!r} in {source}")
    return values


def _built(cls: type[T], values: Mapping[str, Any], *, source: str) -> T:
    try:
        return cls(**values)
    except TypeError as error:
        raise ConfigError(f"{source}: {error}") from error


def _fields(cls: type[Any]) -> dict[str, Any]:
    hints = typing.get_type_hints(cls)
    return {field.name: hints[field.name] for field in dataclasses.fields(cls)}


def _checked(value: Any, kind: Any, where: str) -> Any:
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in args:
            return None
        for arg in args:
            try:
                return _checked(value, arg, where)
            except ConfigError:
                continue
    elif origin is typing.Literal:
        if any(value == arg and type(value) is type(arg) for arg in args):
            return value
        raise ConfigError(f"{where} must be one of {', '.join(map(repr, args))}, not {value!r}")
    elif origin is tuple and isinstance(value, list | tuple):
        kinds = args[:1] * len(value) if args[-1] is ... else args
        if len(kinds) != len(value):
            raise ConfigError(f"{where} must have {len(kinds)} values, not {len(value)}")
        return tuple(_checked(item, kind, where) for item, kind in zip(value, kinds, strict=True))
    elif kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    elif kind is Path and isinstance(value, str):
        return Path(value).expanduser()
    elif isinstance(kind, type) and isinstance(value, kind) and not (kind is int and isinstance(value, bool)):
        return value
    elif dataclasses.is_dataclass(kind) and isinstance(value, Mapping):
        return from_table(kind, value, source=where)  # type: ignore[arg-type] # a dataclass type, as just checked
    raise ConfigError(f"{where} must be {getattr(kind, '__name__', kind)}, not {value!r}")


def _from_text(text: str, kind: Any, where: str) -> Any:
    """An environment variable's text as TOML would read it, else as plain text."""
    try:
        return _checked(tomllib.loads(f"v = {text}")["v"], kind, where)
    except (tomllib.TOMLDecodeError, ConfigError):
        return _checked(text, kind, where)
