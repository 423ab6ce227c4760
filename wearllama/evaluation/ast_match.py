"""Tool calls compared by their syntax tree, by the rules of the Berkeley Function-Calling Leaderboard's checker.

Gold calls list, per parameter, the acceptable values; ``""`` among them means that the parameter may be absent.  Types
are exact, strings are compared without case, blanks and ``,./-_*^``, and parallel calls match in any order: optimally
here, so that nothing is rejected which the leaderboard's greedy search accepts.  Our own code; the rules are theirs
(PyPI ``bfcl-eval``, Apache-2.0).
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from scipy.optimize import linear_sum_assignment

from wearllama.data.actions import Call

Gold: TypeAlias = Mapping[str, Mapping[str, Sequence[Any]]]
"""One gold call: ``{function: {parameter: [acceptable values]}}``."""

StringRule: TypeAlias = Callable[[str, str, str], bool]
"""``rule(parameter, predicted, accepted)``: are two strings the same value?"""

_TYPES: dict[str, type] = {
    "string": str, "any": str, "integer": int, "float": float, "number": float, "boolean": bool,
    "array": list, "tuple": list, "dict": dict, "object": dict,
}  # fmt: skip
_IGNORED = re.compile(r"[ ,./\-_*^]")


@dataclass(frozen=True)
class ParamSpec:
    """Type of one parameter in JSON Schema's words; ``items`` is the element type of an array."""

    type: str = "string"
    items: str | None = None
    required: bool = False

    def __post_init__(self) -> None:
        for name in (self.type, self.items):
            if name is not None and name not in _TYPES:
                raise ValueError(f"unknown parameter type {name!r}, wanted one of {sorted(_TYPES)}")


@dataclass(frozen=True)
class FunctionSpec:
    """A function's name and its typed parameters."""

    name: str
    params: Mapping[str, ParamSpec]

    @staticmethod
    def from_json_schema(spec: Mapping[str, Any]) -> "FunctionSpec":
        """Read ``{"name", "parameters": {"properties": {...}, "required": [...]}}``."""
        schema = spec["parameters"]
        required = set(schema.get("required", ()))
        params = {
            name: ParamSpec(field["type"], (field.get("items") or {}).get("type"), name in required)
            for name, field in schema["properties"].items()
        }
        return FunctionSpec(spec["name"], params)

    @staticmethod
    def from_wearvox(spec: Mapping[str, Any]) -> "FunctionSpec":
        """Read WearVox's shape: ``{"name", "parameters": {arg: {"type", "description", "required": bool}}}``."""
        params = {
            name: ParamSpec(field.get("type", "string"), None, bool(field.get("required", False)))
            for name, field in spec["parameters"].items()
        }
        return FunctionSpec(spec["name"], params)


class Match(NamedTuple):
    """Whether calls match, and why not."""

    ok: bool
    reason: str = ""


def standardise(text: str) -> str:
    """The form in which two strings are compared: no case, blanks or ``,./-_*^``, one kind of quote."""
    return _IGNORED.sub("", text).lower().replace("'", '"')


def same_string(parameter: str, predicted: str, accepted: str) -> bool:
    """The leaderboard's string rule, whatever the parameter."""
    return standardise(predicted) == standardise(accepted)


def match_calls(
    calls: Sequence[Call],
    gold: Sequence[Gold],
    specs: Mapping[str, FunctionSpec],
    same: StringRule = same_string,
) -> Match:
    """Compare predicted calls with gold ones: equal number, and a one-to-one matching in any order."""
    if len(calls) != len(gold):
        return Match(False, f"{len(calls)} calls, wanted {len(gold)}")
    if len(calls) == 1:
        return match_call(calls[0], gold[0], specs, same)
    ok = np.array([[match_call(call, wanted, specs, same).ok for wanted in gold] for call in calls], dtype=bool)
    rows, columns = linear_sum_assignment(ok, maximize=True) if len(calls) else ((), ())
    for row, column in zip(rows, columns, strict=True):
        if not ok[row, column]:
            return Match(False, f"no gold call left for {calls[row].name}")
    return Match(True)


