"""The example schema: round trip, and a clear word for everything that is wrong with a manifest."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from wearllama.audio.io import AudioError, write_audio
from wearllama.data.manifest import Example, example_seed, load_audio, read_manifest, write_manifest
from wearllama.data.prompts import audio_content, build_messages

HEARD = build_messages(system="S")


def _example(example_id: str = "a", **changes: Any) -> Example:
    fields: dict[str, Any] = {
        "id": example_id,
        "task": "tool_call",
        "split": "train",
        "messages": HEARD,
        "audio": {"mc": "mc.wav", "beam": "beam.wav"},
        "target": "[Mute]",
        "metadata": {"dialect": "vgbench", "note": "naïve"},
    }
    return Example(**{**fields, **changes})


def test_round_trip(tmp_path: Path) -> None:
    rows = [
        _example("a"),
        _example("b", audio={"mixture": {"segments": []}}),
        _example("c", audio=None, messages=build_messages(system="S", user="hi")),
    ]
    path = tmp_path / "deep" / "train.jsonl"
    assert write_manifest(path, rows) == 3
    assert read_manifest(path) == rows
    assert rows[0].dialect == "vgbench"
    assert [file.name for file in path.parent.iterdir()] == ["train.jsonl"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 3: Expecting property name"),
        ("[]", "line 3: wanted an object, found list"),
        ('{"id": "x"}', r"line 3: .*missing fields \['task'"),
        (json.dumps({**_example("x").to_dict(), "tsk": 1}), r"line 3: unknown fields \['tsk'\]"),
        (json.dumps({**_example("x").to_dict(), "id": 7}), "line 3: id is 7"),
        (json.dumps({**_example("x").to_dict(), "target": None}), "line 3: target is None"),
        (json.dumps({**_example("x").to_dict(), "audio": None}), "line 3: messages and audio disagree"),
        (json.dumps({**_example("x").to_dict(), "audio": {"wav": "a"}}), r"line 3: audio has keys \['wav'\]"),
        (json.dumps({**_example("x").to_dict(), "messages": []}), "line 3: messages is empty"),
        (json.dumps({**_example("x").to_dict(), "messages": HEARD + HEARD}), "line 3: messages has 2 turns of sound"),
        (json.dumps(_example("a").to_dict()), "line 3: id 'a' stands on line 1 already"),
        ("[" * 100_000, "line 3: "),
    ],
)
def test_bad_line_is_numbered(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "m.jsonl"
    path.write_text(json.dumps(_example("a").to_dict()) + "\n\n" + line + "\n")
    with pytest.raises(ValueError, match=message) as error:
        read_manifest(path)
    assert str(path) in str(error.value)


def test_bad_bytes_and_missing_file(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    path.write_bytes(b'{"id": "\xff"}\n')
    with pytest.raises(ValueError, match=r"line 1: .*utf-8"):
        read_manifest(path)
    with pytest.raises(ValueError, match="no manifest at"):
        read_manifest(tmp_path / "none.jsonl")


@pytest.mark.parametrize(
    ("message", "wanted"),
    [
        ({"role": "wearer", "content": "x"}, "role is 'wearer'"),
        ({"role": "user", "content": [{"type": "image"}]}, "wanted text or"),
        ({"role": "assistant", "content": "x"}, "belongs into target"),
        ({"content": "x"}, "wanted role and content"),
    ],
)
def test_bad_messages(message: dict[str, Any], wanted: str) -> None:
    with pytest.raises(ValueError, match=wanted):
        _example(messages=[*HEARD, message])


def test_write_is_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    write_manifest(path, [_example("a")])
    with pytest.raises(ValueError, match="id 'b' is given twice"):
        write_manifest(path, [_example("b"), _example("b")])
    assert [row.id for row in read_manifest(path)] == ["a"]
    assert [file.name for file in tmp_path.iterdir()] == ["m.jsonl"]


def test_load_audio(tmp_path: Path) -> None:
    audio_MN = torch.randn(5, 800) * 0.1
    write_audio(tmp_path / "mc.wav", audio_MN, subtype="FLOAT")
    write_audio(tmp_path / "beam.wav", audio_MN[:1], subtype="FLOAT")
    clip = load_audio(_example(), tmp_path, channels=5)
    assert clip is not None and clip.beam_N is not None
    assert torch.equal(clip.audio_MN, audio_MN) and torch.equal(clip.beam_N, audio_MN[0])
    assert load_audio(_example(audio={"mc": "mc.wav"}), tmp_path).beam_N is None  # type: ignore[union-attr]
    text = _example(audio=None, messages=build_messages(system="S", user="hi"))
    assert load_audio(text, tmp_path) is None
    with pytest.raises(AudioError, match="found 5 channels, wanted 4"):
        load_audio(_example(), tmp_path, channels=4)
    write_audio(tmp_path / "beam.wav", audio_MN[:1, :700], subtype="FLOAT")
    with pytest.raises(ValueError, match=r"700 samples, mc\.wav 800"):
        load_audio(_example(), tmp_path)
    with pytest.raises(ValueError, match="no renderer was given"):
        load_audio(_example(audio={"mixture": {}}), tmp_path)


def test_renderer_gets_the_examples_own_seed(tmp_path: Path) -> None:
    seen: list[int] = []
    example = _example("z", audio={"mixture": {"k": 1}})

    def renderer(recipe: Any, seed: int) -> torch.Tensor:
        seen.append(seed)
        return torch.zeros(5, 10) + recipe["k"]

    load_audio(example, tmp_path, renderer)
    load_audio(example, tmp_path, renderer, seed=5)
    assert seen == [example_seed("z"), 5]


def test_seeds_differ_in_every_part() -> None:
    seeds = {
        example_seed("a"),
        example_seed("b"),
        example_seed("a", epoch=1),
        example_seed("a", repeat=1),
        example_seed("a", seed=1),
    }
    assert len(seeds) == 5 and all(0 <= seed < 2**63 for seed in seeds)
    assert example_seed("a", epoch=1) == example_seed("a", epoch=1)


def test_audio_content_is_not_shared() -> None:
    audio_content()[0]["type"] = "text"
    assert audio_content() == [{"type": "audio"}]
