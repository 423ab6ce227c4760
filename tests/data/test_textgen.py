"""The texts: enough of them, split by wording, articles in order, arguments that the tools know."""

import random
import re
from collections import Counter

import pytest

from wearllama.data import textgen
from wearllama.data.textgen import normalise, slots_of
from wearllama.data.tools import CONSEQUENTIAL_TOOLS, TOOLS, WEARVOX_TOOLS


@pytest.fixture(scope="module")
def train():
    return textgen.generate("train", random.Random(0), fills=4)


@pytest.fixture(scope="module")
def heldout():
    return [row for seed in range(10) for row in textgen.generate("heldout", random.Random(seed))]


def test_every_tool_has_wordings():
    assert set(textgen.wearvox_tools()) == {spec.name for spec in WEARVOX_TOOLS}
    assert set(textgen.consequential_tools()) == {spec.name for spec in CONSEQUENTIAL_TOOLS}
    for tool in TOOLS:
        assert len(set(textgen.templates(tool, "train"))) >= 30
        assert len(set(textgen.templates(tool, "heldout"))) >= 8


def test_counts_of_frames_and_facts():
    per_kind = Counter()
    for split, train_least, held_least in (("train", 60, 0), ("heldout", 0, 20)):
        rows = textgen.generate(split, random.Random(0))
        frames = {row.template_id for row in rows if row.kind == "self_talk"}
        assert len(frames) >= max(train_least, held_least)
        per_kind.update({(row.kind, split) for row in rows})
    assert textgen.num_facts() >= 100
    assert per_kind["general", "heldout"] == 0


def test_no_wording_and_no_sentence_is_in_both_splits(train, heldout):
    assert not {row.template_id for row in train} & {row.template_id for row in heldout}
    assert not {normalise(row.text) for row in train} & {normalise(row.text) for row in heldout}


def test_no_wording_fits_a_wording_of_the_other_split():
    """Any filling of a held-out wording is a new sentence, whatever its slots."""
    for tool in TOOLS:
        skeletons = {split: {_skeleton(t) for t in textgen.templates(tool, split)} for split in ("train", "heldout")}
        assert not skeletons["train"] & skeletons["heldout"], tool


def _skeleton(template: str) -> str:
    return normalise(re.sub(r"\{\w+\}", " slot ", template))


def test_heldout_words_are_mostly_known(train, heldout):
    known = {word for row in train for word in normalise(row.text).split()}
    words = [word for row in heldout for word in normalise(row.text).split()]
    rate = sum(word not in known for word in words) / len(words)
    print(f"out-of-vocabulary rate of held-out wordings: {rate:.2%} of {len(words)} words")
    assert rate < 0.02


def test_sentences_are_clean(train, heldout):
    for row in train + heldout:
        assert "{" not in row.text and row.text[0].isupper() and row.text[-1] in ".?!", row
        assert not re.search(r"\b(the the|a a|a the|for on|a [aeiou])\b", row.text), row.text
        assert len(row.text.split()) <= 14, row.text
        assert not set(normalise(row.text)) - set("abcdefghijklmnopqrstuvwxyz0123456789' ")


def test_arguments_are_the_tools_own_and_short(train, heldout):
    for row in train + heldout:
        if row.kind != "command":
            assert not row.arguments
            continue
        spec = TOOLS[row.tool]
        assert set(row.arguments) <= {parameter.name for parameter in spec.parameters}, row
        if row.tool in textgen.wearvox_tools():
            assert set(spec.required) <= set(row.arguments), row
        assert all(0 < len(value.split()) <= 8 for value in row.arguments.values()), row


def test_same_seed_same_sentences():
    first, second = (textgen.generate("heldout", random.Random(7)) for _ in range(2))
    assert first == second
    assert first != textgen.generate("heldout", random.Random(8))


def test_grounded_answers_stand_in_their_reference(train):
    for row in train:
        if row.kind == "grounded":
            assert row.answers[0].lower() in row.reference.lower()


def test_question_of_a_fact_keeps_its_answer_across_splits():
    for fact in range(textgen.num_facts()):
        train, heldout = (textgen.question(fact, split, random.Random(0)) for split in ("train", "heldout"))
        assert train.answers == heldout.answers and train.text != heldout.text


def test_side_commands_address_somebody_and_frames_keep_cores():
    names = {name.lower() for name in textgen.slot_values()["name"]}
    rng = random.Random(0)
    for _ in range(50):
        assert names & set(normalise(textgen.side_command("train", rng).text).split())
    row = textgen.self_talk("regret", "train", rng, tool="send_money", index=1)
    assert row.text.startswith("I wish I had ") and row.tool == "send_money"


def test_articles_that_meet_are_repaired():
    assert textgen.fill("What's the next {team} game?", {"team": "the Lakers"}) == "What's the next Lakers game?"
    assert textgen.fill("check my calendar for {day}.", {"day": "on Monday"}) == "Check my calendar for Monday."
    assert textgen.fill("A {adj} day.", {"adj": "ordinary"}) == "An ordinary day."
    assert slots_of("{Name}, look, {name} and {food}!") == ["name", "food"]


def test_unknown_tool_is_named():
    with pytest.raises(ValueError, match="fly_kite"):
        textgen.templates("fly_kite", "train")
