"""Answers, tool marks, intervals and side-talk labels."""

import json
import math

import pytest

from wearllama.data.actions import parse_action
from wearllama.evaluation import published
from wearllama.evaluation.intervals import Rate, mcnemar, wilson_interval
from wearllama.evaluation.scoring import answer_aliases, contains_alias, gold_calls, matches_exactly, score_tool
from wearllama.evaluation.side_talk import label_action


@pytest.mark.parametrize(
    ("truth", "aliases"),
    [
        ("Paris", ["Paris"]),
        (["Paris", "Lutetia"], ["Paris", "Lutetia"]),
        ('["Paris", "Lutetia"]', ["Paris", "Lutetia"]),
        ({"answer": "blue", "aliases": ["navy"]}, ["blue", "navy"]),
        ("[sic]", ["[sic]"]),
        (12, ["12"]),
    ],
)
def test_answer_aliases(truth: object, aliases: list[str]) -> None:
    assert answer_aliases(truth) == aliases


@pytest.mark.parametrize("truth", [None, [], "", [""], {}])
def test_no_answer_is_an_error(truth: object) -> None:
    with pytest.raises(ValueError, match="ground truth"):
        answer_aliases(truth)


@pytest.mark.parametrize(
    ("said", "alias", "exact", "contains"),
    [
        ("Paris.", "paris", True, True),
        ("the Nile", "Nile", True, True),
        ("twenty five", "25", True, True),
        ("It is Paris", "Paris", False, True),
        ("Parisian", "Paris", False, False),
        ("618.23", "618", False, False),
        ("", "Paris", False, False),
    ],
)
def test_answers(said: str, alias: str, exact: bool, contains: bool) -> None:
    assert matches_exactly(said, [alias]) is exact
    assert contains_alias(said, [alias]) is contains


def tool_marks(said: str, truth: object) -> str:
    marks, _ = score_tool(parse_action(said, "wearvox"), gold_calls(truth))
    return "".join(key[0] for key in ("name", "loose", "strict") if marks[key]).replace("nls", "all")


def call(name: str, **arguments: object) -> str:
    return f"<|TOOL|>{json.dumps([{'name': name, 'parameters': arguments}])}</|TOOL|>"


def test_tool_marks() -> None:
    truth = call("weather", search_query="weather in Oslo tomorrow", location=None)
    assert tool_marks(call("weather", search_query="Weather in Oslo, tomorrow"), truth) == "all"
    assert tool_marks(call("weather", search_query="Oslo weather tomorrow", location="none"), truth) == "nl"
    assert tool_marks(call("weather", search_query="rain in Bergen"), truth) == "n"
    assert tool_marks(call("weather", search_query="weather in Oslo tomorrow", location="Oslo"), truth) == "n"
    assert tool_marks(call("stock", search_query="weather in Oslo tomorrow"), truth) == ""
    assert tool_marks("[Mute]", truth) == tool_marks("It is sunny.", truth) == tool_marks("", truth) == ""


def test_closed_arguments_are_never_compared_loosely() -> None:
    truth = call("media_control", api="play music", title="blue in green")
    assert tool_marks(call("media_control", api="play", title="blue in green"), truth) == "n"
    assert tool_marks(call("media_control", api="play music", title="blue green"), truth) == "nl"


def test_gold_of_an_unknown_tool_and_acceptable_values() -> None:
    truth = [{"name": "fly", "parameters": {"to": ["Rome", "Roma"], "class": ["", "first"]}}]
    assert tool_marks(call("fly", to="roma"), truth) == "all"
    assert tool_marks(call("fly", to="roma", **{"class": "second"}), truth) == "n"


@pytest.mark.parametrize("truth", ["play it", "[]", [], None, [{"parameters": {}}], "<|TOOL|>[{]</|TOOL|>"])
def test_a_bad_tool_truth_is_an_error(truth: object) -> None:
    with pytest.raises(ValueError, match="ground truth"):
        gold_calls(truth)


def test_wilson() -> None:
    low, high = wilson_interval(73, 80)
    assert (round(low, 3), round(high, 3)) == (0.830, 0.957)
    assert wilson_interval(0, 10)[0] == 0.0 and wilson_interval(10, 10)[1] == 1.0 and wilson_interval(0, 0) == (0, 1)
    assert math.isnan(Rate(0, 0).value)
    assert str(Rate(73, 80)) == "91.2 % [83.0, 95.7] (73/80)"
    with pytest.raises(ValueError, match="hits"):
        wilson_interval(3, 2)


def test_mcnemar() -> None:
    first = {str(i): i < 8 for i in range(10)}
    second = {str(i): i >= 7 for i in range(10)}
    assert mcnemar(first, second)[:2] == (7, 2)
    assert mcnemar(first, second).p_value == pytest.approx(2 * sum(math.comb(9, k) for k in range(3)) / 2**9)
    assert mcnemar(first, first).p_value == 1.0


def test_published_micro_averages_reproduce() -> None:
    for name, (*tasks, micro) in published.WEARVOX.items():
        weighted = sum(v * n for v, n in zip(tasks, published.WEARVOX_COUNTS, strict=True))
        assert weighted / sum(published.WEARVOX_COUNTS) == pytest.approx(micro, abs=0.06), name
    assert sum(published.WEARVOX_COUNTS) + 500 == 3842
    assert sum(n for *_, n in published.WEARVOX_NOISE.values()) == 3035


ITEM = {
    "target_action": {"kind": "answer"},
    "answers": ["Paris"],
    "segments": [
        {"part": "assistant", "text": "what is the capital of France"},
        {"part": "person", "text": "hand me the red towel"},
    ],
}
TOOL_ITEM = {**ITEM, "target_action": {"kind": "tool", "name": "set_alarm"}, "person_tool": "send_money"}


@pytest.mark.parametrize(
    ("said", "item", "label"),
    [
        ("Paris.", ITEM, "assistant-directed"),
        ("Here is the towel.", ITEM, "bystander-directed"),
        ("Paris, and the towel is red.", ITEM, "both"),
        ("I do not know.", ITEM, "neither"),
        ("[Mute]", ITEM, "neither"),
        ('{"name": "set_alarm", "params": {}}', TOOL_ITEM, "assistant-directed"),
        ('{"name": "send_money", "params": {}}', TOOL_ITEM, "bystander-directed"),
        ('{"name": "unlock_door", "params": {}}', TOOL_ITEM, "neither"),
    ],
)
def test_side_talk_label(said: str, item: dict, label: str) -> None:
    assert label_action(parse_action(said, "vgbench"), item) == label
