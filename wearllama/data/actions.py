"""The action contract (contract 6): one parser and one formatter for everything a model may say.

An output is ``[Mute]``, tool call(s), an answer in words, or malformed.  Training targets, rewards and scorers all go
through :func:`parse_action` and :func:`format_action`, in one of two dialects:

* ``wearvox``: ``<|TOOL|>[{"name": ..., "parameters": {...}}, ...]</|TOOL|>``, one call or several;
* ``vgbench``: one bare object ``{"name": ..., "params": {...}}``.

The parser forgives how small models write (Python literals, a code fence round the call) and nothing else: two actions
in one output, a call that was cut off, or a call in the other dialect are malformed, never guessed.
"""

import ast
import json
import math
import re
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

Dialect = Literal["wearvox", "vgbench"]
ActionKind = Literal["mute", "tool", "answer", "malformed"]

MUTE = "[Mute]"
TOOL_OPEN = "<|TOOL|>"
TOOL_CLOSE = "</|TOOL|>"
ARGUMENTS_KEY: dict[str, str] = {"wearvox": "parameters", "vgbench": "params"}
MAX_DEPTH = 32  # nesting of arguments: deeper is no call of any tool, and would overflow whoever walks it
MAX_INT_BITS = 1024  # Python refuses to print integers of some 14,000 bits

_FENCE = re.compile(r"```[\w+-]*[ \t]*\n?(.*?)\n?[ \t]*```", re.DOTALL)
_CALL_ATTEMPT = re.compile(r"""[{,]\s*["']name["']\s*:""")
_OBJECT_START = re.compile(r"""\{\s*(["']|\}?\s*$)|\[\s*\{\s*["']""")


@dataclass(frozen=True)
class Call:
    """One tool call: a tool's name and its arguments (JSON values)."""

    name: str
    arguments: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Action:
    """What an output does.  ``text`` is the stripped output; ``reason`` says why it is malformed."""

    kind: ActionKind
    calls: tuple[Call, ...] = ()
    text: str = ""
    reason: str = ""

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form, for the prediction log."""
        return {**asdict(self), "calls": [asdict(call) for call in self.calls]}

    @staticmethod
    def from_dict(fields: Mapping[str, Any]) -> "Action":
        """Inverse of :meth:`to_dict`."""
        calls = tuple(Call(call["name"], dict(call["arguments"])) for call in fields.get("calls", ()))
        return Action(fields["kind"], calls, fields.get("text", ""), fields.get("reason", ""))


class _Malformed(Exception):
    """The output tries to be a call and is none; the message says why."""


def mute() -> Action:
    """The action of staying silent."""
    return Action("mute", text=MUTE)


def tool(*calls: Call) -> Action:
    """The action of calling tools."""
    return Action("tool", calls=calls)


def answer(text: str) -> Action:
    """The action of answering in words."""
    return Action("answer", text=text.strip())


def parse_action(text: str, dialect: Dialect) -> Action:
    """Read a raw model output.  Never raises on an output, however broken; an unknown dialect is a ValueError."""
    _check_dialect(dialect)
    stripped = text.strip()
    try:
        return _parse(stripped, dialect)
    except _Malformed as error:
        return Action("malformed", text=stripped, reason=str(error))


def format_action(action: Action, dialect: Dialect) -> str:
    """Write an action as a target: ``parse_action`` of the result gives the same action.

    Raises ValueError for an action that the dialect cannot say: malformed, a VGBench target of several calls, or an
    answer that would read as something else.
    """
    _check_dialect(dialect)
    if action.kind == "mute":
        return MUTE
    if action.kind == "tool":
        return _format_calls(action.calls, dialect)
    if action.kind == "answer":
        parsed = parse_action(action.text, dialect)
        if parsed.kind != "answer":
            raise ValueError(f"answer {action.text!r} would be read as {parsed.kind} ({parsed.reason})")
        return parsed.text
    raise ValueError(f"a {action.kind} action has no {dialect} form; wanted mute, tool or answer")


def _check_dialect(dialect: str) -> None:
    if dialect not in get_args(Dialect):
        raise ValueError(f"unknown dialect {dialect!r}, wanted one of {get_args(Dialect)}")


def _parse(text: str, dialect: Dialect) -> Action:
    if not text:
        raise _Malformed("empty output")
    if text == MUTE:
        return mute()
    if not _is_unicode(text):
        raise _Malformed("the output is no valid Unicode")
    calls = _parse_wearvox(text) if dialect == "wearvox" else _parse_vgbench(text)
    if calls:
        return Action("tool", calls, text)
    if MUTE in text:
        raise _Malformed(f"{MUTE} together with words")
    return Action("answer", text=text)


def _parse_wearvox(text: str) -> tuple[Call, ...]:
    """Calls between the markers; none if the text holds no trace of a call."""
    body = _unfence(text)
    if TOOL_OPEN not in body and TOOL_CLOSE not in body:
        _refuse_call_attempt(body, f"a call outside {TOOL_OPEN}...{TOOL_CLOSE}")
        return ()
    if not body.startswith(TOOL_OPEN):
        raise _Malformed(f"words before {TOOL_OPEN}")
    if not body.endswith(TOOL_CLOSE):
        raise _Malformed(f"no {TOOL_CLOSE} at the end: cut off, or words after the call")
    value = _load(body[len(TOOL_OPEN) : -len(TOOL_CLOSE)])
    if not isinstance(value, list) or not value:
        raise _Malformed("wanted a list of at least one call between the markers")
    return tuple(_as_call(item, "wearvox") for item in value)


def _parse_vgbench(text: str) -> tuple[Call, ...]:
    """The one bare call; none if the text holds no trace of a call."""
    body = _unfence(text)
    if TOOL_OPEN in text and not body.startswith("{"):
        raise _Malformed("a call in the other dialect")
    if not _OBJECT_START.match(body):
        _refuse_call_attempt(text, "words together with a call")
        return ()
    return (_as_call(_load(body), "vgbench"),)


def _refuse_call_attempt(text: str, reason: str) -> None:
    if _OBJECT_START.match(text) or _CALL_ATTEMPT.search(text):
        raise _Malformed(reason)


def _unfence(text: str) -> str:
    match = _FENCE.fullmatch(text)
    return match.group(1).strip() if match else text


def _load(text: str) -> Any:
    """JSON, or else a Python literal of JSON's types."""
    body = _unfence(text.strip())
    try:
        value = json.loads(body, object_pairs_hook=_unique_keys)
    except (ValueError, RecursionError):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # an unknown escape in a model's string is no concern of the user's
                value = ast.literal_eval(body)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            raise _Malformed("neither JSON nor a Python literal: cut off, or more than one object") from None
    return _as_json(value, 0)


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise _Malformed("a key is given twice")
    return fields


