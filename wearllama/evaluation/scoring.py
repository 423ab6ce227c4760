"""What one output is worth: answers by exact and alias match, tool calls three ways, silence.

Tool calls carry three marks, from lenient to strict:

* ``name``: the same tools are called, whatever the arguments;
* ``loose``: the syntax-tree rules, with values written as text and *free* arguments (every one but
  :data:`CLOSED_ARGUMENTS`) accepted when their content words overlap with F1 of at least :data:`LOOSE_F1`;
* ``strict``: the syntax-tree rules as they are (:mod:`wearllama.evaluation.ast_match`).

An argument of ``None``, ``"none"``, ``"null"`` or ``""`` counts as absent on both sides.
"""

import functools
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from whisper_normalizer.english import EnglishTextNormalizer

from wearllama.data.actions import ARGUMENTS_KEY, TOOL_OPEN, Action, Call, parse_action
from wearllama.data.tools import TOOLS
from wearllama.evaluation.ast_match import FunctionSpec, Gold, Match, ParamSpec, match_calls, same_string

LOOSE_F1 = 0.5
CLOSED_ARGUMENTS = frozenset({
    "api", "content_type", "is_place_follow_up", "location_needed", "ordinal", "provider", "recommended",
    "search_availability", "search_time_type", "weather_unit",
})  # fmt: skip
"""Arguments that take one of a few values: never compared loosely."""

_ABSENT = frozenset({"", "none", "null"})
_LITTLE_WORDS = """
a an the of in on at to for from by with and or is are was were be do does did what which who whom whose when where how
why i me my you your it its this that there s please current latest
"""
_STOP_WORDS = frozenset(_LITTLE_WORDS.split())
_SPECS = {name: FunctionSpec.from_wearvox(spec.to_dict("wearvox")) for name, spec in TOOLS.items()}


@dataclass(frozen=True)
class Outcome:
    """One scored prediction: named marks, and the words that explain them."""

    id: str
    task: str
    kind: str
    """Kind of the action taken: mute, tool, answer or malformed."""
    marks: Mapping[str, bool]
    note: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    values: Mapping[str, float] = field(default_factory=dict)
    """Numbers beside the marks: ``session`` (a translation's score), ``turns``, ``truncated_from_s``, ..."""
    unscored: str = ""
    """Why the mark that counts is missing; empty where the item is scored."""


# --- answers ---------------------------------------------------------------------------------------------------------


@functools.cache
def _normaliser() -> EnglishTextNormalizer:
    return EnglishTextNormalizer()


def normalise_answer(text: str) -> str:
    """Text as answers are compared: Whisper's English normalisation (numbers, case, punctuation), no articles."""
    words = re.sub(r"[^\w\s%$€£.]", " ", _normaliser()(text)).split()
    return " ".join(word.strip(".") for word in words if word.strip(".") and word not in ("a", "an", "the"))


def answer_aliases(ground_truth: Any) -> list[str]:
    """Accepted answers of a ground truth: a string, a list of strings, or ``{"answer", "aliases"}``.

    A string is one answer, never its characters; a JSON list inside a string is read as a list.
    """
    value = ground_truth
    if isinstance(value, str):
        value = _json_or_text(value)
    if isinstance(value, Mapping):
        value = [value.get("answer"), *(value.get("aliases") or ())]
    if isinstance(value, str | int | float):
        value = [value]
    if not isinstance(value, list | tuple) or not value:
        raise ValueError(f"ground truth {ground_truth!r}: wanted a string, a list of strings or {{answer, aliases}}")
    aliases = [str(alias) for alias in value if alias is not None and str(alias).strip()]
    if not aliases:
        raise ValueError(f"ground truth {ground_truth!r} holds no answer")
    return aliases


def matches_exactly(text: str, aliases: Sequence[str]) -> bool:
    """Whether an answer equals one of the aliases after normalisation."""
    found = normalise_answer(text)
    return bool(found) and any(found == normalise_answer(alias) for alias in aliases)


def contains_alias(text: str, aliases: Sequence[str]) -> bool:
    """Whether an alias stands in the answer as whole words: lenient, blind to hedges and denials."""
    found = f" {normalise_answer(text)} "
    return any(normalise_answer(alias) and f" {normalise_answer(alias)} " in found for alias in aliases)


