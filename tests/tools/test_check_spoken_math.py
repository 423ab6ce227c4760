"""tools/check_spoken_math.py: expressions that differ, words that are compared as an ear hears them."""

import re

import pytest

from wearllama.data.verbalise import verbalise


@pytest.fixture(scope="module")
def tool(load_script):
    return load_script("tools", "check_spoken_math")


def test_three_hundred_expressions_become_words(tool) -> None:
    found = tool.expressions(300, 0)
    assert found == tool.expressions(300, 0) and len({expression for _, expression in found}) == 300
    assert {kind: [k for k, _ in found].count(kind) for kind in tool.KINDS} == dict.fromkeys(tool.KINDS, 30)
    left = [said for _, e in found if re.search(r"[^A-Za-z ,.?'-]", said := verbalise(tool.sentence(e)))]
    assert left == []


def test_words_are_compared_as_heard(tool) -> None:
    said = "What can be said about the sine of two pi?"
    for heard, strict, by_ear in (
        ("what can be said about the sine of 2π", True, True),
        ("What can be said about the sign of 2 pie?", False, True),
        ("What can be said about the sine of three pi?", False, False),
    ):
        assert (tool.spoken_words(said) == tool.spoken_words(heard)) is strict
        assert tool.came_back({"said": said, "heard": heard}) is by_ear
    assert tool.spoken_words("four kilometers") == tool.spoken_words("4 kilometres")
    assert tool.spoken_words("six over eight") == tool.spoken_words("6-8ths")


def test_the_table_counts_whole_questions(tool) -> None:
    rows = [{"kind": "fractions", "said": "one half", "heard": "1/2"}, {"kind": "fractions", "said": "a", "heard": "b"}]
    table = tool.table(rows)
    assert table.rows[0][1].endswith("(1/2)") and table.rows[-1][0] == "all"
