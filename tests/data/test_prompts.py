"""Prompts: one hash of all that is in effect, replacement by file, and WearVox's tool shape."""

from pathlib import Path

import pytest

from wearllama.data.prompts import (
    audio_content,
    build_messages,
    has_audio,
    load_prompts,
    messages_from_text_prompt,
    prompt_hash,
)
from wearllama.data.tools import CONSEQUENTIAL_TOOLS, TOOLS, WEARVOX_TOOLS, get_tools


def test_tools_are_the_published_ones() -> None:
    assert [spec.name for spec in WEARVOX_TOOLS] == [
        "web_search",
        "media_control",
        "calendar_lookup",
        "reminder_lookup",
        "weather",
        "sports",
        "stock",
        "local_search",
    ]
    assert [len(spec.parameters) for spec in WEARVOX_TOOLS] == [1, 22, 5, 4, 5, 7, 5, 12]
    assert {spec.name for spec in WEARVOX_TOOLS if not spec.required} == {"calendar_lookup", "reminder_lookup"}
    assert len(CONSEQUENTIAL_TOOLS) == 10 and len(TOOLS) == 18
    argument = TOOLS["weather"].to_dict()["parameters"]["search_query"]
    assert argument["type"] == "string" and argument["required"] is True
    assert set(TOOLS["send_money"].to_dict("vgbench")) == {"name", "description", "params"}
    with pytest.raises(ValueError, match=r"unknown tools \['wether'\]"):
        get_tools(["wether"])


@pytest.mark.parametrize(("kind", "tools"), [("wearvox", WEARVOX_TOOLS), ("vgbench", CONSEQUENTIAL_TOOLS)])
def test_styles(kind: str, tools: tuple) -> None:
    compact = load_prompts(style="compact").system(kind, tools)
    full = load_prompts(style="full").system(kind, tools, info="Monday")
    assert all(spec.name in compact and spec.name in full for spec in tools)
    assert len(compact.split()) <= 20
    assert "[Mute]" in compact and "[Mute]" in full and full.endswith("Info: Monday")
    assert tools[0].parameters[0].description in full


def test_file_replaces_and_changes_the_hash(tmp_path: Path) -> None:
    file = tmp_path / "prompts.yaml"
    file.write_text("wearvox: 'Mine {tools} {{x}}'\n")
    ours, theirs = load_prompts(), load_prompts(file)
    assert theirs.system("wearvox", get_tools(["weather"])).startswith("Mine [{")
    assert theirs.system("wearvox").endswith("{x}")
    assert theirs.system("vgbench") == ours.system("vgbench")
    hashes = {ours.prompt_hash(), theirs.prompt_hash(), load_prompts(style="compact").prompt_hash(), prompt_hash()}
    assert len(hashes) == 4 and prompt_hash(ours) == ours.prompt_hash()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("wearvx: hi", r"unknown prompt \['wearvx'\]"),
        ("wearvox: '{tool}'", "wearvox cannot be filled in"),
        ("wearvox: 'a {'", "literal brace is written twice"),
        ("wearvox: 3", "wearvox is int, wanted text"),
        ("- a", "wanted a mapping"),
        ("a: [", "no YAML"),
    ],
)
def test_bad_file(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "prompts.yaml"
    file.write_text(text)
    with pytest.raises(ValueError, match=message) as error:
        load_prompts(file)
    assert "prompts.yaml" in str(error.value)


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no prompts file at"):
        load_prompts(tmp_path / "none.yaml")


def test_messages() -> None:
    heard = build_messages(system="S", history=[{"role": "user", "content": "hi"}], reference="R")
    assert [message["content"] for message in heard] == ["S", "hi", "R", audio_content()]
    assert has_audio(heard) and not has_audio(build_messages(system="S", user="hi"))
    assert messages_from_text_prompt("S") == build_messages(system="S")
    turns = [{"role": "system", "content": "S"}, {"role": "user", "content": audio_content()}]
    assert messages_from_text_prompt(turns) == turns == messages_from_text_prompt(turns[:1])
    with pytest.raises(ValueError, match=r"text_prompt\[0\]"):
        messages_from_text_prompt([{"role": "system"}])