def _json_or_text(text: str) -> Any:
    if text.lstrip()[:1] in ("[", "{"):
        try:
            return json.loads(text)
        except json.JSONDecodeError:
            return text
    return text


# --- tool calls ------------------------------------------------------------------------------------------------------


def gold_calls(ground_truth: Any) -> list[Gold]:
    """Gold calls of a ground truth: the WearVox dialect as a string, JSON text, one call or a list of calls.

    An argument's value may be a list of acceptable values; absent values (see above) become ``""``.
    """
    value = ground_truth
    if isinstance(value, str):
        if TOOL_OPEN in value:
            action = parse_action(value, "wearvox")
            if action.kind != "tool":
                raise ValueError(f"ground truth {ground_truth!r} is {action.kind}: {action.reason}")
            value = [{"name": call.name, "parameters": call.arguments} for call in action.calls]
        else:
            value = _json_or_text(value)
    if isinstance(value, Mapping):
        value = [value]
    if not isinstance(value, list) or not value or not all(isinstance(v, Mapping) and "name" in v for v in value):
        raise ValueError(f"ground truth {ground_truth!r}: wanted calls with name and parameters")
    return [_gold_call(call) for call in value]


def _gold_call(call: Mapping[str, Any]) -> Gold:
    arguments: Any = next(
        (call[key] for key in (*ARGUMENTS_KEY.values(), "arguments") if call.get(key) is not None), {}
    )
    if not isinstance(arguments, Mapping):
        raise ValueError(f"gold call {call!r}: its arguments are no object")
    accepted: dict[str, list[Any]] = {}
    for name, value in arguments.items():
        choices = value if isinstance(value, list) and value else [value]
        accepted[name] = ["" if _is_absent(choice) else choice for choice in choices]
    return {str(call["name"]): accepted}


def _is_absent(value: Any) -> bool:
    return value is None or (isinstance(value, str) and value.strip().lower() in _ABSENT)


def _present(call: Call) -> Call:
    return Call(call.name, {name: value for name, value in call.arguments.items() if not _is_absent(value)})


def score_tool(action: Action, gold: Sequence[Gold]) -> tuple[dict[str, bool], str]:
    """Marks ``name``, ``loose`` and ``strict`` of an action against gold calls, and why the strict one failed."""
    if action.kind != "tool":
        return {"name": False, "loose": False, "strict": False}, f"{action.kind}, wanted a call"
    specs = {name: _spec_of(name, accepted) for call in gold for name, accepted in call.items()}
    calls = [_present(call) for call in action.calls]
    strict = match_calls(calls, gold, specs)
    loose = strict.ok or _match_loosely(calls, gold, specs).ok
    wanted = Counter(name for call in gold for name in call)
    name = Counter(call.name for call in calls) == wanted
    return {"name": name, "loose": loose, "strict": strict.ok}, strict.reason


def _spec_of(name: str, accepted: Mapping[str, Sequence[Any]]) -> FunctionSpec:
    """The tool's specification; a tool that we do not know takes the gold call's arguments, all optional."""
    if name in _SPECS:
        return _SPECS[name]
    return FunctionSpec(name, {key: ParamSpec("string") for key in accepted})


def _match_loosely(calls: Sequence[Call], gold: Sequence[Gold], specs: Mapping[str, FunctionSpec]) -> Match:
    as_text = [Call(call.name, {key: _text(value) for key, value in call.arguments.items()}) for call in calls]
    gold_text = [{n: {k: [_text(v) for v in values] for k, values in a.items()} for n, a in g.items()} for g in gold]
    return match_calls(as_text, gold_text, specs, same=_same_loosely)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)


def _same_loosely(parameter: str, predicted: str, accepted: str) -> bool:
    if same_string(parameter, predicted, accepted):
        return True
    return parameter not in CLOSED_ARGUMENTS and content_f1(predicted, accepted) >= LOOSE_F1


def content_words(text: str) -> list[str]:
    """Normalised words that carry content, in order."""
    return [word for word in normalise_answer(text).split() if word not in _STOP_WORDS]


def content_f1(first: str, second: str) -> float:
    """F1 of the content words (as multisets) of two texts; 0 where either has none."""
    a, b = Counter(content_words(first)), Counter(content_words(second))
    shared = sum((a & b).values())
    return 2 * shared / (a.total() + b.total()) if shared else 0.0
