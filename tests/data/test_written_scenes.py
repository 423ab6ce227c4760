"""Rows of text alone for the decoder's first training: sentences that nobody reads."""

from collections import Counter

import pytest

from wearllama.data import textgen
from wearllama.data.actions import parse_action
from wearllama.data.demo_benchmarks import BenchmarkSizes, vgbench_items, wearvox_scenes
from wearllama.data.demo_layout import PLACES
from wearllama.data.demo_scenes import Scene, scene_messages, scene_target, to_example
from wearllama.data.demo_training import TEXT_SHARES, WrittenLines, written_scenes
from wearllama.data.prompts import has_audio, load_prompts
from wearllama.data.textgen import normalise

COUNT = 600


@pytest.fixture(scope="module")
def written() -> list[Scene]:
    return written_scenes(COUNT, seed=0)


def test_nothing_is_heard(written: list[Scene]) -> None:
    prompts = load_prompts(style="compact")
    for scene in written:
        assert scene.text_only and scene.background is None and not scene.chatter
        row = to_example(scene, {}, prompts, level_dbfs=(-40.0, -18.0))  # no clip has a duration
        assert row.audio is None and not has_audio(row.messages) and row.metadata["voices"] == []
        assert scene_messages(scene, prompts)[-1]["content"] == scene.words != ""


def test_every_kind_in_its_share(written: list[Scene]) -> None:
    assert sum(TEXT_SHARES.values()) == pytest.approx(1.0)
    counts = Counter(scene.id.split("-")[1] for scene in written)
    assert counts == {kind: round(share * COUNT) for kind, share in TEXT_SHARES.items()}
    assert len({scene.id for scene in written}) == len(written) == COUNT
    actions = Counter(scene.action.kind for scene in written if scene.action is not None)
    assert set(actions) == {"tool", "answer", "mute"} and min(actions.values()) > COUNT // 10


def test_only_wordings_of_training(written: list[Scene]) -> None:
    utterances = [line.utterance for scene in written for line in scene.lines]
    assert {utterance.split for utterance in utterances} == {"train"}
    held_out = wearvox_scenes(BenchmarkSizes(), list(PLACES)) + [i.scene for i in vgbench_items(BenchmarkSizes())]
    theirs = [line.utterance for scene in held_out for line in scene.lines]
    assert not {u.template_id for u in utterances} & {u.template_id for u in theirs}
    assert not {normalise(u.text) for u in utterances} & {normalise(u.text) for u in theirs}


def test_targets_parse_as_what_they_are(written: list[Scene]) -> None:
    for scene in written:
        assert scene.action is not None and scene.dialect != "asr"
        assert parse_action(scene_target(scene), scene.dialect).kind == scene.action.kind


def test_the_same_for_a_seed_and_others_for_another(written: list[Scene]) -> None:
    assert written_scenes(COUNT, seed=0) == written
    other = written_scenes(COUNT, seed=1)
    same = sum(a.words == b.words for a, b in zip(written, other, strict=True))
    assert same < COUNT // 20


def test_sentences_are_fresh(written: list[Scene]) -> None:
    """Names, times and places differ, so that the decoder cannot learn whole sentences by heart."""
    words = [scene.words for scene in written if scene.id.startswith("written-text_only")]
    assert len(set(words)) > 0.95 * len(words)


def test_lines_of_a_tool_are_of_that_tool() -> None:
    lines = WrittenLines(3)
    for tool in textgen.consequential_tools():
        for kind in ("command", "context"):
            utterance = lines.draw(kind, tool=tool).utterance
            assert (utterance.kind, utterance.tool) == (kind, tool)
    assert lines.must("command").utterance.tool in textgen.consequential_tools()
    for kind in ("question", "grounded", "self_talk", "side_command", "side_chat", "general"):
        assert lines.must(kind).utterance.kind == kind