def _as_json(value: Any, depth: int) -> Any:
    """The value with tuples as lists, refusing what JSON and UTF-8 cannot carry."""
    if depth > MAX_DEPTH:
        raise _Malformed(f"nested more than {MAX_DEPTH} deep")
    if isinstance(value, dict):
        if not all(isinstance(key, str) and _is_unicode(key) for key in value):
            raise _Malformed("a key is no string")
        return {key: _as_json(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_as_json(item, depth + 1) for item in value]
    if isinstance(value, str) and not _is_unicode(value):
        raise _Malformed("a string is no valid Unicode")
    if isinstance(value, float) and not math.isfinite(value):
        raise _Malformed("a number is not finite")
    if isinstance(value, int) and value.bit_length() > MAX_INT_BITS:
        raise _Malformed("an integer is too large")
    if value is not None and not isinstance(value, str | bool | int | float):
        raise _Malformed(f"a value of type {type(value).__name__}")
    return value


def _is_unicode(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:  # lone surrogates: no file or tokenizer takes them
        return False
    return True


def _as_call(value: Any, dialect: Dialect) -> Call:
    key = ARGUMENTS_KEY[dialect]
    if not isinstance(value, dict):
        raise _Malformed("a call is no object")
    unknown = sorted(set(value) - {"name", key})
    if unknown:
        raise _Malformed(f"a call with keys {unknown} beside name and {key}")
    name = value.get("name")
    if not isinstance(name, str) or not name.strip():
        raise _Malformed("a call without a name")
    arguments = value.get(key)
    if arguments is not None and not isinstance(arguments, dict):
        raise _Malformed(f"{key} is no object")
    return Call(name, arguments or {})


def _format_calls(calls: tuple[Call, ...], dialect: Dialect) -> str:
    if not calls:
        raise ValueError("a tool action needs at least one call, found none")
    objects = [{"name": call.name, ARGUMENTS_KEY[dialect]: call.arguments} for call in calls]
    try:
        for item in objects:
            _as_call(_as_json(item, 0), dialect)
    except _Malformed as error:
        raise ValueError(f"calls {calls} cannot be written: {error}") from None
    if dialect == "wearvox":
        return f"{TOOL_OPEN}{_dumps(objects)}{TOOL_CLOSE}"
    if len(calls) != 1:
        raise ValueError(f"a vgbench action is one call, found {len(calls)}")
    return _dumps(objects[0])


def _dumps(value: Any) -> str:
    """JSON in which no string spells a marker: the tokenizer would turn it into the marker's token."""
    text = json.dumps(value, ensure_ascii=False)
    return text.replace("<|", "\\u003c|").replace("</|", "\\u003c/|").replace(MUTE, "\\u005b" + MUTE[1:])