def match_call(call: Call, gold: Gold, specs: Mapping[str, FunctionSpec], same: StringRule = same_string) -> Match:
    """Compare one call with one gold call."""
    ((name, accepted),) = gold.items()
    if call.name != name:
        return Match(False, f"called {call.name}, wanted {name}")
    if name not in specs:
        raise ValueError(f"gold call of {name!r}: no such function among the tools {sorted(specs)}")
    params = specs[name].params
    for key, spec in params.items():
        if spec.required and key not in call.arguments:
            return Match(False, f"required {key} is missing")
    for key, value in call.arguments.items():
        if key not in params or key not in accepted:
            return Match(False, f"unexpected {key}")
        if not _accepts(key, value, accepted[key], params[key], same):
            return Match(False, f"{key} is {value!r}, accepted {list(accepted[key])!r}")
    for key, values in accepted.items():
        if key not in call.arguments and "" not in values:
            return Match(False, f"{key} is missing")
    return Match(True)


def _accepts(key: str, value: Any, accepted: Sequence[Any], spec: ParamSpec, same: StringRule) -> bool:
    wanted = _TYPES[spec.type]
    nested = _TYPES[spec.items] if wanted is list and spec.items else None
    if spec.type in ("float", "number") and type(value) is int:
        value = float(value)
    if isinstance(value, tuple):
        value = list(value)
    fits, variable = _check_type(value, accepted, wanted, nested)
    if not fits:
        return False
    if variable:  # a name standing for a value: nothing to normalise
        return value in list(accepted)
    if wanted is dict:
        return any(_same_dict(key, value, choice, same) for choice in accepted if isinstance(choice, Mapping))
    if wanted is list and nested is dict:
        return any(_same_dicts(key, value, choice, same) for choice in accepted if isinstance(choice, list | tuple))
    if wanted is list:
        return any(_same_list(key, value, choice, same) for choice in accepted if isinstance(choice, list | tuple))
    return _same_scalar(key, value, accepted, same)


def _check_type(value: Any, accepted: Sequence[Any], wanted: Any, nested: Any) -> tuple[bool, bool]:
    """(type fits, value is a variable): typed as the schema says, or as the gold values are."""
    gold_type = next((type(choice) for choice in accepted if choice != ""), None)
    gold_type = list if gold_type is tuple else gold_type
    variable = gold_type is not None and gold_type is not wanted
    if type(value) is wanted:
        if nested is None:
            return True, variable
        for choice in accepted:
            if not isinstance(choice, list) or all(_check_type(item, choice, nested, None)[0] for item in value):
                return True, variable  # a choice that is no list says nothing about the elements: values decide
    return (True, True) if gold_type is not None and type(value) is gold_type else (False, variable)


def _same_scalar(key: str, value: Any, accepted: Sequence[Any], same: StringRule) -> bool:
    if isinstance(value, str):
        return any(same(key, value, choice) for choice in accepted if isinstance(choice, str))
    return any(value == choice for choice in accepted)


def _same_list(key: str, value: Sequence[Any], choice: Sequence[Any], same: StringRule) -> bool:
    return len(value) == len(choice) and all(
        _same_scalar(key, item, [other], same) for item, other in zip(value, choice, strict=True)
    )


def _same_dict(key: str, value: Any, choice: Mapping[str, Any], same: StringRule) -> bool:
    if not isinstance(value, Mapping) or not value.keys() <= choice.keys():
        return False
    if any(name not in value and "" not in options for name, options in choice.items()):
        return False
    return all(_same_scalar(key, item, choice[name], same) for name, item in value.items())


def _same_dicts(key: str, value: Sequence[Any], choice: Sequence[Any], same: StringRule) -> bool:
    return len(value) == len(choice) and all(
        _same_dict(key, item, other, same) for item, other in zip(value, choice, strict=True)
    )
