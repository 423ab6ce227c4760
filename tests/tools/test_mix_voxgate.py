"""tools/mix_voxgate.py: every part of the mixture is in it, paths are below the root, foreign rows are refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from wearllama.data.manifest import Example, read_manifest, write_manifest


def row(name: str, task: str, audio: dict[str, Any] | None, **metadata: Any) -> Example:
    turn = {"role": "user", "content": [{"type": "audio"}]} if audio else {"role": "user", "content": "Hello"}
    return Example(id=name, task=task, split="train", messages=[turn], target="[Mute]", audio=audio, metadata=metadata)


def mixture(file: str) -> dict[str, Any]:
    return {"mixture": {"segments": [{"file": file, "source": "wearer"}]}}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    heard = {"mc": "wav/a.wav", "beam": None}
    pairs = [row(f"p{n}-{side}", "speaker_switch", heard, group=f"p{n}", side=side)
             for n in range(4) for side in ("switch", "same_speaker")]  # fmt: skip
    write_manifest(tmp_path / "vgbench" / "train.jsonl", [*pairs, row("self", "self_talk", heard)])
    for cue in ("balanced", "random_gaps"):
        write_manifest(
            tmp_path / "vgbench" / f"cues-{cue}.jsonl",
            [row(f"{cue}-{p.id}", p.task, heard, **p.metadata) for p in pairs],
        )
    tools = [row(f"tool{n}", "tool_call", mixture("speech/b.flac")) for n in range(10)]
    write_manifest(tmp_path / "demo" / "train.jsonl", [*tools, row("reading", "asr", mixture("speech/c.flac"))])
    translations = [row(f"tr{n}", "live_translation", mixture("clips/d.flac")) for n in range(6)]
    write_manifest(tmp_path / "translations" / "train.jsonl", translations)
    return tmp_path


@pytest.fixture
def mix(load_script, root: Path):
    tool = load_script("tools", "mix_voxgate")

    def run(**settings: Any) -> dict[str, list[Example]]:
        config = tool.MixVoxGate(
            root=str(root), vgbench=str(root / "vgbench"), wearvox=str(root / "demo" / "train.jsonl"),
            out=str(root / "voxgate"), **settings,
        )  # fmt: skip
        tool.main.__wrapped__(config)
        return {path.stem: read_manifest(path) for path in (root / "voxgate").glob("*.jsonl")}

    return run


def test_every_part_is_there_and_its_paths_hold(mix, root: Path) -> None:
    mixed = mix(wearvox_rows=5, translations=str(root / "translations" / "train.jsonl"), translation_rows=3)
    assert set(mixed) == {"sft", "cue_balanced", "random_gaps", "grpo"}
    for rows in mixed.values():
        kinds = [example.task for example in rows]
        assert {kind: kinds.count(kind) for kind in kinds} == {
            "speaker_switch": 8, "self_talk": 1, "tool_call": 5, "live_translation": 3,
        }  # fmt: skip
        told = json.dumps([example.audio for example in rows])
        assert {"vgbench/wav/a.wav", "demo/speech/b.flac", "translations/clips/d.flac"} <= set(told.split('"'))
    assert {e.id for e in mixed["cue_balanced"]} & {e.id for e in mixed["sft"]} == {
        "self", *(e.id for e in mixed["sft"] if e.task in ("tool_call", "live_translation"))
    }  # fmt: skip


def test_fewer_muted_sides(mix) -> None:
    sides = [example.metadata.get("side") for example in mix(mute_share=0.25)["sft"]]
    assert sides.count("switch") == 1 and sides.count("same_speaker") == 4


def test_foreign_rows_and_bad_shares_are_refused(mix, root: Path) -> None:
    with pytest.raises(ValueError, match=r"train\.jsonl: rows of \['asr', 'tool_call'\], wanted 'live_translation'"):
        mix(translations=str(root / "demo" / "train.jsonl"))
    with pytest.raises(ValueError, match="mute_share is 2, wanted 0 to 1"):
        mix(mute_share=2)
    with pytest.raises(ValueError, match="translation_rows -1 is less than 0"):
        mix(translation_rows=-1)
