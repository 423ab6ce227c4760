"""Tool schemas from anywhere: OpenAI's functions, JSON Schema, or this project's shape, as :class:`ToolSpec`."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wearllama.data.tools import Parameter, ToolSpec


@dataclass(frozen=True)
class Schema:
    """A tool, and what its arguments may be."""

    spec: ToolSpec
    choices: dict[str, list[str]] = field(default_factory=dict)
    """Values an argument is limited to (``enum``), or is shown with (``examples``)."""
    closed: frozenset[str] = frozenset()
    """Arguments for which no other value is right."""


def read_schemas(path: Path) -> list[Schema]:
    """Tools of a JSON file: a list of them, or one.

    Raises:
        ValueError: not JSON, or a tool without a name; the message has its place.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}: not JSON ({error})") from None
    tools = value if isinstance(value, list) else value.get("tools", [value]) if isinstance(value, dict) else []
    if not tools:
        raise ValueError(f"{path}: wanted a list of tools, found {type(value).__name__}")
    return [_read(tool, f"{path}, tool {number}") for number, tool in enumerate(tools)]


def _read(tool: Any, where: str) -> Schema:
    function = tool.get("function", tool) if isinstance(tool, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise ValueError(f"{where}: wanted an object with a name, found {str(tool)[:80]!r}")
    arguments = function.get("parameters") or function.get("params") or {}
    required = set(arguments.get("required", ())) if isinstance(arguments.get("required"), list) else set()
    described = arguments["properties"] if isinstance(arguments.get("properties"), Mapping) else arguments
    parameters, choices, closed = [], {}, set()
    for name, about in described.items():
        if not isinstance(about, Mapping):
            continue  # JSON Schema's own words, such as type and additionalProperties
        must = name in required or about.get("required") is True
        parameters.append(Parameter(name, str(about.get("description", name)), required=must))
        values = about.get("enum") or about.get("examples") or ([True, False] if about.get("type") == "boolean" else [])
        if values:
            choices[name] = [str(value).lower() if isinstance(value, bool) else str(value) for value in values]
        if about.get("enum") or about.get("type") == "boolean":
            closed.add(name)
    spec = ToolSpec(function["name"], str(function.get("description", function["name"])), tuple(parameters))
    return Schema(spec, choices, frozenset(closed))


def why_not(schema: Schema, arguments: Mapping[str, Any]) -> str | None:
    """What is wrong with the arguments of a call; None where they fit."""
    known = {parameter.name for parameter in schema.spec.parameters}
    if unknown := sorted(set(arguments) - known):
        return f"unknown argument {unknown[0]}"
    if missing := [name for name in schema.spec.required if not str(arguments.get(name, "")).strip()]:
        return f"no {missing[0]}"
    for name in sorted(schema.closed & set(arguments)):
        if str(arguments[name]) not in schema.choices[name]:
            return f"{name} is none of its values"
    return None
