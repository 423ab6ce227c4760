"""The action contract: what parses as what, and parser and formatter as each other's inverse."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wearllama.data.actions import (
    MUTE,
    TOOL_CLOSE,
    TOOL_OPEN,
    Action,
    Call,
    answer,
    format_action,
    mute,
    parse_action,
    tool,
)

DIALECTS = ("wearvox", "vgbench")
_TEXT = st.text(st.characters(codec="utf-8"), max_size=30)
_SCALARS = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
_VALUES = st.recursive(
    _SCALARS | _TEXT | st.sampled_from([MUTE, TOOL_OPEN, TOOL_CLOSE, "a\n```", 'don\'t say "hi"']),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=8,
)
_CALLS = st.builds(
    Call,
    st.sampled_from(["weather", "café_order", "set alarm", '"quoted"']),
    st.dictionaries(_TEXT, _VALUES, max_size=4),
)


def _wrap(dialect: str, calls: str) -> str:
    return f"{TOOL_OPEN}{calls}{TOOL_CLOSE}" if dialect == "wearvox" else calls


@settings(max_examples=60, deadline=None)
@given(calls=st.lists(_CALLS, min_size=1, max_size=3))
def test_calls_round_trip_wearvox(calls: list[Call]) -> None:
    text = format_action(tool(*calls), "wearvox")
    assert parse_action(text, "wearvox").calls == tuple(calls)
    assert MUTE not in text and TOOL_OPEN not in text[1:] and TOOL_CLOSE not in text[: -len(TOOL_CLOSE)]


@settings(max_examples=60, deadline=None)
@given(call=_CALLS)
def test_call_round_trips_vgbench(call: Call) -> None:
    text = format_action(tool(call), "vgbench")
    parsed = parse_action(text, "vgbench")
    assert (parsed.kind, parsed.calls) == ("tool", (call,))
    assert MUTE not in text


@settings(max_examples=150, deadline=None)
@given(text=st.text(max_size=60) | st.text(alphabet="{}[]\"':,namepr<|TOL>/` \nMut01\\(-", max_size=60))
def test_any_text_parses_and_what_parses_can_be_said(text: str) -> None:
    for dialect in DIALECTS:
        action = parse_action(text, dialect)
        assert Action.from_dict(json.loads(json.dumps(action.to_dict()))) == action
        if action.kind != "malformed":
            again = parse_action(format_action(action, dialect), dialect)
            assert (again.kind, again.calls) == (action.kind, action.calls)
        else:
            assert action.reason
            with pytest.raises(ValueError):
                format_action(action, dialect)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("[Mute]", "mute"),
        ("\n [Mute]  ", "mute"),
        ("[mute]", "answer"),
        ("[Mute][Mute]", "malformed"),
        ("I will [Mute] now", "malformed"),
        ("", "malformed"),
        (" \t\n", "malformed"),
        ("It is raining.", "answer"),
        ("Use {name} here, or {}.", "answer"),
        ("{x} stands for a name", "answer"),
        ("[1] says so", "answer"),
        ("```python\nprint(1)\n```", "answer"),
        ("{", "malformed"),
        ("{}", "malformed"),
        ('{"nam', "malformed"),
        ('{"answer": "Paris"}', "malformed"),
        ('Sure! {"name": "weather"}', "malformed"),
    ],
)
def test_kind(text: str, kind: str, dialect: str) -> None:
    assert parse_action(text, dialect).kind == kind


@pytest.mark.parametrize("dialect", DIALECTS)
def test_python_literal_and_fence(dialect: str) -> None:
    key = {"wearvox": "parameters", "vgbench": "params"}[dialect]
    call = f"{{'name': 'set_alarm', '{key}': {{'repeat': True, 'label': None, 'days': ('mo', 'tu')}}}}"
    body = _wrap(dialect, f"[{call}]" if dialect == "wearvox" else call)
    wanted = (Call("set_alarm", {"repeat": True, "label": None, "days": ["mo", "tu"]}),)
    for text in (body, f"```json\n{body}\n```", f"```\n{body}```"):
        assert parse_action(text, dialect).calls == wanted


@pytest.mark.parametrize(
    ("dialect", "text"),
    [
        ("vgbench", '{"name": "a", "params": {}} {"name": "b", "params": {}}'),
        ("vgbench", '[{"name": "a", "params": {}}]'),
        ("vgbench", '{"name": "a", "parameters": {}}'),
        ("vgbench", '{"name": "", "params": {}}'),
        ("vgbench", '{"name": 3, "params": {}}'),
        ("vgbench", '{"name": "a", "name": "b"}'),
        ("vgbench", '{"name": "a", "params": {"x": NaN}}'),
        ("vgbench", '{"name": "a", "params": {"x": 1e999}}'),
        ("vgbench", '{"name": "a", "params": {"x": "\\ud800"}}'),
        ("vgbench", "{'name': 'a', 'params': {'x': b'1'}}"),
        ("vgbench", "{'name': 'a', 'params': {1: 2}}"),
        ("vgbench", '{"name": "a", "params": {"x": 0x' + "f" * 5000 + "}}"),
        ("vgbench", '{"name": "a", "params": {"x": ' + "[" * 5000 + "]" * 5000 + "}}"),
        ("vgbench", '{"name": "a", "params": {"x": ' + "-" * 5000 + "1}}"),
        ("vgbench", f'{TOOL_OPEN}[{{"name": "a"}}]{TOOL_CLOSE}'),
        ("wearvox", f"{TOOL_OPEN}[]{TOOL_CLOSE}"),
        ("wearvox", f'{TOOL_OPEN}{{"name": "a"}}{TOOL_CLOSE}'),
        ("wearvox", f'{TOOL_OPEN}[{{"name": "a"}}]'),
        ("wearvox", f'[{{"name": "a"}}]{TOOL_CLOSE}'),
        ("wearvox", f'Of course. {TOOL_OPEN}[{{"name": "a"}}]{TOOL_CLOSE}'),
        ("wearvox", f'{TOOL_OPEN}[{{"name": "a"}}]{TOOL_CLOSE} Done.'),
        ("wearvox", f'[Mute]{TOOL_OPEN}[{{"name": "a"}}]{TOOL_CLOSE}'),
        ("wearvox", '[{"name": "a", "parameters": {}}]'),
    ],
)
def test_malformed_calls(dialect: str, text: str) -> None:
    action = parse_action(text, dialect)
    assert (action.kind, action.calls) == ("malformed", ())


def test_call_without_arguments() -> None:
    assert parse_action('{"name": "a", "params": null}', "vgbench").calls == (Call("a", {}),)
    assert parse_action(f'{TOOL_OPEN}[{{"name": "a"}}]{TOOL_CLOSE}', "wearvox").calls == (Call("a", {}),)


def test_what_cannot_be_said_is_refused() -> None:
    with pytest.raises(ValueError, match="one call, found 2"):
        format_action(tool(Call("a"), Call("b")), "vgbench")
    with pytest.raises(ValueError, match="would be read as mute"):
        format_action(answer("[Mute]"), "wearvox")
    with pytest.raises(ValueError, match="not finite"):
        format_action(tool(Call("a", {"x": float("nan")})), "wearvox")
    with pytest.raises(ValueError, match="at least one call"):
        format_action(Action("tool"), "wearvox")
    with pytest.raises(ValueError, match="unknown dialect 'bfcl'"):
        parse_action("", "bfcl")  # type: ignore[arg-type]
    assert format_action(mute(), "vgbench") == MUTE
