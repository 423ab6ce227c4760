"""Plain dataclasses as config schemas: their defaults as a dict, and a checked dataclass from a dict.

OmegaConf's own structured configs refuse ``Literal`` and turn tuples into lists, so the (small) conversion lives here.
"""

import dataclasses
import difflib
import types
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

REQUIRED = "???"
"""Marks a value that has no default, as in Hydra."""


class LaunchError(ValueError):
    """What the person who typed the command can mend; printed as one line."""


def nearest(wanted: str, known: Iterable[str]) -> str | None:
    """The known name closest to `wanted`; dotted keys also match by their last part. None when nothing is near."""
    names = sorted(set(known))
    for cutoff in (0.8, 0.6):
        if close := difflib.get_close_matches(wanted, names, n=1, cutoff=cutoff):
            return close[0]
        leaf = wanted.rpartition(".")[2]
        leaves = {name.rpartition(".")[2]: name for name in reversed(names)}
        if close := difflib.get_close_matches(leaf, sorted(leaves), n=1, cutoff=cutoff):
            return leaves[close[0]]
    return None


def did_you_mean(wanted: str, known: Iterable[str]) -> str:
    """``; did you mean 'x'?`` or the known names."""
    names = sorted(set(known))
    match = nearest(wanted, names)
    if match is not None:
        return f"; did you mean {match!r}?"
    return f"; known: {', '.join(names[:12])}{', ...' if len(names) > 12 else ''}"


def defaults_of(schema: type) -> dict[str, Any]:
    """The defaults of a dataclass as nested plain values; a field without one is ``???``."""
    hints = get_type_hints(schema)
    values: dict[str, Any] = {}
    for item in dataclasses.fields(schema):
        if not item.init:
            continue
        if item.default is not dataclasses.MISSING:
            values[item.name] = _plain(item.default)
        elif dataclasses.is_dataclass(hints[item.name]) and item.default_factory in (
            dataclasses.MISSING, hints[item.name],
        ):  # fmt: skip
            values[item.name] = defaults_of(hints[item.name])
        elif item.default_factory is not dataclasses.MISSING:
            values[item.name] = _plain(item.default_factory())
        else:
            values[item.name] = REQUIRED
    return values


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value) if f.init}
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def build(schema: Any, value: Any, key: str = "") -> Any:
    """Build `schema` (a dataclass or any annotation) from plain values; LaunchError names the key, found and wanted."""
    if value == REQUIRED and isinstance(value, str):
        raise LaunchError(f"{key} is required: give {key}=...")
    if dataclasses.is_dataclass(schema) and isinstance(schema, type):
        return _build_dataclass(schema, value, key)
    origin, args = get_origin(schema), get_args(schema)
    if schema is Any:
        return value
    if origin is Literal:
        if value in args:
            return value
        raise LaunchError(f"{key} is {value!r}, wanted one of {', '.join(map(str, args))}{_hint(value, args)}")
    if origin in (Union, types.UnionType):
        return _build_union(args, value, key)
    if origin in (list, tuple, set, frozenset):
        return _build_sequence(origin, args, value, key)
    if origin is dict or schema is dict:
        if not isinstance(value, dict):
            raise _wrong(key, value, "a mapping")
        item_type = args[1] if args else Any
        return {name: build(item_type, item, f"{key}.{name}") for name, item in value.items()}
    return _build_scalar(schema, value, key)


def _build_dataclass(schema: type, value: Any, key: str) -> Any:
    if isinstance(value, schema):
        return value
    if not isinstance(value, dict):
        raise _wrong(key, value, f"the fields of {schema.__name__}")
    hints = get_type_hints(schema)
    known = [item.name for item in dataclasses.fields(schema) if item.init]
    prefix = f"{key}." if key else ""
    for name in value:
        if name not in known:
            raise LaunchError(f"unknown key {prefix + str(name)!r}{did_you_mean(str(name), known)}")
    return schema(**{name: build(hints[name], item, prefix + name) for name, item in value.items()})


def _build_union(options: tuple[Any, ...], value: Any, key: str) -> Any:
    if value is None and type(None) in options:
        return None
    errors: list[LaunchError] = []
    exact = [option for option in options if isinstance(option, type) and type(value) is option]
    for option in exact or [option for option in options if option is not type(None)]:
        try:
            return build(option, value, key)
        except LaunchError as error:
            errors.append(error)
    raise errors[0]


def _build_sequence(origin: type, args: tuple[Any, ...], value: Any, key: str) -> Any:
    if not isinstance(value, (list, tuple)):
        raise _wrong(key, value, "a list")
    if origin is tuple and args and args[-1] is not Ellipsis:
        if len(args) != len(value):
            raise LaunchError(f"{key} has {len(value)} values, wanted {len(args)}")
        return tuple(build(kind, item, f"{key}[{i}]") for i, (kind, item) in enumerate(zip(args, value, strict=True)))
    kind = args[0] if args else Any
    return origin(build(kind, item, f"{key}[{i}]") for i, item in enumerate(value))


def _build_scalar(schema: Any, value: Any, key: str) -> Any:
    if schema is float and isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    if schema is float and isinstance(value, str):  # YAML reads 1e-3 as text
        try:
            return float(value)
        except ValueError:
            raise _wrong(key, value, "a number") from None
    if schema is Path and isinstance(value, str):
        return Path(value)
    if schema is str and isinstance(value, (int, float)) and not isinstance(value, bool):
        return str(value)
    if schema is bool and type(value) is int and value in (0, 1):  # fast=1
        return bool(value)
    wrong_bool = schema is int and isinstance(value, bool)
    if isinstance(schema, type) and isinstance(value, schema) and not wrong_bool:
        return value
    raise _wrong(key, value, {int: "a whole number", bool: "true or false", str: "text"}.get(schema, str(schema)))


def _wrong(key: str, value: Any, wanted: str) -> LaunchError:
    return LaunchError(f"{key} is {value!r}, wanted {wanted}")


def _hint(value: Any, args: tuple[Any, ...]) -> str:
    match = nearest(str(value), [str(arg) for arg in args])
    return f"; did you mean {match!r}?" if match else ""
