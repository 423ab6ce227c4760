"""Call matching by the leaderboard's rules."""

import pytest

from wearllama.data.actions import Call
from wearllama.evaluation.ast_match import FunctionSpec, match_calls

SPECS = {
    spec["name"]: FunctionSpec.from_json_schema(spec)
    for spec in (
        {
            "name": "book",
            "parameters": {
                "properties": {
                    "city": {"type": "string"},
                    "seats": {"type": "integer"},
                    "price": {"type": "float"},
                    "express": {"type": "boolean"},
                    "stops": {"type": "array", "items": {"type": "string"}},
                    "rider": {"type": "dict"},
                    "bags": {"type": "array", "items": {"type": "dict"}},
                },
                "required": ["city"],
            },
        },
        {"name": "ping", "parameters": {"properties": {"x": {"type": "integer"}}, "required": []}},
    )
}


def ok(arguments: dict, accepted: dict) -> bool:
    return match_calls([Call("book", arguments)], [{"book": accepted}], SPECS).ok


@pytest.mark.parametrize(
    ("arguments", "accepted", "wanted"),
    [
        ({"city": "new-york, N.Y."}, {"city": ["New York NY"]}, True),
        ({"city": "'York'"}, {"city": ['"york"']}, True),
        ({"city": "Boston"}, {"city": ["New York"]}, False),
        ({}, {"city": ["York", ""]}, False),  # required by the specification
        ({"city": "York"}, {"city": ["York"], "seats": [2, ""]}, True),
        ({"city": "York"}, {"city": ["York"], "seats": [2]}, False),
        ({"city": "York", "colour": "red"}, {"city": ["York"]}, False),
        ({"city": "York", "seats": 2}, {"city": ["York"]}, False),
        ({"city": "York", "seats": True}, {"city": ["York"], "seats": [1]}, False),
        ({"city": "York", "seats": "2"}, {"city": ["York"], "seats": [2]}, False),
        ({"city": "York", "price": 3}, {"city": ["York"], "price": [3.0]}, True),
        ({"city": "York", "seats": "n_seats"}, {"city": ["York"], "seats": ["n_seats"]}, True),  # a variable
        ({"city": "York", "seats": "N_seats"}, {"city": ["York"], "seats": ["n_seats"]}, False),
        ({"city": "York", "stops": ["Ripon.", "leeds"]}, {"city": ["York"], "stops": [["ripon", "Leeds"]]}, True),
        ({"city": "York", "stops": ["leeds", "ripon"]}, {"city": ["York"], "stops": [["ripon", "Leeds"]]}, False),
        ({"city": "York", "rider": {"age": 4}}, {"city": ["York"], "rider": [{"age": [4], "name": ["Al", ""]}]}, True),
        ({"city": "York", "rider": {"age": 5}}, {"city": ["York"], "rider": [{"age": [4]}]}, False),
        ({"city": "York", "rider": {}}, {"city": ["York"], "rider": [{"age": [4]}]}, False),
        ({"city": "York", "bags": [{"kg": 4}]}, {"city": ["York"], "bags": [[{"kg": [4, 5]}]]}, True),
        ({"city": "York", "bags": []}, {"city": ["York"], "bags": [[{"kg": [4, 5]}]]}, False),
    ],
)
def test_one_call(arguments: dict, accepted: dict, wanted: bool) -> None:
    assert ok(arguments, accepted) is wanted


def test_parallel_calls_match_optimally() -> None:
    gold = [{"ping": {"x": [1, 2]}}, {"ping": {"x": [1]}}]
    assert match_calls([Call("ping", {"x": 1}), Call("ping", {"x": 2})], gold, SPECS).ok  # greedy search fails here
    assert not match_calls([Call("ping", {"x": 2}), Call("ping", {"x": 2})], gold, SPECS).ok
    assert not match_calls([Call("ping", {"x": 1})], gold, SPECS).ok
    assert not match_calls([], gold, SPECS).ok


def test_unknown_gold_function_is_an_error() -> None:
    with pytest.raises(ValueError, match="no such function"):
        match_calls([Call("fly", {})], [{"fly": {}}], SPECS)
