"""Compose a config of the Hydra tree into a plain dataclass; whatever is wrong becomes one line."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, TypeVar, get_origin, get_type_hints

from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from wearllama.paths import CONF_DIR
from wearllama_launch.schema import LaunchError, build, defaults_of, did_you_mean

SchemaT = TypeVar("SchemaT")


def compose_config(
    name: str, schema: type[SchemaT], overrides: Sequence[str] = (), config_dir: Path = CONF_DIR
) -> tuple[SchemaT, dict[str, Any]]:
    """Compose conf/`name`.yaml with Hydra `overrides`; returns the dataclass and the same values as a plain dict.

    The dataclass' defaults are stored as config ``schema``, so `name`.yaml starts with ``defaults: [schema, ...]`` and
    every field can be overridden whether or not the YAML mentions it. Raises LaunchError (one line) for an unknown
    key, group or choice, a value of the wrong type and a required value that is missing.
    """
    plain = compose_plain(name, schema, overrides, config_dir)
    return build(schema, plain), plain


def compose_plain(
    name: str, schema: type, overrides: Sequence[str] = (), config_dir: Path = CONF_DIR
) -> dict[str, Any]:
    """The values of `compose_config` before they are checked; a required one that is not given is ``???``."""
    try:
        composed = _compose(name, schema, overrides, config_dir)
        plain = OmegaConf.to_container(composed, resolve=True)
    except (HydraException, OmegaConfBaseException) as error:
        raise LaunchError(_explain(error, name, schema, overrides, config_dir)) from None
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}


def _compose(name: str, schema: type, overrides: Sequence[str], config_dir: Path) -> Any:
    if not (config_dir / f"{name}.yaml").is_file():
        if not config_dir.is_dir():
            raise LaunchError(
                f"no configuration at {config_dir}: run from a clone, or install a wheel that `pip wheel .` built there"
            )
        known = [path.stem for path in config_dir.glob("*.yaml")]
        raise LaunchError(f"no config {name!r} in {config_dir}{did_you_mean(name, known)}")
    ConfigStore.instance().store(name="schema", node=defaults_of(schema))
    GlobalHydra.instance().clear()
    values = [text for text in overrides if _is_value(text, schema, config_dir)]
    with initialize_config_dir(config_dir=str(config_dir.resolve()), version_base="1.3"):
        chosen = [_with_new_keys(text, schema) for text in overrides if text not in values]
        composed = compose(config_name=name, overrides=chosen)
    for text in values:
        override = OverridesParser.create().parse_override(text)
        OmegaConf.update(composed, override.key_or_group, override.value())
    return composed


def _with_new_keys(text: str, schema: type) -> str:
    """``++key=value`` for what is in a mapping: its keys are free, which Hydra wants said; ``build`` checks values."""
    hint: Any = schema
    for part in text.split("=", 1)[0].split("."):
        if is_dataclass(hint) and isinstance(hint, type):
            hint = get_type_hints(hint).get(part)
    is_mapping = hint is dict or get_origin(hint) is dict
    return f"++{text}" if is_mapping and not text.startswith(("+", "~")) else text


def _is_value(text: str, schema: type, config_dir: Path) -> bool:
    """Whether ``key=value`` sets a plain field that shares its name with a folder of conf/.

    Hydra takes every such key for the choice of a group: ``data=PATH`` would look for conf/data/PATH.yaml.
    """
    key = text.split("=", 1)[0]
    field = get_type_hints(schema).get(key)
    return "=" in text and field is not None and not is_dataclass(field) and (config_dir / key).is_dir()


def _explain(error: Exception, name: str, schema: type, overrides: Sequence[str], config_dir: Path) -> str:
    first = " ".join(line.strip() for line in str(error).splitlines()[:1]) or type(error).__name__
    for text in overrides:
        try:
            override = OverridesParser.create().parse_override(text)
        except HydraException:
            return f"cannot read {text!r}: wanted key=value (quote values with '=' or commas: key=\"'a=b'\")"
        key = override.key_or_group
        group = config_dir / key
        if group.is_dir() and not _is_value(text, schema, config_dir):
            choices = [path.stem for path in group.glob("*.yaml")]
            if isinstance(override.value(), str) and override.value() not in choices:
                return f"no {key} {override.value()!r} in conf/{key}/{did_you_mean(str(override.value()), choices)}"
    unknown = re.search(r"(?:Could not override|Key|Could not find) '([^']+)'", str(error))
    if unknown:
        known = list(_known_keys(name, schema, overrides, config_dir))
        key = _full_key(unknown.group(1), overrides)
        return f"unknown key {key!r}{did_you_mean(key, known)}"
    return first


def _full_key(key: str, overrides: Sequence[str]) -> str:
    typed = [text.lstrip("+~").split("=", 1)[0] for text in overrides]
    return next((text for text in typed if text == key or text.endswith(f".{key}")), key)


def _known_keys(name: str, schema: type, overrides: Sequence[str], config_dir: Path) -> Iterator[str]:
    """Dotted keys of the config with its right group choices, and the groups themselves."""
    yield from (path.name for path in config_dir.iterdir() if path.is_dir())
    groups = [text for text in overrides if (config_dir / text.split("=", 1)[0]).is_dir()]
    try:
        plain = OmegaConf.to_container(_compose(name, schema, groups, config_dir), resolve=False)
    except (HydraException, OmegaConfBaseException):
        plain = defaults_of(schema)
    yield from _flatten(plain, "")


def _flatten(value: Any, prefix: str) -> Iterator[str]:
    if prefix:
        yield prefix
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _flatten(item, f"{prefix}.{name}" if prefix else str(name))
